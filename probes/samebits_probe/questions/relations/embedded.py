"""Relations of embeddings: what is computed from token ids must be computed from their embeddings.

Users make the embeddings as the library's documentation says, by ``get_input_embeddings()``, and pass them as
``inputs_embeds``, with an image, with decoder ids, or to ``generate()``. As for rows, every output is compared, and
both ways run again in float64 where their bytes differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from samebits_probe.model import determinism, forks, precision
from samebits_probe.model.choice import DECODER, MASK, TOKENS
from samebits_probe.model.decode import GREEDY_LOGITS
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line
from samebits_probe.questions.relations import rows
from samebits_probe.questions.relations.rows import Answer, Compared, Pair, Runner

Facts = dict[str, Any]

FORWARD, GENERATE = "embeddings = token ids", "generate() from embeddings = from token ids"
NAMES = (FORWARD, GENERATE)
_EMBEDS = {TOKENS: "inputs_embeds", DECODER: "decoder_inputs_embeds"}
"""Argument for token ids -> the one for their embeddings."""
_STEPS = 4
_BESIDE = "its forward reads token ids beside their embeddings"
_SCALED = "its forward multiplies the embeddings of token ids by the root of their width"


class Way(NamedTuple):
    """One relation on one prompt."""

    name: str
    case: str
    kwargs: Facts
    pairs: Callable[[Runner], dict[str, Pair]]


def observe(model: Any, prompts: Iterable[tuple[str, Facts]]) -> Answer:
    """Try both relations on forward's arguments for some prompts; of each the worst prompt is returned."""
    listed = [(name, kwargs) for name, kwargs in prompts if torch.is_tensor(kwargs.get(TOKENS))]
    if reason := _lacks(model, listed):
        return rows.untried(reason, NAMES)
    runner = Runner(model)
    if reason := unrepeated(runner, listed[0][1]):
        return rows.untried(reason, NAMES)
    return rows.worst_of([_noted(runner, way) for way in _ways(model, listed)], NAMES)


def unrepeated(runner: Runner, kwargs: Facts) -> str:
    """Return why a plain forward is nothing to compare with; '' if it gives the same twice."""
    try:
        same = determinism.repeats(lambda: runner.first_output(kwargs))
    except Exception as error:  # noqa: BLE001  the cell's own forward reports it too
        return f"the plain forward raised {in_one_line(error)}"
    return "" if same else determinism.NOT_REPEATED


def _lacks(model: Any, prompts: list[tuple[str, Facts]]) -> str:
    """Return why embeddings cannot be passed to a model; '' if they can."""
    if not prompts:
        return "no prompt of it has token ids"
    if not forks.accepts(model, _EMBEDS[TOKENS]):
        return f"forward takes no {_EMBEDS[TOKENS]}"
    return ""


def _ways(model: Any, prompts: list[tuple[str, Facts]]) -> list[Way]:
    ways = [
        Way(FORWARD, f"{name}: {_EMBEDS[ids]}", kwargs, _forward(kwargs, ids))
        for name, kwargs in prompts
        for ids in _EMBEDS
        if ids in kwargs and forks.accepts(model, _EMBEDS[ids])
    ]
    if getattr(model, "can_generate", lambda: False)():
        ways += [Way(GENERATE, name, kwargs, _generate(kwargs)) for name, kwargs in prompts]
    return ways


def tried(runner: Runner, way: Way, nothing: str = "no output to compare") -> Answer:
    """Return a relation on one prompt; ``nothing`` is why there is none where neither side has an output."""
    progress.tick(way.case)
    skip: Facts = {"relation": way.name}
    try:
        native = Compared(way.name, way.case, way.pairs(runner))
    except _NotAsked as no_meaning:
        return Answer([], [skip | {"reason": f"{way.case}: {no_meaning}"}], None)
    except Exception as error:  # noqa: BLE001  refusing such arguments is a fact of the model
        reason = f"{way.case}: {in_one_line(error)}"
        return Answer([], [skip | {"reason": reason, "raised": True}], None)
    if not native.pairs:
        return Answer([], [skip | {"reason": f"{way.case}: {nothing}"}], None)
    in_float64, no_float64 = promoted(runner, way) if rows.differ(native) else (None, None)
    return Answer([rows.facts(native, in_float64)], [], no_float64)


def _noted(runner: Runner, way: Way) -> Answer:
    """Return a relation; if it does not hold, with why that is by design."""
    answer = tried(runner, way)
    if all(relation["holds"] for relation in answer.relations):
        return answer
    note = _by_design(runner, way.kwargs)
    return answer._replace(relations=[facts | {"note": note} for facts in answer.relations])


class _NotAsked(Exception):  # noqa: N818  that a prompt has no such way is a result
    """The prompt cannot be given as embeddings; the message says why."""


def _embeddings(runner: Runner, ids: torch.Tensor, argument: str) -> torch.Tensor:
    """Return the embeddings of token ids, as users make them."""
    try:
        part = runner.model if argument == TOKENS else runner.model.get_decoder()
        module = part.get_input_embeddings()
    except (AttributeError, NotImplementedError) as error:
        raise _NotAsked(in_one_line(error)) from error
    if int(ids.max()) >= getattr(getattr(module, "weight", None), "shape", (0,))[0]:
        raise _NotAsked("its input embeddings are no table with a row for each of the token ids")
    # by position: its name differs between classes
    embeddings = runner.call(lambda **given: module(*given.values()), {TOKENS: ids})
    if embeddings.shape[:-1] != ids.shape:
        raise _NotAsked("its input embeddings are not one for each token id")
    return embeddings


def _embedded(kwargs: Facts, argument: str, embeddings: torch.Tensor) -> Facts:
    rest = {name: value for name, value in kwargs.items() if name != argument}
    return {_EMBEDS[argument]: embeddings} | rest


def _forward(kwargs: Facts, argument: str) -> Callable[[Runner], dict[str, Pair]]:
    def pairs(runner: Runner) -> dict[str, Pair]:
        embeddings = _embeddings(runner, kwargs[argument], argument)
        first = runner.run(kwargs)
        return outputs_of_both(first, runner.run(_embedded(kwargs, argument, embeddings)))

    return pairs


def outputs_of_both(first: rows.Tensors, second: rows.Tensors) -> dict[str, Pair]:
    """Return the outputs that both have in one shape, by name."""
    return {
        name: (tensor, second[name])
        for name, tensor in first.items()
        if name in second and second[name].shape == tensor.shape
    }


def _generate(kwargs: Facts) -> Callable[[Runner], dict[str, Pair]]:
    """Return the logits of each step of a greedy generate(), up to the first other token."""
    kwargs = {name: value for name, value in kwargs.items() if name != DECODER}
    kwargs.setdefault(MASK, torch.ones_like(kwargs[TOKENS]))

    def pairs(runner: Runner) -> dict[str, Pair]:
        embeddings = _embeddings(runner, kwargs[TOKENS], TOKENS)
        first = _decoded(runner, kwargs)
        second = _decoded(runner, _embedded(kwargs, TOKENS, embeddings))
        tokens = [logits.argmax(-1) for logits in (first, second)]
        same = (tokens[0] == tokens[1]).all(-1).long().cumprod(0)
        n_compared = min(int(same.sum()) + 1, len(first))
        return {"logits": (first[:n_compared], second[:n_compared])}

    return pairs


def _decoded(runner: Runner, kwargs: Facts) -> torch.Tensor:
    """Return the logits of generate(), [steps, rows, vocabulary]."""
    settings: Facts = GREEDY_LOGITS | {"eos_token_id": None, "pad_token_id": 0}
    settings |= {"max_new_tokens": _STEPS, "repetition_penalty": 1.0}
    forks.drop_cache(runner.model)
    torch.default_generator.manual_seed(0)
    output = runner.call(lambda **given: runner.model.generate(**given, **settings), kwargs)
    return torch.stack(output.logits)


def _by_design(runner: Runner, kwargs: Facts) -> str:
    """Return what else a forward makes of token ids, if that explains a difference; '' if nothing does."""
    own = _embeddings(runner, kwargs[TOKENS], TOKENS)
    turned = kwargs | {TOKENS: kwargs[TOKENS].flip(-1)}
    try:
        with _embedding(
            runner, lambda output: own if output.shape == own.shape else output
        ) as calls:
            others = outputs_of_both(runner.run(kwargs), runner.run(turned))
        scaled = _embedded(kwargs, TOKENS, own * math.sqrt(own.shape[-1]))
        factor = outputs_of_both(runner.run(kwargs), runner.run(scaled))
    except Exception:  # noqa: BLE001  such ids are refused in any way
        return ""
    if not rows.differ(Compared(FORWARD, "", factor)):
        return _SCALED
    return _BESIDE if calls and rows.differ(Compared(FORWARD, "", others)) else ""


@contextmanager
def _embedding(
    runner: Runner, change: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[list[None]]:
    """Change for a while what modules with the table of embeddings return; yield a list of their calls."""
    table = runner.model.get_input_embeddings().weight
    calls: list[None] = []

    def hook(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        return change(output)

    modules = (m for m in runner.model.modules() if isinstance(m, torch.nn.Embedding))
    with ExitStack() as stack:
        for module in (m for m in modules if m.weight is table):
            stack.enter_context(module.register_forward_hook(hook))
        yield calls


def promoted(runner: Runner, way: Way) -> tuple[Compared | None, str | None]:
    """Return a relation in float64, or why there is none."""
    if not runner.is_small:
        return None, "the model is too large to be copied"
    try:
        twin = runner.in_float64()
        with precision.Leaks() as watch:
            compared = Compared(way.name, way.case, way.pairs(twin))
    except Exception as error:  # noqa: BLE001  an operation that refuses float64 is a fact
        return None, in_one_line(error)
    if reason := precision.said_of(watch.leaks):
        return None, reason
    return compared, None
