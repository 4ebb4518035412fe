"""Every output and the state that is left behind, over real releases: planted defects, clean twins."""

import pytest

PLANTED = {
    "two-outputs": "two outputs",
    "doubled": "two outputs doubled",
    "rounded": "two outputs rounded",
    "gone": "two outputs gone",
    "renamed": "two outputs renamed",
    "added": "two outputs added",
    "keeps-state": "keeps state",
    "keeps-state-everywhere": "keeps state everywhere",
    "keeps-nothing-that-counts": "keeps a number",
}
PROMPTS = """
  prompts:
    short: {length: 9}
    padded: {batch: [{length: 5}, {length: 13}]}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory, planted, run_in):
    folder = tmp_path_factory.mktemp("outputs")
    lines = [
        'environments: ["4.48", "5.x"]',
        "defaults:",
        "  greedy: 0",
        "  questions: []",
        PROMPTS,
        "models:",
    ]
    for name, defect in PLANTED.items():
        lines.append(f"  {name}: {{path: '{planted(defect)}', trust_remote_code: true}}")
    source = f"path: '{planted(PLANTED['doubled'])}', trust_remote_code: true"
    lines += [
        f"  named: {{{source}, logits: pooled}}",
        f"  misnamed: {{{source}, logits: pooler}}",
    ]
    (folder / "matrix.yaml").write_text("\n".join(lines))
    return run_in(folder)


@pytest.fixture(scope="module")
def rows(report):
    return {row.model: row for row in report.rows}


def new(rows, model):
    return rows[model].cells[-1]


def signal(cell, name):
    return next(signal for signal in cell.signals if signal.signal == name)


def items(cell, name):
    return [(item.name, item.outcome) for item in signal(cell, name).items]


def test_every_output_of_the_clean_twin_is_the_same(rows):
    cell = new(rows, "two-outputs")
    assert cell.verdict == "identical", cell.headline
    assert signal(cell, "outputs").n_items == 2 * 2  # prompts, outputs besides the logits
    assert signal(cell, "state").outcome == "identical"


def test_an_output_that_diverges_is_found_where_logits_and_layers_are_the_same(rows):
    cell = new(rows, "doubled")
    assert cell.verdict == "diverged", cell.headline
    assert cell.first.signal == "outputs"
    assert items(cell, "outputs") == [("short · pooled", "differs"), ("padded · pooled", "differs")]
    for name in ("hidden_states", "logits"):
        assert signal(cell, name).outcome == "identical"
    assert (cell.ladder.kind, cell.ladder.rule) == ("diverged", "slope")
    assert {(step.signal, step.what) for step in cell.ladder.steps} >= {("outputs", "pooled")}


def test_a_named_output_plays_the_part_of_the_logits(rows):
    cell = new(rows, "named")
    assert cell.verdict == "diverged", cell.headline
    assert cell.first.signal == "logits"
    assert ("logits", "outputs") not in [(s.signal, s.outcome) for s in cell.signals]
    assert signal(cell, "outputs").outcome == "identical"
    cell = new(rows, "misnamed")
    assert cell.verdict == "not observed"
    assert "which returns encoder.last_hidden_state, logits, pooled" in str(cell), cell.headline


def test_an_output_that_is_rounded_otherwise_is_rounding(rows):
    cell = new(rows, "rounded")
    assert cell.verdict == "rounding", cell.ladder
    assert cell.first.signal == "outputs"


def test_an_output_that_is_gone_fails_and_a_new_one_does_not(rows):
    cell = new(rows, "gone")
    assert cell.verdict == "diverged"
    assert cell.ladder.rule == "missing output"
    assert ("short · pooled", "only in reference") in items(cell, "outputs")
    assert new(rows, "added").verdict == "identical"
    assert ("short · more", "only here") in items(new(rows, "added"), "outputs")


def test_an_output_under_another_name_is_noted(rows):
    cell = new(rows, "renamed")
    assert cell.verdict == "identical"
    assert ("short · pooled → pooler_output", "identical") in items(cell, "outputs")


def test_state_that_only_the_new_release_reads_is_a_difference_with_its_name(rows):
    cell = new(rows, "keeps-state")
    assert (cell.verdict, cell.first.signal) == ("diverged", "state"), cell.headline
    assert (cell.ladder.rule, cell.ladder.kind) == ("state", "diverged")
    state = rows["keeps-state"].state["5.x"]
    assert [(cause.kind, cause.name) for cause in state.causes] == [("attribute", "last_rows")]
    assert [finding.code for finding in cell.findings] == ["SB712"]
    assert "4.48" not in rows["keeps-state"].state


def test_state_that_both_releases_read_is_told_and_no_difference(rows):
    cell = new(rows, "keeps-state-everywhere")
    assert cell.verdict == "identical", cell.headline
    assert list(rows["keeps-state-everywhere"].state) == ["4.48", "5.x"]


def test_a_number_that_is_kept_and_never_read_is_not_accused(rows):
    row = rows["keeps-nothing-that-counts"]
    assert (new(rows, row.model).verdict, row.state) == ("identical", {})
    assert signal(new(rows, row.model), "state").outcome == "identical"


def test_a_dynamic_rope_that_generate_scales_is_named_where_it_is_never_reset(tmp_path, run_in):
    """With one short prompt every other signal is the same, and the next forward is wrong."""
    (tmp_path / "matrix.yaml").write_text("""
environments: ["4.57", "5.2", "5.x"]
defaults: {greedy: 40, questions: [],
  prompts: {short: {length: 9}}}
models:
  dynamic:
    build:
      architecture: llama
      config: {vocab_size: 128, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 32,
        rope_scaling: {rope_type: dynamic, factor: 2.0}}
  plain:
    build:
      architecture: llama
      config: {vocab_size: 128, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 32}
""")
    report = run_in(tmp_path)
    cells = {(row.model, c.cell.stack): c for row in report.rows for c in row.cells}
    state = {row.model: row.state for row in report.rows}
    cell = cells["dynamic", "5.2"]
    assert (cell.verdict, cell.first.signal) == ("diverged", "state"), cell.headline
    assert state["dynamic"]["5.2"].causes[0].name.endswith("inv_freq")
    assert state["dynamic"]["5.2"].distance.max_abs > 1e-4
    assert "SB711" in [finding.code for finding in cell.findings]
    for stack in ("5.2", "5.x"):
        assert cells["plain", stack].verdict in ("identical", "rounding")
    assert list(state["dynamic"]) == ["5.2"]
    assert state["plain"] == {}
