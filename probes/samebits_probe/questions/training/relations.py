"""Relations between ways to train inside one release: the same rows must teach the same.

Both ways run in the cell's dtype. Where their bytes differ, both run again in float64, which tells
rounding from another function, tensor by tensor. The result has the form of TrainingRelation in
samebits/questions/training/records.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest import mock

import torch

from samebits_probe.model import decode, determinism, forks, layers, precision
from samebits_probe.model.choice import DECODER, TOKENS
from samebits_probe.model.distance import Distance, broken, distance
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line, raised
from samebits_probe.questions.training import batches as rows
from samebits_probe.questions.training import pictured
from samebits_probe.questions.training.batches import ITEMS, ROUTER, Batch
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.way import (
    NoMeaning,
    Relation,
    Results,
    Setting,
    Way,
    learned,
    lesson,
)

Facts = dict[str, Any]


def observe(learner: Learner, setting: Setting, until: float) -> Facts:
    """Try every relation until a time of time.perf_counter()."""
    judge = Judge(learner)
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

    def __init__(self, learner: Learner, twin: Callable[[], Learner] | None = None) -> None:
        """Take a learner, and where its copy in float64 comes from; default: made when needed."""
        self.learner = learner
        self.make_twin = twin or learner.in_float64
        self.relations: list[Facts] = []
        self.inapplicable: list[Facts] = []
        self.no_float64 = ""
        self._twin: Learner | None = None

    def skip(self, name: str, reason: str, *, raised: bool = False) -> None:
        """Record that a relation was not tried."""
        self.inapplicable.append({"relation": name, "reason": reason, "raised": raised})

    def relation(self, relation: Relation, setting: Setting) -> None:
        """Try one relation, or record why it does not apply."""
        try:
            first, second = relation.ways(self.learner, setting)
            self.relations.append(self._facts(relation.name, first, second))
        except NoMeaning as reason:
            self.skip(relation.name, str(reason))
        except Exception as error:  # noqa: BLE001  refusing is a fact of the model
            self.skip(relation.name, raised(error), raised=True)
        finally:
            self.learner.model.zero_grad(set_to_none=True)
            self.learner.model.train()

    def _facts(self, name: str, base: Way, variant: Way) -> Facts:
        first, second = base(self.learner), variant(self.learner)
        native = _distances(first, second)
        differing = {what: d for what, d in native.items() if d["n_differ"]}
        facts: Facts = {
            "relation": name,
            "holds": not differing,
            "broken": False,
            "what": "",
            "distance": None,
            "promoted": None,
            "missing": _missing(first, second),
            "n": len(native),
            "n_differ": len(differing),
        }
        if facts["missing"]:
            return facts | {"holds": False, "broken": True, "what": facts["missing"][0]}
        if not differing:
            return facts
        return facts | self._worst(differing, self._promoted(base, variant))

    def _worst(self, native: dict[str, Distance], promoted: dict[str, Distance] | None) -> Facts:
        """Return the first result in the order of data flow that stays in float64.

        Where none does: the one that shrinks least, or without float64 the one that differs most.
        """
        if promoted is None:
            what = max(native, key=lambda name: native[name]["max_abs"])
            return {"what": what, "distance": native[what]}
        staying = [
            name
            for name, before in native.items()
            if name in promoted and broken(before, promoted[name], self.learner.dtype)
        ]
        what = next(
            iter(staying), max(native, key=lambda name: _share(native[name], promoted.get(name)))
        )
        after = promoted.get(what)
        return {"what": what, "distance": native[what], "promoted": after, "broken": bool(staying)}

    def _promoted(self, first: Way, second: Way) -> dict[str, Distance] | None:
        """Return the distances in float64; None, with the reason noted, if there are none."""
        if self.no_float64:
            return None
        try:
            if self._twin is None:
                self._twin = self.make_twin()
                if self._is_chaotic(self._twin):
                    self.no_float64 = determinism.CHAOTIC
                    return None
            distances = _distances(first(self._twin), second(self._twin))
        except Exception as error:  # noqa: BLE001  an operation that refuses float64 is a fact
            self.no_float64 = in_one_line(error)
            return None
        self.no_float64 = precision.said_of(self._twin.leaks)
        return None if self.no_float64 else distances

    @staticmethod
    def _is_chaotic(twin: Learner) -> bool:
        if getattr(twin.model, "main_input_name", TOKENS) != TOKENS:
            return False
        ids = rows.unpacked(twin.model).kwargs[TOKENS]
        try:
            return determinism.chaotic(twin.model, lambda: twin.evaluated({TOKENS: ids}))
        except Exception:  # noqa: BLE001  a model that needs more than ids is not asked
            return False


def _distances(first: Results, second: Results) -> dict[str, Distance]:
    with torch._C.DisableTorchFunction():
        return {name: distance(first[name], second[name]) for name in first if name in second}


def _missing(first: Results, second: Results) -> list[str]:
    """Return what only one way computes; a gradient of zeros teaches no more than none.

    Experts that only padding reaches have one.
    """
    both = {**first, **second}
    with torch._C.DisableTorchFunction():
        return sorted(name for name in first.keys() ^ second.keys() if bool(both[name].any()))


def _share(native: Distance, promoted: Distance | None) -> float:
    if promoted is None or not native["max_abs"]:
        return 0.0
    return float(promoted["max_abs"]) / float(native["max_abs"])


def _inside(way: Way, *contexts: Callable[[Learner], AbstractContextManager[None]]) -> Way:
    """Return a way that runs inside of contexts of its learner."""

    def inside(learner: Learner) -> Results:
        with contextlib.ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context(learner))
            return way(learner)

    return inside


def _checkpointing(*, reentrant: bool) -> Callable[[Learner, Setting], tuple[Way, Way]]:
    def ways(learner: Learner, setting: Setting) -> tuple[Way, Way]:
        _require_checkpointing(learner)
        checkpointed = partial(_checkpointed, reentrant=reentrant)
        return lesson(setting.main), _inside(learned(setting.main.kwargs), checkpointed)

    return ways


def _checkpointing_of_layers(*, images: bool) -> Callable[[Learner, Setting], tuple[Way, Way]]:
    """Return steps in which only layers learn, as with adapters: their inputs require no gradient."""

    def ways(learner: Learner, setting: Setting) -> tuple[Way, Way]:
        _require_checkpointing(learner)
        again = learned((_with_images(setting) if images else setting.main).kwargs)
        checkpointed = partial(_checkpointed, reentrant=True)
        return _inside(again, _only_layers_learn), _inside(again, _only_layers_learn, checkpointed)

    return ways


def _checkpointing_of_projections(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    """Return steps of adapters: the base is frozen, its inputs require a gradient, and blocks run twice."""
    _require_checkpointing(learner)
    _first_projections(learner)
    again = learned(setting.main.kwargs)
    checkpointed = partial(_checkpointed, reentrant=False, of_inputs=True)
    alone = _inside(again, _only_projections_learn)
    return alone, _inside(again, _only_projections_learn, checkpointed)


def _projections(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    """Return a step in which all learns, and one whose gradients go through frozen weights."""
    _first_projections(learner)
    plain = lesson(setting.main)

    def of_projections(each: Learner) -> Results:
        names = {"loss", *_first_projections(each)}
        return {name: value for name, value in plain(each).items() if name in names}

    return of_projections, _inside(learned(setting.main.kwargs), _only_projections_learn)


def _first_projections(learner: Learner) -> list[str]:
    """Return the name of the first matrix of each layer, such as the projection of queries."""
    names = [
        f"{layer}.{name}"
        for layer, module in layers.layers(learner.model)
        if (name := next((n for n, p in module.named_parameters() if p.ndim == 2), ""))
    ]
    if not names:
        raise NoMeaning("it has no layers with a matrix")
    return names


@contextlib.contextmanager
def _only_projections_learn(learner: Learner) -> Iterator[None]:
    parameters = dict(learner.model.named_parameters(remove_duplicate=False))
    kept = {id(parameters[name]) for name in _first_projections(learner)}
    with _requires_no_grad([p for p in learner.model.parameters() if id(p) not in kept]):
        yield


@contextlib.contextmanager
def _only_layers_learn(learner: Learner) -> Iterator[None]:
    of_layers = {id(p) for _, layer in layers.layers(learner.model) for p in layer.parameters()}
    with _requires_no_grad([p for p in learner.model.parameters() if id(p) not in of_layers]):
        yield


def _with_images(setting: Setting) -> Batch:
    if setting.images is None:
        raise NoMeaning("no row of its batches has an image")
    return setting.images


def _checkpointing_with_chance(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    """Return a step with dropout, and one whose blocks run twice and must draw the same again."""
    _require_checkpointing(learner)
    if not learner.draws:
        raise NoMeaning("its training draws no numbers")
    again, checkpointed = learned(setting.main.kwargs), partial(_checkpointed, reentrant=False)
    plain = _inside(again, Learner.with_chance)
    twice = _inside(again, Learner.with_chance, checkpointed)

    def way(each: Learner) -> Results:
        results = twice(each)
        if each.promoted is None:
            _require_repeats(results, plain, each)
        return results

    return plain, way


def _require_repeats(results: Results, plain: Way, learner: Learner) -> None:
    """Ask for two equal steps without checkpointing, if one with it is not equal to the first."""
    first = plain(learner)
    if not _same(results, first) and not _same(plain(learner), first):
        raise NoMeaning(
            "with dropout two steps of one seed differ: it draws from what no seed sets"
        )


def _same(first: Results, second: Results) -> bool:
    return not any(distance["n_differ"] for distance in _distances(first, second).values())


def _require_checkpointing(learner: Learner) -> None:
    if not getattr(learner.model, "supports_gradient_checkpointing", False):
        raise NoMeaning("the class does not support gradient checkpointing")


@contextlib.contextmanager
def _checkpointed(learner: Learner, *, reentrant: bool, of_inputs: bool = False) -> Iterator[None]:
    options: Facts = {"use_reentrant": reentrant}
    if learner.promoted is not None and not reentrant:
        # torch compares dtypes, and the promotion claims the cell's in a part of the code
        options["determinism_check"] = "none"
    learner.model.gradient_checkpointing_enable(options)
    if reentrant or of_inputs:  # reentrant blocks need an input that asks for a gradient
        _disable_input_require_grads(learner)  # 5.x hooks already, and a second hook would stay
        with contextlib.suppress(NotImplementedError):  # the user of such a class trains without it
            learner.model.enable_input_require_grads()
    try:
        yield
    finally:
        # also the hook that 5.x sets by itself and leaves
        _disable_input_require_grads(learner)
        learner.model.gradient_checkpointing_disable()


def _disable_input_require_grads(learner: Learner) -> None:
    with contextlib.suppress(AttributeError):  # what 4.x raises where there is no hook
        learner.model.disable_input_require_grads()


def _accumulated(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    main = setting.main.with_two_rows()
    if main.n_rows < 2:
        raise NoMeaning("its batch has one row, which cannot be repeated")
    if main.labels is None or "labels" not in main.kwargs:
        raise NoMeaning("Trainer counts labels, and its batch has none of that name")
    if not rows.takes_items(learner.model):
        raise NoMeaning(
            "the model takes no num_items_in_batch, so its losses are means of micro-batches"
        )
    if any(value.detach().any() for value in learner.learn(main.kwargs).others.values()):
        raise NoMeaning(
            "its further losses are of a whole batch: a sum of micro-batches has others"
        )
    items = rows.n_items(main, shifted=setting.shifted)

    def way(each: Learner) -> Results:
        each.model.zero_grad(set_to_none=True)
        losses = [
            each.learn_more(main.rows(i, i + 1) | {ITEMS: items}).loss.detach().reshape(1)
            for i in range(main.n_rows)
        ]
        return {"loss": torch.cat(losses).sum(0, keepdim=True), **each.gradients()}

    return lesson(main), way


def _packed(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    if setting.head != "causal-lm":
        raise NoMeaning("only rows of a causal language model are packed")
    if not forks.accepts(learner.model, "position_ids"):
        raise NoMeaning("forward takes no position_ids")
    batch, changed = rows.packed(learner.model), rows.packed(learner.model, "c")
    if _sees_the_first(learner, batch, changed):
        raise NoMeaning(
            "the second sequence of a packed row sees the first in this release and attention"
        )
    return learned(batch.kwargs), learned(rows.unpacked(learner.model).kwargs)


def _packed_with_images(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    images = _with_images(setting)
    _packed(learner, setting)
    if (made := pictured.packed(learner.model, images.kwargs)) is None:
        raise NoMeaning("its images need more than a position of each token")
    options = forks.uncached(learner.model)
    as_one, apart = ({**kwargs, **options} for kwargs in made)
    return learned(as_one), learned(apart)


def _padding(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    """Return a step of padded rows, and one with other ids in the padding."""
    del learner
    batch = setting.images or setting.main
    if (changed := pictured.other_padding(batch.kwargs)) is None:
        raise NoMeaning("its batch has no padding")
    return lesson(batch), learned(changed)


_FROM_LABELS = "prepare_decoder_input_ids_from_labels"
"""The method by which collators make the ids of a decoder."""


def _ids_of_labels(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    """Return a step whose forward makes the decoder's ids of the labels, and one that is given those of collators."""
    method, kwargs = getattr(learner.model, _FROM_LABELS, None), setting.main.kwargs
    if method is None or setting.main.labels is None:
        raise NoMeaning("no collator makes ids of its decoder")
    if DECODER in kwargs and TOKENS in kwargs:
        raise NoMeaning("its config has no first token, so that forward makes no ids of labels")
    by_forward = {name: value for name, value in kwargs.items() if name != DECODER}
    try:
        ids = method(labels=setting.main.labels.clone())
    except Exception as error:
        raise NoMeaning(f"{_FROM_LABELS} raises, which usage asks") from error
    return learned(by_forward), learned({**by_forward, DECODER: ids})


_ROUNDING = 1e-3
"""Part of the largest logit up to which another first sequence may move the second one."""


def _sees_the_first(learner: Learner, batch: Batch, changed: Batch) -> bool:
    second = [learner.evaluated(_inputs(b)) for b in (batch, changed)]
    if second[0] is None or second[1] is None:
        return False
    halves = [logits[:, rows.HALF :] for logits in second if logits is not None]
    # experts that get other tokens beside those of the second sequence round otherwise
    return bool(distance(*halves)["max_abs"] > _ROUNDING * float(halves[0].abs().max()))


def _inputs(batch: Batch) -> Facts:
    return {name: value for name, value in batch.kwargs.items() if name != "labels"}


def _as_in_evaluation(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    require_rows(learner)
    kwargs = setting.main.kwargs

    def training(each: Learner) -> Results:
        with torch.no_grad():
            return _logits(each.forward(kwargs).logits)

    def evaluation(each: Learner) -> Results:
        return _logits(each.evaluated(kwargs))

    return training, evaluation


def require_rows(learner: Learner) -> None:
    """Raise NoMeaning if a module takes a batch's statistics in training, so that no row is trained by itself."""
    kind = torch.nn.modules.batchnorm._NormBase
    for module in learner.model.modules():
        if isinstance(module, kind):
            norm = type(module).__name__
            raise NoMeaning(f"{norm} takes the batch's statistics in training, by design")


def _logits(logits: torch.Tensor | None) -> Results:
    if logits is None:
        raise NoMeaning("forward returns no logits")
    return {"logits": logits.detach()}


_PROMPT, _STEPS = 4, 4


def _logprobs(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    if setting.head != "causal-lm" or not getattr(learner.model, "can_generate", lambda: False)():
        raise NoMeaning("the class does not generate")
    ids = rows.unpacked(learner.model).kwargs["input_ids"]
    ids = torch.cat([ids, ids.flip(1)], dim=1)[:, : _PROMPT + _STEPS]
    chosen = ids[:, _PROMPT:]
    segments = pictured.segments(learner.model, ids, _PROMPT)
    # a prefix is read from the segments, and in 4.48 only beside a mask
    prefixed = segments and {**segments, "attention_mask": torch.ones_like(ids)}

    def training(each: Learner) -> Results:
        with torch.no_grad():
            logits = each.forward({"input_ids": ids, "labels": ids, **prefixed}).logits
        assert logits is not None
        return {"logprobs": _of_tokens(each, logits[:, _PROMPT - 1 : -1], chosen)}

    def decoding(each: Learner) -> Results:
        with each.evaluating(), each.arithmetic():
            output = each.model.generate(
                ids[:, :_PROMPT],
                attention_mask=torch.ones_like(ids[:, :_PROMPT]),
                max_new_tokens=_STEPS,
                min_new_tokens=_STEPS,
                pad_token_id=0,
                logits_processor=decode.forcing(chosen.tolist()),
                **decode.GREEDY_LOGITS,
            )
        return {"logprobs": _of_tokens(each, torch.stack(output.logits, 1), chosen)}

    return training, decoding


def _of_tokens(learner: Learner, logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    wide = logits.detach().to(learner.promoted or torch.float32)
    return torch.log_softmax(wide, -1).gather(-1, chosen[..., None])[..., 0]


def _frozen(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    all_names = [name for name, _ in learner.model.named_parameters()]
    names = all_names[: len(all_names) // 2]
    if not names or len(names) == len(all_names):
        raise NoMeaning("it has too few parameters to freeze a part of them")
    plain = lesson(setting.main)

    def all_but_frozen(each: Learner) -> Results:
        return {name: value for name, value in plain(each).items() if name not in names}

    def freezing(each: Learner) -> AbstractContextManager[None]:
        parameters = dict(each.model.named_parameters())
        return _requires_no_grad([parameters[name] for name in names])

    return all_but_frozen, _inside(learned(setting.main.kwargs), freezing)


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
        raise NoMeaning("its attention is not sdpa")
    again = learned(setting.main.kwargs)
    return lesson(setting.main), _inside(again, lambda each: forks.attention(each.model, "eager"))


def _router(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    """Return a step that asks for the router's loss by an argument, and one by the config."""
    config = learner.model.config
    if not forks.accepts(learner.model, ROUTER) or getattr(config, ROUTER, None) is not False:
        raise NoMeaning("forward and config have no switch for a router's loss")

    def switch(each: Learner) -> AbstractContextManager[Any]:
        return mock.patch.object(each.model.config, ROUTER, True)

    by_argument = learned(setting.main.kwargs | {ROUTER: True})
    return by_argument, _inside(learned(setting.main.kwargs), switch)


RELATIONS = (
    Relation("train() without dropout = eval()", _as_in_evaluation),
    Relation("logprobs of training = logprobs of decoding", _logprobs),
    Relation("gradient checkpointing = without", _checkpointing(reentrant=False)),
    Relation("gradient checkpointing, reentrant = without", _checkpointing(reentrant=True)),
    Relation(
        "gradient checkpointing, reentrant, only layers learn = without",
        _checkpointing_of_layers(images=False),
    ),
    Relation(
        "gradient checkpointing, reentrant, only layers learn = without, with images",
        _checkpointing_of_layers(images=True),
    ),
    Relation(
        "gradient checkpointing, only projections learn = without", _checkpointing_of_projections
    ),
    Relation("gradient checkpointing with dropout = without", _checkpointing_with_chance),
    Relation("rows accumulated = one batch", _accumulated),
    Relation("packed = padded", _packed),
    Relation("packed = padded, with images", _packed_with_images),
    Relation("ids of padding have no effect", _padding),
    Relation("decoder ids by collators = by forward", _ids_of_labels),
    Relation("frozen layers leave other gradients", _frozen),
    Relation("only projections learn = all learn", _projections),
    Relation("router loss by config = by argument", _router),
    Relation("eager backward = sdpa backward", _eager),
)
