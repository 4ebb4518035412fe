"""Bisections over a clone of eight commits, with models whose bits follow from the text of a file."""

import asyncio
import re
from typing import ClassVar

import pytest

from samebits.base import git
from samebits.bisect.command import exit_code, lines
from samebits.bisect.finder import Finder, Request
from samebits.bisect.history import End, History
from samebits.bisect.suspects import Ran
from samebits.bisect.trials import Tried
from samebits.records.ids import Verdict
from samebits.records.report import Row
from samebits.records.trace import Cause, Side
from tests.support.builders import bare_report, cell_id, cell_result
from tests.support.clones import FOLDER, clone, source, write

pytestmark = pytest.mark.processes

OPS = """
def scale(x):
    return x * {factor}


def unused(x):
    return x + {unused}
"""


def ops(factor=1, unused=1):
    return {f"{FOLDER}/ops.py": OPS.format(factor=factor, unused=unused)}


def eight(changed=4, factor=2):
    """Return eight commits, of which one changes what the model runs."""
    titles = [f"Commit {number} (#{number})" for number in range(8)]
    files = [source() | ops()] + [{"docs/page.md": str(number)} for number in range(1, 8)]
    files[2] = ops(factor=factor if changed < 2 else 1, unused=2)
    for number in range(3, 8):
        files[number] |= {f"{FOLDER}/other{number}.py": "A = 1\n"}
    files[changed] |= ops(factor=factor, unused=2)
    return list(zip(titles, files, strict=True))


class Model:
    """Stands in for trials: the state is what ``scale`` returns, and some commits do not import."""

    entered: ClassVar = {"ops.py": [2]}

    def __init__(self, repo, folder, broken=(), releases=None):
        self.repo, self.folder, self.broken = repo, folder, broken
        self.releases = releases or {}
        self.tried, self.ran, self.environments = {}, {}, {}
        self.asked = []

    async def run(self, first, others):
        for name in dict.fromkeys((first, *others)):
            if name in self.tried:
                continue
            self.asked.append(name)
            if name in self.releases:
                self.tried[name] = Tried(self.releases[name])
                continue
            text = git.git(self.repo, "cat-file", "blob", f"{name}:{FOLDER}/ops.py").decode()
            write(self.folder / name, {f"{FOLDER}/ops.py": text})
            self.ran[name] = Ran(self.folder / name / FOLDER, self.entered)
            state = re.search(r"x \* (.+)", text)[1]
            is_broken = name in self.broken
            fails = not state.isdigit()
            self.tried[name] = (
                Tried(None, "SyntaxError")
                if is_broken
                else Tried(state, "NameError" if fails else "", fails)
            )

    async def explained(self, _first, before, after):
        cells = [cell_id(stack=sha[:10]) for sha in (before, after)]
        side = Side(stack=after[:10], function="scale")
        cause = Cause(
            kind="argument",
            headline="another scalar",
            prompt="short",
            what="forward",
            sink="logits",
            candidate=side,
        )
        result = cell_result(
            cells[1], Verdict.DIVERGED, reference=cells[0], headline="layer 0", cause=cause
        )
        row = Row(model="llama", variant="float32-sdpa", reference=before[:10], cells=(result,))
        return bare_report([sha[:10] for sha in (before, after)], row)


def place(path):
    return path.removeprefix(f"{FOLDER}/") if path.startswith(f"{FOLDER}/") else ""


def find(tmp_path, commits, broken=(), ends=(0, -1), releases=None):
    repo = tmp_path / "transformers"
    shas = clone(repo, *commits)
    model = Model(repo, tmp_path / "copies", [shas[n] for n in broken], releases)
    named = [
        End(shas[n][:10], shas[n], release=release)
        for n, release in zip(ends, (*(releases or ()), "", ""), strict=False)
    ]
    finder = Finder(History(repo), model, Request("tiny", *named, place, 2), lambda _: None)
    return asyncio.run(finder.find()), shas, model


@pytest.mark.parametrize("changed", [1, 3, 4, 7])
def test_the_commit_is_found_and_proven_by_the_one_before_it(tmp_path, changed):
    found, shas, model = find(tmp_path, eight(changed))
    (culprit,) = found.culprits
    assert (culprit.sha, culprit.before, culprit.is_proven) == (
        shas[changed],
        shas[changed - 1],
        True,
    )
    assert (culprit.pull, culprit.verdict, culprit.cause) == (
        str(changed),
        "diverged",
        "another scalar",
    )
    assert (found.n_commits, found.n_suspected) == (7, 1)
    assert len(model.asked) <= 5
    assert exit_code(found) == 1


def test_the_hunk_is_that_of_the_function_that_ran(tmp_path):
    found, *_ = find(tmp_path, eight())
    (hunk,) = found.culprits[0].hunks
    assert (hunk.file, hunk.name) == ("ops.py", "scale")
    assert "-    return x * 1\n+    return x * 2" in hunk.diff
    text = "\n".join(lines(found))
    assert "Commit 4 (#4)" in text
    assert "pull request #4" in text
    assert "ops.py: scale" in text


def test_commits_without_code_of_the_package_are_not_tried(tmp_path):
    commits = eight(7)
    commits[5] = (commits[5][0], {"docs/page.md": "five"})
    commits[6] = (commits[6][0], {"docs/page.md": "six"})
    found, shas, model = find(tmp_path, commits)
    assert (found.culprits[0].sha, found.culprits[0].before) == (shas[7], shas[6])
    assert not {shas[5], shas[6]} & {*model.asked}


def test_two_changes_on_the_way_are_both_named(tmp_path):
    commits = eight(3)
    commits[6] = ("Commit 6", ops(factor=3, unused=2))
    found, shas, _ = find(tmp_path, commits)
    assert [culprit.sha for culprit in found.culprits] == [shas[3], shas[6]]
    assert "2 changes on the way" in next(lines(found))


def test_a_commit_that_does_not_import_is_skipped_and_the_range_remains(tmp_path):
    found, shas, _ = find(tmp_path, eight(4), broken=[4])
    (culprit,) = found.culprits
    (untried,) = culprit.skipped
    assert (culprit.sha, culprit.before) == (shas[5], shas[3])
    assert (untried.sha, untried.title) == (shas[4], "Commit 4 (#4)")
    assert "SyntaxError" in untried.reason
    assert exit_code(found) == 3
    text = "\n".join(lines(found))
    assert "one change at least, in one of 2 commits" in text
    assert f"{shas[4][:10]} Commit 4 (#4)\n" in text
    assert f"code        {shas[4][:10]} ops.py: scale" in text
    assert "pull request" not in text  # no number of a commit that may be another


def test_skipped_commits_stand_in_their_order_without_those_of_other_files(tmp_path):
    commits = eight(5)
    commits[3] = (commits[3][0], {"docs/page.md": "three"})
    found, shas, _ = find(tmp_path, commits, broken=[2, 4, 5])
    (culprit,) = found.culprits
    assert [untried.sha for untried in culprit.skipped] == [shas[2], shas[4], shas[5]]
    assert (culprit.before, culprit.sha) == (shas[1], shas[6])


def test_a_failure_that_neither_end_has_is_skipped(tmp_path):
    commits = eight(5)
    commits[4] = ("Broken", ops(factor="undefined", unused=2))
    found, shas, _ = find(tmp_path, commits)
    assert shas[4] in {untried.sha for untried in found.culprits[0].skipped}


def test_more_changes_than_are_followed_are_noted_and_not_named(tmp_path):
    commits = [(f"Commit {n}", ops(factor=n, unused=n)) for n in range(16)]
    found, shas, _ = find(tmp_path, commits)
    place = {sha: n for n, sha in enumerate(shas)}
    assert {place[c.sha] - place[c.before] for c in found.culprits} == {1}
    assert any("more changes were not searched: repeat with --from" in n for n in found.notes)


def test_ends_that_do_the_same_name_nobody(tmp_path):
    found, *_ = find(tmp_path, eight(4, factor=1))
    assert found.culprits == ()
    assert "do the same" in found.failure
    assert exit_code(found) == 0


def test_ends_that_fail_alike_are_not_the_same_answer(tmp_path):
    found, *_ = find(tmp_path, eight(4, factor="undefined"), ends=(4, -1))
    assert (found.culprits, found.same, exit_code(found)) == ((), False, 3)
    assert "do the same: NameError" in found.failure


def test_ends_that_do_the_same_without_the_package_say_how_to_name_it(tmp_path, monkeypatch):
    monkeypatch.setattr(Model, "entered", {})
    found, *_ = find(tmp_path, eight(4, factor=1))
    assert (found.same, exit_code(found)) == (False, 3)
    assert "called no function of transformers: name the module" in found.failure


def test_an_end_that_cannot_be_tried_names_nobody(tmp_path):
    found, *_ = find(tmp_path, eight(4), broken=[7])
    assert found.culprits == ()
    assert "cannot be tried: SyntaxError" in found.failure
    assert exit_code(found) == 3


def test_a_release_that_does_something_else_than_its_commit_is_noted(tmp_path):
    found, *_ = find(tmp_path, eight(4), releases={"5.15": "1", "5.16": "7"})
    assert any("transformers 5.16 itself does something else" in note for note in found.notes)
    assert not any("transformers 5.15 itself" in note for note in found.notes)
