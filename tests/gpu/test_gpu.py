"""Verdicts on a GPU, each beside the same model on the CPU: planted defects, clean twins, stock models."""

import pytest

DEFECTS = ("none", "halves", "sets TF32", "atomics", "doubled on a GPU", "reads beyond")
MATRIX = """
torch: system
environments: ["4.48", "4.57", "5.x"]
defaults: {dtypes: [float32], devices: [cpu, cuda], questions: [relations, save_load, training, changes]}
models:
  none: {path: none, trust_remote_code: true, devices: [cpu, cuda, "cuda:63"]}
  halves: {path: halves, trust_remote_code: true}
  sets-TF32: {path: sets TF32, trust_remote_code: true}
  atomics: {path: atomics, trust_remote_code: true}
  doubled: {path: doubled on a GPU, trust_remote_code: true}
  reads-beyond: {path: reads beyond, trust_remote_code: true}
  llama:
    dtypes: [float32, bfloat16]
    build: {architecture: llama, config: {hidden_size: 128, intermediate_size: 192, num_hidden_layers: 2,
      num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 96, rope_theta: 5000.0}}
  mixtral:
    dtypes: [bfloat16]
    build: {architecture: mixtral, config: {hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2,
      num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 96, num_local_experts: 4}}
  # its module asks the driver of the GPU as it is imported, in 4.x
  jamba:
    build: {architecture: jamba, config: {hidden_size: 64, intermediate_size: 96, num_hidden_layers: 4,
      num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 96, num_experts: 2, attn_layer_period: 2,
      attn_layer_offset: 1, mamba_d_state: 8, mamba_dt_rank: 8, use_mamba_kernels: false}}
"""
ON = {"cpu": "", "cuda": "-cuda"}


def row_of(report, model, variant):
    (row,) = [row for row in report.rows if (row.model, row.variant) == (model, variant)]
    return row


def cell_of(report, model, device, stack="5.x"):
    row = row_of(report, model, f"float32-default{ON[device]}")
    (cell,) = [cell for cell in row.cells if cell.cell.stack == stack]
    return cell


def test_nothing_fails_though_modules_ask_the_driver_as_they_are_imported(report):
    states = {
        (row.model, row.variant, c.cell.stack): c.verdict for row in report.rows for c in row.cells
    }
    failed = {cell for cell, verdict in states.items() if verdict == "failed"}
    assert failed == {("reads-beyond", f"float32-default{device}", "5.x") for device in ON.values()}
    unfinished = {cell[:2] for cell, verdict in states.items() if verdict == "not finished"}
    assert unfinished == {("none", "float32-default-cuda63")}


@pytest.mark.parametrize(
    ("model", "cpu", "cuda"),
    [
        ("none", "identical", "identical"),
        ("halves", "rounding", "rounding"),
        ("sets-TF32", "identical", "rounding"),
        ("atomics", "rounding", "unstable"),
        ("doubled", "identical", "diverged"),
    ],
)
def test_the_verdict_is_that_of_the_device(report, model, cpu, cuda):
    assert cell_of(report, model, "cpu").verdict == cpu
    assert cell_of(report, model, "cuda").verdict == cuda


@pytest.mark.parametrize("model", ["none", "halves", "sets-TF32", "atomics", "doubled"])
def test_between_two_releases_without_a_defect_the_bits_are_equal(report, model):
    for device in ON:
        assert cell_of(report, model, device, "4.57").verdict == "identical"


def test_only_the_model_that_sets_tf32_is_accused_of_it(report):
    accused = {
        (row.model, cell.cell.stack)
        for row in report.rows
        for cell in row.cells
        if any(finding.code in ("SB921", "SB922") for finding in cell.findings)
    }
    assert accused == {("sets-TF32", "5.x")}
    assert not any(f.code == "SB921" for stack in report.stacks for f in stack.findings)


@pytest.mark.parametrize("variant", ["float32-default-cuda", "bfloat16-default-cuda"])
def test_a_stock_model_does_not_diverge(report, variant):
    verdicts = {cell.verdict for cell in row_of(report, "llama", variant).cells}
    assert verdicts <= {"reference", "identical", "rounding"}


def probes(report, model, variant, stack="5.x"):
    return {probe.name: probe for probe in row_of(report, model, variant).device[stack]}


def test_tf32_changes_bits_and_is_off_by_default(report):
    here = probes(report, "none", "float32-default-cuda")
    on, off = here["TF32 on"], here["TF32 off"]
    assert (on.skipped, off.skipped) == ("", "")
    assert (on.repeats, off.repeats) == (True, True)
    assert on.distance.n_differ > 0
    assert off.distance.n_differ == 0


def test_the_flash_kernel_of_torch_and_grouped_experts_run(report):
    flash = probes(report, "llama", "bfloat16-default-cuda")["sdpa by its flash kernel"]
    assert (flash.skipped, flash.repeats) == ("", True)
    experts = probes(report, "mixtral", "bfloat16-default-cuda")["experts by grouped_mm"]
    assert (experts.skipped, experts.repeats) == ("", True)


def test_the_missing_device_is_named(report):
    for cell in row_of(report, "none", "float32-default-cuda63").cells:
        assert "there is no cuda:63" in cell.unfinished.reason


def test_a_kernel_that_ends_the_device_is_named_with_its_phase(report):
    unfinished = cell_of(report, "reads-beyond", "cuda").unfinished
    assert "DeviceLost" in unfinished.reason
    assert "device-side assert" in unfinished.reason
    assert unfinished.phase.startswith("forward")
