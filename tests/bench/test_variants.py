"""Variants of configs: one model of each number, and a line for each step that is more than rounding."""

from bench.variants import rows, variants
from samebits.records.compat import CompatFile, CompatModel, CompatRange


def test_each_type_has_each_number():
    plan = variants(["llama", "bert"], ["4.57.6", "5.24.0"], [1, 3])
    assert [*plan["models"]] == ["llama-1", "llama-3", "bert-1", "bert-3"]
    assert plan["models"]["bert-3"] == {
        "build": {"architecture": "bert", "auto": True, "config_variant": 3}
    }


def test_what_rounds_or_was_not_compared_has_no_line():
    first = CompatRange(first="4.57.6", last="4.57.6", state="computes")
    steps = ("rounding", "diverged", "open", "new", "fails")
    models = tuple(
        CompatModel(
            model=step,
            variant="float32-default",
            source="bert with hidden_act='silu', seed 0, made in 4.57.6",
            ranges=(first, first.model_copy(update={"first": "5.24.0", "step": step, "what": "w"})),
        )
        for step in steps
    )
    file = CompatFile(samebits="0", started="", level="quick", releases=(), models=models)
    assert [*rows(file)] == [
        ("bert with hidden_act='silu'", "5.24.0", "diverged", "w", "", ""),
        ("bert with hidden_act='silu'", "5.24.0", "fails", "w", "", ""),
    ]
