"""The line of commits between two releases or commits, from a local clone. Nothing is fetched or checked out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from samebits.base import git
from samebits.base.errors import SamebitsError, shown
from samebits.matrix.values import VERSION, fits
from samebits.stacks.source import FOLDER

_INIT = f"{FOLDER}/__init__.py"
_PULL = re.compile(r"\(#(\d+)\)\s*$|^Merge\s[^#]*#(\d+)\s")
_VERSION = re.compile(rb'^__version__ = "([^"]+)"', re.MULTILINE)
_CHUNK = 64
_MIN_SHA = 4
"""Characters of the shortest name of a commit that git takes."""


class HistoryError(SamebitsError):
    """The clone does not have what is named."""


class Edit(NamedTuple):
    """A file that a commit changed, with the ids of both contents; '' if there is none."""

    path: str
    old: str
    new: str


class Commit(NamedTuple):
    """A commit, with what it changed against its first parent."""

    sha: str
    date: str
    title: str
    edits: tuple[Edit, ...] = ()

    @property
    def pull(self) -> str:
        """The number of its pull request, from its title; '' if that has none."""
        match = _PULL.search(self.title)
        return (match[1] or match[2]) if match else ""


class End(NamedTuple):
    """A commit that a user named, and how it was found."""

    named: str
    sha: str
    how: str = ""
    """'' if it was named itself."""
    release: str = ""
    """The release that it stands for."""


class Line(NamedTuple):
    """Commits from a reference, which comes first, to a candidate; each follows from the one before it."""

    commits: tuple[Commit, ...]
    note: str = ""


class History:
    """A clone."""

    def __init__(self, repo: Path, option: str = "--repo") -> None:
        self.repo = repo
        if git.git(repo, "rev-parse", "--git-dir") is None:
            msg = f"{repo.name} is no clone: {option} names a folder with a clone of the repository"
            raise HistoryError(msg)

    def end(self, named: str, *, releases: bool = True) -> End:
        """Return the commit of a release, a tag or a commit.

        Raises:
            HistoryError: the clone has none.

        """
        # ten characters of a commit may all be digits
        if releases and fits(VERSION, named) and len(named.partition(".")[0]) < _MIN_SHA:
            return self._of_release(named)
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options")
        tags = [f"v{named}"] if fits(VERSION, named) else []
        for name in (named, *tags):
            if shas := git.words(self.repo, *words, f"{name}^{{commit}}"):
                return End(named, shas[0], "" if name == named else f"tag {name}")
        kinds = "a release, a tag" if releases else "a tag, a branch"
        raise HistoryError(
            f"the clone has no commit {shown(named)}: name {kinds} or a commit, or fetch it"
            f"{git.shallow(self.repo)}"
        )

    def _of_release(self, named: str) -> End:
        family = named.removesuffix(".x")
        tags = git.words(self.repo, "tag", "--list", f"v{family}", f"v{family}.*")
        by_version = {version: tag for tag in tags if (version := _final(tag)) is not None}
        if by_version:
            tag = by_version[max(by_version)]
            sha = git.words(self.repo, "rev-parse", f"{tag}^{{commit}}")[0]
            return End(named, sha, f"tag {tag}", named)
        sha = self._place(Version(f"{family}.0" if family.isdecimal() else family))
        return End(
            named,
            sha,
            "the last commit before the next version began, as the clone has no tag of it",
            named,
        )

    def _place(self, release: Version) -> str:
        """Return the last commit of the main line with the version of a release or of its development."""
        later = ""
        for sha, version in self._versions():
            if version.release[:2] <= release.release[:2]:
                if not later:
                    msg = f"the clone ends before {release} was released: fetch, or name a commit"
                    raise HistoryError(msg)
                return git.words(self.repo, "rev-parse", f"{later}^")[0]
            later = sha
        msg = f"the clone has no commit of transformers {release}{git.shallow(self.repo)}"
        raise HistoryError(msg)

    def _versions(self) -> Iterator[tuple[str, Version]]:
        """Yield the commits that changed the version, or stand near it, newest first, with their versions."""
        shas = git.words(self.repo, "rev-list", "--first-parent", "HEAD", "--", _INIT)
        for start in range(0, len(shas), _CHUNK):
            names = {f"{sha}:{_INIT}": sha for sha in shas[start : start + _CHUNK]}
            for name, text in git.blobs(self.repo, names):
                match = _VERSION.search(text)
                if match is not None:
                    yield names[name], Version(match[1].decode())

    def line(self, first: str, last: str) -> Line:
        """Return the commits from one to another along first parents.

        Where the first is on a branch of its own, such as that of a release, the commit that it left from stands
        for it.

        Raises:
            HistoryError: the last one does not descend from it.

        """
        base = git.words(self.repo, "merge-base", first, last)
        if first == last:
            raise HistoryError(f"both ends are the commit {first[:10]}: there is none between them")
        if not base:
            msg = f"{first[:10]} and {last[:10]} have no commit in common here{git.shallow(self.repo)}"
            raise HistoryError(msg)
        if base[0] == last:
            msg = f"{last[:10]} does not come after {first[:10]}: swap --from and --to, or name others"
            raise HistoryError(msg)
        note = (
            ""
            if base[0] == first
            else (
                f"{first[:10]} is on a branch of its own; the commits are those since {base[0][:10]}, which it left from"
            )
        )
        texts = self._log(f"{base[0]}..{last}")
        start = Commit(base[0], "", "")
        return Line((start, *map(_commit, texts)), note)

    def _log(self, commits: str) -> list[str]:
        words = (
            "--first-parent",
            "--diff-merges=first-parent",
            "--reverse",
            "--raw",
            "--no-abbrev",
            "--no-renames",
        )
        safe = ("--no-show-signature", "--no-ext-diff", "--no-textconv", "--no-color")
        text = git.git(
            self.repo,
            "-c",
            "core.quotePath=false",
            "log",
            *words,
            *safe,
            "--format=%x00%H%n%cs%n%s",
            commits,
            "--",
        )
        if text is None:
            raise HistoryError(f"git could not list the commits {commits} of {self.repo.name}")
        return text.decode("utf-8", "replace").split("\0")[1:]

    def text(self, blob: str) -> bytes:
        """Return the content of a blob; b'' for none."""
        return next((text for _, text in git.blobs(self.repo, [blob])), b"") if blob else b""


def _final(tag: str) -> Version | None:
    try:
        version = Version(tag.removeprefix("v"))
    except InvalidVersion:
        return None
    return None if version.is_prerelease else version


def _commit(text: str) -> Commit:
    sha, date, title, *rest = text.split("\n")
    edits = []
    for line in rest:
        if line.startswith(":"):
            about, _, path = line.partition("\t")
            _, _, old, new, _ = about.split(" ")
            edits.append(Edit(path, *("" if set(id) == {"0"} else id for id in (old, new))))
    return Commit(sha, date, title, tuple(edits))
