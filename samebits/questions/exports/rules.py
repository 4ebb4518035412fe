"""SB935, SB936: programs that compute something else than their model, or that one release cannot make."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.findings.case import Case
from samebits.findings.rule import Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.exports.compare import differences
from samebits.questions.exports.records import EXPORTS, Program
from samebits.text.numbers import number

_INPUTS = {
    "own": "on the inputs that it was made of",
    "others": "on other inputs with the same shapes",
}

_WORDS = {
    "the same numbers": "computes the same",
    "rounding": "rounds otherwise",
    "undecided": "differs, and is not made in float64",
}


def in_words(program: Program) -> str:
    """Return what came of a program, as lines of evidence and tables have it."""
    if program.outcome == "other numbers":
        return "; ".join(_contradictions(program))
    if program.left_out:
        return f"not made: {program.left_out}"
    if program.outcome != "raises":
        return _WORDS[program.outcome]
    made = "" if program.own is None else f"is made, and {_INPUTS['others']} "
    return f"{made}raises {program.refused}"


def _contradictions(program: Program) -> Iterator[str]:
    if program.contradicts("own"):
        yield f"{_INPUTS['own']} it differs from forward {_by(program.own, program.own_in_float64)}"
    if program.contradicts("others"):
        distances = _by(program.others, program.others_in_float64)
        yield f"{_INPUTS['others']} it differs from forward {distances}"


def _by(distance: float | None, precise: float | None) -> str:
    assert distance is not None
    assert precise is not None
    return f"by up to {number(distance)}, in float64 by {number(precise)}"


def _other_numbers(case: Case) -> Iterator[Sighting]:
    """Find programs that contradict the forward of their own release."""
    signal = EXPORTS.in_cell(case.capture)
    for way, programs in (signal.programs if signal is not None else {}).items():
        lines = [
            f"{prompt}: {in_words(program)}"
            for prompt, program in programs.items()
            if program.outcome == "other numbers"
        ]
        if lines:
            yield Sighting(way, tuple(lines))


def _one_side(case: Case) -> Iterator[Sighting]:
    """Find programs that are made in one of two releases, each way once."""
    seen = set()
    for each in EXPORTS.of_both(case.reference, case.capture, differences):
        sides = each.reference, each.candidate
        raising = [side.outcome == "raises" for side in sides]
        if each.way in seen or not any(raising):
            continue
        seen.add(each.way)
        assert case.reference is not None
        stack = (case.reference if raising[0] else case.capture).cell.stack
        lines = side_lines(case, *map(in_words, sides))
        yield Sighting(f"{each.way} of {each.prompt}", lines, raises=stack)


RULES = (Rule("SB935", _other_numbers), Rule("SB936", _one_side))
