"""JUnit XML, job summary and annotations: each says what the exit code says, and nothing more."""

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import xmlschema
from junitparser import Error, Failure, JUnitXml, Skipped

from samebits.base.workflow import annotation, inert
from samebits.diagnose.exit_code import exit_code, fails
from samebits.records.finding import Finding
from samebits.records.ids import Verdict
from samebits.records.report import CheckpointReport
from samebits.reports.formats import github, junit
from samebits.reports.formats.github import MAX_ANNOTATIONS, MAX_BYTES, summary, workflow_commands
from samebits.reports.formats.registry import FORMATS, NAMES, Form, render
from samebits.reports.head import MAX_LINES, MAX_WIDTH, head
from samebits.reports.html import site
from samebits.reports.plain import Place
from samebits.text.markdown import Markdown
from tests.support.sample_report import (
    NEVER_WRITTEN,
    known_as,
    renamed,
    sample_report,
    with_cells,
    with_rows,
)

SCHEMA = Path(__file__).parents[1] / "published" / "junit-10.xsd"
SAMPLE = sample_report()
HOSTILE = (
    "]]></failure><script>alert(1)</script> <!-- & \x1b[31m \x00 \u202e \ud800 \ufffe\n"
    "::error file=x::y\n##[error]z %0A, file=a:b | `c` [d](e) ![f](g)\r\n\n# h"
)
HOSTILE_SAMPLE = sample_report(HOSTILE, HOSTILE, HOSTILE)


def judged(report, trusted=None):
    """Return the report with the exit code that its cells, stacks and entries have."""
    code, reasons = exit_code(report.cells, report.expected, report.stacks, trusted)
    return report.model_copy(update={"exit_code": code, "reasons": reasons})


def alone(row, **fields):
    """Return a report with one row, whose stacks are all built."""
    stacks = tuple(stack for stack in SAMPLE.stacks if not stack.failure)
    expected = tuple(entry for entry in SAMPLE.expected if row.model in entry.fixed)
    update = {"rows": (row,), "stacks": stacks, "expected": expected}
    return judged(SAMPLE.model_copy(update=update | fields))


def row_of(model):
    return next(row for row in SAMPLE.rows if row.model == model)


def xml(report):
    return render(report, ["junit"])["junit.xml"]


def results(report):
    """Return the result of each case as a reader of JUnit XML sees it: name -> (kind, message)."""
    parsed = JUnitXml.fromstring(xml(report).encode())
    kinds = {Failure: "failure", Error: "error", Skipped: "skipped"}
    return {
        case.name: next(
            ((kinds[type(r)], r.message or "", r.text or "") for r in case.result), None
        )
        for suite in parsed
        for case in suite
    }


def failing(report):
    return [name for name, result in results(report).items() if result and result[0] != "skipped"]


# JUnit XML


@pytest.mark.parametrize("report", [SAMPLE, HOSTILE_SAMPLE, alone(row_of("bert"))])
def test_it_is_valid_by_a_published_schema(report):
    xmlschema.XMLSchema(str(SCHEMA)).validate(io.StringIO(xml(report)))


def test_the_schema_refuses_what_is_no_junit_xml():
    text = xml(SAMPLE).replace('<testcase classname="', '<testcase colour="', 1)
    assert not xmlschema.XMLSchema(str(SCHEMA)).is_valid(io.StringIO(text))


@pytest.mark.parametrize("report", [SAMPLE, HOSTILE_SAMPLE])
def test_each_cell_is_one_case_and_the_counts_are_right(report):
    root = ET.fromstring(xml(report))
    cases = [case for case in root.iter("testcase") if case.get("classname") != "the run"]
    assert len(cases) == len(report.cells)
    assert int(root.get("tests")) == len(list(root.iter("testcase")))
    for kind in ("failure", "error"):
        assert int(root.get(f"{kind}s")) == len(list(root.iter(kind)))
    for suite in root:
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
        assert int(suite.get("skipped")) == len(suite.findall("*/skipped"))


@pytest.mark.parametrize("row", SAMPLE.rows, ids=lambda row: f"{row.model}-{row.variant}")
def test_a_case_fails_if_and_only_if_it_fails_the_run(row):
    report = alone(row)
    shown = results(report)
    for cell in row.cells:
        kind = shown[str(cell.cell)]
        assert (kind is not None and kind[0] == "failure") == fails(cell)
    assert bool(failing(report)) == (report.exit_code == 1)
    if report.exit_code == 3:
        reasons = [r[1] for r in shown.values() if r and r[0] == "skipped"]
        assert any(reason.startswith(("not finished: ", "not observed: ")) for reason in reasons)


def test_the_sample_has_every_exit_code_and_every_verdict():
    assert {alone(row).exit_code for row in SAMPLE.rows} == {0, 1, 3}
    assert {cell.verdict for cell in SAMPLE.cells} == set(Verdict)


def test_what_fails_a_run_besides_cells_is_a_case_of_its_own():
    passing = alone(row_of("llama"))
    assert not failing(passing)
    broken = judged(passing.model_copy(update={"stacks": SAMPLE.stacks}))
    assert failing(broken) == ["environment 5.15"]
    gone = tuple(entry for entry in SAMPLE.expected if entry.fixed)
    (name,) = failing(judged(passing.model_copy(update={"expected": gone})))
    assert name.startswith("expected, line 93")
    empty = judged(passing.model_copy(update={"rows": ()}))
    assert failing(empty) == ["result"]
    assert "nothing was compared" in results(empty)["result"][1]


def test_a_failure_has_the_first_difference_and_the_command():
    report = alone(row_of("falcon"))
    name = failing(report)[0]
    kind, message, text = results(report)[name]
    assert (kind, message.partition(":")[0]) == ("failure", "failed")
    assert "forward short" in text
    cell = next(c for row in report.rows for c in row.cells if str(c.cell) == name)
    assert not cell.reproduce or f"to reproduce: {cell.reproduce}" in text


def test_hostile_text_stays_text():
    shown = results(HOSTILE_SAMPLE)
    assert "<script>" in "".join(r[1] for r in shown.values() if r)
    root = ET.fromstring(xml(HOSTILE_SAMPLE))
    tags = {element.tag for element in root.iter()}
    assert tags <= {
        *("testsuites", "testsuite", "properties", "property", "testcase"),
        *("failure", "error", "skipped", "system-out", "system-err"),
    }
    assert not re.search("[\x00\x1b\u202e]", xml(HOSTILE_SAMPLE))


# the summary of a job


def test_a_summary_has_the_head_what_fails_and_no_link_that_leads_nowhere():
    text = summary(SAMPLE)
    assert text.startswith("# samebits: matrix.yaml: new: 4 models fail, ")
    assert "| falcon " in text
    assert "](models/" not in text
    assert "](#" not in text


def many(n):
    """Return a report of which ``n`` models fail, the first of them the least severe."""
    models = ["gemma2"] * (n - 1) + ["falcon"]
    rows = (renamed(row_of(model), model=f"m{i:05}") for i, model in enumerate(models))
    return judged(with_rows(*rows))


def test_a_summary_is_cut_by_severity():
    report = many(3500)
    text = summary(report)
    assert len(text.encode()) <= MAX_BYTES < 1024 * 1024
    assert re.search(r"\d more parts are cut", text)
    details = text.partition("## What changed\n")[2]
    assert details.index("m03499") < details.index("m00000")
    assert "and 3,496 more" in text  # about which the same is read


@pytest.mark.parametrize("limit", [0, 199, 201, 1000, 20_000])
def test_a_summary_keeps_to_any_limit(limit):
    assert len(summary(SAMPLE, limit).encode()) <= limit
    assert bool(summary(SAMPLE, limit)) == (limit > 200)


def test_links_to_files_become_labels_and_nothing_else_does():
    text = Markdown(
        r"[a\]b](models/a.md) `[c](d)` \[e](f) <https://x.y> [g](https://h.i) [`j`](#k)"
    )
    expected = r"a\]b `[c](d)` \[e](f) <https://x.y> [g](https://h.i) `j`"
    assert github.unlinked(text) == expected


def test_hostile_text_of_a_summary_is_no_markup():
    text = summary(HOSTILE_SAMPLE)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<script>" not in outside.replace(r"\<script>", "")
    assert "\n# h" not in text
    assert "![f](g)" not in outside


# annotations


def parsed(line):
    """Return level, properties and message of a workflow command, as the runner reads it."""
    match = re.fullmatch(r"::(error|warning|notice)(?: ([^\n]*?))?::([^\n]*)", line)
    assert match, line
    level, properties, message = match.groups()
    pairs = (pair.partition("=") for pair in (properties or "").split(",") if pair)
    read = {name: _unescaped(value, properties=True) for name, _, value in pairs}
    return level, read, _unescaped(message)


def _unescaped(text, properties=False):
    codes = {"%0D": "\r", "%0A": "\n", **({"%3A": ":", "%2C": ","} if properties else {})}
    for code, character in codes.items():
        text = text.replace(code, character)
    return text.replace("%25", "%")


def placed(row, line=7, folder="models/own"):
    checkpoint = CheckpointReport(model=row.model, source="path x", folder=folder)
    report = alone(row.model_copy(update={"line": line}))
    return report.model_copy(update={"matrix_path": "matrix.yaml", "checkpoints": (checkpoint,)})


def test_an_annotation_stands_at_the_models_entry():
    level, properties, message = parsed(workflow_commands(placed(row_of("falcon")))[0])
    assert level == "error"
    assert (properties["file"], properties["line"]) == ("matrix.yaml", "7")
    assert properties["title"].startswith("samebits: falcon/float32-eager on 5.9, 5.23: failed")
    assert "forward short" in message


def with_own_frame(row):
    cells = []
    for cell in row.cells:
        if cell.failure:
            frame = cell.failure.frames[-1].model_copy(
                update={"own": True, "file": "cache/0a1b/modeling_own.py", "line": 33}
            )
            failure = cell.failure.model_copy(update={"frames": (*cell.failure.frames, frame)})
            cells.append(cell.model_copy(update={"failure": failure}))
        else:
            cells.append(cell)
    return with_cells(row, *cells)


def test_an_annotation_stands_at_the_models_own_code_where_that_is_a_file():
    report = placed(with_own_frame(row_of("falcon")))
    path = "models/own/modeling_own.py"
    line = workflow_commands(report, is_file=path.__eq__, prefix="sub")[0]
    assert parsed(line)[1]["file"] == f"sub/{path}"
    assert parsed(line)[1]["line"] == "33"
    assert parsed(workflow_commands(report)[0])[1]["file"] == "matrix.yaml"


def test_the_line_that_lint_names_serves_where_nothing_was_raised():
    row = row_of("opensci-ref")
    codes = {f.code for c in row.cells for f in c.findings}
    places = {code: Place("modeling_own.py", 81, 9) for code in codes}
    if codes:
        line = workflow_commands(placed(row), places, is_file=lambda _: True)[0]
        assert parsed(line)[1]["line"] == "81"


def test_there_are_ten_annotations_and_the_worst_come_first():
    lines = workflow_commands(many(30))
    assert len(lines) == MAX_ANNOTATIONS
    assert "environment 5.15" in lines[0]
    assert "m00029" in lines[1]
    assert parsed(lines[-1])[2].startswith("and ")
    total = len(workflow_commands(many(3))) + 27
    assert parsed(lines[-1])[2].split()[1] == str(total - MAX_ANNOTATIONS + 1)


def test_what_is_incomplete_is_a_warning_and_what_passes_is_nothing():
    assert [parsed(line)[0] for line in workflow_commands(alone(row_of("esmfold")))] == ["warning"]
    assert workflow_commands(alone(row_of("llama"))) == []


def test_an_entry_that_is_fixed_is_annotated_at_its_line():
    gone = tuple(entry for entry in SAMPLE.expected if entry.fixed)
    report = alone(row_of("llama"), expected=gone, matrix_path="ci/matrix.yaml")
    ((_, properties, _),) = map(parsed, workflow_commands(judged(report)))
    assert (properties["file"], properties["line"]) == ("ci/matrix.yaml", "93")


def test_hostile_text_makes_no_second_command():
    lines = workflow_commands(HOSTILE_SAMPLE)
    for line in lines:
        assert "\n" not in line
        assert "\r" not in line
        level, properties, _ = parsed(line)
        assert properties.keys() <= {"file", "line", "title"}
        assert level in ("error", "warning")


def test_an_annotation_says_what_it_was_given():
    title, message = "a:b,c%d\n", "100% of ::x::\r\n%0A"
    line = annotation("error", message, {"file": "a,b.py", "line": 3, "title": title, "col": 0})
    assert parsed(line) == ("error", {"file": "a,b.py", "line": "3", "title": title}, message)


@pytest.mark.parametrize("line", ["::error::x", "  ::add-mask::x", "\t::x", "a ##[error]b"])
def test_no_line_of_a_log_is_a_command(line):
    shown = inert(line)
    assert not shown.lstrip().startswith("::")
    assert "##[" not in shown
    assert inert("a plain :: line") == "a plain :: line"


# the head, and all formats


@pytest.mark.parametrize("report", [SAMPLE, HOSTILE_SAMPLE, many(500), alone(row_of("llama"))])
def test_the_head_has_ten_lines_at_most(report):
    lines = head(report)
    assert 2 <= len(lines) <= MAX_LINES
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= 2 * MAX_WIDTH


def test_no_format_changes_another():
    every = render(SAMPLE, NAMES)
    # pages of report.html lead to those of report.md where there are some
    names = [name for name in NAMES if name != "html"]
    apart = {path: text for name in names for path, text in render(SAMPLE, [name]).items()}
    html = site.folder(SAMPLE, apart)
    assert every == apart | html
    assert html.keys() == render(SAMPLE, ["html"]).keys()
    assert {format.main for format in FORMATS} <= every.keys()
    assert junit.PATH in every


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_the_file_of_a_format_bears_its_mark(format):
    text = format.files(SAMPLE, Form((), single_file=False))[format.main]
    assert any(line.startswith(format.mark) for line in text.splitlines()[:5])


def test_a_failure_has_the_remedy_of_its_finding():
    finding = Finding(code="SB301", where="model.inv_freq", evidence=("seen",))
    row = row_of("falcon")
    row = with_cells(row, *(known_as(cell, finding) for cell in row.cells))
    report = placed(row).model_copy(update={"rules": (NEVER_WRITTEN,)})
    wanted = "SB301 a buffer is never written (model.inv_freq)\nremedy: compute it in forward"
    assert wanted in results(report)[failing(report)[0]][2]
    assert wanted in parsed(workflow_commands(report)[0])[2]
    assert "compute it in forward" in summary(report)
    assert any(
        line.startswith("falcon: ") and "compute it in forward" in line for line in head(report)
    )
