"""Tests that every changed bit of a stored file is noticed."""

import hashlib
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samebits_probe.process import files as process_files

from samebits.base import hashes
from samebits.base.digests import digest_of_file
from samebits.base.errors import CaptureError
from samebits.base.filestate import Dependencies
from samebits.base.workfolder import WORK
from samebits.jobs import checkpoints
from samebits.questions.crossings.records import CrossingsFile, SavedModel
from samebits.records.capture import Capture
from samebits.records.graft import DonorFile, GraftFile
from samebits.records.ladder import LadderFile
from samebits.records.record import read_record
from samebits.records.trace import Trace
from samebits.stacks import build
from samebits.stacks.installer import kept_lock
from samebits.storage import receipt, rows
from samebits.storage.store import Store
from samebits_wire import seal
from tests.support.builders import Memory, built_stack, cell_id, sound

HEAD = {"cell": cell_id("4.48"), "prompt": "short", "what": "forward"}


def flip(content, bit):
    at = bit // 8 % len(content)
    return content[:at] + bytes([content[at] ^ 1 << bit % 8]) + content[at + 1 :]


# the seal


@pytest.mark.parametrize("text", ["{}", '{"a":1}', '{\n "a": "ä\\"}"\n}\n'])
def test_what_is_sealed_opens_and_is_json_with_one_more_key(text):
    content = seal.sealed(text).encode()
    assert json.loads(seal.opened(content)) == json.loads(text)
    data = json.loads(content)
    assert list(data)[-1] == "seal"
    assert {key: data[key] for key in data if key != "seal"} == json.loads(text)


@pytest.mark.parametrize("text", ["{}", '{"a":1,"b":[1.5,"x"]}'])
def test_every_bit_counts(text):
    content = seal.sealed(text).encode()
    for bit in range(8 * len(content)):
        with pytest.raises(seal.SealError):
            seal.opened(flip(content, bit))
    for length in range(len(content)):
        with pytest.raises(seal.SealError):
            seal.opened(content[:length])
    for more in (b"\n", b"}", content):
        with pytest.raises(seal.SealError):
            seal.opened(content + more)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "null"])
def test_only_an_object_bears_one(text):
    with pytest.raises(ValueError, match="only an object"):
        seal.sealed(text)


values = st.dictionaries(
    st.text(max_size=5),
    st.recursive(st.integers() | st.floats(allow_nan=False) | st.text(), st.lists),
    max_size=4,
)


@given(values)
def test_probes_write_the_same(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("probe") / "a.json"
    process_files.write_sealed(path, value)
    # a lone surrogate, which JSON in UTF-8 cannot contain, is written as a question mark
    expected = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    assert json.loads(seal.read(path)) == expected
    assert process_files.read_sealed(path) == expected
    text = json.dumps(expected, separators=(",", ":"), ensure_ascii=False)
    assert path.read_bytes() == seal.sealed(text).encode()


@settings(max_examples=50)
@given(st.integers(0))
def test_a_probe_that_reads_notices_any_bit(tmp_path_factory, bit):
    path = tmp_path_factory.mktemp("probe") / "a.json"
    process_files.write_sealed(path, {"a": [1, 2.5, "ä"], "b": {}})
    path.write_bytes(flip(path.read_bytes(), bit))
    with pytest.raises(process_files.StoreFault, match="its seal does not match"):
        process_files.read_sealed(path)


@given(st.text(), st.integers(0))
def test_lines_with_a_comment(text, bit):
    content = seal.sealed_lines(text) if text.isascii() else seal.sealed_lines("a==1\n")
    assert seal.sealed_lines(seal.opened_lines(content)) == content
    changed = flip(content.encode(), bit)
    try:
        other = changed.decode()
    except UnicodeDecodeError:
        return
    with pytest.raises(seal.SealError):
        seal.opened_lines(other)


def test_a_gigabyte_takes_about_a_second():
    """Measured relative to SHA-256, because the machine may be busy."""
    content = seal.sealed(json.dumps({"a": "x" * (64 << 20)})).encode()

    def fastest(function):
        took = []
        for _ in range(3):
            started = time.process_time()
            function()
            took.append(time.process_time() - started)
        return min(took)

    assert fastest(lambda: seal.opened(content)) < 4 * fastest(
        lambda: hashlib.sha256(content).digest()
    )


# every file that is kept


RECORDS = {
    "stack": built_stack("4.48"),
    "saved": SavedModel(cell=cell_id("4.48"), outcome="saved", files={"a": "b" * 64}),
    "crossings": CrossingsFile(cell=cell_id("4.48"), crossings=()),
    "ladder": LadderFile(cell=cell_id("4.48")),
    "trace": Trace(**HEAD),
    "donor": DonorFile(**HEAD),
    "graft": GraftFile(**HEAD),
}


@pytest.mark.parametrize("name", RECORDS)
def test_every_kind_of_record_is_read_whole_or_not_at_all(tmp_path, name):
    record, path = RECORDS[name], tmp_path / "a.json"
    content = seal.sealed(record.model_dump_json()).encode()
    path.write_bytes(content)
    assert read_record(path, type(record)) == record
    for bit in range(0, 8 * len(content), 7):
        path.write_bytes(flip(content, bit))
        assert read_record(path, type(record)) is None


CAPTURE = seal.sealed(sound(Memory()).model_dump_json()).encode()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 8 * len(CAPTURE) - 1))
def test_a_capture_with_another_bit_is_refused_by_name(tmp_path_factory, bit):
    folder = tmp_path_factory.mktemp("capture")
    (folder / "a.json").write_bytes(CAPTURE)
    assert isinstance(Store(folder).read_capture(Path("a.json")), Capture)
    (folder / "a.json").write_bytes(flip(CAPTURE, bit))
    with pytest.raises(CaptureError, match="not what was written"):
        Store(folder).read_capture(Path("a.json"))


FACTS = seal.sealed(json.dumps({"n_parameters": 12, "files": {"a": "b" * 64}})).encode()
ROW = rows.KeptRow.model_validate({"reference": "4.48", "results": (), "outcomes": {}, "facts": {}})
LOCK = seal.sealed_lines("torch==2.8.0\ntransformers==4.48.3\n").encode()
CACHE = seal.sealed(
    json.dumps({"hash_algorithm": "blake3", "files": {"/a|1|2|3|4": "b" * 64}}, indent=0)
).encode()
READERS = {
    "checkpoint.json": (FACTS, lambda path: checkpoints.read_facts(path.parent)),
    "row.json": (seal.sealed(ROW.model_dump_json()).encode(), rows._read_row),
    "lock.txt": (LOCK, lambda path: kept_lock(path, build._is_stack_lock)),
    "hashes.json": (CACHE, lambda path: hashes._read_cache(path) or None),
}


@pytest.mark.parametrize("name", READERS)
def test_what_the_host_keeps_is_read_whole_or_not_at_all(tmp_path, name):
    content, reader = READERS[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert reader(path) is not None
    for bit in range(8 * len(content)):
        path.write_bytes(flip(content, bit))
        assert reader(path) is None


def test_a_receipt_with_another_bit_is_not_served(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.yaml").write_text("models: {}\n")
    matrix = Path("matrix.yaml"), digest_of_file(Path("matrix.yaml"))
    printed = receipt.Answer(1, ["12 cells differ"])
    receipt.save(["matrix"], {}, matrix, Dependencies(), {}, "then", printed)
    (path,) = (tmp_path / WORK / receipt.FOLDER).iterdir()
    content = path.read_bytes()
    assert receipt.lookup(["matrix"], {}).lines[1:] == printed.lines
    for bit in range(0, 8 * len(content), 11):
        path.write_bytes(flip(content, bit))
        assert receipt.lookup(["matrix"], {}) is None
