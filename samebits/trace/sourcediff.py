"""Diffs of the functions that ran before a cause and whose source changed between releases."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator
from itertools import islice

from samebits.records.trace import Function, SourceDiff, Trace

MAX_LINES = 60
"""Lines of one diff."""
MAX_DIFFS = 3
_WRAPPERS = (
    "transformers/utils/",
    "transformers/generation/",
    "transformers/modeling_layers.py",
)
"""Files with functions that only wrap a model's computation."""


_CONSTRUCTOR = ".__init__"


def diffs(
    reference: Trace, candidate: Trace, *, constructors: bool = False
) -> tuple[SourceDiff, ...]:
    """Return the diffs of the functions around the looked-at operations, innermost first.

    With ``constructors`` those of the modules around follow, which set what an operation is called
    with, such as a scale.
    """
    diffs = islice(_diffs(reference, candidate, constructors=constructors), MAX_DIFFS)
    return tuple(diffs)


def _diffs(reference: Trace, candidate: Trace, *, constructors: bool) -> Iterator[SourceDiff]:
    pairs = _function_pairs(reference, candidate, constructors=constructors)
    for reference_number, candidate_number in pairs:
        reference_lines, candidate_lines = (
            textwrap.dedent(trace.texts[number]).splitlines()
            for trace, number in ((reference, reference_number), (candidate, candidate_number))
        )
        lines = list(difflib.unified_diff(reference_lines, candidate_lines, n=2, lineterm=""))[2:]
        if lines:
            yield SourceDiff(
                function=candidate.functions[candidate_number].name,
                reference=_place(reference.functions[reference_number]),
                candidate=_place(candidate.functions[candidate_number]),
                diff="\n".join(lines[:MAX_LINES]),
                cut=max(0, len(lines) - MAX_LINES),
            )


def _function_pairs(
    reference: Trace, candidate: Trace, *, constructors: bool
) -> Iterator[tuple[int, int]]:
    """Yield functions of the same name that differ, then the innermost that only one side runs, as after a renaming."""
    reference_functions, candidate_functions = (
        {
            name: number
            for name, number in _functions_around(trace).items()
            if constructors or not name.endswith(_CONSTRUCTOR)
        }
        for trace in (reference, candidate)
    )
    for name, number in candidate_functions.items():
        reference_number = reference_functions.get(name)
        if reference_number is None:
            continue
        digests = reference.functions[reference_number].digest, candidate.functions[number].digest
        if digests[0] != digests[1] or not digests[0]:
            yield reference_number, number
    reference_only = _first_unknown(reference_functions, candidate)
    candidate_only = _first_unknown(candidate_functions, reference)
    if reference_only is not None and candidate_only is not None:
        yield reference_only, candidate_only


def _first_unknown(functions: dict[str, int], counterpart: Trace) -> int | None:
    """Return the number of the first function whose name ran nowhere in the other trace; None if there is none."""
    names = {function.name for function in counterpart.functions}
    return next((number for name, number in functions.items() if name not in names), None)


def _functions_around(trace: Trace) -> dict[str, int]:
    """Return the functions around the inspected operations by name, innermost first."""
    numbers = dict.fromkeys(number for look in trace.looks.values() for number in look.chain)
    return {
        trace.functions[number].name: number
        for number in numbers
        if trace.texts.get(number) and not _is_wrapper(trace.functions[number])
    }


def _is_wrapper(function: Function) -> bool:
    return function.file.startswith(_WRAPPERS) or "<locals>" in function.name


def _place(function: Function) -> str:
    return f"{function.file}:{function.line}"
