import json
import os

import ml_dtypes
import numpy as np
import pytest

from samebits.base.errors import CaptureError
from samebits.records.tensor import NUMPY_DTYPES, TensorRef, tensor_hash
from samebits.storage.store import Store
from samebits_wire.formats import CAPTURE
from samebits_wire.seal import sealed
from tests.support.builders import Memory, sound

NEWER = CAPTURE + 1


def put(store, array, name):
    array = np.asarray(array)
    hash = tensor_hash(name, array.shape, array.tobytes())
    ref = TensorRef(hash=hash, dtype=name, shape=array.shape, stored=True)
    path = store.tensor_path(ref)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(array.tobytes())
    return ref


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.mark.parametrize("name", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (5,), (2, 3)], ids=str)
def test_tensors_of_every_dtype_and_shape_come_back_bit_for_bit(store, name, shape):
    raw = np.random.default_rng(1).integers(0, 2, shape).astype(NUMPY_DTYPES[name])
    ref = put(store, raw, name)
    read = store.tensor(ref)
    assert read.dtype == NUMPY_DTYPES[name]
    assert read.shape == shape
    assert read.tobytes() == raw.tobytes()


def test_a_tensor_lies_under_its_hash(store, tmp_path):
    ref = put(store, np.arange(3, dtype=np.int64), "int64")
    assert store.tensor_path(ref) == tmp_path / "tensors" / ref.hash[:2] / f"{ref.hash}.bin"
    assert store.has(ref)


def test_a_tensor_is_read_only(store):
    ref = put(store, np.arange(3, dtype=np.int64), "int64")
    with pytest.raises(ValueError, match="read-only"):
        store.tensor(ref)[0] = 1


def test_a_changed_byte_is_found_and_the_file_named(store):
    ref = put(store, np.arange(3, dtype=np.int64), "int64")
    path = store.tensor_path(ref)
    path.write_bytes(b"\x01" + path.read_bytes()[1:])
    with pytest.raises(CaptureError, match=ref.hash):
        store.tensor(ref)


@pytest.mark.parametrize(
    "change",
    [lambda b: b[:-1], lambda b: b + b"\0", lambda _: b""],
    ids=["shorter", "longer", "empty"],
)
def test_a_wrong_length_is_found(store, change):
    ref = put(store, np.arange(3, dtype=np.int64), "int64")
    path = store.tensor_path(ref)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CaptureError, match="incomplete"):
        store.tensor(ref)


def test_equal_bytes_under_another_dtype_are_not_taken_for_it(store):
    ref = put(store, np.arange(4, dtype=np.int32), "int32")
    other = TensorRef(hash=ref.hash, dtype="float32", shape=(4,))
    with pytest.raises(CaptureError, match="float32"):
        store.tensor(other)


def test_bytes_are_hashed_once_per_process(store, monkeypatch):
    ref = put(store, np.arange(4, dtype=np.int32), "int32")
    store.tensor(ref)
    monkeypatch.setattr("samebits.storage.store.hasher", None)
    assert store.tensor(ref).tolist() == [0, 1, 2, 3]


def test_small_tensors_stay_in_memory_up_to_a_limit(store, monkeypatch):
    refs = [put(store, np.full(4, n, np.int64), "int64") for n in range(5)]
    monkeypatch.setattr("samebits.storage.store._MAX_KEPT", 3 * 32)
    for ref in refs:
        store.tensor(ref)
        store.tensor_path(ref).unlink()
    assert [int(store.tensor(ref)[0]) for ref in refs[2:]] == [2, 3, 4]
    with pytest.raises(CaptureError, match="cannot be read"):
        store.tensor(refs[0])


def test_a_tensor_that_was_read_and_is_gone_is_not_had(store):
    ref = put(store, np.arange(4, dtype=np.int64), "int64")
    assert store.has(ref)
    store.tensor_path(ref).unlink()
    assert not store.has(ref)
    with pytest.raises(CaptureError, match="cannot be read"):
        store.tensor(ref)


def test_a_large_tensor_is_mapped(store):
    ref = put(store, np.arange(1 << 14, dtype=np.int64), "int64")
    values = store.tensor(ref)
    assert values.base is not None
    assert not values.flags.owndata
    assert int(values[-1]) == (1 << 14) - 1


def test_what_is_not_there_is_not_had(store):
    ref = TensorRef(hash="0" * 64, dtype="float32", shape=(1,), stored=True)
    assert not store.has(ref)
    with pytest.raises(CaptureError, match="0000"):
        store.tensor(ref)


def test_values_of_an_unknown_dtype_are_not_had(store):
    ref = put(store, np.arange(3, dtype=np.int64), "int64").model_copy(update={"dtype": "int4"})
    assert not store.has(ref)
    with pytest.raises(CaptureError, match="int4"):
        store.tensor(ref)


def test_bfloat16_keeps_its_dtype(store):
    ref = put(store, np.ones(2, ml_dtypes.bfloat16), "bfloat16")
    assert store.tensor(ref).dtype == ml_dtypes.bfloat16


def test_a_capture_comes_back(store, tmp_path):
    wrote = sound(Memory())
    store.write_json("captures/x/a.json", wrote.model_dump_json())
    assert store.read_capture("captures/x/a.json") == wrote
    assert store.read_capture(tmp_path / "captures/x/a.json") == wrote


def text_of(**changed):
    return json.dumps(json.loads(sound(Memory()).model_dump_json()) | changed)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(text_of()[:-20], "incomplete", id="cut"),
        pytest.param("", "incomplete", id="empty"),
        pytest.param("\x00\x01", "incomplete", id="binary"),
        pytest.param("[" * 100_000, "incomplete", id="deep"),
        pytest.param("[1]", "incomplete", id="list"),
        pytest.param("3", "incomplete", id="number"),
        pytest.param("{}", "format", id="object"),
        pytest.param(text_of(format="other"), "other", id="format"),
        pytest.param(text_of(format_version=NEWER), f"version {NEWER}", id="newer"),
        pytest.param(text_of(format_version="1"), "version '1'", id="text"),
        pytest.param(text_of(format_version=True), "version True", id="bool"),
        pytest.param(text_of(format_version=None), "version None", id="none"),
        pytest.param(text_of(status="fine"), "status", id="status"),
        pytest.param(text_of(surprise=1), "surprise", id="unknown"),
        pytest.param(text_of(cell={}), "cell.model", id="cell"),
    ],
)
def test_a_capture_that_is_none_says_why_without_a_traceback(store, text, words):
    (store.root / "a.json").write_text(sealed(text) if text.endswith("}") else text)
    with pytest.raises(CaptureError, match=words) as caught:
        store.read_capture("a.json")
    assert str(store.root / "a.json") in str(caught.value)
    error = caught.value
    assert error.__context__ is None or error.__suppress_context__
    assert "pydantic" not in str(caught.value)


def test_bytes_that_are_no_text_are_incomplete(store, tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(CaptureError, match="incomplete"):
        store.read_capture("a.json")


def test_a_missing_capture_says_so(store):
    with pytest.raises(CaptureError, match="is missing"):
        store.read_capture("nowhere/a.json")


def test_a_folder_in_place_of_a_capture_says_so(store, tmp_path):
    (tmp_path / "a.json").mkdir()
    with pytest.raises(CaptureError, match="cannot be read"):
        store.read_capture("a.json")


def test_writing_replaces_and_leaves_nothing_aside(store, tmp_path):
    store.write_json("b/a.json", '{"a": 1}')
    store.write_json("b/a.json", '{"b": 2}')
    assert [p.name for p in (tmp_path / "b").iterdir()] == ["a.json"]
    assert (tmp_path / "b/a.json").read_text() == sealed('{"b": 2}')


def test_a_write_that_fails_keeps_the_old_file(store, tmp_path, monkeypatch):
    store.write_json("a.json", '{"a": 1}')

    def fail(descriptor):
        raise OSError(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"\d"):
        store.write_json("a.json", "{}")
    assert (tmp_path / "a.json").read_text() == sealed('{"a": 1}')
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_what_was_stored_is_kept_unless_one_is_gone_or_damaged(store):
    refs = [put(store, np.full(4, n, np.int64), "int64") for n in range(4)]
    refs = [ref.model_copy(update={"stored": True}) for ref in refs]
    foreign = TensorRef(hash="f" * 64, dtype="float4", shape=(2,), stored=True)
    hashed = TensorRef(hash="e" * 64, dtype="int64", shape=(2,))
    assert store.verify_all([*refs, foreign, hashed])
    again = Store(store.root)  # has not read them yet
    for ref in refs[:2]:
        path = again.tensor_path(ref)
        path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    assert not again.verify_all(refs)
    assert [again.tensor_path(ref).exists() for ref in refs] == [False, False, True, True]
