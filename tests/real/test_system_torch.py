"""torch: system runs a model under two releases on a torch that neither stack has installed."""

import os

import pytest

from samebits.stacks.system import VARIABLE
from tests.real.conftest import NEW, OLD, run_of

pytestmark = pytest.mark.long  # for changes of samebits/stacks/system.py
MODEL = """models:
  llama:
    build: {architecture: llama, config: {hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2,
      num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 96}}
    dtypes: [float32]
    relations: false
"""


def run_with(folder, torch, environ):
    folder.mkdir()
    (folder / "matrix.yaml").write_text(
        f'torch: {torch}\nenvironments: ["{OLD}", "{NEW}"]\n{MODEL}'
    )
    return run_of(folder, environ, level="quick")[0]


@pytest.fixture(scope="module")
def on_system(stacks, tmp_path_factory):
    """The machine's torch is that of a stack, which also has a transformers of its own."""
    environ = {**os.environ, VARIABLE: stacks[NEW].python}
    return run_with(tmp_path_factory.mktemp("system") / "p", "system", environ), stacks[NEW]


def test_both_stacks_use_the_machines_torch_and_their_own_transformers(on_system):
    report, machine = on_system
    assert [stack.failure for stack in report.stacks] == [None, None]
    assert [stack.system_torch for stack in report.stacks] == [True, True]
    assert {stack.torch for stack in report.stacks} == {machine.packages["torch"]}
    oldest, newest = (stack.transformers for stack in report.stacks)
    assert oldest.startswith(f"{OLD}.")
    assert newest == machine.transformers


def test_the_bits_are_those_of_stacks_that_installed_the_same_torch(on_system, run_in, tmp_path):
    report, _ = on_system
    (tmp_path / "matrix.yaml").write_text(f'environments: ["{OLD}", "{NEW}"]\n{MODEL}')
    plain = run_in(tmp_path, level="quick")

    def conclusions(report):
        return [
            (result.cell.stack, result.verdict, signal.signal, signal.outcome)
            for row in report.rows
            for result in row.cells
            for signal in result.signals
        ]

    assert conclusions(report) == conclusions(plain)
    assert conclusions(plain)
