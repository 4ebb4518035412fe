"""Every head by task, as custom code of a checkpoint: a planted head is found, its twin is not."""

import pytest

from tests.real.conftest import NEW, OLD, SMALL

pytestmark = pytest.mark.long  # for changes of model/outputs.py and compare/outputs.py

HEADS = {
    "PlantedForSequenceClassification": ("AutoModelForSequenceClassification", "logits"),
    "PlantedForTokenClassification": ("AutoModelForTokenClassification", "logits"),
    "PlantedForQuestionAnswering": ("AutoModelForQuestionAnswering", "logits"),
    "PlantedForMultipleChoice": ("AutoModelForMultipleChoice", "logits"),
    "PlantedModel": ("AutoModel", "outputs"),
}
"""Class -> its Auto class, and the signal in which the planted twin differs."""


@pytest.fixture(scope="module")
def cells(tmp_path_factory, save_planted, run_in):
    folder = tmp_path_factory.mktemp("heads")
    small = SMALL | {"max_position_embeddings": 64}
    autos = {name: auto_class for name, (auto_class, _) in HEADS.items()}
    models = {
        f"{name}{'-planted' * plant}": (name, small | {"plant": plant, "num_labels": n_labels})
        for name, n_labels in zip(HEADS, (3, 3, 2, 3, 3), strict=True)
        for plant in (False, True)
    }
    matrix = f'environments: ["{OLD}", "{NEW}"]\ndefaults: {{questions: [relations]}}\nmodels:'
    save_planted(folder, "modeling_heads", OLD, autos, models, matrix)
    report = run_in(folder)
    return {(c.cell.model, c.cell.stack): c for row in report.rows for c in row.cells}


@pytest.mark.parametrize("name", HEADS)
def test_a_clean_head_is_not_accused(cells, name):
    cell = cells[name, NEW]
    assert cell.verdict in {"identical", "rounding"}, cell.headline
    assert "logits" not in [s.signal for s in cell.signals if s.outcome == "not compared"]


@pytest.mark.parametrize("name", HEADS)
def test_a_planted_head_is_found_where_it_shows(cells, name):
    cell = cells[f"{name}-planted", NEW]
    assert cell.verdict == "diverged", cell.headline
    differing = {s.signal for s in cell.signals if s.outcome == "differs"}
    assert HEADS[name][1] in differing
    assert "weights" not in differing
