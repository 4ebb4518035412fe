"""What a user gives to forward, over two real stacks: a planted other function, and its clean twin."""

import json

import numpy as np
import pytest

from samebits.reports.write import write
from tests.real.conftest import NEW, OLD, write_planted

pytestmark = pytest.mark.long  # for changes of inputs that matrix.yaml gives

PLANTS = {"planted": "another power", "mixed": "mixed rows", "clean": "none"}
SETS = ["declared", "given", "own"]
OWN = """
def make(config, seed, torch):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"protein_embeddings": (1, 7, config.hidden_size), "strand_features": (1, 7, 4)}
    drawn = {k: torch.randn(*shape, generator=generator) for k, shape in shapes.items()}
    return drawn | {"coverage": torch.rand(1, 7, generator=generator), "scaled": True}
"""
MATRIX = f"""
environments: ["{OLD}", "{NEW}"]
defaults: {{questions: [relations]}}
models:
  planted: &model
    path: planted
    trust_remote_code: true
    inputs:
      declared: {{arguments: {{
        protein_embeddings: {{shape: [2, 12, hidden_size], dtype: float32}},
        strand_features: {{shape: [2, 12, 4], dtype: float32, low: 0}},
        coverage: {{shape: [2, 12], dtype: float32, low: 0, high: 2}},
        attention_mask: {{shape: [2, 12], mask: [left 3, ones]}}}}}}
      given: given.npz
      own: {{function: "own.py:make", trust: true}}
  mixed:
    <<: *model
    path: mixed
  clean:
    <<: *model
    path: clean
  misspelt:
    path: clean
    trust_remote_code: true
    inputs: {{mine: {{arguments: {{
      protien_embeddings: {{shape: [1, 3, hidden_size], dtype: float32}}}}}}}}
  bare: {{path: clean, trust_remote_code: true}}
"""


def plant(folder, defect):
    classes = {"AutoConfig": "GenomeConfig", "AutoModel": "GenomeModel"}
    shapes = {"proteins.weight": (16, 16), "proteins.bias": (16,)}
    shapes |= {"strands.weight": (16, 4), "strands.bias": (16,)}
    for i in range(2):
        shapes |= {f"layers.{i}.weight": (16, 16), f"layers.{i}.bias": (16,)}
    write_planted(folder, "modeling_genome", shapes, classes, model_type="genome", plant=defect)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("given")
    for name, defect in PLANTS.items():
        plant(made / name, defect)
    generator = np.random.default_rng(1)
    shapes = {"protein_embeddings": (2, 5, 16), "strand_features": (2, 5, 4), "coverage": (2, 5)}
    np.savez(made / "given.npz", **{n: generator.normal(size=s) for n, s in shapes.items()})
    (made / "own.py").write_text(OWN)
    (made / "matrix.yaml").write_text(MATRIX)
    return made


@pytest.fixture(scope="module")
def report(folder, run_in):
    report = run_in(folder, capsules="failing")
    write(report, folder / "report", run_in.beside)
    return report


def differing(cell, name):
    signal = next(signal for signal in cell.signals if signal.signal == name)
    return {item.subject.prompt for item in signal.items if item.outcome == "differs"}


def test_every_stack_gets_the_same_bytes(folder, cells):
    forwards = {}
    for path in (folder / ".samebits" / "captures" / "clean").rglob("a.json"):
        capture = json.loads(path.read_text())
        facts = capture["signals"]["forward"]
        fed = {name: (facts[name]["inputs"], facts[name]["constants"]) for name in SETS}
        forwards[capture["cell"]["stack"]] = fed
    assert forwards.keys() == {OLD, NEW}
    assert forwards[OLD] == forwards[NEW]
    assert forwards[OLD]["own"][1] == {"scaled": True}


def test_another_function_is_found_in_every_set(cells):
    cell = cells["planted", NEW]
    assert cell.verdict == "diverged"
    assert differing(cell, "logits") == set(SETS)
    assert differing(cell, "inputs") == set()
    assert "modeling_genome.py" in cell.cause.candidate.source


def test_the_capsule_carries_the_inputs(folder, cells):
    capsule = cells["planted", NEW].capsule
    assert capsule.path, capsule
    scripts = [path.read_text() for path in (folder / "report" / capsule.path).glob("*.py")]
    assert len(scripts) == 2
    for script in scripts:
        assert "protein_embeddings" in script


def test_the_clean_twin_is_not_accused(cells):
    cell = cells["clean", NEW]
    assert cell.verdict in {"identical", "rounding"}
    assert next(s.outcome for s in cell.signals if s.signal == "inputs") == "identical"


def test_rows_that_mix_are_named_in_every_release(cells, report):
    for stack in (OLD, NEW):
        codes = [finding.code for finding in cells["mixed", stack].findings]
        assert "SB705" in codes
        assert "SB705" not in [finding.code for finding in cells["clean", stack].findings]
    (row,) = [row for row in report.rows if row.model == "clean"]
    for stack in (OLD, NEW):
        tried = {relation.relation for relation in row.answers["relations"].stacks[stack].relations}
        assert tried == {"batch size", "row order", "right padding"}


def test_a_misspelt_argument_is_named_where_matrix_yaml_has_it(cells):
    cell = cells["misspelt", NEW]
    assert cell.verdict == "not observed"
    line = 1 + MATRIX[: MATRIX.index("protien")].count("\n")
    assert f"matrix.yaml:{line}:7: the set has protien_embeddings" in cell.headline
    assert "did you mean protein_embeddings?" in cell.headline


def test_a_model_that_nobody_feeds_is_shown_what_to_paste(cells):
    cell = cells["bare", NEW]
    assert cell.verdict == "not observed"
    (paste,) = {skip.paste for skip in cell.skips if skip.paste}
    assert "strand_features: {shape: [1, 12, hidden_size], dtype: float32}" in paste
