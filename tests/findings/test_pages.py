"""docs/findings/ has a page for each check and no other, and an index of them."""

import shutil

import pytest

from samebits.base.finding_pages import KINDS, PAGES, PageError, finding_page, read
from samebits.findings.rulebook import advice, text_with_code, title
from samebits.lint.registry import rules as lint_rules
from samebits.questions.registry import rules
from samebits.records.finding import RuleText

BY_RUN = {rule.code for rule in rules()}
BY_LINT = {rule.code for rule in lint_rules()}
CHECKED = BY_RUN | BY_LINT
SEEN = {
    code: ", ".join(name for name, by in (("code", BY_LINT), ("run", BY_RUN)) if code in by)
    for code in CHECKED
}


def faults(folder, checked=CHECKED):
    """Return what is wrong with the pages of a folder, one line each."""
    found = []
    codes = {path.stem for path in folder.glob("SB*.md")}
    for path in sorted(folder.glob("SB*.md")):
        try:
            read(path)
        except PageError as error:
            found.append(str(error))
    found += [f"{code}: no check" for code in sorted(codes - checked)]
    return found + [f"{code}: no page" for code in sorted(checked - codes)]


def test_every_check_has_a_page_and_every_page_a_check():
    assert faults(PAGES) == []


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(PAGES, tmp_path / "findings")


def test_a_page_without_a_check_and_a_check_without_a_page_are_found(copy):
    (copy / "SB301.md").unlink()
    assert faults(copy) == ["SB301: no page"]
    assert faults(PAGES, CHECKED - {"SB302"}) == ["SB302: no check"]


def test_a_code_that_two_pages_have_is_found(copy):
    shutil.copyfile(copy / "SB301.md", copy / "SB399.md")
    fault, unchecked = faults(copy)
    assert "SB399.md:2: code SB301" in fault
    assert unchecked == "SB399: no check"


def squeezed(text):
    return " ".join(text.split())


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.code)
def test_a_page_marks_code_as_a_report_does(rule):
    page = squeezed((PAGES / f"{rule.code}.md").read_text("utf-8"))
    table_lines = [b for b in advice(rule.text).split("\n\n") if not b.startswith("| name")]
    hit_if = text_with_code(finding_page(rule.code).hit_if)
    for block in [title(rule.text), *table_lines, hit_if]:
        assert squeezed(block) in page


def test_the_index_lists_every_page():
    listed = [squeezed(line) for line in (PAGES / "README.md").read_text("utf-8").splitlines()]
    for code, seen in SEEN.items():
        text = RuleText.model_validate(
            {f: getattr(finding_page(code), f) for f in RuleText.model_fields}
        )
        name = title(text).removeprefix(f"{code} ")
        assert f"| [{code}]({code}.md) | {name} | {text.kind} | {seen} |" in listed
    assert len([line for line in listed if line.startswith("| [SB")]) == len(SEEN)
    assert {f"- *{kind}*: {meaning}" for kind, meaning in KINDS.items()} <= {*listed}
