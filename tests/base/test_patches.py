"""Tests of patches: they apply atomically, to a copy, and errors say what is wrong."""

import difflib
import os

import pytest

from samebits.base.errors import PatchError
from samebits.base.patches import patched_files, write_patched

CODE = "".join(f"line {number}\n" for number in range(1, 21))


def unified(before, after, name="code.py", n=3):
    lines = [text.splitlines(keepends=True) for text in (before, after)]
    return "".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}", n=n))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    (made / "sub").mkdir(parents=True)
    (made / "code.py").write_text(CODE)
    (made / "sub" / "more.py").write_text("one\ntwo\n")
    (made / "config.json").write_text("{}\n")
    with (made / "model.safetensors").open("wb") as file:
        file.truncate(3 << 20)
    return made


@pytest.fixture
def patch(tmp_path):
    """Write patches and return their paths."""

    def write(*texts):
        paths = [tmp_path / f"{number}.diff" for number in range(1, len(texts) + 1)]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return paths

    return write


def refused(folder, patches):
    with pytest.raises(PatchError) as caught:
        patched_files(folder, patches)
    return str(caught.value)


def test_lines_are_changed_and_the_folder_is_not(folder, patch):
    after = CODE.replace("line 4\n", "line four\n").replace("line 17\n", "")
    assert patched_files(folder, patch(unified(CODE, after))) == {"code.py": after}
    assert (folder / "code.py").read_text() == CODE


def test_patches_apply_in_order(folder, patch):
    once = CODE.replace("line 4\n", "line four\n")
    twice = once.replace("line four\n", "line 4.0\n")
    first, second = patch(unified(CODE, once), unified(once, twice))
    assert patched_files(folder, [first, second]) == {"code.py": twice}
    assert 'hunk 1 of "code.py" (line 1)' in refused(folder, [second, first])


def test_what_stands_around_a_diff_is_no_part_of_it(folder, patch):
    after = CODE.replace("line 9\n", "line nine\n")
    text = f"# TIE-01: a comment\ndiff --git a/code.py b/code.py\n{unified(CODE, after)}"
    assert patched_files(folder, patch(text)) == {"code.py": after}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a/code.py", "b/code.py"),
        ("code.py", "code.py"),
        ("model/code.py", "repaired/code.py"),
        ("a/code.py\t2026-11-20 10:00:00", "b/code.py\t2026-11-20 10:01:00"),
    ],
    ids=["git", "plain", "two-folders", "stamped"],
)
def test_a_file_is_named_as_git_and_diff_name_it(folder, patch, old, new):
    text = f"--- {old}\n+++ {new}\n@@ -1 +1 @@\n-line 1\n+line one\n"
    assert list(patched_files(folder, patch(text))) == ["code.py"]


def test_a_file_in_a_folder(folder, patch):
    text = unified("one\ntwo\n", "one\n2\n", "sub/more.py")
    assert patched_files(folder, patch(text)) == {"sub/more.py": "one\n2\n"}


def test_a_hunk_finds_its_lines_elsewhere(folder, patch):
    after = CODE.replace("line 9\n", "line nine\n").replace("line 18\n", "line eighteen\n")
    text = unified(CODE, after)
    (folder / "code.py").write_text(f"new\nnew\n{CODE}")
    assert patched_files(folder, patch(text)) == {"code.py": f"new\nnew\n{after}"}


def test_of_several_places_the_nearest_is_meant(folder, patch):
    (folder / "code.py").write_text("x = 1\n\n" * 9)
    text = "--- a/code.py\n+++ b/code.py\n@@ -9,2 +9,2 @@\n-x = 1\n+x = 2\n \n"
    expected = "x = 1\n\n" * 4 + "x = 2\n\n" + "x = 1\n\n" * 4
    assert patched_files(folder, patch(text)) == {"code.py": expected}


def test_a_line_is_added_where_no_line_is_shown(folder, patch):
    text = unified(CODE, CODE.replace("line 5\n", "line 5\nline 5.5\n"), n=0)
    assert patched_files(folder, patch(text))["code.py"].count("line 5\nline 5.5\nline 6\n") == 1


@pytest.mark.parametrize(
    ("before", "after"), [("a\nb", "a\nc"), ("a\nb", "a\nb\n"), ("a\nb\n", "a\nb")]
)
def test_the_end_of_a_file_without_a_line_feed(folder, patch, before, after):
    (folder / "code.py").write_text(before)
    lines = [text.splitlines(keepends=True) for text in (before, after)]
    text = "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(*lines, "a/code.py", "b/code.py")
    )
    assert patched_files(folder, patch(text)) == {"code.py": after}


def test_line_ends_and_other_characters_stay(folder, patch):
    (folder / "code.py").write_bytes("one\r\nzw\u00f6lf\x0c\u2028\r\n".encode())
    text = "--- a/code.py\n+++ b/code.py\n@@ -1,2 +1,2 @@\n-one\r\n+1\r\n zw\u00f6lf\x0c\u2028\r\n"
    assert patched_files(folder, patch(text)) == {"code.py": "1\r\nzw\u00f6lf\x0c\u2028\r\n"}


def test_a_file_comes_and_another_goes(folder, patch, tmp_path):
    text = "--- /dev/null\n+++ b/new/file.py\n@@ -0,0 +1 @@\n+pass\n"
    text += "--- a/sub/more.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\n"
    out = tmp_path / "out"
    write_patched(folder, patch(text), out)
    assert (out / "new" / "file.py").read_text() == "pass\n"
    assert not (out / "sub" / "more.py").exists()


def test_a_copy_has_the_rest_and_links_to_what_is_large(folder, patch, tmp_path):
    out = tmp_path / "made" / "out"
    write_patched(folder, patch(unified(CODE, CODE + "more\n")), out)
    assert (out / "code.py").read_text() == CODE + "more\n"
    assert (out / "config.json").read_text() == "{}\n"
    assert not (out / "config.json").is_symlink()
    assert (out / "model.safetensors").is_symlink()
    assert (out / "model.safetensors").stat().st_size == 3 << 20
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_where_links_are_impossible_files_are_copied(folder, patch, tmp_path, monkeypatch):
    def no_links(self, target):
        raise OSError(1, "a required privilege is not held by the client")

    monkeypatch.setattr("pathlib.Path.symlink_to", no_links)
    out = tmp_path / "out"
    write_patched(folder, patch(unified(CODE, CODE + "more\n")), out)
    assert not (out / "model.safetensors").is_symlink()
    assert (out / "model.safetensors").stat().st_size == 3 << 20


def test_a_file_of_the_checkpoint_that_is_a_link_is_not_written_through(folder, patch, tmp_path):
    blob = tmp_path / "blob"
    blob.write_text(CODE)
    (folder / "code.py").unlink()
    (folder / "code.py").symlink_to(blob)
    out = tmp_path / "out"
    write_patched(folder, patch(unified(CODE, CODE + "more\n")), out)
    assert blob.read_text() == CODE
    assert (out / "code.py").read_text() == CODE + "more\n"


def test_two_runs_may_make_the_same_copy(folder, patch, tmp_path):
    out, patches = tmp_path / "out", patch(unified(CODE, CODE + "more\n"))
    write_patched(folder, patches, out)
    write_patched(folder, patches, out)
    assert {path.name for path in tmp_path.iterdir()} == {"1.diff", "model", "out"}


def test_nothing_is_left_of_a_patch_that_does_not_apply(folder, patch, tmp_path):
    with pytest.raises(PatchError):
        write_patched(folder, patch(unified("x\n", "y\n")), tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"1.diff", "model"}


def test_the_file_the_hunk_and_the_line_are_said(folder, patch):
    after = CODE.replace("line 2\n", "line two\n").replace("line 17\n", "line seventeen\n")
    text = unified(CODE, after)
    (folder / "code.py").write_text(CODE.replace("line 16\n", "line sixteen\n"))
    assert refused(folder, patch(text)) == (
        '"1.diff" does not apply: hunk 2 of "code.py" (line 14): line 16 is "line sixteen" and '
        'not "line 16": was the patch made for another checkpoint, or after another patch?'
    )


def test_a_file_that_ends_too_early(folder, patch):
    text = unified(CODE, CODE.replace("line 20\n", "last\n"))
    (folder / "code.py").write_text("".join(CODE.splitlines(keepends=True)[:18]))
    assert 'the file ends before line 19, "line 19"' in refused(folder, patch(text))


@pytest.mark.parametrize(
    "name",
    ["../code.py", "/etc/passwd", "sub/../../code.py", "C:/code.py", "..\\code.py"],
)
def test_a_patch_that_leaves_the_folder_is_refused(folder, patch, name):
    text = f"--- {name}\n+++ {name}\n@@ -1 +1 @@\n-line 1\n+line one\n"
    assert "leaves the checkpoint's folder" in refused(folder, patch(text))
    new = f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+pass\n"
    assert "leaves the checkpoint's folder" in refused(folder, patch(new))


REFUSED = {
    "empty": ("", "changes nothing that can be patched"),
    "prose": ("This is a letter.\n", "changes nothing that can be patched"),
    "bytes": (b"--- a/code.py\n\xff\xfe\n", "is no unified diff"),
    "torn": ("--- a/code.py\n+++ b/code.py\n@@ -1,3 +1,3 @@\n-line 1\n", "is no unified diff"),
    "rename": ("--- a/code.py\n+++ b/other.py\n@@ -1 +1 @@\n-line 1\n+1\n", "renames"),
    "binary": ("diff --git a/x.bin b/x.bin\nBinary files a/x.bin and b/x.bin differ\n", "changes nothing"),
    "absent": ("--- a/no.py\n+++ b/no.py\n@@ -1 +1 @@\n-a\n+b\n", '"no.py" is not there'),
    "there": ("--- /dev/null\n+++ b/code.py\n@@ -0,0 +1 @@\n+a\n", '"code.py" is there already'),
    "no text": ("--- a/raw\n+++ b/raw\n@@ -1 +1 @@\n-a\n+b\n", "it is no text"),
    "a folder": ("--- a/sub\n+++ b/sub\n@@ -1 +1 @@\n-a\n+b\n", "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(folder, patch, case):
    (folder / "raw").write_bytes(b"\xff\xfe")
    text, message = REFUSED[case]
    assert message in refused(folder, patch(text))


def test_a_patch_that_is_not_there(folder, tmp_path):
    assert refused(folder, [tmp_path / "no.diff"]) == (
        '"no.diff" cannot be read: No such file or directory'
    )


def test_a_pipe_is_not_patched(folder, patch):
    (folder / "code.py").unlink()
    os.mkfifo(folder / "code.py")
    assert "not a regular file" in refused(folder, patch(unified(CODE, "")))
