"""Faults of transformers that a later release mends, where no consistency check inside one release can show them.

known_fixes.yaml has them, each proven in the sources of the releases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import yaml
from packaging.version import InvalidVersion, Version
from pydantic import Field

from samebits.records.comparison import CellResult
from samebits.records.record import Record
from samebits.records.trace import FAMILY, GIVEN, Cause, CauseKind

Place = tuple[str, str]
"""A folder of transformers/models, and a function."""
FILE = Path(__file__).with_name("known_fixes.yaml")
_CODE = re.compile(r"github\.com/[\w.-]+/([\w.-]+)/blob/([\w.-]+)/.*?([\w.-]+)$")
_ISSUE = re.compile(r"github\.com/[\w.-]+/([\w.-]+)/(?:pull|issues)/(\d+)$")


class KnownFix(Record):
    """One fault, and the releases that have it."""

    folders: tuple[str, ...]
    """Folders of transformers/models whose code has it."""
    functions: tuple[str, ...]
    """Where the first difference between a release with it and one without it begins, or the function that gives
    this place its mask, positions or keys."""
    kinds: tuple[CauseKind, ...] = ()
    """Kinds of cause that it is; () for any."""
    during: Literal["forward", "decode", ""] = ""
    """The call in which it shows; '' for both."""
    prompt: str = ""
    """The prompt that shows it first; '' for any."""
    since: str = "0"
    """The first release with the fault."""
    right_from: str = ""
    """The first release that is known to be right there; '' if each is that has not the fault."""
    before: str = ""
    """The first release without it; '' as long as there is none."""
    why: str
    """Ends the sentence ``5.13.1 is wrong: …``."""
    when: str
    """The configs and calls that it concerns."""
    source: str
    """Address of the pull request, of the issue or of the original implementation that proves it."""
    proof: str = Field(repr=False)
    """What was read or run to prove it."""

    @property
    def name(self) -> str:
        """What the source is called in a sentence: ``transformers#40861``, or file and release."""
        if issue := _ISSUE.search(self.source):
            return f"{issue[1]}#{issue[2]}"
        code = _CODE.search(self.source)
        return f"{code[3]} of {code[1]} {code[2]}" if code else self.source

    @property
    def in_words(self) -> str:
        """The fault, the release that mends it and the source: ends the sentence ``5.13.1 is wrong: …``."""
        mended = f"mended in {self.before}, " if self.before else ""
        return f"{self.why} ({mended}{self.name})"

    def is_in(self, release: Version) -> bool:
        """Return True if a release has the fault."""
        return Version(self.since) <= release and not (
            self.before and release >= Version(self.before)
        )

    def parts(self, first: Version, second: Version) -> bool:
        """Return True if one of two releases has the fault, and the other one is known to be right there."""
        if self.is_in(first) is self.is_in(second):
            return False
        right = second if self.is_in(first) else first
        return not self.right_from or right >= Version(self.right_from)

    def explains(self, cause: Cause, places: Iterable[Place]) -> bool:
        """Return True if a cause of these places lies where the fault is, and is of its kind."""
        if self.during not in ("", cause.what) or self.prompt not in ("", cause.prompt):
            return False
        if self.kinds and cause.kind not in self.kinds:
            return False
        return any(folder in self.folders and name in self.functions for folder, name in places)


class Blamed(NamedTuple):
    """A known fault that one side has and the other side has not."""

    is_reference: bool
    """Whether the reference has it."""
    fix: KnownFix
    others: tuple[KnownFix, ...] = ()
    """Known faults of the other side in the code of this model, which may concern it or not."""


@cache
def known_fixes() -> tuple[KnownFix, ...]:
    """Return the entries of known_fixes.yaml."""
    return tuple(KnownFix.model_validate(each) for each in yaml.safe_load(FILE.read_text("utf-8")))


def blamed(cell: CellResult, reference: str, candidate: str) -> Blamed | None:
    """Return the known fault at the place where a cell begins to differ; None for none, or for several.

    ``reference`` and ``candidate`` are the releases of transformers of both sides; a version that cannot be read has
    no known fault.
    """
    if cell.cause is None or not cell.cause.decides:
        return None
    cause = cell.cause.beyond or cell.cause  # what comes first may be rounding
    try:
        # a development version has what its release has, if it differs at the place of a fault at all
        before, after = (Version(Version(name).base_version) for name in (reference, candidate))
    except InvalidVersion:
        return None
    places = set(_places(cause))
    faults = [
        fix for fix in known_fixes() if fix.explains(cause, places) and fix.parts(before, after)
    ]
    if len(faults) != 1:
        return None
    (fault,) = faults
    is_reference = fault.is_in(before)
    right = after if is_reference else before
    folders = {folder for folder, _ in places}
    others = (
        fix for fix in known_fixes() if folders.intersection(fix.folders) and fix.is_in(right)
    )
    return Blamed(is_reference, fault, tuple(others))


def _places(cause: Cause) -> Iterator[Place]:
    """Yield the folder of transformers/models and the function of the place where a cause lies.

    Of a mask, of positions and of keys, and of a call of code that models share, these are also the functions before
    it whose source differs.
    """
    sides = filter(None, (cause.reference, cause.candidate))
    own = [place for side in sides for place in _place(side.source, side.function)]
    yield from own
    for diff in cause.diffs if cause.kind in GIVEN or not own else ():
        for source in (diff.reference, diff.candidate):
            yield from _place(source, diff.function)


def _place(source: str, function: str) -> Iterator[Place]:
    if family := FAMILY.match(source):
        yield family[1], function
