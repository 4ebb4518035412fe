"""Every head by task, as custom code of a checkpoint: a planted head is found, its twin is not."""

import pytest

from tests.real.conftest import NEW, OLD

pytestmark = pytest.mark.long  # for changes of model/outputs.py and compare/outputs.py

HEADS = {
    "PlantedForSequenceClassification": ("AutoModelForSequenceClassification", "logits"),
    "PlantedForTokenClassification": ("AutoModelForTokenClassification", "logits"),
    "PlantedForQuestionAnswering": ("AutoModelForQuestionAnswering", "logits"),
    "PlantedForMultipleChoice": ("AutoModelForMultipleChoice", "logits"),
    "PlantedModel": ("AutoModel", "outputs"),
}
"""Class -> its Auto class, and the signal in which the planted twin differs."""
SAVE = """
import sys, torch
folder, heads = sys.argv[1], dict(part.split("=") for part in sys.argv[2:])
sys.path.insert(0, folder)
import modeling_heads
for name, auto_class in heads.items():
    torch.manual_seed(0)
    model_class = getattr(modeling_heads, name)
    for plant in (False, True):
        config = modeling_heads.HeadsConfig(plant=plant, vocab_size=99, hidden_size=32,
            intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, num_labels=2 if "Question" in name else 3)
        model = model_class(config)
        # as checkpoints have it that serve several tasks
        config.auto_map = {"AutoConfig": "modeling_heads.HeadsConfig"} | {
            auto: f"modeling_heads.{other}" for other, auto in heads.items()}
        model.save_pretrained(f"{folder}/{name}{'-planted' * plant}")
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory, save_planted, run_in):
    folder = tmp_path_factory.mktemp("heads")
    heads = [f"{name}={auto_class}" for name, (auto_class, _) in HEADS.items()]
    names = [twin for name in HEADS for twin in (name, f"{name}-planted")]
    matrix = f'stacks: ["{OLD}", "{NEW}"]\ndefaults: {{questions: [relations]}}\nmodels:'
    save_planted(folder, "modeling_heads.py", OLD, SAVE, heads, names, matrix)
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
