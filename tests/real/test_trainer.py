"""transformers' own Trainer over two releases: only what no CPU can change is asserted."""

import pytest

from samebits.questions.changes.section import off_of
from samebits.questions.changes.section import steps_of as changes_of
from samebits.questions.trainer.records import runs_of
from samebits.questions.training.records import steps_of
from samebits.reports import document

pytestmark = pytest.mark.long  # for changes of questions/trainer

MATRIX = """
environments: ["4.48", "5.2", "5.x"]
defaults: {dtypes: [float32], greedy: 0, questions: [training, changes],
  prompts: {short: {length: 9}}}
models:
  llama: {build: {architecture: llama, config: {
    vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 2,
    num_attention_heads: 4, num_key_value_heads: 2, eos_token_id: null}}}
  bert: {build: {architecture: bert, head: masked-lm, config: {
    vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 2, num_attention_heads: 4}}}
"""
BY_TRAINER = "Trainer: rows accumulated = one batch"


@pytest.fixture(scope="module")
def trained(report):
    return {
        (row.model, stack): trainer
        for row in report.rows
        for stack, trainer in runs_of(row).items()
    }


def of_releases(report, stack):
    """Return the findings that a release has for all models, by code."""
    (findings,) = (s.findings for s in report.stacks if s.id == stack)
    return {finding.code: finding for finding in findings}


def codes(report, model, stack):
    return {
        finding.code
        for row in report.rows
        for cell in row.cells
        if (cell.cell.model, cell.cell.stack) == (model, stack)
        for finding in cell.findings
        if finding.code.startswith("SB85")
    }


@pytest.mark.parametrize("model", ["llama", "bert"])
@pytest.mark.parametrize("stack", ["4.48", "5.2", "5.x"])
def test_trainer_trains_four_rows_in_each_release(trained, model, stack):
    report = trained[model, stack]
    assert report.failure is None, report.failure
    assert not report.reason
    assert report.accelerate
    assert sorted(report.rows) == [0, 1, 2, 3]
    assert len(report.losses) == len(report.norms) == 4
    assert [f"{rate:.6g}" for rate in report.rates] == ["5e-05", "3.75e-05", "2.5e-05", "1.25e-05"]
    assert report.built["optimizer"] == "torch.optim.adamw.AdamW"


def test_the_defaults_that_changed_are_named_and_no_others(trained):
    changes = trained["llama", "5.x"].comparison.changes
    assert [(c.name, c.reference, c.candidate) for c in changes if c.subject == "argument"] == [
        ("optim", "adamw_torch", "adamw_torch_fused"),
        ("average_tokens_across_devices", "False", "True"),
    ]


def test_order_rates_optimizer_and_decay_are_those_of_4_48(trained):
    changes = trained["llama", "5.x"].comparison.changes
    same = {"order of rows", "learning rates", "weight decay", "rows received", "labels received"}
    assert not same & {change.subject for change in changes}
    assert {c.name for c in changes if c.subject == "optimizer"} <= {"fused"}


def test_the_first_label_of_a_row_is_no_longer_counted(trained, report):
    old, new = (trained["llama", stack] for stack in ("4.48", "5.x"))
    assert [a - b for a, b in zip(old.items, new.items, strict=True)] == [1, 1, 1, 1]
    assert new.comparison.standing == "diverged"
    assert "llama" in of_releases(report, "5.x")["SB855"].models
    assert "SB855" not in of_releases(report, "4.48")
    assert not codes(report, "llama", "4.48")


def test_what_the_log_shows_is_named(report):
    findings = of_releases(report, "5.x")
    assert {"SB851", "SB858", "SB860"} <= findings.keys()
    assert "model.config.use_cache" in " ".join(findings["SB860"].evidence)
    assert "optim='adamw_torch'" in " ".join(findings["SB851"].evidence)


def test_accumulated_rows_are_one_batch_but_in_5_2(report):
    """5.2.0 tells accelerate the number of micro-batches, which divides by it once more."""
    (row,) = (row for row in report.rows if row.model == "llama")
    for stack, step in steps_of(row).items():
        by_trainer = {r.relation: r for r in runs_of(row)[stack].relations.relations}
        relations = {r.relation: r for r in step.relations.relations}
        assert by_trainer[BY_TRAINER].broken == (stack == "5.2")
        assert not relations["rows accumulated = one batch"].broken
        assert ("SB854" in of_releases(report, stack)) == (stack == "5.2")


def test_a_stopped_training_goes_on_as_without_a_stop_but_where_a_save_renames(trained):
    """5.2 saves the norms of BERT under names of long ago, which load_state_dict does not know."""
    resumed = {
        cell: way
        for cell, each in trained.items()
        for way in each.relations.relations
        if way.relation == "Trainer: stopped and resumed = without a stop"
    }
    assert resumed.keys() == trained.keys()
    assert [cell for cell, way in resumed.items() if not way.holds] == [("bert", "5.2")]
    assert resumed["bert", "5.2"].broken
    assert {cell: len(each.lost) for cell, each in trained.items() if each.lost} == {
        ("bert", "5.2"): 12
    }


def test_the_section_has_what_trainer_does_otherwise(report):
    text = document.render(report)["relations.md"].partition("## Training")[2]
    assert "By Trainer" in text
    assert "num_items_in_batch" in text


def test_changed_code_that_a_question_runs_which_is_off_names_it(report):
    """Its clean twin: code that Trainer ran is not among what did not run."""
    for row in report.rows:
        steps = changes_of(row)
        assert [(step.reference, step.candidate) for step in steps] == [
            ("4.48", "5.2"),
            ("5.2", "5.x"),
        ]
        assert {"crossings", "relations", "usage"} <= set(off_of(row))
        for step in steps:
            assert step.ran
            assert step.unrun
            assert any(step.unreached.values())
            listed = {(entry.file, entry.name): entry for entry in step.first}
            assert ("trainer.py", "Trainer.training_step") not in listed
            assert not [file for file, _ in listed if file.startswith("models/gpt2/")]
            assert any("usage" in entry.off for entry in step.first)


@pytest.mark.parametrize(("code", "release"), [("SB891", "5.2"), ("SB892", "4.48")])
def test_a_best_checkpoint_and_a_rest_that_a_release_leaves_out_are_named(report, code, release):
    with_code = [stack for stack in ("4.48", "5.2", "5.x") if code in of_releases(report, stack)]
    assert with_code == [release]


def test_a_load_by_accelerate_that_raises_is_of_the_release_and_no_other_one_is_named(report):
    finding = of_releases(report, "4.48")["SB932"]
    assert "from_pretrained(device_map=" in " ".join((finding.where, *finding.evidence))
    assert not any(f.code == "SB893" for r in report.rows for c in r.cells for f in c.findings)
