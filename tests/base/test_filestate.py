"""Tests of file states: every change of a file that a run used is noticed."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.base.filestate import Dependencies, changed


@pytest.fixture
def dependencies(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a.json").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    made = Dependencies()
    made.folder(tmp_path / "kept")
    made.file(tmp_path / "b.txt")
    made.file(tmp_path / "missing")
    return made


def is_changed(dependencies):
    return changed(dependencies.files, dependencies.folders)


def test_nothing_changed(dependencies):
    assert is_changed(dependencies) is None


def rewrite(path):
    """Overwrite a file with other bytes of the same length, and restore its mtime."""
    before = path.stat()
    path.write_text("".join(reversed(path.read_text())))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "a file is longer": lambda f: (f / "b.txt").write_text("two!"),
    "other bytes, same length, same time": lambda f: rewrite(f / "b.txt"),
    "a file is gone": lambda f: (f / "b.txt").unlink(),
    "a missing file came": lambda f: (f / "missing").write_text(""),
    "other bytes in the folder": lambda f: rewrite(f / "kept" / "a.json"),
    "one more in the folder": lambda f: (f / "kept" / "new").write_text(""),
    "one less in the folder": lambda f: (f / "kept" / "a.json").unlink(),
    "another name": lambda f: (f / "kept" / "a.json").rename(f / "kept" / "c.json"),
    "a copy in its place": lambda f: (
        (f / "copy").write_text("two"),
        (f / "copy").replace(f / "b.txt"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(dependencies, tmp_path, change):
    CHANGES[change](tmp_path)
    assert is_changed(dependencies) is not None


def linked(tmp_path):
    """Return a link to one of two folders, one of which contains a link to a third folder."""
    for name, text in (("one", "1"), ("other", "1"), ("third", "3")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    (tmp_path / "one" / "sub").symlink_to(tmp_path / "third")
    (tmp_path / "one" / "back").symlink_to(tmp_path / "one")
    (tmp_path / "link").symlink_to("one")
    made = Dependencies()
    made.folder(tmp_path / "link")
    return made


def test_a_link_that_leads_elsewhere_is_another_folder(tmp_path):
    made = linked(tmp_path)
    assert is_changed(made) is None
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("other")
    assert is_changed(made) is not None


def test_a_folder_behind_a_link_is_looked_into_and_a_circle_ends(tmp_path):
    made = linked(tmp_path)
    (known,) = made.folders.values()
    assert list(known) == ["config.json", "sub/config.json"]
    rewrite(tmp_path / "third" / "config.json")
    assert is_changed(made) is not None


def test_the_last_look_counts(dependencies, tmp_path):
    """The file may be rewritten between two looks; the run uses the later one."""
    (tmp_path / "b.txt").write_text("three")
    dependencies.file(tmp_path / "b.txt")
    assert is_changed(dependencies) is None


@given(
    before=st.dictionaries(st.sampled_from("abcd"), st.binary(max_size=3)),
    after=st.dictionaries(st.sampled_from("abcd"), st.binary(max_size=3)),
)
def test_no_two_states_of_a_folder_are_mistaken(tmp_path_factory, before, after):
    folder = tmp_path_factory.mktemp("folder")
    for name, data in before.items():
        (folder / name).write_bytes(data)
    dependencies = Dependencies()
    dependencies.folder(folder)
    for name in before.keys() - after.keys():
        (folder / name).unlink()
    for name, data in after.items():
        if before.get(name) != data:
            (folder / name).write_bytes(data)
    assert (is_changed(dependencies) is None) == (before == after)
