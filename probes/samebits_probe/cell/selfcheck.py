"""Which forwards may be run once, with all instruments, and stand for the plain ones.

Instruments do not change the bits of most models. So a prompt is run plainly and watched, and where
both give the same logits, further prompts of the same kind are run only watched. Two prompts are of
the same kind if nothing in their inputs lets a model take another path: the same arguments, both
one row or both several, both with zeros in a mask or both without, and both on the same side of
every length that the config names.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from samebits_probe.model.inputs import tensors_of

Kind = tuple[tuple[Any, ...], ...]

_LENGTH = re.compile(r"window|length|position|chunk|block|span|local|seq|context")
_OF_GENERATION = frozenset({"max_length", "min_length", "length_penalty"})
"""Fields that generate() reads, not forward; configs of 4.48 have them all."""
_MAX_DEPTH = 4
"""How deep lengths are looked for in a config: text_config.rope_scaling.factor is the third."""
_LOOK_AT_HOOKS = (
    torch.nn.MultiheadAttention,
    torch.nn.TransformerEncoder,
    torch.nn.TransformerEncoderLayer,
    torch.jit.ScriptModule,
)
"""Modules that take another path under hooks or a torch function mode, or cannot be watched. Their
fast path may round alike on one prompt and not on the next."""


class SelfCheck:
    """The kinds of inputs of one model that were run with and without instruments."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.is_off = any(map(_is_special, model.modules()))
        """True if no watched forward may stand for a plain one."""
        self.leaves = False
        """True if a forward left something in the model, so that a prompt's second forward may be another one than its first."""
        self.has_failed = False
        """True if a watched forward gave other logits than the plain one."""
        self._lengths = sorted({1, *_lengths(getattr(model, "config", None))})
        self._passed: dict[Kind, float] = {}

    def passed(self, kwargs: dict[str, Any]) -> float | None:
        """Return the seconds of a plain forward relative to a watched one; None if not checked."""
        return self._passed.get(self._kind(kwargs))

    def record(self, kwargs: dict[str, Any], share: float) -> None:
        """Record that a watched forward gave the logits of the plain one, which took ``share``."""
        self._passed[self._kind(kwargs)] = share

    def fail(self) -> None:
        """Record that a watched forward gave other logits than the plain one."""
        self.is_off = self.has_failed = True

    def _kind(self, kwargs: dict[str, Any]) -> Kind:
        return tuple(
            (
                name,
                tensor.dtype,
                tensor.ndim,
                tensor.ndim > 0 and tensor.shape[0] > 1,
                "mask" in name and bool((tensor == 0).any()),
                bisect_right(self._lengths, tensor.shape[1]) if tensor.ndim > 1 else 0,
            )
            for name, tensor in sorted(tensors_of(kwargs).items())
        )


def _is_special(module: torch.nn.Module) -> bool:
    return isinstance(module, _LOOK_AT_HOOKS) or module._compiled_call_impl is not None


def _lengths(config: Any, depth: int = 0) -> Iterator[int]:
    """Yield the whole numbers of a config whose names are those of lengths."""
    for name, value in _entries(config):
        if name in _OF_GENERATION:
            continue
        if isinstance(value, (int, float)) and _LENGTH.search(name):
            yield int(value) if abs(value) < 1 << 60 else 1 << 60
        elif depth < _MAX_DEPTH and (isinstance(value, dict) or hasattr(value, "to_dict")):
            yield from _lengths(value, depth + 1)


def _entries(config: Any) -> Iterable[tuple[str, Any]]:
    entries = config if isinstance(config, dict) else getattr(config, "__dict__", {})
    return [(str(name), value) for name, value in entries.items()]
