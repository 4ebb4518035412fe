"""Tensors of the user's tests: their identity, and how they differ."""

import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from samebits.gate.tensors import bytes_of, difference, remember
from samebits.records.tensor import tensor_hash


def test_an_array_is_its_dtype_shape_and_bytes():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = bytes_of(array)
    assert (found.dtype, found.shape, found.data) == ("float32", (2, 3), array.tobytes())
    assert found.recorded.hash == tensor_hash("float32", (2, 3), array.tobytes())[:16]


def test_layout_and_byte_order_do_not_matter():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert bytes_of(np.asfortranarray(array)) == bytes_of(array)
    assert bytes_of(array.astype(">f4")) == bytes_of(array)
    assert bytes_of(array[:, ::2]) == bytes_of(array[:, ::2].copy())


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (np.float32(0.0), np.float32(-0.0)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.zeros(4, np.float32), np.zeros(4, np.int32)),
        (np.zeros(4, np.float16), np.zeros(4, ml_dtypes.bfloat16)),
    ],
)
def test_what_is_not_the_same_bits(one, two):
    assert bytes_of(one).recorded != bytes_of(two).recorded


def test_bfloat16_of_numpy_is_named_as_that_of_torch():
    assert bytes_of(np.zeros(2, ml_dtypes.bfloat16)).dtype == "bfloat16"


@pytest.mark.parametrize("value", [1.5, [1, 2], None, np.array([object()])])
def test_what_is_no_tensor(value):
    with pytest.raises(TypeError, match=r"samebits\.tensor takes a"):
        bytes_of(value)


class FakeTensor:
    """What samebits asks of a tensor of torch."""

    layout, is_quantized = "strided", False
    device = SimpleNamespace(type="cpu")
    dtype = "torch.float32"

    def __init__(self, array):
        self.array = array
        self.shape = array.shape

    def detach(self):
        return self

    cpu = resolve_conj = resolve_neg = contiguous = detach

    def reshape(self, *shape):
        return FakeTensor(self.array.reshape(*shape))

    def view(self, dtype):
        return FakeTensor(self.array.view(dtype))

    def numel(self):
        return self.array.size

    def numpy(self):
        return self.array


@pytest.fixture
def torch(monkeypatch):
    fake = SimpleNamespace(Tensor=FakeTensor, strided="strided", uint8=np.uint8)
    monkeypatch.setitem(sys.modules, "torch", fake)


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_a_tensor_of_torch_is_that_of_numpy(torch, shape):
    array = np.ones(shape, np.float32)
    assert bytes_of(FakeTensor(array)) == bytes_of(array)


@pytest.mark.parametrize(
    "change",
    [{"layout": "sparse"}, {"is_quantized": True}, {"device": SimpleNamespace(type="meta")}],
)
def test_a_tensor_without_plain_values(torch, change):
    tensor = FakeTensor(np.ones(2, np.float32))
    vars(tensor).update(change)
    with pytest.raises(TypeError, match="dense tensor with values"):
        bytes_of(tensor)


def test_a_difference_is_told_from_remembered_values(tmp_path):
    before = np.zeros((2, 3), np.float32)
    after = before.copy()
    after[1, 2] = 0.5
    recorded = bytes_of(before).recorded
    assert difference(tmp_path, recorded, bytes_of(after)) == ""
    remember(tmp_path, bytes_of(before))
    text = difference(tmp_path, recorded, bytes_of(after))
    assert text == "1 of 6 elements differ, the first at [1, 2], by at most 0.5"


def test_damaged_values_are_not_believed(tmp_path):
    before = bytes_of(np.zeros(3, np.float32))
    remember(tmp_path, before)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"\1" * 12)
    assert difference(tmp_path, before.recorded, bytes_of(np.ones(3, np.float32))) == ""
