"""Settings of torch that decide which kernels run, or in which precision, and what changed them.

A release, a package or a model's code can change them for the whole process, such as
``torch.set_float32_matmul_precision("high")``. So they are read before transformers is imported, after
that, after the load, and after the prompts. The result has the form of SettingsSignal in
samebits/records/settings.py.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

NAMES = (
    "torch.get_default_dtype()",
    "torch.get_float32_matmul_precision()",
    "torch.are_deterministic_algorithms_enabled()",
    "torch.is_deterministic_algorithms_warn_only_enabled()",
    "torch.backends.fp32_precision",
    "torch.backends.cuda.matmul.allow_tf32",
    "torch.backends.cuda.matmul.fp32_precision",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "torch.backends.cuda.matmul.allow_fp16_accumulation",
    "torch.backends.cuda.flash_sdp_enabled()",
    "torch.backends.cuda.mem_efficient_sdp_enabled()",
    "torch.backends.cuda.cudnn_sdp_enabled()",
    "torch.backends.cuda.math_sdp_enabled()",
    "torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()",
    "torch.backends.cudnn.enabled",
    "torch.backends.cudnn.deterministic",
    "torch.backends.cudnn.benchmark",
    "torch.backends.cudnn.allow_tf32",
    "torch.backends.cudnn.conv.fp32_precision",
    "torch.backends.cudnn.rnn.fp32_precision",
    "torch.backends.mkldnn.enabled",
    "torch.backends.mkldnn.matmul.fp32_precision",
    "torch.backends.mkldnn.conv.fp32_precision",
)
"""Expressions without side effects: none of them starts CUDA, after which a process cannot fork."""
BATCH_INVARIANT = "batch-invariant mode"
OFF = "off"
MIXED = "set by the old and the new API"
"""torch 2.9 and later refuses to read ``allow_tf32`` where ``fp32_precision`` has another value."""
_UNSET, _FULL = "none", "ieee"
"""A ``fp32_precision`` that is not set, after its parents were asked, computes in full precision
(ATen/Context.cpp, float32Precision)."""
_IS_ON = "is_batch_invariant_mode_enabled"

Values = dict[str, str]
Change = dict[str, str]

_of_imports: list[Change] = []
"""What importing transformers changed; the process of a stack notes it once, for its children."""


def read() -> Values:
    """Return every setting that this torch has, by the expression that reads it."""
    values = {name: text for name in NAMES if (text := _text(name))}
    return values | {BATCH_INVARIANT: _batch_invariant()}


def _text(name: str) -> str:
    value: Any = torch
    try:
        for part in name.removesuffix("()").split(".")[1:]:
            value = getattr(value, part)
        text = str(value() if name.endswith("()") else value)
    except AttributeError:
        return ""
    except RuntimeError:
        return MIXED
    return _FULL if text == _UNSET and name.endswith("fp32_precision") else text


def _batch_invariant() -> str:
    """Return the package whose batch-invariant kernels replace torch's now, or ``off``.

    batch_invariant_ops, and the copies of it in other packages, have a function that says so. The mode of
    inductor (``torch._inductor.config.batch_invariant``) is of compiled models only.
    """
    for name in [name for name in list(sys.modules) if "batch_invariant" in name]:
        is_on = getattr(sys.modules.get(name), _IS_ON, None)
        if callable(is_on) and is_on():
            return name.partition(".")[0]
    return OFF


def note_imports(before: Values) -> None:
    """Note what changed since ``before``, which was read ahead of the import of transformers."""
    _of_imports[:] = changed(before, read(), "import")


def changed(before: Values, after: Values, by: str) -> list[Change]:
    """Return the settings that differ, with what ran in between: import, load or prompts."""
    return [
        {"name": name, "before": before[name], "after": after[name], "by": by}
        for name in before
        if name in after and before[name] != after[name]
    ]


class Watch:
    """The settings of one run of a cell, from before its load."""

    def __init__(self) -> None:
        self._values = read()
        self._changes = list(_of_imports)

    def look(self, by: str) -> None:
        """Note what has changed since the last look, and what ran in between."""
        values = read()
        self._changes += changed(self._values, values, by)
        self._values = values

    def facts(self) -> dict[str, Any]:
        """Return the settings as they are now, and all changes in order."""
        return {"values": self._values, "changes": list(self._changes)}
