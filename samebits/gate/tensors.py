"""A tensor of the user's own test: its identity, and how it differs from a recorded one.

It may be of torch, numpy or anything that numpy reads. Nothing is imported for it: whoever has a
tensor of torch has imported torch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from samebits.compare.metrics import measure
from samebits.records.lock import SHORT, RecordedTensor
from samebits.records.tensor import NUMPY_DTYPES, tensor_hash

MAX_VALUES = 16 << 20
"""Bytes up to which the values of a tensor are remembered for a message."""


class Bytes(NamedTuple):
    """A tensor as contiguous little-endian bytes."""

    dtype: str
    """As torch names it, without ``torch.``."""
    shape: tuple[int, ...]
    data: bytes

    @property
    def recorded(self) -> RecordedTensor:
        """The tensor as a lock has it."""
        hash = tensor_hash(self.dtype, self.shape, self.data)[:SHORT]
        return RecordedTensor(hash=hash, dtype=self.dtype, shape=self.shape)


def bytes_of(value: Any) -> Bytes:  # noqa: ANN401  any tensor
    """Return the bytes of a tensor.

    Raises:
        TypeError: it is no tensor, or one without plain values.

    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(value, torch)
    if not hasattr(value, "__array__"):
        raise TypeError(
            f"samebits.tensor takes a tensor of torch or numpy, and this is a {type(value).__name__}: "
            "numpy.asarray makes one of numbers"
        )
    array = np.asarray(value)
    if array.dtype.hasobject:
        msg = "samebits.tensor takes an array of numbers, and this one holds Python objects"
        raise TypeError(msg)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return Bytes(array.dtype.name, array.shape, array.tobytes())


def _of_torch(value: Any, torch: Any) -> Bytes:  # noqa: ANN401
    if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
        kind = "meta" if value.device.type == "meta" else str(value.layout)
        msg = f"samebits.tensor takes a dense tensor with values, and this one is {kind}: make it dense"
        raise TypeError(msg)
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    raw = plain.reshape(-1).view(torch.uint8) if plain.numel() else plain
    data = raw.numpy().tobytes() if plain.numel() else b""
    return Bytes(str(value.dtype).removeprefix("torch."), tuple(value.shape), data)


def remember(folder: Path, tensor: Bytes) -> None:
    """Keep the values of a tensor, so that a later message can compare with them."""
    path = folder / f"{tensor.recorded.hash}.bin"
    if len(tensor.data) > MAX_VALUES or path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tensor.data)


def difference(folder: Path, recorded: RecordedTensor, tensor: Bytes) -> str:
    """Return how a tensor differs from the recorded one, '' if its values are not remembered here."""
    try:
        data = (folder / f"{recorded.hash}.bin").read_bytes()
    except OSError:
        return ""
    before = Bytes(recorded.dtype, recorded.shape, data)
    if before.recorded != recorded or recorded.dtype not in NUMPY_DTYPES:
        return ""
    if (recorded.dtype, recorded.shape) != (tensor.dtype, tensor.shape):
        return ""
    sides = [
        np.frombuffer(side.data, dtype=NUMPY_DTYPES[side.dtype]).reshape(side.shape)
        for side in (before, tensor)
    ]
    metrics = measure(sides[0], sides[1])
    place = list(metrics.first_index or ())
    return (
        f"{metrics.n_differ:,} of {metrics.n:,} elements differ, the first at {place}, "
        f"by at most {metrics.max_abs:.3g}"
    )
