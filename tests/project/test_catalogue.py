"""Every id of a defect class that is cited anywhere is defined, and what its row names is there."""

import re
from pathlib import Path

import pytest

from samebits.questions import registry

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "docs" / "catalogue.md"
CLASSES = "ATT|CACHE|CFG|CPU|ENV|GEN|IMP|LOAD|MASK|MOE|NUM|OUT|PROC|ROPE|SSM|TIE|TOK"
ID = re.compile(rf"(?<![\w-])(?:{CLASSES})-\d{{2}}(?![\w-])")
ROW = re.compile(rf"^\| ((?:{CLASSES})-\d{{2}}) \| (.+) \|$", re.MULTILINE)
PLACES = (
    "*.md",
    "*.py",
    "*.yaml",
    "bench/**/*.py",
    "docs/**/*.md",
    "probes/**/*.py",
    "samebits/**/*.py",
    "tests/**/*.diff",
    "tests/**/*.md",
    "tests/**/*.py",
    "tests/**/*.yaml",
    "zoo/**/*.yaml",
)


def rows():
    return {id: text.split(" | ") for id, text in ROW.findall(CATALOGUE.read_text("utf-8"))}


def cited():
    """Return id -> the files that cite it."""
    found = {}
    for pattern in PLACES:
        for path in ROOT.glob(pattern):
            for id in ID.findall(path.read_text("utf-8")):
                if path not in (CATALOGUE, Path(__file__)):
                    found.setdefault(id, set()).add(str(path.relative_to(ROOT)))
    return found


def test_every_id_that_is_cited_has_a_row():
    places = cited()
    assert len(places) > 30
    assert {id: files for id, files in places.items() if id not in rows()} == {}


def test_an_id_has_one_row():
    ids = [id for id, _ in ROW.findall(CATALOGUE.read_text("utf-8"))]
    assert sorted(ids) == sorted(set(ids))


@pytest.mark.parametrize("id", rows())
def test_a_row_names_rules_diffs_and_tests_that_are_there(id):
    *_, upstream, covered = rows()[id]
    assert upstream
    rules = re.findall(r"\bSB\d{3}\b", covered)
    assert set(rules) <= {rule.code for rule in registry.rules()}
    diffs = re.findall(r"[\w-]+\.diff", covered)
    assert all((ROOT / "tests" / "custom" / name).exists() for name in diffs)
    tests = re.findall(r"tests/[\w/]*test_\w+\.py", covered)
    assert all((ROOT / name).exists() for name in tests)


def test_every_class_but_one_that_makes_no_verdict_has_a_rule():
    without = {id for id, (*_, covered) in rows().items() if not re.search(r"\bSB\d{3}\b", covered)}
    assert without == {"MASK-04"}


@pytest.mark.parametrize("id", rows())
def test_a_diff_is_named_by_the_row_of_the_id_that_it_cites(id):
    named = re.findall(r"[\w-]+\.diff", rows()[id][-1])
    for name in named:
        assert id in (ROOT / "tests" / "custom" / name).read_text("utf-8"), name
