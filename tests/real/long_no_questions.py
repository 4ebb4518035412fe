"""Twenty models of the zoo have the same verdicts with no question at all; run it after a move of the core."""

import pytest
import yaml

from bench.unchanged import MODELS
from samebits import questions
from samebits.matrix.plan import Selection
from tests.real.conftest import ROOT
from tests.real.test_no_questions import verdicts


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return two folders with the same models of zoo.yaml."""
    made = [tmp_path_factory.mktemp(name) for name in ("all", "none")]
    for folder in made:
        text = (ROOT / "zoo.yaml").read_text("utf-8")
        (folder / "matrix.yaml").write_text(text, "utf-8")
        (folder / "tests").symlink_to(ROOT / "tests")
    return made


def test_twenty_models_of_the_zoo_have_the_same_verdicts(folders, run_in, monkeypatch):
    assert len(MODELS) >= 20
    assert set(MODELS) <= yaml.safe_load((ROOT / "zoo.yaml").read_text("utf-8"))["models"].keys()
    with_all = run_in(folders[0], selection=Selection(models=MODELS))
    monkeypatch.setattr(questions, "QUESTIONS", ())
    with_none = run_in(folders[1], selection=Selection(models=MODELS))
    assert verdicts(with_none) == verdicts(with_all)
