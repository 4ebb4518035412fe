"""Relation of attention: SDPA must compute what the eager attention of the same release computes.

Eager attention is what a modeling file writes out. SDPA has no argument for some of it, such as a soft-cap or a scale of
each layer, and a release that forgets to leave SDPA to other models computes another function with it. As for rows,
every output is compared, and both ways run again in float64 where their bytes differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from samebits_probe.model.attention import SDPA
from samebits_probe.model.choice import MASK, TOKENS
from samebits_probe.model.inputs import seeded_ids, tensors_of, text_config
from samebits_probe.model.tensor import spaced
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line
from samebits_probe.questions.relations import rows
from samebits_probe.questions.relations.embedded import Way, outputs_of_both, promoted, unrepeated
from samebits_probe.questions.relations.rows import Answer, Compared, Pair, Runner

Facts = dict[str, Any]

NAME = "SDPA = eager attention"
_LENGTH = 40
_N_VALUES = 32
_MAX_LENGTH = 512
"""Tokens up to which a prompt is fed: eager attention keeps a matrix of all pairs of them."""


def observe(
    model: Any, prompts: Iterable[tuple[str, Facts]], with_eager: Callable[[], Any]
) -> Answer:
    """Try the relation on prompts without padding, and return the worst one.

    ``with_eager`` loads the model once more, with eager attention.
    """
    if getattr(model.config, "_attn_implementation", None) != "sdpa":
        return _untried("its attention is not SDPA")
    plain = [prompt for prompt in prompts if _is_plain(prompt[1])]
    listed = _made_prompt(model, plain) or plain
    if not listed:
        return _untried("no prompt of it is without padding")
    sdpa = Runner(model)
    if reason := unrepeated(sdpa, listed[0][1]):
        return _untried(reason)
    if not _calls_of_sdpa(sdpa, listed[0][1]):
        return _untried("its forward does not call SDPA")
    try:
        eager = Runner(with_eager())
        n_calls = _calls_of_sdpa(eager, listed[0][1])
    except Exception as error:  # noqa: BLE001  not every class has eager attention
        return _untried(f"with eager attention: {in_one_line(error)}")
    if n_calls:
        return _untried("its forward calls SDPA with eager attention, too")
    return rows.worst_of([_tried(sdpa, eager, *prompt) for prompt in listed], (NAME,))


def _untried(reason: str) -> Answer:
    return rows.untried(reason, (NAME,))


def _is_plain(kwargs: Facts) -> bool:
    """Return True without padding: what a row gives at masked positions has no meaning."""
    masks = [tensor for name, tensor in tensors_of(kwargs).items() if "mask" in name]
    ids: Any = kwargs.get(TOKENS)
    is_short = not torch.is_tensor(ids) or ids.shape[-1] <= _MAX_LENGTH
    return is_short and all(bool(mask.bool().all()) for mask in masks)


def _made_prompt(model: Any, prompts: Iterable[tuple[str, Facts]]) -> list[tuple[str, Facts]]:
    """Return a longer prompt, of any release the same, where prompts are token ids alone; none for other models."""
    is_text = all(kwargs.keys() <= {TOKENS, MASK} for _, kwargs in prompts)
    has_decoder = getattr(model.config, "is_encoder_decoder", False)
    if not is_text or has_decoder or model.main_input_name != TOKENS:
        return []
    ids = torch.tensor([seeded_ids(NAME, _LENGTH, text_config(model.config))])
    return [(f"{_LENGTH} tokens", {TOKENS: ids, MASK: torch.ones_like(ids)})]


def _tried(sdpa: Runner, eager: Runner, prompt: str, kwargs: Facts) -> Answer:
    progress.tick(f"{NAME}: {prompt}")
    try:
        native = Compared(NAME, prompt, _pairs(sdpa, eager, kwargs))
    except Exception as error:  # noqa: BLE001  the cell's own forward reports it too
        return _untried(f"{prompt}: {in_one_line(error)}")
    if not native.pairs:
        return _untried(f"{prompt}: no output to compare")
    if not all(tensor.isfinite().all() for pair in native.pairs.values() for tensor in pair):
        # Nemotron's streaming encoder of 5.24.0: eager attention of a row that sees nothing is NaN
        return _untried(f"{prompt}: not all outputs are numbers")
    if not rows.differ(native) or not sdpa.is_small:
        return Answer([_facts(native, None)], [], None)
    twin = eager.in_float64()  # made here, as making it would count as a loss of precision
    way = Way(NAME, prompt, kwargs, lambda runner: _pairs(runner, twin, kwargs))
    in_float64, no_float64 = promoted(sdpa, way)
    return Answer([_facts(native, in_float64)], [], no_float64)


def _facts(native: Compared, in_float64: Compared | None) -> Facts:
    """Return the relation, with values by which another release shows which of the two ways is right."""
    pairs = (in_float64 or native).pairs
    pair = pairs.get("logits", next(iter(pairs.values())))
    return rows.facts(native, in_float64) | {"values": [_some(tensor) for tensor in pair]}


def _some(tensor: torch.Tensor) -> list[float]:
    return list(map(float, spaced(tensor.flatten().double(), _N_VALUES)))


def _pairs(sdpa: Runner, eager: Runner, kwargs: Facts) -> dict[str, Pair]:
    return outputs_of_both(sdpa.run(kwargs), eager.run(kwargs))


def _calls_of_sdpa(runner: Runner, kwargs: Facts) -> int:
    with _Count() as count:
        runner.run(kwargs)
    return int(count.calls)


class _Count(TorchFunctionMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Counts the calls of SDPA: 4.48 has classes that choose their attention when they are made."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func is SDPA
        return func(*args, **(kwargs or {}))
