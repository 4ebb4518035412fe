"""junit.xml: a test case for each cell, and for whatever else decides the exit code.

A case fails if and only if it makes the run fail, so a reader of this file alone comes to the same
result as the exit code: 0 and 3 have no failure and no error, 1 and 4 have at least one.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from samebits.diagnose.exit_code import FAIL, UNASKED, fails
from samebits.records.comparison import CellResult
from samebits.records.report import Report
from samebits.reports.answer import of_cell
from samebits.reports.head import briefs
from samebits.reports.plain import advice, beginning, on_one_line, why_skipped
from samebits.reports.stories import verdict_word
from samebits.text.lists import grouped
from samebits.text.markdown import shorten, visible

PATH = "junit.xml"
MAX_LINE = 2000
"""Characters of a line: a model's exception may have any length."""

_RUN = "the run"
"""Name of the suite whose cases are no cells."""

State = Literal["passed", "failure", "error", "skipped"]


@dataclass(frozen=True)
class Case:
    """One test case."""

    group: str
    """Its classname: the model, or :data:`_RUN`."""
    name: str
    state: State
    kind: str = ""
    """Type of a failure: the verdict."""
    message: str = ""
    lines: tuple[str, ...] = ()


def render(report: Report) -> dict[str, str]:
    """Return the text of junit.xml by its path."""
    root = ET.Element("testsuites", {"name": _text(f"samebits {report.matrix}")})
    suites = [
        (model, [_case(cell, report) for row in rows for cell in row.cells])
        for model, rows in grouped(report.rows, lambda row: row.model).items()
    ]
    suites.append((_RUN, list(_cases_of_run(report))))
    for number, (name, cases) in enumerate(suites):
        output = briefs(report) if name == _RUN else []
        _add_suite(root, number, name, cases, report, output)
    all_cases = [case for _, cases in suites for case in cases]
    root.attrib |= {"time": f"{report.seconds:.3f}", **_counts(all_cases)}
    ET.indent(root, " ")
    text = ET.tostring(root, encoding="unicode")
    return {PATH: f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'}


def _case(cell: CellResult, report: Report) -> Case:
    name, model = str(cell.cell), cell.cell.model
    if fails(cell):
        about = of_cell(cell, report)
        lines = [*about.lines, *beginning(cell).lines]
        lines += [line for defect in advice([cell], report) for line in defect.lines]
        lines += [f"to reproduce: {cell.reproduce}"] if cell.reproduce else []
        short = f"{verdict_word(cell)}: {about.change}"
        return Case(model, name, "failure", cell.verdict, short, tuple(lines))
    reason = why_skipped(cell)
    return Case(model, name, "skipped" if reason else "passed", "", reason)


def _cases_of_run(report: Report) -> Iterator[Case]:
    """Yield a case for each stack, each expected difference, and the exit code itself."""
    broken = False
    for stack in report.stacks:
        name = f"environment {stack.id}"
        if stack.failure:
            broken = True
            lines = tuple(stack.failure.splitlines())
            short = f"{name} failed: {on_one_line(stack.failure)}"
            yield Case(_RUN, name, "error", "environment", short, lines)
        else:
            yield Case(_RUN, name, "passed")
    for entry in report.expected:
        name = f"expected, line {entry.line}: {entry.text}"
        if entry.fixed:
            broken = True
            short = f"no longer occurs: {', '.join(entry.fixed)}; remove it"
            yield Case(_RUN, name, "failure", "fixed", short, (entry.reason,))
        elif entry.evaluated:
            yield Case(_RUN, name, "passed")
        else:
            yield Case(_RUN, name, "skipped", "", "the filters left out every cell that it matches")
    broken = broken or any(fails(cell) for cell in report.cells)
    if report.exit_code in (FAIL, UNASKED) and not broken:
        short = report.reasons[0] if report.reasons else "the run does not pass"
        yield Case(_RUN, "result", "failure", "run", short, report.reasons)
    else:
        yield Case(_RUN, "result", "passed")


def _add_suite(
    root: ET.Element, number: int, name: str, cases: list[Case], report: Report, output: list[str]
) -> None:
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "name": _text(name),
            "package": _text(name),
            "id": str(number),
            "timestamp": report.started.removesuffix("Z"),
            "hostname": "localhost",
            "time": "0.000",
            **_counts(cases),
            "skipped": str(sum(case.state == "skipped" for case in cases)),
        },
    )
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(report):
        ET.SubElement(properties, "property", {"name": key, "value": _text(value)})
    for case in cases:
        _add_case(suite, case)
    ET.SubElement(suite, "system-out").text = "\n".join(map(_text, output)) or None
    ET.SubElement(suite, "system-err")


def _properties(report: Report) -> Iterator[tuple[str, str]]:
    yield "samebits", report.samebits
    yield "reference", report.reference
    for stack in report.stacks:
        yield f"transformers of {stack.id}", stack.transformers or "not built"


def _add_case(suite: ET.Element, case: Case) -> None:
    attributes = {"classname": _text(case.group), "name": _text(case.name), "time": "0.000"}
    element = ET.SubElement(suite, "testcase", attributes)
    if case.state == "passed":
        return
    kind = {} if case.state == "skipped" else {"type": _text(case.kind)}
    result = ET.SubElement(element, case.state, {**kind, "message": _text(case.message)})
    if case.lines:
        result.text = "\n".join(map(_text, case.lines))


def _counts(cases: list[Case]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.state == "failure" for case in cases)),
        "errors": str(sum(case.state == "error" for case in cases)),
    }


def _text(text: str) -> str:
    """Return one line without the characters that XML forbids, escapes of which are shown."""
    return visible(shorten(text, MAX_LINE))
