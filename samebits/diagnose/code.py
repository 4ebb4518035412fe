"""Is the code that ran the same: the model's own, transformers', and the config they read?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.amounts import some
from samebits.compare.facts import changes
from samebits.records.finding import Step

if TYPE_CHECKING:
    from samebits.records.capture import Capture
    from samebits.records.code import CodeSignal, FunctionFact

OWN = "the model's own code"
LIBRARY = "transformers' code"
CONFIG = "config"


def own_code(reference: Capture, candidate: Capture) -> Step | None:
    """Return the step of the model's own files; None for a model of the library."""
    mine, theirs = reference.signals.code, candidate.signals.code
    if mine is None or theirs is None:
        return Step(suspect=OWN, status="not observed", what="its files were not read")
    if not mine.files and not theirs.files:
        return None
    if mine.files != theirs.files:
        names = sorted({n for n in (*mine.files, *theirs.files) if _other_file(n, mine, theirs)})
        return Step(suspect=OWN, status="ruled in", what=f"other bytes: {some(names)}")
    n = len(mine.files)
    files = f"{n} file{'s, the' if n > 1 else ', the'} same bytes in both"
    ran, there = _functions(theirs, own=True), _functions(mine, own=True)
    if not ran or not there:
        return Step(suspect=OWN, status="open", what=f"{files}; what of them ran was not seen")
    here_only, there_only = _one_sided(there, ran)
    if here_only or there_only:
        what = f"{files}, but other functions of them ran: {_sides(here_only, there_only)}"
        return Step(suspect=OWN, status="open", what=what)
    share = f"{len(ran)} of the {len(theirs.executed)} functions that a forward ran are its own"
    if theirs.reads_version:
        what = f"{files}, and they ask for a version, so they may branch on it; {share}"
        return Step(suspect=OWN, status="open", what=what)
    named = some([_short(key) for key in ran], 4)
    what = f"{files}; {share}: the same source ({named})"
    return Step(suspect=OWN, status="ruled out", what=what)


def _other_file(name: str, mine: CodeSignal, theirs: CodeSignal) -> bool:
    return mine.files.get(name) != theirs.files.get(name)


def library_code(reference: Capture, candidate: Capture) -> Step:
    """Return the step of the functions of transformers that the forward executed."""
    mine, theirs = reference.signals.code, candidate.signals.code
    if mine is None or theirs is None or not mine.executed or not theirs.executed:
        return Step(suspect=LIBRARY, status="not observed", what="what ran was not seen")
    there, here = _functions(mine, own=False), _functions(theirs, own=False)
    both = [key for key in there if key in here]
    changed = [key for key in both if not _same_source(there[key], here[key])]
    here_only, there_only = _one_sided(there, here)
    if not changed and not here_only and not there_only:
        what = f"all {len(both)} functions of it that a forward ran have the same source"
        return Step(suspect=LIBRARY, status="ruled out", what=what)
    told = [f"{len(both) - len(changed)} of {len(both)} functions that ran in both are the same"]
    if changed:
        told.append(f"other source: {some(map(_short, changed), 6)}")
    sides = _sides(here_only, there_only)
    return Step(suspect=LIBRARY, status="open", what="; ".join(filter(None, [*told, sides])))


def config(reference: Capture, candidate: Capture) -> Step:
    """Return the step of the effective config."""
    if reference.signals.config is None or candidate.signals.config is None:
        return Step(suspect=CONFIG, status="not observed", what="one side has no config")
    found = changes(reference, candidate).get("config", ())
    if not found:
        return Step(suspect=CONFIG, status="ruled out", what="every field is the same")
    # a field of both that changed says more than one that a release added or dropped
    valued = [c.what for c in found if "absent" not in (c.reference, c.candidate)]
    lone = len(found) - len(valued)
    told = [f"other values: {some(valued)}"] if valued else []
    told += [f"{lone} field{'s' if lone > 1 else ''} on one side only"] if lone else []
    return Step(suspect=CONFIG, status="open", what="; ".join(told))


def _functions(code: CodeSignal, *, own: bool) -> dict[str, FunctionFact]:
    return {key: fact for key, fact in code.executed.items() if fact.own == own}


def _same_source(a: FunctionFact, b: FunctionFact) -> bool:
    """Return True if both sources are known and equal."""
    return bool(a.digest) and a.digest == b.digest


def _one_sided(
    there: dict[str, FunctionFact], here: dict[str, FunctionFact]
) -> tuple[list[str], list[str]]:
    return [k for k in here if k not in there], [k for k in there if k not in here]


def _sides(here: list[str], there: list[str]) -> str:
    told = [f"only here: {some(map(_short, here), 4)}"] if here else []
    told += [f"only in the reference: {some(map(_short, there), 4)}"] if there else []
    return "; ".join(told)


def _short(key: str) -> str:
    """Return the qualified name of a function, with the last part of its module."""
    module, _, name = key.partition(":")
    return f"{module.rpartition('.')[2]}:{name.replace('.<locals>', '')}"
