"""Relations inside one release: the same tokens must give the same logits however they are fed.

Every relation is a pair of ways to compute the same rows (relations.cases). Both ways run in the
cell's dtype. Where their bytes differ, both run again in float64 with everything promoted, which
separates rounding from a broken relation. The result has the form of RelationsSignal in
samebits/questions/relations/records.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch

from samebits_probe.model import choice, determinism, forks, small
from samebits_probe.model.choice import DoesNotApply
from samebits_probe.model.distance import broken, distance, gaps, pooled, precision, same_bytes
from samebits_probe.model.precision import Leaks, said_of
from samebits_probe.model.tensor import dtype_name
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line, raised
from samebits_probe.questions.relations import (
    embedded,
    generated,
    greedy,
    kernels,
    pictured,
    prefix,
    rope,
    rows,
    tokens,
)
from samebits_probe.questions.relations.cases import (
    RELATIONS,
    UNPLACED,
    Case,
    Relation,
    Span,
    lengths,
    longest,
)
from samebits_probe.questions.relations.ways import COPY_LIMIT, Subject, Walk, Way
from samebits_wire.jobs import Options

_TOP = 5
_SAMPLE_LENGTH = 64
_REPEATED_LENGTH = 40
"""Tokens of the prompt that tests whether the model repeats its results."""
_PLAIN_FORWARDS, _FLOAT64_FACTOR = 350, 3.0
"""Forwards of a decoder, and the cost factor of float64."""
_OF_PREFIX = frozenset({"paligemma", "colpali"})
"""Types of models whose prompt sees itself whole, as that of a prefix LM; what follows behind the cache does not."""
_OF_ORDER = frozenset({"cache", "cache object", "order"})
"""Needs of the relations that such a prompt breaks."""
_SEES_ITSELF = (
    "by design: every token of a prompt sees the whole prompt, and a split one is two prompts"
)
Facts = dict[str, Any]
T = TypeVar("T")


class RelationOptions(Options):
    """How the relations inside a cell are tested."""

    samples: int


OF_TOKENS = (prefix.RELATION, *greedy.RELATIONS)


def cost(size: int, dtype: torch.dtype, job_options: RelationOptions) -> tuple[float, float]:
    """Return the maximum cost of the relations: in plain forwards, and in multiples of the model.

    ``size`` is the bytes of its parameters. Memory holds the loaded model, which 4.x makes twice,
    and a copy of its state; for a small model also a float64 copy with a copy of its state.
    """
    copies = 2 * torch.float64.itemsize / dtype.itemsize if size <= COPY_LIMIT else 0.0
    forwards = _PLAIN_FORWARDS * (_FLOAT64_FACTOR if copies else 1.0)
    return forwards + 2 * int(job_options.get("samples") or 0), 3.0 + copies


def too_large(size: int, job_options: RelationOptions) -> str:
    """Return why the relations are not tried on a model of ``size`` bytes; '' if they are."""
    if size <= COPY_LIMIT or job_options.get("large"):
        return ""
    return (
        f"no float64 copy of {size / 2**30:.1f} GiB is made, and without it no relation can be "
        "called broken: set relations: true for the model to try the relations anyway"
    )


def observe(
    model: Any,
    head: str,
    config: Any,
    job_options: RelationOptions,
    prompts: Iterable[tuple[str, Facts]] = (),
    with_eager: Callable[[], Any] | None = None,
) -> Facts:
    """Try every relation on ``model``; ``job_options`` may request samples.

    A model that takes no tokens is tried with forward's arguments for ``prompts``. ``with_eager`` loads the model
    once more, with eager attention.
    """
    started = time.perf_counter()
    reason = _refuses_tokens(model)
    signal = _untried(reason)
    if not reason:
        try:
            signal = _try_all(Subject(model, head, config), job_options)
        except DoesNotApply as no_tokens:  # no token ids can be made
            reason = str(no_tokens)
            signal = _untried(reason)
    prompts = list(prompts)
    if reason:
        signal |= _relations_of_rows(model, prompts, reason)
    if prompts:
        _add(signal, embedded.observe(model, prompts))
        _add(signal, pictured.observe(model, prompts))
    padded = None if reason else generated.padded_text(model, config)
    if prompts or padded is not None:
        _add(signal, generated.observe(model, prompts, padded))
    if with_eager is not None:
        _add(signal, kernels.observe(model, prompts, with_eager))
    return signal | {"seconds": round(time.perf_counter() - started, 4)}


def _add(signal: Facts, answer: rows.Answer) -> None:
    signal["relations"] += answer.relations
    signal["inapplicable"] += answer.inapplicable
    signal["no_float64"] = signal["no_float64"] or answer.no_float64


def _relations_of_rows(model: Any, prompts: Iterable[tuple[str, Facts]], reason: str) -> Facts:
    answer = rows.observe(model, prompts)
    names = {relation["relation"] for relation in answer.relations}
    inapplicable = {skip["relation"]: skip for skip in _untried(reason)["inapplicable"]}
    inapplicable |= {skip["relation"]: skip for skip in answer.inapplicable}
    return {
        "relations": answer.relations,
        "inapplicable": [skip for name, skip in inapplicable.items() if name not in names],
        "no_float64": answer.no_float64,
    }


def _refuses_tokens(model: Any) -> str:
    """Return why forward cannot be called with token ids alone; '' if it may be."""
    main_input = getattr(model, "main_input_name", "input_ids")
    if main_input not in {"input_ids", "inputs_embeds"}:
        return f"the model takes {main_input}, not tokens"
    signature = choice.signature_of(model.forward)
    if not signature.takes(choice.TOKENS):
        return f"forward takes no {choice.TOKENS}, and relations are tried on token ids"
    fed = {choice.TOKENS, choice.DECODER, choice.MASK}
    needs = [p.name for p in signature.parameters if p.required and p.name not in fed]
    listed = ", ".join(needs)
    return f"forward needs {listed}, and relations are tried on token ids" if needs else ""


def of_made_model(
    made: small.Made, job_options: RelationOptions, with_eager: Callable[[], Any] | None = None
) -> Facts:
    """Try every relation on a made model; what would be of its weights only is left out."""
    options: RelationOptions = job_options | {"samples": 0}
    signal = observe(made.model, made.head, made.config, options, with_eager=with_eager)
    computed = [bits for bits in signal["precision"] if bits["what"] != "parameters"]
    return signal | {"precision": computed, "asked_of": made.facts}


def _try_all(subject: Subject, job_options: RelationOptions) -> Facts:
    try:
        if not _repeats(subject):
            return _untried(determinism.NOT_REPEATED)
        return _all_relations(subject, job_options)
    finally:
        subject.release()


def _all_relations(subject: Subject, job_options: RelationOptions) -> Facts:
    judge = Judge(subject)
    count = len(RELATIONS) + len(OF_TOKENS)
    for i, relation in enumerate(RELATIONS, 1):
        progress.tick(relation.name, i, count)
        with judge.refusing(relation.name):
            judge.relation(relation)
    for i, of_tokens in enumerate(OF_TOKENS, 1 + len(RELATIONS)):
        progress.tick(of_tokens.name, i, count)
        with judge.refusing(of_tokens.name):
            judge.of_tokens(of_tokens)
    progress.tick("precision")
    used_bits, no_precision = _precision(subject)
    return {
        "relations": judge.relations,
        "inapplicable": judge.inapplicable,
        "precision": used_bits,
        "no_precision": no_precision,
        "averages": judge.averages(int(job_options.get("samples") or 0)),
        "no_float64": judge.no_float64,
    }


def _repeats(subject: Subject) -> bool:
    """Return False if the plainest way, run twice, gives different bytes."""
    way = _plainest(subject)
    try:
        return determinism.repeats(lambda: subject.walk_anew(way).logits)
    except Exception:  # noqa: BLE001  each relation reports what the model refuses
        subject.settle()
        return True


def _plainest(subject: Subject) -> Way:
    return Way((subject.prompt("repeated", _REPEATED_LENGTH),), cached=False)


def _untried(reason: str) -> Facts:
    names = [relation.name for relation in (*RELATIONS, *OF_TOKENS)]
    return {
        "relations": [],
        "inapplicable": [{"relation": name, "reason": reason} for name in names],
        "precision": [],
        "no_precision": None,
        "averages": None,
        "no_float64": None,
    }


class Distances(NamedTuple):
    """Distances between the two ways of a case."""

    whole: Facts
    """Distance of the logits, or of the cache."""
    layers: Facts | None
    """Distance of all layers together; None if their bytes agree or were not compared."""

    @property
    def differs(self) -> bool:
        """True if any byte differs."""
        return bool(self.whole["n_differ"]) or self.layers is not None

    @property
    def decisive(self) -> Facts:
        """The distance that decides the case: the layers' only if the logits' bytes agree."""
        return self.layers if self.layers and not self.whole["n_differ"] else self.whole


class Measured(NamedTuple):
    """One case and the distances of its two ways, in the cell's dtype and in float64."""

    case: Case
    native: Distances
    promoted: Distances | None = None

    def broken(self, dtype: torch.dtype) -> bool:
        """Return True if the two ways compute different functions."""
        if self.promoted is None:
            return False
        by_layers = self.native.decisive is not self.native.whole
        in_float64 = self.promoted.layers if by_layers else self.promoted.whole
        return in_float64 is not None and broken(self.native.decisive, in_float64, dtype)


class Judge:
    """Tries relations on one model and keeps the results."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.relations: list[Facts] = []
        self.inapplicable: list[Facts] = []
        self._float64: Subject | None = None
        self.no_float64 = None if subject.small else "the model is too large to be copied"

    def relation(self, relation: Relation) -> None:
        """Try a relation at all its shapes, or record why it does not apply."""
        if reason := lacks(self.subject, relation.needs):
            self.skip(relation.name, reason)
            return
        if measured := list(self._measure_cases(relation)):
            decisive = self._decisive_case(relation, measured)
            self.relations.append(self._facts(relation, decisive, len(measured)))

    def of_tokens(self, relation: tokens.TokenRelation) -> None:
        """Try a relation of tokens at all its shapes, or record why it does not apply."""
        reason = lacks(self.subject, relation.needs) or relation.lacks(self.subject)
        if reason:
            self.skip(relation.name, reason)
            return
        attempts: list[tokens.Tried] = []
        for trial in relation.trials(self.subject):
            try:
                attempts += tokens.attempt(self.subject, trial, self.promoted)
            except Exception as error:  # noqa: BLE001, PERF203  refusing a shape is a fact
                self.subject.settle()
                self.refuse(relation.name, f"{trial.label}: {raised(error)}")
        if attempts:
            self.relations.append(tokens.facts(self.subject, relation.name, attempts))

    @contextmanager
    def refusing(self, name: str) -> Iterator[None]:
        """Record the exception of one relation, so that the others are still tried."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  refusing is a fact of the model
            self.subject.settle()
            self.refuse(name, raised(error))

    def skip(self, name: str, reason: str) -> None:
        """Record that a relation, or one of its shapes, could not be tried."""
        self.inapplicable.append({"relation": name, "reason": reason})

    def refuse(self, name: str, reason: str) -> None:
        """Record that a relation, or one of its shapes, raised."""
        self.inapplicable.append({"relation": name, "reason": reason, "raised": True})

    def _measure_cases(self, relation: Relation) -> Iterator[Measured]:
        refusals: dict[str, str] = {}
        for case in relation.cases(self.subject):
            try:
                yield Measured(case, case_distances(self.subject, case, of_cache=relation.of_cache))
            except Exception as error:  # noqa: BLE001, PERF203  refusing a shape is a fact
                self.subject.settle()
                # one shape represents all with the same message
                without_numbers = re.sub(r"\d+", "n", in_one_line(error))
                refusals.setdefault(without_numbers, f"{case.label}: {raised(error)}")
        for refusal in refusals.values():
            self.refuse(relation.name, refusal)

    def _decisive_case(self, relation: Relation, all_measured: list[Measured]) -> Measured:
        """Return the smallest shape that is broken in float64 too, else the worst.

        A shape that is broken by design represents the relation only if no other shape is broken.
        """
        worst = max(all_measured, key=lambda m: (m.native.whole["max_abs"], m.native.differs))
        by_design = None
        for measured in all_measured:
            if not measured.native.differs:
                continue
            in_float64 = self._with_float64(relation, measured)
            if in_float64.broken(self.subject.dtype):
                if not self._by_design(relation, in_float64.case):
                    return in_float64
                by_design = by_design or in_float64
            if measured.case is worst.case:
                worst = in_float64
        return by_design or worst

    def _with_float64(self, relation: Relation, measured: Measured) -> Measured:
        def look(subject: Subject) -> Distances:
            return case_distances(
                subject,
                measured.case,
                of_cache=relation.of_cache,
                layers=measured.native.layers is not None,
            )

        return measured._replace(promoted=self.promoted(look))

    def _note(self, relation: Relation, measured: Measured) -> str:
        if relation.name == UNPLACED and not measured.broken(self.subject.dtype):
            return ""
        return self._by_design(relation, measured.case) if measured.native.differs else ""

    def _by_design(self, relation: Relation, case: Case) -> str:
        if relation.name == UNPLACED:
            return "without positions, a class may count them from the first pad on"
        kind = getattr(self.subject.model.config, "model_type", "")
        if kind in _OF_PREFIX and not _OF_ORDER.isdisjoint(relation.needs):
            return _SEES_ITSELF
        return rope.of_ways(self.subject, case.first, case.second)

    def promoted(self, look: Callable[[Subject], T]) -> T | None:
        """Return the result of ``look`` on the model in float64; None if that is not possible."""
        if self.no_float64:
            return None
        try:
            if self._float64 is None:
                self._float64 = self.subject.in_float64()
                if self._chaotic(self._float64):
                    self.no_float64 = determinism.CHAOTIC
                    return None
                return self._checked_for_leaks(look, self._float64)
            return look(self._float64)
        except Exception as error:  # noqa: BLE001  an operation that refuses float64 is a fact
            self.no_float64 = in_one_line(error)
            return None

    @staticmethod
    def _chaotic(subject: Subject) -> bool:
        way = _plainest(subject)
        return determinism.chaotic(subject.model, lambda: subject.walk_anew(way).logits)

    def _checked_for_leaks(self, look: Callable[[Subject], T], subject: Subject) -> T | None:
        """Run ``look`` for the first time: any smaller float makes the comparison useless."""
        with Leaks() as watch:
            result = look(subject)
        self.no_float64 = said_of(watch.leaks) or None
        return None if self.no_float64 else result

    def _facts(self, relation: Relation, decisive: Measured, tried: int) -> Facts:
        case = decisive.case
        first, second = self.subject.walk(case.first), self.subject.walk(case.second)
        facts: Facts = {
            "relation": relation.name,
            "case": case.label,
            "holds": not decisive.native.differs,
            "distance": decisive.native.whole,
            "promoted": decisive.promoted.whole if decisive.promoted else None,
            "tried": tried,
            "note": self._note(relation, decisive),
        }
        if relation.of_cache:
            return facts | {"cache": cache_table(first, second)}
        facts["layers"] = layer_table(first, second, case)
        if decisive.promoted and self._float64:
            float64_layers = layer_table(
                self._float64.walk(case.first), self._float64.walk(case.second), case
            )
            float64_distances = {layer["name"]: layer["distance"] for layer in float64_layers}
            for layer in facts["layers"]:
                layer["promoted"] = float64_distances.get(layer["name"])
        return facts | _logit_differences(first, second, case)

    def averages(self, samples: int) -> Facts | None:
        """Return the means over prompts; None if there are none, with the reason recorded."""
        if samples <= 0 or lacks(self.subject, AVERAGED.needs):
            return None
        try:
            return averages(self.subject, samples)
        except Exception as error:  # noqa: BLE001  refusing is a fact of the model
            self.subject.settle()
            self.refuse(AVERAGED.name, f"{samples} samples: {in_one_line(error)}")
            return None


AVERAGED = RELATIONS[0]


def lacks(subject: Subject, needs: tuple[str, ...]) -> str | None:
    """Return why a relation does not apply to a model; None if it does."""
    kind = type(subject.model).__name__
    missing = {
        "decoder": None if subject.decodes else f"{kind} does not predict the next token",
        "decoder only": None
        if subject.decodes and not subject.encoder_decoder
        else f"{kind} counts its encoder's positions from the left",
        "order": f"without a perm_mask, {kind} reads later tokens too"
        if forks.accepts(subject.model, "perm_mask")
        else None,
        "cache": None if subject.keyword is not None else f"{kind} has no cache",
        "cache object": None if subject.keyword else f"{kind} has no cache outside its modules",
        "mask": None
        if forks.accepts(subject.model, "attention_mask")
        else f"{kind} takes no attention mask",
    }
    return next((missing[need] for need in needs if missing[need]), None)


def case_distances(
    subject: Subject, case: Case, *, of_cache: bool = False, layers: bool | None = None
) -> Distances:
    """Return the distances of a case's two ways: of all that must agree, or of the cache.

    If ``layers`` is None, layers are compared only where the bytes of the logits agree.
    """
    first, second = subject.walk(case.first), subject.walk(case.second)
    if of_cache:
        return Distances(pooled(cache_pairs(first, second).values()), None)
    whole = distance(*_rows(first.logits, second.logits, case), logits=True)
    if not (layers if layers is not None else not whole["n_differ"]):
        return Distances(whole, None)
    pairs = layer_pairs(first, second, case).values()
    return Distances(whole, pooled(pairs) if any(not same_bytes(*pair) for pair in pairs) else None)


def _rows(
    first: torch.Tensor, second: torch.Tensor, case: Case
) -> tuple[torch.Tensor, torch.Tensor]:
    return _rows_of_spans(first, case.spans), _rows_of_spans(
        second, case.second_spans or case.spans
    )


def _rows_of_spans(tensor: torch.Tensor, spans: tuple[Span, ...]) -> torch.Tensor:
    return torch.cat([tensor[row, start:stop] for row, start, stop in spans])


def layer_pairs(
    first: Walk, second: Walk, case: Case
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return each layer's outputs at the rows that must agree."""
    names = [name for name in first.layers if name in second.layers]
    return {name: _rows(first.layers[name], second.layers[name], case) for name in names}


def layer_table(first: Walk, second: Walk, case: Case) -> list[Facts]:
    """Return the distance of every layer."""
    pairs = layer_pairs(first, second, case)
    return [{"name": name, "distance": distance(*pair)} for name, pair in pairs.items()]


def cache_pairs(first: Walk, second: Walk) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return the tensors of both caches by name, cut to the tokens that both hold."""
    second_tensors = dict(second.cache)
    pairs = {
        name: _common_tokens(t, second_tensors[name])
        for name, t in first.cache
        if name in second_tensors
    }
    if not pairs:
        raise LookupError("forward gave no cache whose contents can be read")
    return pairs


def _common_tokens(first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut the token axis to the last tokens of both: a sliding layer may first keep more."""
    if (
        first.ndim < 2
        or first.shape[:-2] != second.shape[:-2]
        or first.shape[-1] != second.shape[-1]
    ):
        return first, second
    n = min(first.shape[-2], second.shape[-2])
    return first[..., first.shape[-2] - n :, :], second[..., second.shape[-2] - n :, :]


def cache_table(first: Walk, second: Walk) -> list[Facts]:
    """Return the distance of every tensor of the cache."""
    return [
        {"name": name, "shape": list(pair[0].shape), "distance": distance(*pair)}
        for name, pair in cache_pairs(first, second).items()
    ]


def _logit_differences(first: Walk, second: Walk, case: Case) -> Facts:
    """Return the largest difference at each position, and the largest of all with tokens."""
    first_logits, second_logits = _rows(first.logits, second.logits, case)
    if first_logits.shape != second_logits.shape or first_logits.ndim != 2:
        return {}
    table = gaps(first_logits, second_logits).reshape(first_logits.shape)
    largest = torch.topk(table.reshape(-1), min(_TOP, table.numel()))
    top = []
    for value, index in zip(largest.values.tolist(), largest.indices.tolist(), strict=True):
        row, token = divmod(int(index), first_logits.shape[1])
        pair = {"one": float(first_logits[row, token]), "other": float(second_logits[row, token])}
        if value:
            top.append({"position": _position(case, row), "token": token, **pair})
    return {"positions": table.amax(-1).tolist(), "top": top}


def _position(case: Case, row: int) -> int:
    """Return the position in its prompt of the compared row ``row``."""
    for _, start, stop in case.spans:
        if row < stop - start:
            return start + row
        row -= stop - start
    raise AssertionError(row)


def _precision(subject: Subject) -> tuple[list[Facts], str | None]:
    """Return the bits that values use, and why those of a forward are unknown, if they are."""
    used_bits = precision("parameters", subject.model.parameters(), each=False)
    way = Way((subject.prompt("precision", lengths(subject)[0]),), cached=False)
    try:
        walk = subject.walk(way)
    except Exception as error:  # noqa: BLE001  refusing is a fact of the model
        subject.settle()
        return used_bits, in_one_line(error)
    layers = [tensor for name, tensor in walk.layers.items() if name != "embeddings"]
    used_bits += precision("activations", layers, each=True)
    return used_bits + precision("logits", [walk.logits], each=False), None


def averages(subject: Subject, samples: int) -> Facts:
    """Return the means over prompts of each layer's largest difference at the last token.

    The table of https://github.com/huggingface/transformers/issues/25420: 64 tokens at once
    against 63 and one through the cache.
    """
    n = min(_SAMPLE_LENGTH, longest(subject))
    sums: dict[str, float] = {}
    for sample in range(samples):
        progress.tick("samples", sample + 1, samples)
        full = Way((subject.prompt(f"sample {sample}", n),), cached=False)
        case = Case("", full, full._replace(cached=True, cuts=(n - 1,)), ((0, n - 1, n),))
        for name, value in _maxima(subject, case).items():
            sums[name] = sums.get(name, 0.0) + value
    means = {name: total / samples for name, total in sums.items()}
    return {"samples": samples, "dtype": dtype_name(subject.dtype), "layers": means}


def _maxima(subject: Subject, case: Case) -> dict[str, float]:
    first, second = subject.walk(case.first, keep=False), subject.walk(case.second, keep=False)
    pairs = layer_pairs(first, second, case) | {"logits": _rows(first.logits, second.logits, case)}
    return {name: float(gaps(*pair).max()) for name, pair in pairs.items()}
