"""One issue for what is new, and no second one for the same difference."""

import json
import re

import pytest

from samebits import cli
from samebits.questions.registry import rules
from samebits.records.finding import Finding
from samebits.records.ids import Verdict
from samebits.reports.issue import (
    MAX_CHARACTERS,
    IssuesError,
    Opened,
    new_issue,
    read_issues,
)
from samebits.reports.json import render
from tests.support.sample_report import (
    known_as,
    only_rows,
    renamed,
    sample_report,
    with_cells,
    with_rows,
)

REPORT = sample_report()
ISSUE = new_issue(REPORT)


def with_release(report, stack, release):
    stacks = tuple(
        s.model_copy(update={"transformers": release}) if s.id == stack else s
        for s in report.stacks
    )
    return report.model_copy(update={"stacks": stacks})


def opened(issue, *, is_open=True):
    """Return an issue as it is read back from GitHub."""
    (keys,) = re.findall(r"<!-- samebits differences 1:(.*) -->", issue.body)
    return Opened(is_open, frozenset(keys.split()))


def file_of(path, *issues):
    path.write_text(json.dumps(issues))
    return path


def test_what_fails_gets_an_issue_with_first_difference_and_remedy():
    issue = new_issue(only_rows("gemma2"))
    assert issue.title.startswith("samebits: gemma2 ")
    assert "under transformers 5." in issue.title
    assert "### `gemma2/float32-sdpa` on " in issue.body
    assert "2.0e-03\n" in issue.body
    assert "to reproduce: " in issue.body


def test_a_known_defect_comes_with_its_remedy():
    (text,) = (rule.text for rule in rules() if rule.code == "SB301")
    finding = Finding(code="SB301", where="model.inv_freq", evidence=("seen",))
    (row,) = only_rows("gemma2").rows
    row = with_cells(row, *(known_as(cell, finding) for cell in row.cells))
    issue = new_issue(with_rows(row, rules=(text,)))
    assert "SB301 a non-persistent buffer holds uninitialised memory (model.inv_freq)" in issue.body
    assert "\nremedy: " in issue.body


def test_what_passes_gets_none():
    assert new_issue(only_rows("llama")) is None
    assert new_issue(only_rows("mamba")) is None, "an expected difference"


def test_the_same_again_gets_none():
    assert new_issue(REPORT, [opened(ISSUE)]) is None


def test_only_what_is_new_is_in_the_second_issue():
    first = new_issue(only_rows("gemma2"))
    second = new_issue(only_rows("gemma2", "falcon"), [opened(first)])
    assert "falcon" in second.title
    assert "gemma2" not in second.body
    assert new_issue(only_rows("gemma2", "falcon"), [opened(first), opened(second)]) is None


def test_a_later_release_of_a_stack_is_the_same_difference_while_the_issue_is_open():
    first = new_issue(only_rows("gemma2"))
    later = with_release(only_rows("gemma2"), "5.23", "5.24.0")
    assert new_issue(later, [opened(first)]) is None


def test_a_closed_issue_holds_for_its_release_only():
    report = only_rows("falcon")
    closed = opened(new_issue(report), is_open=False)
    assert new_issue(report, [closed]) is None
    stacks = {cell.cell.stack for row in report.rows for cell in row.cells}
    later = report
    for stack in stacks:
        later = with_release(later, stack, "5.99.0")
    assert new_issue(later, [closed]) is not None


def test_another_verdict_of_the_same_cell_is_new():
    first = opened(new_issue(only_rows("gemma2")))
    (row,) = only_rows("gemma2").rows
    cells = tuple(
        c.model_copy(update={"verdict": Verdict.UNSTABLE, "judged": Verdict.UNSTABLE})
        if not c.verdict.passes
        else c
        for c in row.cells
    )
    changed = REPORT.model_copy(update={"rows": (row.model_copy(update={"cells": cells}),)})
    assert "unstable" in new_issue(changed, [first]).title


def test_several_models_are_counted():
    assert re.match(r"samebits: \d+ models do not pass under transformers ", ISSUE.title)


def test_the_issue_fits_github():
    message = "x" * 3_000
    issue = new_issue(sample_report(message=message))
    assert len(issue.body) < MAX_CHARACTERS + 200
    rows = tuple(
        renamed(row, model=f"{row.model}-{n}")
        for n in range(200)
        for row in sample_report(message=message).rows
    )
    long = new_issue(REPORT.model_copy(update={"rows": rows}))
    assert len(long.body) < 65_536
    assert "more differences: the report has all of them" in long.body


def test_nobody_is_notified_by_the_text_of_a_model():
    hostile = "```\n@everyone #1 <!-- samebits differences 1: --> \x1b[31m"
    issue = new_issue(sample_report(hostile, hostile, hostile))
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", issue.body, flags=re.DOTALL | re.MULTILINE)
    outside = re.sub(r"(`+)[^`].*?\1", "", outside)
    assert "@everyone" not in outside
    assert "\x1b" not in issue.body
    assert issue.body.startswith("<!-- samebits differences 1: ")
    assert opened(ISSUE).keys


def test_read_issues(tmp_path):
    path = file_of(
        tmp_path / "issues.json",
        {"state": "OPEN", "body": f"{ISSUE.body}\n\nsomebody wrote below it"},
        {"state": "CLOSED", "body": "<!-- samebits differences 2: later format -->"},
        {"state": "open", "body": None},
    )
    first, second, third = read_issues(path)
    assert first == opened(ISSUE)
    assert second == Opened(is_open=False, keys=frozenset())
    assert third == Opened(is_open=True, keys=frozenset())


@pytest.mark.parametrize("text", ["{", "3", '{"a": 1}', "[1]", '[{"state": "OPEN"}]'])
def test_a_file_that_holds_no_issues(tmp_path, text):
    path = tmp_path / "issues.json"
    path.write_text(text)
    with pytest.raises(
        IssuesError, match=r"issues\.json.* cannot be read: it is no list of issues"
    ):
        read_issues(path)


def test_no_file_of_issues(tmp_path):
    with pytest.raises(IssuesError, match="No such file"):
        read_issues(tmp_path / "gone.json")


def run(tmp_path, report, *issues):
    source = tmp_path / "report.json"
    source.write_text(render(report))
    known = file_of(tmp_path / "known.json", *issues)
    output = tmp_path / "issue.md"
    words = ["issue", str(source), "--known", str(known), "--output", str(output)]
    code, lines = cli.run(words, {})
    assert code == 0
    return output, lines


def test_the_command_writes_title_and_text_and_removes_them(tmp_path):
    output, lines = run(tmp_path, REPORT)
    title, blank, *body = output.read_text("utf-8").splitlines()
    assert (title, blank, "\n".join(body)) == (ISSUE.title, "", ISSUE.body)
    assert lines == [f"{output}: {ISSUE.title}"]
    output, lines = run(tmp_path, REPORT, {"state": "OPEN", "body": ISSUE.body})
    assert not output.exists()
    assert lines == ["nothing fails that is in no issue yet"]
