"""A tensor's hash: BLAKE3 of its header and its bytes, as the probes compute it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from blake3 import blake3

from samebits.records.tensor import ITEM_SIZES, NUMPY_DTYPES, tensor_hash

KNOWN = Path(__file__).parents[1] / "inside" / "hashes.json"


def test_known_hashes_are_those_of_the_probes():
    """tests/inside/check_tensor.py reads the same file."""
    known = json.loads(KNOWN.read_text("utf-8"))
    assert known
    for line in known:
        data = bytes.fromhex(line["bytes"])
        assert tensor_hash(line["dtype"], tuple(line["shape"]), data) == line["hash"], line


def test_dtype_shape_and_bytes_are_hashed():
    header = b"samebits-tensor-1\0float32\0002,1\0"
    assert tensor_hash("float32", (2, 1), bytes(8)) == blake3(header + bytes(8)).hexdigest()
    kinds = [("float32", (2, 1)), ("int32", (2, 1)), ("float32", (1, 2)), ("float32", (2,))]
    assert len({tensor_hash(dtype, shape, bytes(8)) for dtype, shape in kinds}) == 4


def test_a_view_is_hashed_like_its_bytes():
    data = bytearray(range(8))
    view = memoryview(data)
    assert tensor_hash("uint8", (8,), view) == tensor_hash("uint8", (8,), bytes(data))
    assert tensor_hash("uint8", (0,), view[:0]) == tensor_hash("uint8", (0,), b"")


@pytest.mark.parametrize("name", ITEM_SIZES)
def test_a_numpy_dtype_has_the_name_and_the_size_of_its_torch_dtype(name):
    assert (NUMPY_DTYPES[name].name, NUMPY_DTYPES[name].itemsize) == (name, ITEM_SIZES[name])


def test_a_dtype_that_numpy_does_not_read_is_none():
    assert "float4_e2m1fn_x2" not in NUMPY_DTYPES
    with pytest.raises(KeyError):
        NUMPY_DTYPES["float4_e2m1fn_x2"]


@pytest.mark.processes
def test_dtypes_beyond_numpy_are_imported_with_the_first_tensor_that_has_one():
    code = (
        "import sys, samebits.cli.command\n"
        "from samebits.records.tensor import NUMPY_DTYPES\n"
        "for name in ('float32', 'bool', 'bfloat16'):\n"
        "    NUMPY_DTYPES[name]; print('ml_dtypes' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False", "True"]
