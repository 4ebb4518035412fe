"""Real releases on several machines, which folders stand for: their report is that of one run."""

import json

import pytest

from samebits.stacks.probes import PROBES
from tests.real.conftest import run_samebits
from tests.support.faulty_bench import timeless

pytestmark = pytest.mark.long  # test_toy_question.py merges shards of real releases, too
MATRIX = """
environments: ["4.57", "5.2"]
defaults: {dtypes: [float32], questions: [save_load, training], prompts: {short: {length: 9}}}
models:
  llama: {build: {architecture: llama, config: {
    vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 2,
    num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 128, eos_token_id: null}}}
  olmo3: {build: {architecture: olmo3, seed: 44, config: {
    vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 4,
    num_attention_heads: 4, num_key_value_heads: 2, attention_bias: true, rope_theta: 500.0,
    rope_scaling: {rope_type: yarn, factor: 4.0, beta_fast: 4.0, beta_slow: 1.0,
      attention_factor: 1.14, original_max_position_embeddings: 32},
    layer_types: [sliding_attention, full_attention, sliding_attention, full_attention],
    sliding_window: 16, max_position_embeddings: 128,
    pad_token_id: 1, bos_token_id: null, eos_token_id: null}}}
"""


@pytest.fixture(scope="module")
def run(warm):
    """Return a function that runs samebits in a folder, which stands for a machine: the exit code."""

    def run(folder, *words, script=warm):
        folder.mkdir(exist_ok=True)
        (folder / "matrix.yaml").write_text(MATRIX)
        ended = run_samebits(script, folder, *words)
        (folder / f"{words[0]}.log").write_text(ended.stdout + ended.stderr)
        return ended.returncode

    return run


def report_of(folder):
    report = json.loads((folder / "reports" / "latest" / "report.json").read_text())
    return json.dumps(timeless(report), indent=1)


@pytest.fixture(scope="module")
def alone(tmp_path_factory, run):
    """Run all on one machine, whose stacks import by themselves: shared imports must change nothing, too."""
    folder = tmp_path_factory.mktemp("alone")
    code = run(folder, "matrix", "--no-repro", script=PROBES / "stack.py")
    assert code in (0, 1), (folder / "matrix.log").read_text()
    return folder, code


def test_the_matrix_has_a_difference_and_a_row_without_one(alone):
    rows = json.loads((alone[0] / "reports" / "latest" / "report.json").read_text())["rows"]
    verdicts = {row["model"]: row["cells"][-1]["verdict"] for row in rows}
    assert verdicts["olmo3"] == "diverged"
    assert verdicts["llama"] in ("identical", "rounding")


def test_two_shards_merged_are_one_run(alone, run, tmp_path):
    folders = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        assert run(folder, "matrix", "--shard", f"{number}/2") == 0, folder
        folders.append(str(folder / "shards" / f"{number}-of-2"))
    merge = tmp_path / "merge"
    assert run(merge, "merge", "--no-repro", *folders) == alone[1], (
        merge / "merge.log"
    ).read_text()
    assert report_of(merge) == report_of(alone[0])
    assert not list((merge / ".samebits" / "captures").rglob("*.log"))  # no cell ran here


def test_a_second_machine_with_the_store_runs_no_job(alone, run, tmp_path):
    store = ("--store", str(tmp_path / "store"))
    assert run(tmp_path / "one", "matrix", "--no-repro", *store) == alone[1]
    assert run(tmp_path / "two", "matrix", "--no-repro", *store) == alone[1]
    assert report_of(tmp_path / "one") == report_of(tmp_path / "two") == report_of(alone[0])
    spent = json.loads((tmp_path / "two" / "reports" / "latest" / "report.json").read_text())[
        "spent"
    ]
    kinds = {entry["kind"] for entry in spent}
    assert kinds <= {"crossings.save", "imports"}  # saved copies of a model stay on their machine
