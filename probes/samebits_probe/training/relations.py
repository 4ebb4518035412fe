"""Relations between ways to train inside one release: the same rows must teach the same.

Both ways run in the cell's dtype. Where their bytes differ, both run again in float64, which tells
rounding from another function, tensor by tensor. The result has the form of TrainingRelation in
samebits/records/training.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model import decode, determinism, forks
from samebits_probe.model.distance import Distance, distance
from samebits_probe.model.rounding import stays
from samebits_probe.model.tensor import dtype_name
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line
from samebits_probe.training import batches as rows
from samebits_probe.training.batches import ITEMS, Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits_probe.training.learner import Learner

Facts = dict[str, Any]
Results = dict[str, torch.Tensor]
"""What a way computes: ``loss``, ``logits``, or gradients by parameter."""
Way = Callable[["Learner"], Results]


class NoMeaning(Exception):  # noqa: N818  that a relation does not apply is a result
    """The relation does not apply to this model; the message says why."""


class Setting(NamedTuple):
    """What the relations are tried on."""

    main: Batch
    head: str

    @property
    def shifted(self) -> bool:
        """True if the loss leaves out the first label of each row."""
        return self.head == "causal-lm"


class Relation(NamedTuple):
    """Two ways that must agree."""

    name: str
    ways: Callable[[Learner, Setting], tuple[Way, Way]]
    """Raises :class:`NoMeaning` where the relation does not apply."""


def observe(learner: Learner, main: Batch, head: str, until: float) -> Facts:
    """Try every relation until a time of time.perf_counter()."""
    judge = Judge(learner)
    setting = Setting(main, head)
    for number, relation in enumerate(RELATIONS, 1):
        progress.tick(relation.name, number, len(RELATIONS))
        if time.perf_counter() > until:
            judge.skip(relation.name, "no time was left: raise budget: in matrix.yaml")
            continue
        judge.relation(relation, setting)
    return {
        "relations": judge.relations,
        "inapplicable": judge.inapplicable,
        "no_float64": judge.no_float64,
    }


class Judge:
    """Tries relations on one model and keeps the results."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.relations: list[Facts] = []
        self.inapplicable: list[Facts] = []
        self.no_float64 = ""
        self._twin: Learner | None = None

    def skip(self, name: str, reason: str) -> None:
        """Record that a relation was not tried."""
        self.inapplicable.append({"relation": name, "reason": reason})

    def relation(self, relation: Relation, setting: Setting) -> None:
        """Try one relation, or record why it does not apply."""
        try:
            one, other = relation.ways(self.learner, setting)
            self.relations.append(self._facts(relation.name, one, other))
        except NoMeaning as reason:
            self.skip(relation.name, str(reason))
        except Exception as error:  # noqa: BLE001  refusing is a fact of the model
            self.skip(relation.name, in_one_line(error))
        finally:
            self.learner.model.zero_grad(set_to_none=True)
            self.learner.model.train()

    def _facts(self, name: str, one: Way, other: Way) -> Facts:
        first, second = one(self.learner), other(self.learner)
        native = _distances(first, second)
        differing = {what: d for what, d in native.items() if d["n_differ"]}
        facts: Facts = {
            "relation": name,
            "holds": not differing,
            "broken": False,
            "what": "",
            "distance": None,
            "promoted": None,
            "missing": sorted(first.keys() ^ second.keys()),
            "n": len(native),
            "n_differ": len(differing),
        }
        if facts["missing"]:
            return facts | {"holds": False, "broken": True, "what": facts["missing"][0]}
        if not differing:
            return facts
        promoted = self._promoted(one, other)
        return facts | self._worst(differing, promoted)

    def _worst(self, native: dict[str, Distance], promoted: dict[str, Distance] | None) -> Facts:
        """Return the tensor that shrinks least, or the one that differs most."""
        if promoted is None:
            what = max(native, key=lambda name: native[name]["max_abs"])
            return {"what": what, "distance": native[what]}
        what = max(native, key=lambda name: _share(native[name], promoted.get(name)))
        after = promoted.get(what)
        dtype = dtype_name(self.learner.dtype)
        is_broken = after is not None and stays(native[what]["max_abs"], after["max_abs"], dtype)
        return {"what": what, "distance": native[what], "promoted": after, "broken": is_broken}

    def _promoted(self, one: Way, other: Way) -> dict[str, Distance] | None:
        """Return the distances in float64; None, with the reason noted, if there are none."""
        if self.no_float64:
            return None
        try:
            if self._twin is None:
                self._twin = self.learner.in_float64()
                if self._is_chaotic(self._twin):
                    self.no_float64 = determinism.CHAOTIC
                    return None
            distances = _distances(one(self._twin), other(self._twin))
        except Exception as error:  # noqa: BLE001  an operation that refuses float64 is a fact
            self.no_float64 = in_one_line(error)
            return None
        if self._twin.leaks:
            listed = ", ".join(sorted(self._twin.leaks))
            self.no_float64 = f"lower precision than float64 comes out of {listed}"
            return None
        return distances

    @staticmethod
    def _is_chaotic(twin: Learner) -> bool:
        ids = rows.unpacked(twin.model).kwargs["input_ids"] if _takes_tokens(twin.model) else None
        if ids is None:
            return False
        try:
            return determinism.chaotic(twin.model, lambda: twin.evaluated({"input_ids": ids}))
        except Exception:  # noqa: BLE001  a model that needs more than ids is not asked
            return False


def _takes_tokens(model: Any) -> bool:
    return getattr(model, "main_input_name", "input_ids") == "input_ids"


def _distances(first: Results, second: Results) -> dict[str, Distance]:
    with torch._C.DisableTorchFunction():
        return {name: distance(first[name], second[name]) for name in first if name in second}


def _share(native: Distance, promoted: Distance | None) -> float:
    """Return the share of a difference that float64 leaves."""
    if promoted is None or not native["max_abs"]:
        return 0.0
    return float(promoted["max_abs"]) / float(native["max_abs"])


# --- ways ----------------------------------------------------------------------------------------


def _learned(kwargs: Facts) -> Way:
    """Return the way that learns from a batch: its loss and all gradients."""

    def way(learner: Learner) -> Results:
        trained = learner.learn(kwargs)
        return {"loss": trained.loss.detach().reshape(1), **learner.gradients()}

    return way


def _checkpointing(*, reentrant: bool) -> Callable[[Learner, Setting], tuple[Way, Way]]:
    def ways(learner: Learner, setting: Setting) -> tuple[Way, Way]:
        if not getattr(learner.model, "supports_gradient_checkpointing", False):
            msg = "the class does not support gradient checkpointing"
            raise NoMeaning(msg)
        plain = _learned(setting.main.kwargs)

        def way(other: Learner) -> Results:
            options: Facts = {"use_reentrant": reentrant}
            if other.promoted is not None and not reentrant:
                # torch compares dtypes, and the promotion claims the cell's in a part of the code
                options["determinism_check"] = "none"
            other.model.gradient_checkpointing_enable(options)
            if reentrant:  # without it the first block has no input that asks for a gradient
                other.model.enable_input_require_grads()
            try:
                return plain(other)
            finally:
                if reentrant:
                    other.model.disable_input_require_grads()
                other.model.gradient_checkpointing_disable()

        return plain, way

    return ways


def _accumulated(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    main = setting.main
    n_rows = main.labels.shape[0]
    if n_rows < 2:
        msg = "its batch has one row"
        raise NoMeaning(msg)
    if setting.head not in ("causal-lm", "seq2seq-lm"):
        msg = "only a language model's loss takes num_items_in_batch"
        raise NoMeaning(msg)
    if not rows.takes_items(learner.model):
        msg = "the model takes no num_items_in_batch, so its losses are means of micro-batches"
        raise NoMeaning(msg)
    items = rows.n_items(main, shifted=setting.shifted)

    def way(other: Learner) -> Results:
        other.model.zero_grad(set_to_none=True)
        losses = [
            other.learn_more(main.rows(i, i + 1) | {ITEMS: items}).loss.detach().reshape(1)
            for i in range(n_rows)
        ]
        return {"loss": torch.cat(losses).sum(0, keepdim=True), **other.gradients()}

    return _learned(main.kwargs), way


def _packed(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    if setting.head != "causal-lm":
        msg = "only rows of a causal language model are packed"
        raise NoMeaning(msg)
    if not forks.accepts(learner.model, "position_ids"):
        msg = "forward takes no position_ids"
        raise NoMeaning(msg)
    batch, other = rows.packed(learner.model), rows.packed(learner.model, "c")
    if _sees_the_first(learner, batch, other):
        msg = "the second sequence of a packed row sees the first in this release and attention"
        raise NoMeaning(msg)
    return _learned(batch.kwargs), _learned(rows.unpacked(learner.model).kwargs)


def _sees_the_first(learner: Learner, batch: Batch, other: Batch) -> bool:
    second = [learner.evaluated(_inputs(b)) for b in (batch, other)]
    if second[0] is None or second[1] is None:
        return False
    halves = [logits[:, rows.HALF :] for logits in second if logits is not None]
    return bool(distance(*halves)["n_differ"])


def _inputs(batch: Batch) -> Facts:
    return {name: value for name, value in batch.kwargs.items() if name != "labels"}


def _as_in_evaluation(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    norms = [
        m for m in learner.model.modules() if isinstance(m, torch.nn.modules.batchnorm._NormBase)
    ]
    if norms:
        msg = f"{type(norms[0]).__name__} takes the batch's statistics in training, by design"
        raise NoMeaning(msg)
    kwargs = setting.main.kwargs

    def training(other: Learner) -> Results:
        with torch.no_grad():
            return _logits(other.forward(kwargs).logits)

    def evaluation(other: Learner) -> Results:
        return _logits(other.evaluated(kwargs))

    return training, evaluation


def _logits(logits: torch.Tensor | None) -> Results:
    if logits is None:
        msg = "forward returns no logits"
        raise NoMeaning(msg)
    return {"logits": logits.detach()}


_PROMPT, _STEPS = 4, 4


def _logprobs(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    can_generate = getattr(learner.model, "can_generate", lambda: False)()
    if setting.head != "causal-lm" or not can_generate:
        msg = "the class does not generate"
        raise NoMeaning(msg)
    ids = rows.unpacked(learner.model).kwargs["input_ids"]
    ids = torch.cat([ids, ids.flip(1)], dim=1)[:, : _PROMPT + _STEPS]
    chosen = ids[:, _PROMPT:]

    def training(other: Learner) -> Results:
        with torch.no_grad():
            logits = other.forward({"input_ids": ids, "labels": ids}).logits
        assert logits is not None
        return {"logprobs": _of_tokens(other, logits[:, _PROMPT - 1 : -1], chosen)}

    def decoding(other: Learner) -> Results:
        with other.evaluating(), other.arithmetic():
            output = other.model.generate(
                ids[:, :_PROMPT],
                attention_mask=torch.ones_like(ids[:, :_PROMPT]),
                max_new_tokens=_STEPS,
                min_new_tokens=_STEPS,
                pad_token_id=0,
                logits_processor=decode.forcing(chosen.tolist()),
                **decode.GREEDY_LOGITS,
            )
        return {"logprobs": _of_tokens(other, torch.stack(output.logits, 1), chosen)}

    return training, decoding


def _of_tokens(learner: Learner, logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Return the log probabilities of the chosen tokens."""
    wide = logits.detach().to(learner.promoted or torch.float32)
    return torch.log_softmax(wide, -1).gather(-1, chosen[..., None])[..., 0]


def _frozen(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    parameters = list(learner.model.named_parameters())
    names = [name for name, _ in parameters[: len(parameters) // 2]]
    if not names or len(names) == len(parameters):
        msg = "it has too few parameters to freeze a part of them"
        raise NoMeaning(msg)
    plain = _learned(setting.main.kwargs)

    def all_but_frozen(other: Learner) -> Results:
        return {name: value for name, value in plain(other).items() if name not in names}

    def way(other: Learner) -> Results:
        held = dict(other.model.named_parameters())
        with _requires_no_grad([held[name] for name in names]):
            return plain(other)

    return all_but_frozen, way


@contextlib.contextmanager
def _requires_no_grad(parameters: list[torch.nn.Parameter]) -> Iterator[None]:
    before = [parameter.requires_grad for parameter in parameters]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter, required in zip(parameters, before, strict=True):
            parameter.requires_grad_(required)


def _eager(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    if getattr(learner.model.config, "_attn_implementation", None) != "sdpa":
        msg = "its attention is not sdpa"
        raise NoMeaning(msg)
    plain = _learned(setting.main.kwargs)

    def way(other: Learner) -> Results:
        with forks.eager_attention(other.model):
            return plain(other)

    return plain, way


RELATIONS = (
    Relation("train() without dropout = eval()", _as_in_evaluation),
    Relation("logprobs of training = logprobs of decoding", _logprobs),
    Relation("gradient checkpointing = without", _checkpointing(reentrant=False)),
    Relation("gradient checkpointing, reentrant = without", _checkpointing(reentrant=True)),
    Relation("rows accumulated = one batch", _accumulated),
    Relation("packed = padded", _packed),
    Relation("frozen layers leave other gradients", _frozen),
    Relation("eager backward = sdpa backward", _eager),
)
