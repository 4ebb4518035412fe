"""Tests that files unused for a week are removed, and files that a run may read are kept."""

import json
import os
import shutil

import pytest

from samebits.storage.prune import STALE_AFTER, prune
from samebits_wire.seal import sealed

NOW = 2_000_000_000.0
OLD, YOUNG = NOW - STALE_AFTER - 60, NOW - STALE_AFTER + 60

STALE = (
    "traces/m/v/s/a.json",
    "ladders/m/v/s/b.json",
    "ladders/m/v/s/b.log",
    "rows/m/v/c.json",
    "kept-capsules/m/v/s/d.json",
)
LASTING = ("captures/m/v/s/k/a.json", "tensors/ab/abc.bin", "checkpoints/made-0123456789ab/x")


def put(root, name, when=OLD, text=""):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (when, when))
    return path


@pytest.fixture
def root(tmp_path):
    for name in (*STALE, *LASTING):
        put(tmp_path, name)
    put(tmp_path, "checkpoints/made-0123456789ab/checkpoint.json")
    for path in (tmp_path / "checkpoints").iterdir():
        os.utime(path, (OLD, OLD))
    return tmp_path


def gone(root, used=()):
    return sorted(str(path.relative_to(root)) for path in prune(root, used, NOW))


def test_what_is_old_goes_and_what_a_comparison_goes_by_stays(root):
    assert gone(root) == sorted(STALE)
    assert all((root / name).exists() for name in LASTING)
    assert not any((root / name).exists() for name in STALE)


def test_what_is_young_stays(root):
    for name in STALE:
        os.utime(root / name, (YOUNG, YOUNG))
    assert gone(root) == []


def test_what_this_run_goes_by_stays_with_its_log(root):
    used = {str(root / "ladders/m/v/s/b.json")}
    assert gone(root, used) == [path for path in sorted(STALE) if "ladders" not in path]


@pytest.mark.parametrize(("when", "stays"), [(YOUNG, True), (OLD, False)], ids=["young", "old"])
def test_what_a_receipt_of_the_week_names_stays(root, when, stays):
    content = {"files": {str(root / "traces/m/v/s/a.json"): [0, 0, 0, 0]}}
    put(root, "receipts/r.json", when, sealed(json.dumps(content)))
    assert ("traces/m/v/s/a.json" not in gone(root)) == stays


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", sealed("{}"), sealed('{"files": 3}')])
def test_a_torn_receipt_names_nothing(root, text):
    put(root, "receipts/r.json", YOUNG, text)
    assert gone(root) == sorted(STALE)


@pytest.mark.parametrize(("when", "goes"), [(OLD, True), (YOUNG, False)], ids=["old", "young"])
def test_a_copy_with_patches_goes_as_a_whole(root, when, goes):
    copy = put(root, "checkpoints/custom-ffffffffffff/config.json").parent
    os.utime(copy, (when, when))
    assert (str(copy.relative_to(root)) in gone(root)) == goes
    assert copy.exists() != goes


def test_a_folder_without_work_has_nothing_to_prune(tmp_path):
    assert prune(tmp_path / "none", (), NOW) == []


def test_a_folder_that_another_run_removes_meanwhile_has_nothing_to_prune(root, monkeypatch):
    scandir, vanishing = os.scandir, root / "ladders" / "m"

    def removed_just_before(path):
        if str(path) == str(vanishing):
            shutil.rmtree(vanishing)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removed_just_before)
    removed = {path.relative_to(root).as_posix() for path in prune(root, (), NOW)}
    assert removed == {name for name in STALE if not name.startswith("ladders")}
