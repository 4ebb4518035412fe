"""A stock model of real size comes out right, with nothing set, in bounded memory and work.

It is a Llama of 0.28 B parameters in float32, made on the spot: 24 layers, 1.06 GiB. At that size a
clock, a copy too many and a question too many show, which no tiny model can tell. To be run after a change of
what a cell asks, of how a model is loaded and kept, or of what a made model answers.
"""

import json

import numpy as np
import pytest

from bench.memory import MemoryWatch
from samebits.stacks import probes
from samebits.storage.store import Store
from tests.real.conftest import NEW, OLD

LAYERS, HIDDEN, INNER, VOCABULARY = 24, 1024, 2048, 32_000
MOST_FORWARDS = {"forward": 5, "greedy": 38, "state": 1, "integrity": 2}
"""Three prompts, each run once and watched; two of them, the first and the padded one, plainly as well, as a
check. Twelve tokens each, and two of the first prompt watched; the first prompt once more; before and after
a save."""
OF_A_MADE_MODEL = {"edits", "relations", "usage"}
"""Phases whose forwards are those of a made model."""
MOST_MEMORY = 5.0
"""Times the weights that all processes of both stacks hold at once: two jobs, each with its model and, for
a while, a second one; the rest is for what a forward takes. 2.5 were seen where the two did not meet."""


def shapes(layers=LAYERS, vocabulary=VOCABULARY):
    yield "model.embed_tokens.weight", (vocabulary, HIDDEN)
    for layer in (f"model.layers.{i}" for i in range(layers)):
        for name in "qkvo":
            yield f"{layer}.self_attn.{name}_proj.weight", (HIDDEN, HIDDEN)
        for name in ("gate", "up"):
            yield f"{layer}.mlp.{name}_proj.weight", (INNER, HIDDEN)
        yield f"{layer}.mlp.down_proj.weight", (HIDDEN, INNER)
        for name in ("input", "post_attention"):
            yield f"{layer}.{name}_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)


def make(folder, layers=LAYERS, vocabulary=VOCABULARY):
    """Write config.json and random weights, one tensor at a time; return their bytes."""
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes(layers, vocabulary):
        start, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = np.random.default_rng(0)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape in shapes(layers, vocabulary):
            values = generator.standard_normal(shape, dtype=np.float32)
            values *= 0.02
            file.write((values if len(shape) > 1 else values + 1).tobytes())
    return end


@pytest.fixture(scope="module")
def observed(run_in, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real-size")
    size = make(folder / "model")
    (folder / "matrix.yaml").write_text(
        f'environments: ["{OLD}", "{NEW}"]\nmodels: {{real: {{path: model}}}}\n'
    )
    try:
        # the processes of a shared import are no descendants of this one, so that nothing would be seen
        with pytest.MonkeyPatch.context() as patch, MemoryWatch() as memory:
            patch.setattr(probes, "STACK", probes.PROBES / "stack.py")
            report = run_in(folder, jobs=2)
        captures = (folder / ".samebits" / "captures").rglob("[ab].json")
        yield report, [Store(folder / ".samebits").read_capture(c) for c in captures], memory, size
    finally:
        (folder / "model" / "model.safetensors").unlink()


def test_it_is_the_same_function_in_both_releases_and_the_run_passes(observed):
    report, *_ = observed
    (row,) = report.rows
    verdicts = {cell.cell.stack: cell.verdict for cell in row.cells}
    assert verdicts[OLD] == "reference"
    assert verdicts[NEW] in ("identical", "rounding")
    assert report.exit_code == 0


def test_every_run_is_complete(observed):
    _, captures, *_ = observed
    assert [(c.status, c.failures) for c in captures] == [("complete", ())] * 4


def test_what_it_costs_is_bounded(observed):
    _, captures, memory, size = observed
    for capture in captures:
        own = {phase: n for phase, n in capture.counts.items() if phase not in OF_A_MADE_MODEL}
        assert own.keys() <= MOST_FORWARDS.keys()
        assert all(n <= MOST_FORWARDS[phase] for phase, n in own.items())
    assert memory.peak > size  # it was seen at all
    assert memory.peak / size < MOST_MEMORY, memory.peak / size


def test_a_made_model_answers_for_it_and_what_its_price_leaves_out_is_named(observed):
    report, captures, *_ = observed
    for capture in captures:
        dear = {skip.what: skip.reason for skip in capture.skips if skip.why == "cost"}
        if capture.run == "a":
            assert dear.keys() == {"arguments", "classes", "exports"}
            assert all("1.1 GiB" in reason for reason in dear.values()), dear
        else:
            assert dear == {}
        for signal in map(capture.signals.answers.get, ("relations", "usage")):
            assert (signal is None) == (capture.run == "b")
            if signal is not None:
                assert signal.asked_of.n_layers == 2
                assert signal.asked_of.n_parameters < 2_000_000
    (row,) = report.rows
    assert {signal.asked_of is not None for signal in row.answers["relations"].stacks.values()} == {
        True
    }
