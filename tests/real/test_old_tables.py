"""Checkpoints as old releases saved them: a BERT whose file has its table of positions."""

import pytest

MAKE = """
import sys
import torch
import transformers
from safetensors.torch import save_file
from pathlib import Path

config = transformers.BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=32,
    architectures=["BertForMaskedLM"],
)
torch.manual_seed(0)
state = transformers.BertForMaskedLM(config).state_dict()
table = torch.arange(32)[None]
for name, stored in {"bare": None, "old": table, "wrong": table.flip(1)}.items():
    for layout in ("safetensors", "pickle"):
        folder = Path(sys.argv[1]) / f"{name}-{layout}"
        config.save_pretrained(folder)
        kept = {key: value.clone() for key, value in state.items()}
        if stored is not None:
            kept["bert.embeddings.position_ids"] = stored.clone()
        if layout == "pickle":
            torch.save(kept, folder / "pytorch_model.bin")
        else:
            save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
"""
MODELS = [
    f"{name}-{layout}" for name in ("bare", "old", "wrong") for layout in ("safetensors", "pickle")
]
MATRIX = """\
environments: ["4.48", "5.2", "5.x"]
defaults:
  dtypes: [float32]
  greedy: 0
  questions: []
  prompts: {short: {length: 5}}
models:
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory, run_script, run_in):
    folder = tmp_path_factory.mktemp("old")
    run_script("4.48", "-c", MAKE, folder)
    lines = (f"  {name}: {{path: {name}}}" for name in MODELS)
    (folder / "matrix.yaml").write_text(MATRIX + "\n".join(lines))
    return {row.model: row for row in run_in(folder).rows}


@pytest.mark.parametrize("model", MODELS)
def test_a_table_is_a_finding_where_the_model_computes_another(rows, model):
    """Every release computes the table and reads none: the models are the same, and right."""
    cells = rows[model].cells
    assert {cell.verdict.passes for cell in cells} == {True}
    found = [[(f.code, f.where) for f in cell.findings if f.code == "SB308"] for cell in cells]
    wrong = model.startswith("wrong")
    assert found == [[("SB308", "bert.embeddings.position_ids")] if wrong else []] * 3


def test_the_finding_says_whether_loading_reported_the_key(rows):
    for cell in rows["wrong-pickle"].cells:
        (finding,) = [f for f in cell.findings if f.code == "SB308"]
        reported = "loading reported it as an unexpected key"
        assert (reported in finding.evidence) == (cell.cell.stack == "5.2")
