"""Steps of the hunt on code: the model's own files, transformers' functions, and the config."""

from __future__ import annotations

from samebits.compare.describe import some
from samebits.compare.facts import changes
from samebits.records.capture import Capture
from samebits.records.code import CodeSignal, FunctionFact
from samebits.records.finding import Step

OWN = "the model's own code"
LIBRARY = "transformers' code"
CONFIG = "config"


def own_code(reference: Capture, candidate: Capture) -> Step | None:
    """Return the step of the model's own files; None for a model of the library."""
    reference_code, candidate_code = reference.signals.code, candidate.signals.code
    if reference_code is None or candidate_code is None:
        return Step(suspect=OWN, status="not observed", what="its files were not read")
    if not reference_code.files and not candidate_code.files:
        return None
    if reference_code.files != candidate_code.files:
        names = sorted(
            {
                n
                for n in (*reference_code.files, *candidate_code.files)
                if reference_code.files.get(n) != candidate_code.files.get(n)
            }
        )
        return Step(suspect=OWN, status="ruled in", what=f"files that differ: {some(names)}")
    n = len(reference_code.files)
    files = f"{n} file{'s, the' if n > 1 else ', the'} same bytes in both"
    candidate_functions, reference_functions = (
        _functions(candidate_code, own=True),
        _functions(reference_code, own=True),
    )
    if not candidate_functions or not reference_functions:
        return Step(suspect=OWN, status="open", what=f"{files}; what of them ran was not seen")
    candidate_only, reference_only = _one_sided(reference_functions, candidate_functions)
    if candidate_only or reference_only:
        what = (
            f"{files}, but other functions of them ran: "
            f"{_one_sided_text(candidate_only, reference_only)}"
        )
        return Step(suspect=OWN, status="open", what=what)
    own_share = (
        f"{len(candidate_functions)} of the {len(candidate_code.executed)} functions "
        "that a forward ran are the model's own"
    )
    if candidate_code.reads_version:
        what = f"{files}, and they read a version number, so they may branch on it; {own_share}"
        return Step(suspect=OWN, status="open", what=what)
    names_text = some([_short_name(key) for key in candidate_functions], 4)
    what = f"{files}; {own_share}: the same source ({names_text})"
    return Step(suspect=OWN, status="ruled out", what=what)


def library_code(reference: Capture, candidate: Capture) -> Step:
    """Return the step of the transformers functions that the forward executed."""
    reference_code, candidate_code = reference.signals.code, candidate.signals.code
    if (
        reference_code is None
        or candidate_code is None
        or not reference_code.executed
        or not candidate_code.executed
    ):
        return Step(
            suspect=LIBRARY, status="not observed", what="the executed functions were not observed"
        )
    reference_functions, candidate_functions = (
        _functions(reference_code, own=False),
        _functions(candidate_code, own=False),
    )
    shared = [key for key in reference_functions if key in candidate_functions]
    changed = [
        key
        for key in shared
        if not _same_source(reference_functions[key], candidate_functions[key])
    ]
    candidate_only, reference_only = _one_sided(reference_functions, candidate_functions)
    if not changed and not candidate_only and not reference_only:
        what = f"all {len(shared)} functions that a forward ran have the same source"
        return Step(suspect=LIBRARY, status="ruled out", what=what)
    phrases = [
        f"{len(shared) - len(changed)} of {len(shared)} functions that ran in both are the same"
    ]
    if changed:
        phrases.append(f"different source: {some(map(_short_name, changed), 6)}")
    one_sided = _one_sided_text(candidate_only, reference_only)
    return Step(suspect=LIBRARY, status="open", what="; ".join(filter(None, [*phrases, one_sided])))


def config(reference: Capture, candidate: Capture) -> Step:
    """Return the step of the effective config."""
    if reference.signals.config is None or candidate.signals.config is None:
        return Step(suspect=CONFIG, status="not observed", what="one side has no config")
    config_changes = changes(reference, candidate).get("config", ())
    if not config_changes:
        return Step(suspect=CONFIG, status="ruled out", what="every field is the same")
    # a changed value tells more than a field that a release added or dropped
    valued = [c.what for c in config_changes if "absent" not in (c.reference, c.candidate)]
    n_one_sided = len(config_changes) - len(valued)
    phrases = [f"different values: {some(valued)}"] if valued else []
    phrases += (
        [f"{n_one_sided} field{'s' if n_one_sided > 1 else ''} on one side only"]
        if n_one_sided
        else []
    )
    return Step(suspect=CONFIG, status="open", what="; ".join(phrases))


def _functions(code: CodeSignal, *, own: bool) -> dict[str, FunctionFact]:
    return {key: fact for key, fact in code.executed.items() if fact.own == own}


def _same_source(a: FunctionFact, b: FunctionFact) -> bool:
    """Return True if both sources are known and equal."""
    return bool(a.digest) and a.digest == b.digest


def _one_sided(
    reference: dict[str, FunctionFact], candidate: dict[str, FunctionFact]
) -> tuple[list[str], list[str]]:
    return [k for k in candidate if k not in reference], [
        k for k in reference if k not in candidate
    ]


def _one_sided_text(candidate: list[str], reference: list[str]) -> str:
    phrases = [f"only here: {some(map(_short_name, candidate), 4)}"] if candidate else []
    phrases += (
        [f"only in the reference: {some(map(_short_name, reference), 4)}"] if reference else []
    )
    return "; ".join(phrases)


def _short_name(key: str) -> str:
    """Return the qualified name of a function, with the last part of its module."""
    module, _, name = key.partition(":")
    return f"{module.rpartition('.')[2]}:{name.replace('.<locals>', '')}"
