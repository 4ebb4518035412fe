"""Verdicts are those of the core: without any question they are what they are with all of them."""

import json
from pathlib import Path

import pytest

from samebits import questions
from tests.real.conftest import NEW, OLD

pytestmark = pytest.mark.long  # for changes of how the core asks questions

CUSTOM = Path(__file__).parents[1] / "custom"
DEFECTS = ("inv-freq-buffer", "no-post-init", "cache-truthiness")
"""Planted defects: other numbers, an exception, and one that decoding shows."""


def matrix_of(folder):
    defaults = {"greedy": 3, "save_load": False, "training": False}
    entry = {"path": str(CUSTOM / "healthy"), "trust_remote_code": True}
    models = {"healthy": entry} | {
        name: entry | {"patch": [str(CUSTOM / f"{name}.diff")]} for name in DEFECTS
    }
    text = json.dumps({"environments": [OLD, NEW], "defaults": defaults, "models": models})
    (folder / "matrix.yaml").write_text(text)  # JSON is YAML
    return folder


def verdicts(report):
    return {
        str(cell.cell): (cell.verdict, cell.judged, cell.rest, cell.deciding or cell.first)
        for row in report.rows
        for cell in row.cells
    }


@pytest.fixture(scope="module")
def with_all(tmp_path_factory, run_in):
    return run_in(matrix_of(tmp_path_factory.mktemp("all")))


@pytest.fixture(scope="module")
def with_none(tmp_path_factory, run_in):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "QUESTIONS", ())
        return run_in(matrix_of(tmp_path_factory.mktemp("none")))


def test_without_questions_the_verdicts_are_the_same(with_all, with_none):
    assert verdicts(with_none) == verdicts(with_all)
    assert len({verdict for verdict, *_ in verdicts(with_all).values()}) > 1
    assert with_none.exit_code == with_all.exit_code


def test_without_questions_nothing_of_them_is_said(with_all, with_none):
    assert any(row.answers for row in with_all.rows)
    assert not any(row.answers for row in with_none.rows)
