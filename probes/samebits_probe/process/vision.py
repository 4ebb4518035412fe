"""torchvision beside a torch that its compiled operators do not fit.

The index has a wheel for CUDA only. Its library does not load beside a torch for the CPU, and then its
import ends at two operators that it describes and nobody has declared. Resize, crop and normalize are
Python over torch and need none of them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_DESCRIBED = ("nms", "qnms")
"""Operators that torchvision describes at import without asking whether its library was loaded."""
_declared: list[Any] = []


def make_importable() -> None:
    """Declare the operators that an import of torchvision needs, if its library cannot be loaded.

    They cannot be called: torchvision says that they are missing, as it does in any such environment.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or _declared:
        return
    import torch  # noqa: PLC0415  only stacks with torchvision

    try:
        for library in Path(spec.origin).parent.glob("_C.*"):
            torch.ops.load_library(str(library))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in _DESCRIBED:
            library.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)  # they go with it
