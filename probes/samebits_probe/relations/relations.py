"""Does a model give the same answer however its tokens are fed, inside one release.

Every relation is two ways to compute the same rows (relations.cases). Both are walked in
the cell's dtype; where their bytes differ, both are walked again in float64 with everything
promoted, so that rounding and a broken relation can be told apart. What comes back has the
form of samebits/records/relations.py's InvariantsSignal.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from samebits_probe.model import forks, steady
from samebits_probe.model import precision as model_precision
from samebits_probe.model.choice import DoesNotApply
from samebits_probe.model.distance import broken, distance, gaps, pooled, precision, same_bytes
from samebits_probe.model.tensor import dtype_name
from samebits_probe.process import progress
from samebits_probe.process.failure import without_folders
from samebits_probe.relations import greedy, prefix, rope, tokens
from samebits_probe.relations.cases import RELATIONS, Case, Relation, Span, lengths, longest
from samebits_probe.relations.ways import COPY_LIMIT, Subject, Walk, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TOP = 5
_SAMPLE_LENGTH = 64
_REPEATED = 40
"""Tokens of the prompt on which it is tried whether a model can be judged at all."""
_REASON_LENGTH = 200
_FORWARDS, _PROMOTED, _SWEPT = 350, 3.0, 8.0
"""Forwards of a decoder; what float64 makes of them, in plain ones; and with every shape tried."""
Facts = dict[str, Any]
T = TypeVar("T")

OF_TOKENS = (prefix.RELATION, *greedy.RELATIONS)


def cost(size: int, dtype: torch.dtype, job_options: dict[str, Any]) -> tuple[float, float]:
    """Return what the relations take at most: in plain forwards, and in bytes of the model's own.

    ``size`` are the bytes of its parameters. Beside the model that is loaded for it, 4.x making it
    twice, there is a copy of its state; of one that is small a copy in float64 with a copy of its
    state, too.
    """
    copies = 2 * torch.float64.itemsize / dtype.itemsize if size <= COPY_LIMIT else 0.0
    forwards = _FORWARDS * (_PROMOTED if copies else 1.0)
    if job_options.get("sweep"):
        forwards *= _SWEPT
    return forwards + 2 * int(job_options.get("samples") or 0), 3.0 + copies


def too_large(size: int, job_options: dict[str, Any]) -> str:
    """Return why the relations are not tried on a model of so many bytes; '' if they are."""
    if size <= COPY_LIMIT or job_options.get("large"):
        return ""
    return (
        f"of {size / 2**30:.1f} GiB no copy in float64 is made, without which no relation can be called "
        "broken: write invariants: true at the model to try them all the same"
    )


def invariants(model: Any, head: str, config: Any, job_options: dict[str, Any]) -> Facts:
    """Return every relation tried on ``model``; ``job_options`` may ask for sweep and samples."""
    started = time.perf_counter()
    main = getattr(model, "main_input_name", "input_ids")
    if main in {"input_ids", "inputs_embeds"}:
        try:
            found = _tried(Subject(model, head, config), job_options)
        except DoesNotApply as reason:  # no token ids can be made
            found = _nothing(str(reason))
    else:
        found = _nothing(f"the model takes {main}, not tokens")
    return found | {"seconds": round(time.perf_counter() - started, 4)}


def _tried(subject: Subject, job_options: dict[str, Any]) -> Facts:
    try:
        if not _repeats(subject):
            return _nothing(steady.NOT_REPEATED)
        return _found(subject, job_options)
    finally:
        subject.release()


def _found(subject: Subject, job_options: dict[str, Any]) -> Facts:
    judge = Judge(subject)
    count = len(RELATIONS) + len(OF_TOKENS)
    for i, relation in enumerate(RELATIONS, 1):
        progress.tick(relation.name, i, count)
        with judge.refusing(relation.name):
            judge.relation(relation, sweep=bool(job_options.get("sweep")))
    for i, of_tokens in enumerate(OF_TOKENS, 1 + len(RELATIONS)):
        progress.tick(of_tokens.name, i, count)
        with judge.refusing(of_tokens.name):
            judge.of_tokens(of_tokens)
    progress.tick("precision")
    found, no_precision = _precision(subject)
    return {
        "relations": judge.relations,
        "inapplicable": judge.inapplicable,
        "precision": found,
        "no_precision": no_precision,
        "averages": judge.averages(int(job_options.get("samples") or 0)),
        "no_float64": judge.no_float64,
    }


def _repeats(subject: Subject) -> bool:
    """Return False if the plainest of all ways, walked twice, gives other bytes."""
    way = _plainest(subject)
    try:
        return steady.repeats(lambda: subject.walk_anew(way).logits)
    except Exception:  # noqa: BLE001  each relation says what the model refuses
        subject.settle()
        return True


def _plainest(subject: Subject) -> Way:
    return Way((subject.prompt("repeated", _REPEATED),), cached=False)


def _nothing(reason: str) -> Facts:
    names = [relation.name for relation in (*RELATIONS, *OF_TOKENS)]
    return {
        "relations": [],
        "inapplicable": [{"relation": name, "reason": reason} for name in names],
        "precision": [],
        "no_precision": None,
        "averages": None,
        "no_float64": None,
    }


class Apart(NamedTuple):
    """How far the two ways of a case are apart."""

    whole: Facts
    """Of the logits, or of the cache."""
    layers: Facts | None
    """Of all layers together; None where they agree to the byte, or were not looked at."""

    @property
    def differs(self) -> bool:
        """True if any byte differs."""
        return bool(self.whole["n_differ"]) or self.layers is not None

    @property
    def told(self) -> Facts:
        """What the case is judged by: the layers only where the logits agree to the byte."""
        return self.layers if self.layers and not self.whole["n_differ"] else self.whole


class Measured(NamedTuple):
    """One case and how far its two ways are apart, in the cell's dtype and in float64."""

    case: Case
    own: Apart
    promoted: Apart | None = None

    def broken(self, dtype: torch.dtype) -> bool:
        """Return True if the two ways compute different functions."""
        if self.promoted is None:
            return False
        by_layers = self.own.told is not self.own.whole
        finer = self.promoted.layers if by_layers else self.promoted.whole
        return finer is not None and broken(self.own.told, finer, dtype)


class Judge:
    """Tries relations on one model and keeps what was found."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.relations: list[Facts] = []
        self.inapplicable: list[Facts] = []
        self._float64: Subject | None = None
        self.no_float64 = None if subject.small else "the model is too large to be copied"

    def relation(self, relation: Relation, *, sweep: bool) -> None:
        """Try a relation at all its shapes, or say why it has no meaning here."""
        reason = lacks(self.subject, relation.needs)
        if reason:
            self.skip(relation.name, reason)
            return
        tried = list(self._tried(relation, sweep=sweep))
        if tried:
            shown = self._shown(relation, tried)
            self.relations.append(self._facts(relation, shown, len(tried)))

    def of_tokens(self, relation: tokens.TokenRelation) -> None:
        """Try a relation of tokens at all its shapes, or say why it has no meaning here."""
        reason = lacks(self.subject, relation.needs) or relation.lacks(self.subject)
        if reason:
            self.skip(relation.name, reason)
            return
        tried: list[tokens.Tried] = []
        for trial in relation.trials(self.subject):
            try:
                tried += tokens.attempt(self.subject, trial, self.promoted)
            except Exception as error:  # noqa: BLE001, PERF203  refusing a shape is a fact
                self.subject.settle()
                self.skip(relation.name, f"{trial.label}: {_said(error)}")
        if tried:
            self.relations.append(tokens.facts(self.subject, relation.name, tried))

    @contextmanager
    def refusing(self, name: str) -> Iterator[None]:
        """Keep what one relation raises from the others."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  refusing is a fact of the model
            self.subject.settle()
            self.skip(name, _said(error))

    def skip(self, name: str, reason: str) -> None:
        """Note that a relation, or one of its shapes, could not be tried."""
        self.inapplicable.append({"relation": name, "reason": reason})

    def _tried(self, relation: Relation, *, sweep: bool) -> Iterator[Measured]:
        refusals: dict[str, str] = {}
        for case in relation.cases(self.subject, sweep):
            try:
                yield Measured(case, apart(self.subject, case, of_cache=relation.of_cache))
            except Exception as error:  # noqa: BLE001, PERF203  refusing a shape is a fact
                self.subject.settle()
                refusals.setdefault(_shape_free(_said(error)), f"{case.label}: {_said(error)}")
        for said in refusals.values():
            self.skip(relation.name, said)

    def _shown(self, relation: Relation, tried: list[Measured]) -> Measured:
        """Return the smallest shape that is broken in float64, too, else the worst.

        One that is broken by design stands for the relation only if no other is.
        """
        worst = max(tried, key=lambda m: (m.own.whole["max_abs"], m.own.differs))
        by_design = None
        for measured in tried:
            if not measured.own.differs:
                continue
            finer = self._finer(relation, measured)
            if finer.broken(self.subject.dtype):
                if not self._note(finer.case):
                    return finer
                by_design = by_design or finer
            if measured.case is worst.case:
                worst = finer
        return by_design or worst

    def _finer(self, relation: Relation, measured: Measured) -> Measured:
        def look(subject: Subject) -> Apart:
            return apart(
                subject,
                measured.case,
                of_cache=relation.of_cache,
                layers=measured.own.layers is not None,
            )

        return measured._replace(promoted=self.promoted(look))

    def _note(self, case: Case) -> str:
        return rope.of_ways(self.subject, case.one, case.other)

    def promoted(self, look: Callable[[Subject], T]) -> T | None:
        """Return what ``look`` finds on the model in float64; None where that cannot be."""
        if self.no_float64:
            return None
        try:
            if self._float64 is None:
                self._float64 = self.subject.in_float64()
                if self._chaotic(self._float64):
                    self.no_float64 = steady.CHAOTIC
                    return None
                return self._first(look, self._float64)
            return look(self._float64)
        except Exception as error:  # noqa: BLE001  an operation that refuses float64 is a fact
            self.no_float64 = _said(error)
            return None

    @staticmethod
    def _chaotic(subject: Subject) -> bool:
        way = _plainest(subject)
        return steady.chaotic(subject.model, lambda: subject.walk_anew(way).logits)

    def _first(self, look: Callable[[Subject], T], subject: Subject) -> T | None:
        """Look for the first time: any smaller float that comes up spoils the comparison."""
        with model_precision.Leaks() as watch:
            result = look(subject)
        if watch.leaks:
            self.no_float64 = f"less than float64 comes out of {', '.join(sorted(watch.leaks))}"
            return None
        return result

    def _facts(self, relation: Relation, shown: Measured, tried: int) -> Facts:
        case = shown.case
        one, other = self.subject.walk(case.one), self.subject.walk(case.other)
        facts: Facts = {
            "relation": relation.name,
            "case": case.label,
            "holds": not shown.own.differs,
            "distance": shown.own.whole,
            "promoted": shown.promoted.whole if shown.promoted else None,
            "tried": tried,
            "note": self._note(case) if shown.own.differs else "",
        }
        if relation.of_cache:
            return facts | {"cache": cache_table(one, other)}
        facts["layers"] = layer_table(one, other, case)
        if shown.promoted and self._float64:
            finer = layer_table(self._float64.walk(case.one), self._float64.walk(case.other), case)
            sizes = {layer["name"]: layer["distance"] for layer in finer}
            for layer in facts["layers"]:
                layer["promoted"] = sizes.get(layer["name"])
        return facts | _of_logits(one, other, case)

    def averages(self, samples: int) -> Facts | None:
        """Return the means over prompts, or say why the model cannot decode one."""
        if samples <= 0 or lacks(self.subject, AVERAGED.needs):
            return None
        try:
            return averages(self.subject, samples)
        except Exception as error:  # noqa: BLE001  refusing is a fact of the model
            self.subject.settle()
            self.skip(AVERAGED.name, f"{samples} samples: {_said(error)}")
            return None


AVERAGED = RELATIONS[0]


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {without_folders(text)}"[:_REASON_LENGTH]


def _shape_free(said: str) -> str:
    """Return what was said without its numbers: one shape stands for all that say it."""
    return re.sub(r"\d+", "n", said)


def lacks(subject: Subject, needs: tuple[str, ...]) -> str | None:
    """Return why a relation has no meaning for a model; None if it has one."""
    kind = type(subject.model).__name__
    missing = {
        "decoder": None if subject.decodes else f"{kind} does not predict the next token",
        "decoder only": None
        if subject.decodes and not subject.encoder_decoder
        else f"{kind} counts its encoder's positions from the left",
        "cache": None if subject.keyword is not None else f"{kind} has no cache",
        "cache object": None if subject.keyword else f"{kind} has no cache outside its modules",
        "mask": None if _takes_mask(subject) else f"{kind} takes no attention mask",
    }
    return next((missing[need] for need in needs if missing[need]), None)


def _takes_mask(subject: Subject) -> bool:
    return forks.accepts(subject.model, "attention_mask")


def apart(
    subject: Subject, case: Case, *, of_cache: bool = False, layers: bool | None = None
) -> Apart:
    """Return the distance of a case's two ways: of all that must agree, or of the cache.

    Unless it is said whether to look at layers, they are where the logits agree to the byte.
    """
    one, other = subject.walk(case.one), subject.walk(case.other)
    if of_cache:
        return Apart(pooled(cache_pairs(one, other).values()), None)
    whole = distance(*_rows(one.logits, other.logits, case), logits=True)
    if not (layers if layers is not None else not whole["n_differ"]):
        return Apart(whole, None)
    pairs = layer_pairs(one, other, case).values()
    differ = any(not same_bytes(*pair) for pair in pairs)
    return Apart(whole, pooled(pairs) if differ else None)


def _rows(one: torch.Tensor, other: torch.Tensor, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    return _picked(one, case.spans), _picked(other, case.other_spans or case.spans)


def _picked(tensor: torch.Tensor, spans: tuple[Span, ...]) -> torch.Tensor:
    return torch.cat([tensor[row, start:stop] for row, start, stop in spans])


def layer_pairs(one: Walk, other: Walk, case: Case) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return each layer's outputs at the rows that must agree."""
    names = [name for name in one.layers if name in other.layers]
    return {name: _rows(one.layers[name], other.layers[name], case) for name in names}


def layer_table(one: Walk, other: Walk, case: Case) -> list[Facts]:
    """Return the distance of every layer."""
    pairs = layer_pairs(one, other, case)
    return [{"name": name, "distance": distance(*pair)} for name, pair in pairs.items()]


def cache_pairs(one: Walk, other: Walk) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return the tensors of both caches by name, cut to the tokens that both still hold."""
    held = dict(other.cache)
    found = {name: _common(t, held[name]) for name, t in one.cache if name in held}
    if not found:
        msg = "forward gave no cache whose contents can be read"
        raise LookupError(msg)
    return found


def _common(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut the token axis to the last that both hold: a sliding layer may keep more at first."""
    if one.ndim < 2 or one.shape[:-2] != other.shape[:-2] or one.shape[-1] != other.shape[-1]:
        return one, other
    n = min(one.shape[-2], other.shape[-2])
    return one[..., one.shape[-2] - n :, :], other[..., other.shape[-2] - n :, :]


def cache_table(one: Walk, other: Walk) -> list[Facts]:
    """Return the distance of every tensor of the cache."""
    return [
        {"name": name, "shape": list(pair[0].shape), "distance": distance(*pair)}
        for name, pair in cache_pairs(one, other).items()
    ]


def _of_logits(one: Walk, other: Walk, case: Case) -> Facts:
    """Return the largest difference at each position, and the largest of all with its token."""
    first, second = _rows(one.logits, other.logits, case)
    if first.shape != second.shape or first.ndim != 2:
        return {}
    table = gaps(first, second).reshape(first.shape)
    largest = torch.topk(table.reshape(-1), min(_TOP, table.numel()))
    top = []
    for value, index in zip(largest.values.tolist(), largest.indices.tolist(), strict=True):
        row, token = divmod(int(index), first.shape[1])
        pair = {"one": float(first[row, token]), "other": float(second[row, token])}
        if value:
            top.append({"position": _position(case, row), "token": token, **pair})
    return {"positions": table.amax(-1).tolist(), "top": top}


def _position(case: Case, row: int) -> int:
    """Return the position in its own prompt of the n-th row compared."""
    for _, start, stop in case.spans:
        if row < stop - start:
            return start + row
        row -= stop - start
    raise AssertionError(row)


def _precision(subject: Subject) -> tuple[list[Facts], str | None]:
    """Return what the bits hold, and why that is not known of what a forward gives, if it is not."""
    found = precision("parameters", subject.model.parameters(), each=False)
    way = Way((subject.prompt("precision", lengths(subject)[0]),), cached=False)
    try:
        walk = subject.walk(way)
    except Exception as error:  # noqa: BLE001  refusing is a fact of the model
        subject.settle()
        return found, _said(error)
    layers = [tensor for name, tensor in walk.layers.items() if name != "embeddings"]
    found += precision("activations", layers, each=True)
    return found + precision("logits", [walk.logits], each=False), None


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
    one, other = subject.walk(case.one, keep=False), subject.walk(case.other, keep=False)
    pairs = layer_pairs(one, other, case) | {"logits": _rows(one.logits, other.logits, case)}
    return {name: float(gaps(*pair).max()) for name, pair in pairs.items()}
