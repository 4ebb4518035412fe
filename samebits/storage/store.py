"""Tensors and captures that the probes wrote, verified when they are read.

Layout below one root folder: tensors are in ``tensors/<first 2 hex>/<hash>.bin`` as raw
contiguous little-endian bytes; captures are in ``captures/<...>/a.json`` and ``b.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from samebits.base.errors import CaptureError
from samebits.base.filestate import identity
from samebits.base.mmap import STRIDE, map_file, release_pages
from samebits.records.capture import Capture
from samebits.records.tensor import NUMPY_DTYPES, TensorRef, hasher
from samebits_wire import formats, seal
from samebits_wire.atomic import read_whole, remove, replace

_CAPTURE_FORMAT = "samebits-capture"
_MAX_SMALL = 1 << 16
"""Size in bytes up to which a tensor is read and stays in memory: to map a file costs more."""
_MAX_KEPT = 32 << 20
"""Bytes of such tensors that stay in memory."""
_REMEDY = "Run the cell again to replace it."
_MAX_CAPTURE = 1 << 30
"""Size in bytes up to which a capture is read; it holds facts, not values."""


class Store:
    """The files below one root folder; reads verify their content, writes are atomic."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tensors = str(root / "tensors")
        self._verified: set[TensorRef] = set()
        self._small: OrderedDict[str, NDArray[np.uint8]] = OrderedDict()
        self._small_bytes = 0
        self.fetch: Callable[[TensorRef], bool] = lambda _ref: False
        """Puts the file of a tensor that is not here in its place; False if no other store has it."""

    def tensor_path(self, ref: TensorRef) -> Path:
        """Return the path for the bytes of ``ref``, whether or not they are stored."""
        return Path(self._file_of(ref))

    def _file_of(self, ref: TensorRef) -> str:
        # taken for every tensor of a run, and a Path costs more than the call that takes it
        return f"{self._tensors}/{ref.hash[:2]}/{ref.hash}.bin"

    def has_file(self, ref: TensorRef) -> bool:
        """Return True if there is a file of the right size and the dtype of ``ref`` is known.

        A tensor is not flushed when it is written, so a power cut can leave a truncated file.
        """
        if ref.dtype not in NUMPY_DTYPES:
            return False
        state = identity(self._file_of(ref))
        if state is None and self.fetch(ref):
            state = identity(self._file_of(ref))
        return state is not None and state[0] == ref.nbytes

    def has(self, ref: TensorRef) -> bool:
        """Return True if the values can be read: the file is undamaged and its dtype known.

        A damaged file is removed, so that the next probe with these bytes writes them again.
        """
        if ref.dtype not in NUMPY_DTYPES:
            return False
        with contextlib.suppress(CaptureError):
            if self.has_file(ref):
                if ref not in self._verified:
                    self._bytes(ref)
                return True
        self._verified.discard(ref)
        self._drop(ref.hash)
        with contextlib.suppress(OSError):
            remove(self.tensor_path(ref))
        return False

    def verify_all(self, refs: Iterable[TensorRef]) -> bool:
        """Return True unless a stored tensor is missing or damaged; damaged files are removed.

        Tensors whose dtype only another version of samebits can read are not checked.
        """
        stored = (ref for ref in refs if ref.stored and ref.dtype in NUMPY_DTYPES)
        lost = [ref for ref in stored if not self.has(ref)]
        return not lost

    def forget(self) -> None:
        """Verify every file again when it is read next: one of them turned out to be damaged."""
        self._verified.clear()
        self._small.clear()
        self._small_bytes = 0

    def tensor(self, ref: TensorRef) -> NDArray[Any]:
        """Return the values of ``ref``, mapped and read-only.

        The bytes are hashed when this process reads them first. Raises CaptureError, with the
        file's path, if they are missing, have the wrong length or do not match the hash.
        """
        data = self._bytes(ref)
        return data.view(NUMPY_DTYPES[ref.dtype]).reshape(ref.shape)

    def _bytes(self, ref: TensorRef) -> NDArray[np.uint8]:
        """Return the bytes of ``ref``; recently read small tensors stay in memory."""
        path, data = self._file_of(ref), self._small.get(ref.hash)
        expected = _expected_bytes(ref, path)
        if data is None or data.nbytes != expected:
            data = _content_of(path, expected)
        else:
            self._small.move_to_end(ref.hash)
        if ref not in self._verified:
            _verify(ref, path, data)
            self._verified.add(ref)
        if data.nbytes <= _MAX_SMALL and ref.hash not in self._small:
            self._small[ref.hash] = data
            self._small_bytes += data.nbytes
            while self._small_bytes > _MAX_KEPT:
                self._drop(next(iter(self._small)))
        return data

    def _drop(self, digest: str) -> None:
        data = self._small.pop(digest, None)
        self._small_bytes -= 0 if data is None else data.nbytes

    def read_capture(self, path: Path) -> Capture:
        """Return the capture at ``path``, which is absolute or relative to the root.

        Raises CaptureError if it is missing, truncated or of another format version.
        """
        full = self.root / path
        data = _json_object(full)
        _check_format(full, data)
        try:
            return Capture.model_validate(data)
        except ValidationError as error:
            msg = f"{full} is not a valid capture: {_first_problems(error)}. {_REMEDY}"
            raise CaptureError(msg) from None

    def write_json(self, path: Path, text: str) -> None:
        """Write ``text``, a JSON object, to ``path`` atomically and with a seal."""
        replace(self.root / path, seal.sealed(text))


def _expected_bytes(ref: TensorRef, path: str) -> int:
    if ref.dtype not in NUMPY_DTYPES:
        msg = f"{path}: samebits cannot read values of dtype {ref.dtype}; update samebits."
        raise CaptureError(msg)
    return ref.nbytes


def _content_of(path: str, expected: int) -> NDArray[np.uint8]:
    """Return the bytes of a file, read-only: a small one is read, a larger one is mapped."""
    try:
        size = os.stat(path).st_size  # noqa: PTH116  a Path costs more than the call
        if size == expected:
            if size > _MAX_SMALL:
                return map_file(path)
            data = np.frombuffer(read_whole(path), np.uint8)
            if data.nbytes == expected:
                return data
            size = data.nbytes
    except OSError as error:
        raise CaptureError(f"{path} cannot be read: {error.strerror or error}. {_REMEDY}") from None
    raise CaptureError(
        f"{path} has {size:,} bytes instead of {expected:,}: it is incomplete or damaged. {_REMEDY}"
    )


def _verify(ref: TensorRef, path: str, data: NDArray[np.uint8]) -> None:
    digest = hasher(ref.dtype, ref.shape)
    for start in range(0, data.nbytes, STRIDE):
        digest.update(data[start : start + STRIDE].data)
        if data.nbytes > STRIDE:
            release_pages(data)
    if digest.hexdigest() == ref.hash:
        return
    raise CaptureError(
        f"{path} does not match its hash as {ref.dtype}{list(ref.shape)}: "
        f"it was changed or damaged. Remove it and run the cell again."
    )


def _json_object(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(seal.opened(_content(path))))
    except FileNotFoundError:
        msg = f"{path} is missing: the probe ended before it wrote it. {_REMEDY}"
        raise CaptureError(msg) from None
    except OSError as error:
        raise CaptureError(f"{path} cannot be read: {error.strerror or error}. {_REMEDY}") from None
    except seal.SealError as error:
        msg = f"{path} is not what was written ({error}): incomplete or damaged. {_REMEDY}"
        raise CaptureError(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not valid JSON ({type(error).__name__}: {error}): incomplete. {_REMEDY}"
        raise CaptureError(msg) from None


def _content(path: Path) -> bytes:
    """Return a file's content; a model's code may have put a pipe or a large file in its place."""
    if path.stat().st_size > _MAX_CAPTURE:
        raise OSError(None, f"it has more than {_MAX_CAPTURE:,} bytes")
    return read_whole(path)


def _check_format(path: Path, data: dict[str, Any]) -> None:
    format_name, version = data.get("format"), data.get("format_version")
    if format_name != _CAPTURE_FORMAT:
        raise CaptureError(
            f"{path} is not a capture: its format is {format_name!r}, "
            f"not {_CAPTURE_FORMAT!r}. {_REMEDY}"
        )
    # True and 1.0 equal 1 in Python, but a probe writes neither as a version
    if type(version) is not int or version != formats.CAPTURE:
        raise CaptureError(
            f"{path} has format version {version!r} and this samebits reads {formats.CAPTURE}: "
            f"another version of samebits wrote it. {_REMEDY}"
        )


def _first_problems(error: ValidationError, limit: int = 3) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, p['loc'])) or 'file'}: {p['msg']}" for p in problems[:limit]]
    more = len(problems) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
