"""Where are the tensors and captures that the probes left, and are they whole?

Layout below one root folder: tensors at ``tensors/<first 2 hex>/<sha256 hex>.bin``, raw
contiguous little-endian bytes; captures at ``captures/<...>/capture.json``.
"""

from __future__ import annotations

import contextlib
import json
import stat
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from samebits.base import seal
from samebits.base.atomic import replace
from samebits.base.errors import CaptureError
from samebits.base.filestate import identity
from samebits.base.mmap import STRIDE, give_back, mapped
from samebits.records.capture import FORMAT_VERSION, Capture
from samebits.records.tensor import NUMPY_DTYPES, TensorRef, hasher

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

CAPTURE_FORMAT = "samebits-capture"
SMALL = 1 << 16
"""Bytes up to which a tensor stays mapped: opening one costs more than to read it."""
MOST_MAPPED = 256
AGAIN = "Run the cell again to write it anew."
LARGEST = 1 << 30
"""Bytes up to which a capture is read; it holds facts alone."""


class Store:
    """The files below one root folder; reading verifies, writing is atomic."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._verified: set[TensorRef] = set()
        self._open: OrderedDict[str, NDArray[np.uint8]] = OrderedDict()

    def tensor_path(self, ref: TensorRef) -> Path:
        """Return where the bytes of ``ref`` lie, or would lie."""
        return self.root / "tensors" / ref.hash[:2] / f"{ref.hash}.bin"

    def lies(self, ref: TensorRef) -> bool:
        """Return True if there is a file of the length of ``ref``, whose dtype is known.

        A tensor is not flushed when it is written, so that a power cut can leave a short one.
        """
        if ref.dtype not in NUMPY_DTYPES:
            return False
        found = identity(self.tensor_path(ref))
        return found is not None and found[0] == ref.nbytes

    def has(self, ref: TensorRef) -> bool:
        """Return True if the values can be read: their file is there, whole, and its dtype known.

        A damaged file is removed, so that the next probe that has these bytes writes them anew.
        """
        if ref.dtype not in NUMPY_DTYPES:
            return False
        with contextlib.suppress(CaptureError):
            if self.lies(ref):
                self._bytes(ref)
                return True
        self._verified.discard(ref)
        self._open.pop(ref.hash, None)
        with contextlib.suppress(OSError):
            self.tensor_path(ref).unlink()
        return False

    def keeps(self, refs: Iterable[TensorRef]) -> bool:
        """Return True unless values that were stored are gone or damaged; these are removed.

        What another samebits can read is none of them.
        """
        stored = (ref for ref in refs if ref.stored and ref.dtype in NUMPY_DTYPES)
        lost = [ref for ref in stored if not self.has(ref)]
        return not lost

    def tensor(self, ref: TensorRef) -> NDArray[Any]:
        """Return the values of ``ref``, mapped and read-only.

        The bytes are hashed at the first reading in this process. Raises CaptureError, with
        the file's path, if they are missing, of the wrong length or not those of the hash.
        """
        data = self._bytes(ref)
        return data.view(NUMPY_DTYPES[ref.dtype]).reshape(ref.shape)

    def _bytes(self, ref: TensorRef) -> NDArray[np.uint8]:
        """Return the bytes of ``ref``; a small tensor that was read lately is still mapped."""
        path, data = self.tensor_path(ref), self._open.get(ref.hash)
        if data is None or data.nbytes != _expected_bytes(ref, path):
            data = _mapped(path, _expected_bytes(ref, path))
        elif ref in self._verified:
            self._open.move_to_end(ref.hash)
            return data
        if ref not in self._verified:
            _verify(ref, path, data)
            self._verified.add(ref)
        if data.nbytes <= SMALL:
            self._open[ref.hash] = data
            if len(self._open) > MOST_MAPPED:
                self._open.popitem(last=False)
        return data

    def read_capture(self, path: Path) -> Capture:
        """Return the capture at ``path``, which is absolute or relative to the root.

        Raises CaptureError if it is missing, torn or not of this format version.
        """
        full = self.root / path
        data = _json_object(full)
        _check_format(full, data)
        try:
            return Capture.model_validate(data)
        except ValidationError as error:
            msg = f"{full} is no valid capture: {_first_problems(error)}. {AGAIN}"
            raise CaptureError(msg) from None

    def write_json(self, path: Path, text: str) -> None:
        """Write ``text``, an object, to ``path`` so that a reader sees all of it or nothing."""
        replace(self.root / path, seal.sealed(text))


def _expected_bytes(ref: TensorRef, path: Path) -> int:
    if ref.dtype not in NUMPY_DTYPES:
        msg = f"{path}: this samebits cannot read values of dtype {ref.dtype}; a newer one may."
        raise CaptureError(msg)
    return ref.nbytes


def _mapped(path: Path, expected: int) -> NDArray[np.uint8]:
    try:
        size = path.stat().st_size
        if size == expected:
            return mapped(path) if size else np.empty(0, np.uint8)  # an empty file cannot be mapped
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}. {AGAIN}"
        raise CaptureError(msg) from None
    msg = f"{path} has {size:,} bytes and should have {expected:,}: it is torn. {AGAIN}"
    raise CaptureError(msg)


def _verify(ref: TensorRef, path: Path, data: NDArray[np.uint8]) -> None:
    digest = hasher(ref.dtype, ref.shape)
    for start in range(0, data.nbytes, STRIDE):
        digest.update(data[start : start + STRIDE].data)
        if data.nbytes > STRIDE:
            give_back(data)
    if digest.hexdigest() == ref.hash:
        return
    msg = (
        f"{path} does not hold the bytes of its hash as {ref.dtype}{list(ref.shape)}: "
        f"it was changed or damaged. Remove it, then run the cell again."
    )
    raise CaptureError(msg)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(seal.opened(_content(path))))
    except FileNotFoundError:
        msg = f"{path} is not there: the probe ended before it wrote it. {AGAIN}"
        raise CaptureError(msg) from None
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}. {AGAIN}"
        raise CaptureError(msg) from None
    except seal.SealError as error:
        msg = f"{path} is not what was written ({error}): it is torn or damaged. {AGAIN}"
        raise CaptureError(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{path} is no JSON ({type(error).__name__}: {error}): it is torn. {AGAIN}"
        raise CaptureError(msg) from None


def _content(path: Path) -> bytes:
    """Return what a file holds; a model's code may have left a pipe or a device in its place."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
        raise OSError(None, f"it is no file of at most {LARGEST:,} bytes")
    return path.read_bytes()


def _check_format(path: Path, data: dict[str, Any]) -> None:
    found, version = data.get("format"), data.get("format_version")
    if found != CAPTURE_FORMAT:
        msg = f"{path} is no capture: its format is {found!r}, not {CAPTURE_FORMAT!r}. {AGAIN}"
        raise CaptureError(msg)
    # True == 1 in Python, and 1.0 too; neither is a version that a probe writes.
    if type(version) is not int or version != FORMAT_VERSION:
        msg = (
            f"{path} has format version {version!r} and this samebits reads {FORMAT_VERSION}: "
            f"it was left by another samebits. {AGAIN}"
        )
        raise CaptureError(msg)


def _first_problems(error: ValidationError, limit: int = 3) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, p['loc'])) or 'file'}: {p['msg']}" for p in problems[:limit]]
    more = len(problems) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
