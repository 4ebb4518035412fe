"""Commands in a report that compare two stacks, in the words that started the run."""

from __future__ import annotations

import shlex
from itertools import pairwise

from samebits.matrix.plan import command_line
from samebits.matrix.values import id_of_release, is_source, split_source
from samebits.records.report import Report

_OF_MODEL = frozenset(
    {
        "--package", "--environment-package", "--import", "--class",
        "--inputs", "--dtypes", "--attention", "--devices",
    }
)  # fmt: skip


def compare_two(report: Report, first: str, last: str, *, model: str = "", more: str = "") -> str:
    """Return the command that compares two stacks; ``model`` and ``more`` narrow it down.

    A run that another program started has no command: it is then the one of an installed samebits.
    """
    words = _words(report.command) or ["samebits", "matrix"]
    options = more.split()
    if words[1:2] == ["check"]:
        ends = [_named(words, id) for id in (first, last)]
        program = [*words[:3], *_of_model(words)]
        return command_line(program, [*options, "--from", ends[0], "--to", ends[1]])
    options += ["--models", model] if model else []
    program = words[:3] if words[0] == "nox" else words[:2]
    return command_line(program, [*options, "--environments", f"{first},{last}", *_matrix(words)])


def find_commit(report: Report, first: str, last: str) -> str:
    """Return the command that searches the commits of a clone between two stacks of a check; '' for other runs."""
    words = _words(report.command)
    if words[1:2] != ["check"]:
        return ""
    ends = [
        split_source(name) if is_source(name) else ("", name)
        for name in (_named(words, id) for id in (first, last))
    ]
    clones = {path for path, _ in ends if path}
    # a folder without a commit may hold changes that no commit has
    if len(clones) != 1 or not all(revision for _, revision in ends):
        return ""
    program = [words[0], "bisect", words[2], *_of_model(words)]
    return command_line(program, ["--from", ends[0][1], "--to", ends[1][1], "--repo", clones.pop()])


def _of_model(words: list[str]) -> list[str]:
    """Return the options of a check without which its model does not run, or shows no difference."""
    options: list[str] = []
    for word, value in pairwise([*words, ""]):
        if word in _OF_MODEL:
            options += [word, value]
        elif word.endswith("trust-remote-code"):
            options.append(word)
    return options


def _named(words: list[str], id: str) -> str:
    """Return a stack as --from takes it: the id of a checkout or a commit is not its name."""
    named = (
        word
        for option, word in pairwise(words)
        # a report shows an absolute path as … and its name
        if option in {"--from", "--to"} and is_source(path := word.removeprefix("…"))
        if id_of_release(path) == id
    )
    return next(named, id)


def _matrix(words: list[str]) -> list[str]:
    """Return the option that names the matrix file, as the run had it; [] without one."""
    for word, value in pairwise([*words, ""]):
        if word == "--matrix" and value:
            return [word, value]
        if word.startswith("--matrix="):
            return [word]
    return []


def _words(command: str) -> list[str]:
    """Return the words of a command; one that a shell would refuse is split at blanks."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
