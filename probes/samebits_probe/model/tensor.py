"""Hashes of tensors, and storage of their bytes.

Files are ``<root>/tensors/<first two hex digits>/<hash>.bin``: raw contiguous little-endian
bytes. The hash is BLAKE3 over dtype, shape and bytes (samebits_wire/tensors.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from samebits_probe.process import files, hashing
from samebits_wire import tensors
from samebits_wire.atomic import read_whole, replacing

Ref = dict[str, Any]


def _find_memcmp() -> Any:
    """Return the C library's memcmp; None where it cannot be called."""
    try:
        memcmp = ctypes.CDLL(None).memcmp
    except (OSError, TypeError, AttributeError):
        return None
    memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    memcmp.restype = ctypes.c_int
    return memcmp


_memcmp = _find_memcmp()


class NotHashable(Exception):  # noqa: N818  "this tensor has no bytes" is a result, not an error
    """The tensor has no plain bytes: it is on the meta device, sparse or packed."""


class OnMetaDevice(NotHashable):
    """The tensor is on the meta device, so it has no values."""


def dtype_name(dtype: torch.dtype | torch.layout) -> str:
    """Return torch's name of a dtype or a layout without the module, such as ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


def require_plain(tensor: torch.Tensor) -> None:
    """Raise if a tensor has no plain bytes."""
    if not is_plain(tensor):
        if tensor.is_meta:
            raise OnMetaDevice("on the meta device and without plain bytes")
        raise NotHashable(f"{kind_name(tensor)} and without plain bytes")


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of ``tensor`` in row-major order; copied only if strided or on a device."""
    return memoryview(_flat_bytes(tensor).numpy())


def flattened(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in row-major order, [number of elements], beside each other in memory.

    torch calls a single element contiguous, whatever its stride is. It makes bytes of elements with stride 1 only.
    """
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.as_strided(flat.shape, (1,))


def _flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of ``tensor`` in row-major order, uint8 [number of bytes], on the CPU."""
    require_plain(tensor)
    flat = flattened(tensor.to("cpu"))
    if flat.is_complex():
        # a conjugate is a flag on the tensor until it is resolved
        flat = torch.view_as_real(flat.resolve_conj()).reshape(-1)
    # a 0-d tensor cannot be viewed as bytes; a flat one can
    return flat.resolve_neg().view(torch.uint8)


def hash_or_none(tensor: torch.Tensor) -> str | None:
    """Return the hash of a tensor; None if its values are not available."""
    try:
        return tensor_hash(tensor)
    except NotHashable:
        return None


def tensor_hash(tensor: torch.Tensor) -> str:
    """Return the hex BLAKE3 over dtype, shape and bytes; for sparse or packed ones over the parts.

    Raises:
        NotHashable: its values are not available.

    """
    digest = hashing.hasher(header(tensor))
    if parts := _parts(tensor):
        for part in parts:
            digest.update(bytes.fromhex(tensor_hash(part)))
    else:
        digest.update(raw_bytes(tensor))
    return str(digest.hexdigest())


def header(tensor: torch.Tensor) -> bytes:
    """Return what is hashed before the bytes: it tells dtypes and shapes of equal bytes apart."""
    return tensors.header(kind_name(tensor), tensor.shape)


def is_plain(tensor: torch.Tensor) -> bool:
    """Return True if a tensor is an ordinary strided one, neither meta, sparse nor packed."""
    return not (tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized)


def kind_name(tensor: torch.Tensor) -> str:
    """Return a tensor's dtype, with its layout if it is sparse: ``sparse_coo float32``."""
    name = dtype_name(tensor.dtype)
    return name if tensor.layout == torch.strided else f"{dtype_name(tensor.layout)} {name}"


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the plain tensors that make up a sparse or packed one; [] for any other."""
    if tensor.is_meta:
        return []
    if tensor.is_quantized:
        if "channel" in str(tensor.qscheme()):
            scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        else:
            scale, zero = tensor.q_scale(), tensor.q_zero_point()
            scales, zeros = torch.tensor([scale], dtype=torch.float64), torch.tensor([zero])
        return [tensor.detach().int_repr(), scales, zeros]
    if tensor.layout == torch.sparse_coo:
        whole = tensor.detach().coalesce()
        return [whole.indices(), whole.values()]
    if tensor.layout in {torch.sparse_csr, torch.sparse_bsr}:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.detach().values()]
    if tensor.layout in {torch.sparse_csc, torch.sparse_bsc}:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.detach().values()]
    return []


def same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return True if two tensors hold the same bytes in row-major order, whatever their shapes."""
    first_bytes, second_bytes = _flat_bytes(first), _flat_bytes(second)
    if first_bytes.numel() != second_bytes.numel():
        return False
    if first_bytes.data_ptr() == second_bytes.data_ptr():
        return True
    if _memcmp is None:
        return bool(torch.equal(first_bytes, second_bytes))  # noqa: TID251  bytes
    # eight times as fast as comparing copies of parts, and the tensors never pass through numpy
    pointers = first_bytes.data_ptr(), second_bytes.data_ptr()
    return bool(_memcmp(*pointers, first_bytes.numel()) == 0)


def same_tensors(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> bool:
    """Return True if both have the same names, and the same bytes under each."""
    return first.keys() == second.keys() and all(same_bytes(t, second[n]) for n, t in first.items())


def is_same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return True if two plain tensors have the same dtype, shape and bytes."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return is_plain(first) and is_plain(second) and same_bytes(first, second)


def spaced(flat: torch.Tensor, count: int) -> torch.Tensor:
    """Return at most ``count`` evenly spaced values of a tensor of one axis."""
    return flat[:: max(1, len(flat) // count)][:count]


def samples(tensor: torch.Tensor, count: int) -> list[float]:
    """Return at most ``count`` evenly spaced values, with 0 for one that is not finite, and the norm of all."""
    flat = tensor.detach().double().flatten()
    flat = torch.where(flat.isfinite(), flat, torch.zeros_like(flat))
    return [*spaced(flat, count).tolist(), float(flat.norm())]


def stored(folder: Path, ref: Ref) -> torch.Tensor:
    """Return the values of a tensor that another process stored in ``folder``."""
    path = folder / ref["hash"][:2] / f"{ref['hash']}.bin"
    try:
        data, dtype = bytearray(read_whole(path)), getattr(torch, ref["dtype"])
    except OSError as error:
        raise files.StoreFault(
            f"the stored tensor {path.name} cannot be read: {error.strerror or error}"
        ) from error
    with suppress(ValueError, RuntimeError):  # too few bytes, or too many
        whole = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        values = whole.reshape(ref["shape"])
        if tensor_hash(values) == ref["hash"]:
            return values
    raise files.StoreFault(
        f"{path.name} does not hold the bytes of its hash as {ref['dtype']}{ref['shape']}"
    )


class Keeper:
    """Makes references to tensors, and stores the values that are needed, each once.

    Values are stored if the caller sets ``keep`` and they have at most ``limit`` bytes, or if their
    hash is in ``wanted``: a later run of a cell requests the tensors that differ.
    """

    def __init__(self, root: str, limit: int, wanted: list[str]) -> None:
        self.root = Path(root) / "tensors"
        self.limit = limit
        self.wanted = frozenset(wanted)
        self._written: set[str] = set()
        """Hashes of the tensors whose files this job wrote or compared."""

    def ref(self, tensor: torch.Tensor, *, keep: bool = True, digest: str = "") -> Ref:
        """Return the reference of ``tensor`` for a capture, and store the values if needed.

        ``digest`` is its hash, if that is known.
        """
        digest = digest or tensor_hash(tensor)
        nbytes = tensor.numel() * tensor.element_size()
        stored = is_plain(tensor) and ((keep and nbytes <= self.limit) or digest in self.wanted)
        if stored:
            self._store(digest, tensor)
        return {
            "hash": digest,
            "dtype": kind_name(tensor),
            "shape": list(tensor.shape),
            "stored": stored,
        }

    def _store(self, digest: str, tensor: torch.Tensor) -> None:
        """Write a tensor's file unless there is one with these bytes.

        The bytes are compared, not the size: a power cut leaves blocks of zeros, and a result that
        is made again must not rest on them.
        """
        if digest in self._written:
            return
        path = self.root / digest[:2] / f"{digest}.bin"
        if not _holds(path, tensor):
            with replacing(path, lasting=False) as file:
                file.write(raw_bytes(tensor))
        self._written.add(digest)


def _holds(path: Path, tensor: torch.Tensor) -> bool:
    """Return True if a file holds the bytes of a tensor."""
    try:
        data = bytearray(read_whole(path))
    except OSError:
        return False
    content = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0)
    return same_bytes(content, tensor)
