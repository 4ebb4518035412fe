"""bench.gpu: the zoo on a GPU, beside its verdicts on the CPU."""

import pytest
import yaml

from bench.gpu import DEVICE, QUESTIONS, VARIANT, Pair, adapted, paired
from bench.place import ROOT
from samebits.matrix.load import load
from tests.support.sample_report import sample_report

REPORT = sample_report()


@pytest.mark.parametrize(
    ("on_cpu", "on_gpu", "contradicts"),
    [
        ("identical", "rounding", False),
        ("rounding", "identical", False),
        ("expected", "diverged", False),
        ("failed", "expected", False),
        ("rounding", "diverged", True),
        ("diverged", "identical", True),
        ("failed", "identical", True),
        ("identical", "unstable", False),
        ("diverged", "not finished", False),
    ],
)
def test_only_another_function_contradicts(on_cpu, on_gpu, contradicts):
    assert Pair("m in 5.x", on_cpu, on_gpu).contradicts is contradicts


def test_the_matrix_asks_for_verdicts_on_the_torch_of_the_machine(tmp_path):
    made = adapted(ROOT / "zoo.yaml")
    assert made["torch"] == "system"
    assert made["defaults"]["devices"] == [DEVICE]
    assert not any(made["defaults"][question] for question in QUESTIONS)
    assert "llama" in made["models"]
    assert "tokens-plain" not in made["models"]
    assert not any("relations" in model for model in made["models"].values())
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "zoo.yaml").write_text(yaml.safe_dump(made))
    matrix = load(tmp_path / "zoo.yaml")
    variants = {str(variant) for model in matrix.models for variant in model.variants}
    assert variants == {f"{VARIANT}-{DEVICE}"}


def with_variant(variant):
    rows = (row.model_copy(update={"variant": variant}) for row in REPORT.rows[:1])
    return REPORT.model_copy(update={"rows": tuple(rows)})


def test_cells_are_compared_by_model_and_environment():
    on_cpu, on_gpu = with_variant(VARIANT), with_variant(f"{VARIANT}-{DEVICE}")
    pairs = [*paired(on_cpu, on_gpu)]
    assert len(pairs) == len(REPORT.rows[0].cells) > 1
    assert all(pair.on_cpu == pair.on_gpu for pair in pairs)
    assert [*paired(on_gpu, on_cpu)] == []
