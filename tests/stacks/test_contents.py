"""stacks.contents: what several runs write to one environment at once is no damage."""

import os

import pytest

from samebits.stacks import contents


@pytest.fixture
def folder(tmp_path):
    """An environment of one module, with its list of files."""
    (tmp_path / "module.py").write_text("VALUE = 1\n")
    contents.write(tmp_path, contents.listed(tmp_path))
    return tmp_path


def test_a_file_that_was_added_is_damage(folder):
    (folder / "usercustomize.py").write_text("")
    assert contents.damage(folder) == "usercustomize.py was added"


@pytest.mark.parametrize("file", ["samebits-bytecode.json", "samebits-files.json"])
def test_a_list_that_another_run_is_writing_is_no_damage(folder, monkeypatch, file):
    reasons, replace = [], os.replace

    def look(source, target):
        assert source.parent == target.parent == folder
        reasons.append(contents.damage(folder))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    if file == "samebits-files.json":
        contents.write(folder, contents.listed(folder))
    else:
        contents.record_bytecode(folder)
    assert reasons == [None]


def test_bytecode_that_gets_its_name_during_the_look_is_no_damage(folder, monkeypatch):
    (folder / "__pycache__").mkdir()
    temporary = folder / "__pycache__" / "module.cpython-311.pyc.1407"
    temporary.write_text("")
    scan = os.scandir

    def look(path):
        entries = scan(path)
        if path == str(folder / "__pycache__"):
            entries = list(entries)
            temporary.unlink()
            return Closing(entries)
        return entries

    monkeypatch.setattr(os, "scandir", look)
    assert contents.damage(folder) is None


class Closing(list):
    """Entries that a ``with`` statement takes."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None
