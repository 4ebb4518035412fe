"""The hunt over two real stacks: what one person once found by hand in eight steps, and a clean model."""

import shutil
from pathlib import Path

import pytest

HEALTHY = Path(__file__).parents[1] / "custom" / "healthy"
STEPS = "torch.arange(0, config.head_dim, 2).float() / config.head_dim"
WRITTEN_ONCE = f"""\
        self.config = config
        inv_freq = 1.0 / config.rope_parameters["rope_theta"] ** ({STEPS})
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, hidden_states, position_ids):
"""
PATCHES = {
    "healthy": (),
    "lost-buffer": (
        (
            "        self.config = config\n\n    def forward(self, hidden_states, position_ids):\n",
            WRITTEN_ONCE,
        ),
        (
            "        inv_freq = rope_frequencies(self.config, hidden_states.device)\n",
            "        inv_freq = self.inv_freq\n",
        ),
    ),
    "moved-import": (
        (
            "import torch\n",
            "import torch\nfrom transformers.modeling_utils import GenerationMixin\n",
        ),
    ),
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory, run_in):
    made = tmp_path_factory.mktemp("hunt")
    lines = ['stacks: ["4.48", "5.x"]', "defaults: {greedy: 0, relations: false, training: false}"]
    lines.append("models:")
    for name, patches in PATCHES.items():
        folder = made / name
        shutil.copytree(HEALTHY, folder, ignore=shutil.ignore_patterns("__pycache__"))
        text = (folder / "modeling_tiny.py").read_text()
        for old, new in patches:
            assert old in text, f"{name}: the healthy model has changed"
            text = text.replace(old, new, 1)
        (folder / "modeling_tiny.py").write_text(text)
        lines.append(f"  {name}: {{path: '{folder}', trust_remote_code: true}}")
    (made / "matrix.yaml").write_text("\n".join(lines))
    report = run_in(made)
    return {(row.model, cell.cell.stack): cell for row in report.rows for cell in row.cells}


def test_a_clean_model_has_no_hunt(cells):
    assert cells["healthy", "5.x"].verdict == "identical"
    assert cells["healthy", "5.x"].steps == ()


def test_a_buffer_that_5_x_never_writes_is_hunted_down(cells):
    cell = cells["lost-buffer", "5.x"]
    assert cell.verdict == "unstable"
    found = {step.suspect: step for step in cell.steps}
    for suspect in ("the model's own code", "inputs", "weights", "embeddings"):
        assert found[suspect].status == "ruled out", found[suspect]
    assert found["attention forced to eager"].status == "ruled out"
    assert [s.suspect for s in cell.steps if s.status == "ruled in"] == ["inv_freq"]
    assert "never written in this cell" in found["inv_freq"].what
    for suspect in ("rope's cos and sin", "query, key and value"):
        assert found[suspect].status == "follows"
        assert "the same at position 0, different bytes from position 1 on" in found[suspect].what
    assert cell.graft.proof == "alone"
    assert cell.graft.smallest[0].endswith("inv_freq")


def test_a_name_that_moved_is_shown_with_where_it_is_now(cells):
    assert cells["moved-import", "4.48"].verdict == "reference"
    failure = cells["moved-import", "5.x"].failure
    (symbol,) = failure.symbols
    assert (symbol.name, symbol.owner) == ("GenerationMixin", "transformers.modeling_utils")
    assert symbol.elsewhere == ("transformers.generation.utils",)
    assert any(frame.own and frame.file.endswith("modeling_tiny.py") for frame in failure.frames)
