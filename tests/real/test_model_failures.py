"""A failure that two real releases share is the model's: it is said once, and the forward is compared."""

import pytest

from samebits.terminal.summary import summary
from tests.real.conftest import NEW, OLD

MATRIX = f"""
environments: ["{OLD}", "{NEW}"]
defaults:
  questions: []
  greedy: 4
  prompts: {{short: {{length: 7}}, longer: {{length: 11}}}}
models:
"""
T5 = (
    "build: {{architecture: t5, head: seq2seq-lm, config: {{vocab_size: 64, d_model: 16, d_kv: 4, "
    "d_ff: 32, num_layers: 2, num_decoder_layers: {decoder}, num_heads: 4, bos_token_id: null, "
    "decoder_start_token_id: {start}}}}}"
)
MODELS = {
    "startless": T5.format(decoder=2, start="null"),
    "startful": T5.format(decoder=2, start=0),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory, run_in):
    made = tmp_path_factory.mktemp("model-failures")
    lines = [f"  {name}: {{{text}}}" for name, text in MODELS.items()]
    (made / "matrix.yaml").write_text(MATRIX + "\n".join(lines) + "\n")
    return run_in(made)


def test_a_checkpoint_without_a_start_token_is_failed_once_and_its_forward_is_compared(cells):
    reference, found = (cells["startless", stack] for stack in (OLD, NEW))
    assert (reference.verdict, reference.rest) == ("failed", "reference")
    assert reference.headline.startswith("fails in the same way in every release: greedy short: ")
    assert found.verdict in ("identical", "rounding")
    outcomes = {signal.signal: signal.outcome for signal in found.signals}
    assert outcomes["weights"] == outcomes["inputs"] == "identical"
    assert outcomes["logits"] in ("identical", "differs")
    assert outcomes["greedy"] == "not compared"
    assert any("raises the same exception in the reference" in note for note in found.notes)


def test_the_run_fails_for_it_once(report, tmp_path):
    assert report.exit_code == 1
    (reason,) = report.reasons
    assert reason.startswith(
        "startless fails in the same way in every release: greedy short: Value"
    )
    lines = summary(report, [tmp_path / "report.md"])
    named = [line for line in lines if "startless" in line]
    assert len(named) == 2, named  # what fails with what to do, and how to see it again
    assert named[0].endswith(
        "To do: Mend the model or its files: every release of this run raises this"
    )
    assert named[-1].startswith("Next: ")


def test_with_a_start_token_every_signal_is_compared(cells):
    found = cells["startful", NEW]
    assert found.verdict in ("identical", "rounding")
    assert {s.outcome for s in found.signals if s.signal in ("greedy", "logits")} <= {
        "identical",
        "differs",
    }
    assert found.shared_failures == ()
