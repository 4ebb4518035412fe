"""Every verdict over two real stacks: a planted defect for each, and a clean model beside them."""

import pytest

PROMPTS = """
  prompts:
    short: {length: 9}
    padded: {batch: [{length: 5}, {length: 13}]}
"""
DEFECTS = {
    "healthy": "none",
    "weight-bit": "weight bit",
    "one-ulp": "one ulp",
    "minus-zero": "minus zero",
    "unwritten": "unwritten",
    "reads-junk": "reads junk",
    "raises": "raises",
    "segfault": "segfault",
    "hang": "hang",
    "pad-rows": "pad rows",
    "odd": "odd",
    "odd-row": "odd row",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, planted):
    made = tmp_path_factory.mktemp("verdicts")
    lines = [
        'environments: ["4.48", "5.x"]',
        "defaults:",
        "  greedy: 0",
        "  questions: [relations, save_load, usage]",
        PROMPTS,
        "models:",
    ]
    for name, defect in DEFECTS.items():
        timeout = "timeout: 4, " if name == "hang" else ""
        path = planted(defect)
        lines.append(f"  {name}: {{path: '{path}', {timeout}trust_remote_code: true}}")
    lines.append("  unknown-to-4.48:")
    lines.append(
        "    build: {architecture: qwen3, seed: 1, config: {vocab_size: 64, "
        "hidden_size: 32, intermediate_size: 32, num_hidden_layers: 2, "
        "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8}}"
    )
    lines.append("  nobody-knows:")
    lines.append("    build: {architecture: lama}")
    (made / "matrix.yaml").write_text("\n".join(lines))
    return made


def test_a_healthy_model_is_identical_in_all_signals(cells):
    cell = cells["healthy", "5.x"]
    assert cell.verdict == "identical", cell
    outcomes = {signal.signal: signal.outcome for signal in cell.signals}
    for signal in ("inputs", "weights", "hidden_states", "logits"):
        assert outcomes[signal] == "identical"


def test_tensors_of_every_odd_kind_are_compared_like_any(cells):
    for stack, verdict in (("4.48", "reference"), ("5.x", "identical")):
        assert cells["odd", stack].verdict == verdict, cells["odd", stack].headline
    buffers = next(s for s in cells["odd", "5.x"].signals if s.signal == "buffers")
    assert (buffers.outcome, buffers.n_items) == ("identical", 8)  # and the empty one
    assert cells["odd-row", "4.48"].verdict == "reference"
    found = cells["odd-row", "5.x"]
    assert (found.verdict, found.first.signal) == ("diverged", "buffers")
    assert "rows" in found.first.item


def test_one_bit_of_one_weight_is_found_and_named(cells):
    cell = cells["weight-bit", "5.x"]
    assert cell.verdict == "diverged"
    assert cell.first.signal == "weights"
    assert cell.first.item == "layers.1.proj.weight"
    (item,) = next(s for s in cell.signals if s.signal == "weights").items
    assert item.metrics.n_differ == 1
    assert item.metrics.max_ulp == 1
    assert item.metrics.first_index == (2, 3)


def test_one_ulp_of_one_activation_is_found_and_its_layer_named(cells):
    cell = cells["one-ulp", "5.x"]
    assert cell.verdict == "diverged"
    assert cell.first.signal == "hidden_states"
    assert "layers.2" in cell.first.item
    assert "max abs" in cell.first.what
    assert "(1 ULP)" in cell.first.what


def test_what_restores_a_planted_defect_is_the_defect_or_nothing(cells):
    graft = cells["weight-bit", "5.x"].graft
    assert (graft.smallest, graft.proof) == (("layers.1.proj.weight",), "alone")
    assert [more.smallest for more in graft.more] == [graft.smallest] * len(graft.more)
    assert cells["unwritten", "5.x"].graft.smallest == ("layers.1.scale",)
    assert cells["one-ulp", "5.x"].graft.smallest == ()
    assert cells["healthy", "5.x"].graft is None


def test_minus_zero_is_other_bits(cells):
    cell = cells["minus-zero", "5.x"]
    assert cell.verdict == "undecided"
    assert "layers.0" in cell.first.item


def test_a_buffer_that_nobody_wrote_is_unstable_and_named(cells):
    cell = cells["unwritten", "5.x"]
    assert cell.verdict == "unstable"
    assert any("layers.1.scale" in name for name in cell.unstable)
    assert cells["unwritten", "4.48"].verdict == "reference"


def test_a_forward_that_reads_unwritten_memory_is_unstable(cells):
    assert cells["reads-junk", "5.x"].verdict == "unstable"


def test_an_exception_is_data_with_its_phase_and_the_models_own_frame(cells):
    cell = cells["raises", "5.x"]
    assert cell.verdict == "failed"
    assert cell.failure.phase == "forward short"
    assert cell.failure.type == "ValueError"
    assert any(frame.file.endswith("modeling_planted.py") for frame in cell.failure.frames)


def test_a_segfault_stays_in_its_cell(cells):
    cell = cells["segfault", "5.x"]
    assert cell.verdict == "failed"
    assert "SIGSEGV" in cell.failure.message


def test_a_hang_is_not_finished_and_what_it_had_observed_is_compared(cells):
    cell = cells["hang", "5.x"]
    assert cell.verdict == "not finished"
    assert cell.unfinished.phase == "forward short"
    assert "no progress" in cell.unfinished.reason
    compared = {s.signal: s.outcome for s in cell.signals}
    assert compared["weights"] == "identical"


def test_pad_rows_make_no_verdict_but_a_note(cells):
    cell = cells["pad-rows", "5.x"]
    assert cell.verdict == "identical", cell
    assert any("pad" in note for note in cell.notes)


def test_an_architecture_that_a_release_does_not_know_is_absent_there(cells):
    assert cells["unknown-to-4.48", "4.48"].verdict == "absent"
    assert "qwen3" in cells["unknown-to-4.48", "4.48"].absent
    assert cells["unknown-to-4.48", "5.x"].verdict == "reference"


def test_an_architecture_that_nobody_knows_is_a_failure_with_a_hint(cells):
    cell = cells["nobody-knows", "5.x"]
    assert cell.verdict == "failed"
    assert 'did you mean "llama"' in cell.failure.message


def test_the_run_fails_and_says_why(report):
    assert report.exit_code == 1
    assert any("undecided" in reason for reason in report.reasons)


def test_no_folder_of_this_machine_is_in_the_report(report, folder):
    text = report.model_dump_json()
    assert str(folder) not in text
    assert "/root/" not in text


def test_the_second_run_computes_nothing_and_says_the_same(report, folder, run_in):
    only = "healthy,weight-bit,one-ulp,minus-zero,pad-rows,unwritten"
    from samebits.matrix.plan import Selection

    first = run_in(folder, selection=Selection.parse(models=only))
    captures = {p: p.stat().st_mtime_ns for p in folder.glob(".samebits/captures/**/*.json")}
    again = run_in(folder, selection=Selection.parse(models=only))
    after = {p: p.stat().st_mtime_ns for p in folder.glob(".samebits/captures/**/*.json")}
    assert captures == after
    assert first.rows == again.rows


def test_expected_differences_pass_and_fixed_ones_fail(folder, run_in):
    from samebits.matrix.plan import Selection

    text = (folder / "matrix.yaml").read_text()
    models = Selection.parse(models="healthy,one-ulp")
    rule = "expected:\n  - {model: one-ulp, environment: '5.x', signal: [hidden_states, logits], reason: planted}\n"
    try:
        (folder / "matrix.yaml").write_text(f"{text}\n{rule}")
        passing = run_in(folder, selection=models)
        assert passing.exit_code == 0, passing.reasons
        rule += "  - {model: healthy, environment: '5.x', reason: no longer}\n"
        (folder / "matrix.yaml").write_text(f"{text}\n{rule}")
        fixed = run_in(folder, selection=models)
        assert fixed.exit_code == 1
        assert any("healthy" in reason for reason in fixed.reasons)
    finally:
        (folder / "matrix.yaml").write_text(text)
