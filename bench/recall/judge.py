"""What a run's report shows of a regression: found, named, and in the right releases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from bench.recall.cases import PASSING, ModelCase, Sign

Cell = dict[str, Any]
"""A cell of report.json."""


class Outcome(NamedTuple):
    """What a run showed of one case."""

    found: bool
    named: bool
    released: bool
    """Whether every bad release shows it and no good one does."""
    shown: dict[str, str]
    """release -> verdict, signals that differ and findings in one line."""
    cause: str
    """What names it in a bad release, else what the run named there instead; '' if it named none."""
    reason: str
    """Why it is not found, not named or in other releases; '' if nothing is missing."""


def judge(case: ModelCase, cells: dict[str, Cell]) -> Outcome:
    """Return what the cells of a case's model, by release, show of it."""
    missing = [release for release in case.releases if release not in cells]
    if missing:
        return Outcome(
            found=False,
            named=False,
            released=False,
            shown={},
            cause="",
            reason=f"no cell ran under {', '.join(missing)}",
        )
    found = [release for release in case.bad if shows(case.expect, cells[release])]
    named = [release for release in found if names(case.expect, cells[release])]
    accused = [release for release in case.good if shows(case.expect, cells[release])]
    released = found == [*case.bad] and not accused
    first = cells[(named or found or case.bad)[0]]
    return Outcome(
        found=bool(found),
        named=bool(named),
        released=released,
        shown={release: line(cells[release]) for release in case.releases},
        cause=naming(case.expect, first) or named_cause(first),
        reason=_reason(case, cells, found, named, accused),
    )


def _reason(
    case: ModelCase, cells: dict[str, Cell], found: list[str], named: list[str], accused: list[str]
) -> str:
    if not found:
        release = case.bad[0]
        return f"{release} shows none of {_expected(case.expect)}: {line(cells[release])}"
    parts = []
    if not named:
        wanted = ", ".join((*case.expect.findings, *case.expect.source))
        parts.append(f"neither a finding nor the cause names {wanted}")
    if late := [release for release in case.bad if release not in found]:
        parts.append(f"not seen in {', '.join(late)}")
    if accused:
        parts.append(f"also seen in {', '.join(accused)}, where it is not")
    return "; ".join(parts)


def _expected(sign: Sign) -> str:
    failure = [f"an exception with {sign.failure!r}"] if sign.failure else []
    return ", ".join((*sign.signals, *sign.findings, *failure))


def shows(sign: Sign, cell: Cell) -> bool:
    """Return whether a cell shows what is expected."""
    if _expected_codes(sign, cell):
        return True
    if cell["judged"] in PASSING and cell["judged"] != sign.verdict:
        return False
    failure = cell.get("failure")
    if sign.failure:
        text = f"{failure['type']}: {failure['message']}" if failure else ""
        return sign.failure in text
    return bool({*sign.signals} & {*differing(cell)})


def names(sign: Sign, cell: Cell) -> bool:
    """Return whether a cell that shows it also names its cause."""
    return bool(naming(sign, cell))


def naming(sign: Sign, cell: Cell) -> str:
    """Return the expected finding, or the place of the cause, that a cell has; '' if it has none."""
    expected = _expected_codes(sign, cell)
    fitting = (place for source in sign.source for place in places(cell) if source in place)
    return expected[0] if expected else next(fitting, "")


def _expected_codes(sign: Sign, cell: Cell) -> list[str]:
    return [
        finding["code"]
        for finding in cell.get("findings", ())
        if finding["code"] in sign.findings
        and (not sign.evidence or any(sign.evidence in line for line in finding["evidence"]))
    ]


def codes(cell: Cell) -> list[str]:
    """Return the codes of a cell's findings."""
    return [finding["code"] for finding in cell.get("findings", ())]


def differing(cell: Cell) -> list[str]:
    """Return the signals that differ from the reference, or between the runs of the cell."""
    signals = [
        comparison["signal"]
        for comparison in cell.get("signals", ())
        if comparison["outcome"] != "identical" and not comparison.get("excused")
    ]
    return [*signals, *cell.get("unstable_signals", ())]


def line(cell: Cell) -> str:
    """Return verdict, signals that differ and findings of a cell."""
    failure = cell.get("failure")
    raised = [f"{failure['type']} in {failure['phase']}"] if failure else []
    parts = [*dict.fromkeys((*raised, *differing(cell), *codes(cell)))]
    return f"{cell['judged']} ({', '.join(parts)})" if parts else str(cell["judged"])


def named_cause(cell: Cell) -> str:
    """Return the finding, or the operation and its line, that a cell names first."""
    if cell.get("findings"):
        return str(codes(cell)[0])
    cause = cell.get("cause")
    if cause:
        side = cause["candidate"]
        return f"{side.get('function', '')} ({side.get('source', '')})".strip()
    failure = cell.get("failure") or {}
    frames = failure.get("frames") or ()
    return f"{frames[-1]['function']} ({frames[-1]['file']}:{frames[-1]['line']})" if frames else ""


def places(cell: Cell) -> Iterator[str]:
    """Yield the functions and files that a cell names: of causes, source diffs and tracebacks."""
    cause = cell.get("cause")
    while cause:
        for side in (cause["candidate"], cause.get("reference")):
            if side:
                yield _place(side.get("function"), side.get("source"), side.get("tensor"))
        for diff in cause.get("diffs", ()):
            yield _place(diff["function"], diff["candidate"] or diff["reference"])
        cause = cause.get("beyond")
    for failure in (cell.get("failure"), *cell.get("shared_failures", ())):
        for frame in (failure or {}).get("frames", ()):
            yield _place(frame["function"], frame["file"])


def _place(function: str | None, source: str | None, tensor: str | None = "") -> str:
    """Return ``OPTAttention.forward (modeling_opt.py:160)``; a tensor has its name instead."""
    name = function or tensor or ""
    return f"{name} ({source})" if source else name
