"""Lines of a model's own code that mean something else in another release."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from samebits_probe.cell.idioms import idioms, of_preparation, renamed_caches

LLAMA = "from transformers.models.llama.modeling_llama import LlamaAttention"
GUILTY = [
    ("truth of a cache", "if past_key_values and input_ids is not None:\n    pass"),
    ("truth of a cache", "x = 1 if not cache else 2"),
    ("truth of a buffer's values", "if not self.inv_freq.any():\n    pass"),
    ("truth of a buffer's values", "if self.table.all() == False:\n    pass"),
    ("first of a layer's output", "h = decoder_layer(h, mask)[0]"),
    ("first of a layer's output", "h = self.layer(h)[0]"),
    ("past_key_value keyword", f"layer(h, past_key_value=cache)\n{LLAMA}"),
    ("past_key_value keyword", "transformers.models.llama.L(h)(past_key_value=cache)"),
    ("logits_to_keep keyword", "model(ids, num_logits_to_keep=1)"),
    ("default for a rope field", "theta = getattr(config, 'rope_theta', 10000.0)"),
]
CLEAN = [
    "if past_key_values is not None:\n    pass",
    "if cache.get_seq_length() > 0:\n    pass",
    "if len(past_key_values) and use_cache:\n    pass",
    "if mask.any():\n    pass",
    "h = outputs[0]",
    "h = layer(h)[1]",
    "h = self.norm(h)[0]",
    "layer(h, past_key_values=cache)",
    "layer(h, past_key_value=cache)",  # Phi-3's own file has no layer of the library
    "theta = getattr(config, 'rope_theta')",
    "theta = getattr(config, 'hidden_size', 3)",
]


@pytest.mark.parametrize(("name", "source"), GUILTY)
def test_it_is_found_with_its_line(name, source):
    (found,) = idioms(ast.parse(f"\n{source}"))
    assert found.name == name
    assert found.line == 2
    assert found.code in source.replace("\n", "")


@pytest.mark.parametrize("source", CLEAN)
def test_what_means_the_same_everywhere_is_left_alone(source):
    assert list(idioms(ast.parse(source))) == []


OLD = "class M(PreTrainedModel, GenerationMixin):\n    def forward(self, ids, past_key_values=None{}):\n        {}\n"


def test_a_forward_that_takes_the_cache_by_an_old_name_alone_is_found():
    (found,) = renamed_caches(ast.parse(OLD.format(", **kwargs", "pass")))
    assert found == (
        "old name of the cache",
        2,
        "def forward(self, ids, past_key_values=None, **kwargs)",
    )


@pytest.mark.parametrize(
    "source",
    [
        OLD.format(", cache=None", "pass"),
        OLD.format(", **kwargs", "past_key_values = kwargs.get('cache', past_key_values)"),
        OLD.format(", **kwargs", "pass").replace(", GenerationMixin", ""),  # it never generates
        OLD.format("", "pass").replace("past_key_values", "past"),
    ],
)
def test_a_forward_that_takes_the_new_name_or_never_generates_is_left_alone(source):
    assert list(renamed_caches(ast.parse(source))) == []


PREPARED = """class M(GenerationMixin):
    def prepare_inputs_for_generation(self, ids, past_key_values=None, inputs_embeds=None, **kwargs):
        if inputs_embeds is not None and {}:
            inputs = {{"inputs_embeds": inputs_embeds}}
        {}
        return inputs
"""


@pytest.mark.parametrize(
    ("test", "line", "names"),
    [
        ("past_key_values is None", "inputs.update(kwargs)", ["embeddings beside no cache"]),
        ("kwargs['first']", "pass", ["keywords of generate() dropped"]),
        ("'first' in kwargs", "pass", ["keywords of generate() dropped"]),
        ("kwargs.get('first')", "inputs |= {'output_hidden_states': None}", []),
        ("past_key_values.get_seq_length() == 0", "inputs.update(**kwargs)", []),
    ],
)
def test_what_an_own_preparation_passes_over_is_found(test, line, names):
    assert [i.name for i in of_preparation(ast.parse(PREPARED.format(test, line)))] == names


def test_a_preparation_without_further_keywords_drops_none():
    text = PREPARED.format("True", "pass").replace(", **kwargs", "")
    assert not list(of_preparation(ast.parse(text)))
