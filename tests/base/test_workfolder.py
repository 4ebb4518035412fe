"""A work folder is ignored by git, and no other folder is."""

from samebits.base.workfolder import keep_from_git


def test_a_work_folder_is_ignored_and_keeps_what_it_has(tmp_path):
    work = tmp_path / ".samebits"
    keep_from_git(work)
    assert (work / ".gitignore").read_text() == "*\n"
    (work / ".gitignore").write_text("")
    keep_from_git(work)
    assert (work / ".gitignore").read_text() == ""


def test_another_folder_and_one_that_cannot_be_made_are_left_alone(tmp_path):
    keep_from_git(tmp_path / "cache")
    (tmp_path / "file").write_text("")
    keep_from_git(tmp_path / "file" / ".samebits")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
