"""Which changes of an attention call can make other numbers, and which only spell it otherwise."""

import numpy as np
import pytest

from samebits.compare.facts import call_changes, changes, material_changes
from samebits.records.tokenizer import Answer, TokenizerSignal
from tests.support.builders import LAYOUT, call, sound

MATH = ("aten::_scaled_dot_product_attention_math",)
MASK = "bool[1, 1, 6, 6]"


def sdpa(**changed):
    """Return a call whose sdpa arguments are those of the usual one but for ``changed``."""
    one = call(0)
    return one.model_copy(update={"sdpa": one.sdpa.model_copy(update=changed)})


MATERIAL = {
    "by hand": (call(0), call(0).model_copy(update={"sdpa": None}), "computed"),
    "other kernels": (call(0), call(0).model_copy(update={"aten": MATH}), "aten"),
    "one more kernel": (
        call(0),
        call(0).model_copy(update={"aten": call(0).aten * 2}),
        "aten",
    ),
    "a mask for causal": (call(0), sdpa(is_causal=False, mask=MASK), "masking"),
    "a mask beside causal": (call(0), sdpa(mask=MASK), "masking"),
    "causal no more": (call(0), sdpa(is_causal=False), "masking"),
    "a mask no more": (sdpa(is_causal=False, mask=MASK), sdpa(is_causal=False), "masking"),
    "another scale": (call(0), sdpa(scale=0.125), "scale"),
    "a scale one float32 further": (
        call(0),
        sdpa(scale=float(np.nextafter(np.float32(0.25), np.float32(1)))),
        "scale",
    ),
    "a scale that is not the default": (sdpa(scale=None), sdpa(scale=0.125), "scale"),
    "the default of another head dimension": (
        sdpa(scale=None),
        sdpa(scale=None, query=LAYOUT.replace("6, 16]", "6, 32]")),
        "scale",
    ),
    "dropout": (call(0), sdpa(dropout_p=0.1), "dropout_p"),
}


@pytest.mark.parametrize(("one", "other", "what"), MATERIAL.values(), ids=MATERIAL)
def test_what_can_change_numbers_is_told_from_both_sides(one, other, what):
    assert what in [change.what for change in material_changes(one, other)]
    assert what in [change.what for change in material_changes(other, one)]


@pytest.mark.parametrize("name", [n for n in MATERIAL if n != "by hand"])
def test_it_is_told_alone(name):
    one, other, what = MATERIAL[name]
    assert [change.what for change in material_changes(one, other)] == [what]


def test_the_words_of_a_change():
    (masking,) = material_changes(call(0), sdpa(is_causal=False, mask=MASK))
    assert (masking.reference, masking.candidate) == ("no mask, causal", "a mask")
    (scale,) = material_changes(sdpa(scale=None), sdpa(scale=0.125))
    assert (scale.reference, scale.candidate) == (0.25, 0.125)
    by_hand = material_changes(call(0), call(0).model_copy(update={"sdpa": None}))[0]
    assert (by_hand.reference, by_hand.candidate) == ("SDPA", "eager")


SPELLING = {
    "strides": (
        call(0),
        sdpa(query=LAYOUT.replace("[384, 96, 16, 1]", "[384, 16, 64, 1]")),
    ),
    "heads repeated by hand": (
        sdpa(enable_gqa=False),
        sdpa(enable_gqa=True, key=LAYOUT.replace("1, 4,", "1, 2,")),
    ),
    "dtype of the mask": (
        sdpa(is_causal=False, mask=MASK),
        sdpa(is_causal=False, mask="float32[1, 1, 6, 6]"),
    ),
    "scale left to its default": (call(0), sdpa(scale=None)),
    "function": (call(0), call(0).model_copy(update={"function": "sdpa_forward"})),
    "class": (call(0), call(0).model_copy(update={"module_class": "LlamaSdpaAttention"})),
    "module": (call(0), call(0).model_copy(update={"module": "layers.0.attn"})),
    "source": (call(0), call(0).model_copy(update={"source": "modeling_llama.py:9"})),
}


@pytest.mark.parametrize(("one", "other"), SPELLING.values(), ids=SPELLING)
def test_what_only_spells_the_call_is_not(one, other):
    assert one != other
    assert material_changes(one, other) == material_changes(other, one) == []


@pytest.mark.parametrize("head_dim", [16, 48, 80, 96, 128, 192])
def test_a_default_scale_is_the_same_however_it_is_computed(head_dim):
    query = f"float32[1, 4, 6, {head_dim}] strides [1, 1, 1, 1]"
    for scale in (head_dim**-0.5, 1 / head_dim**0.5, 1 / np.sqrt(head_dim)):
        other = sdpa(scale=float(scale), query=query)
        assert material_changes(sdpa(scale=None, query=query), other) == []


def test_immaterial_changes_are_still_told_as_changes():
    assert [c.what for c in call_changes(call(0), sdpa(scale=None))] == ["sdpa.scale"]
    assert [c.what for c in call_changes(call(0), sdpa(enable_gqa=True))] == ["sdpa.enable_gqa"]


def tokenizer(**changed):
    told = {
        "class_name": "LlamaTokenizerFast",
        "padding_side": "left",
        "batch": Answer(type="list"),
        "knows_backend": True,
    }
    return TokenizerSignal(**(told | changed))


def test_what_changed_of_a_tokenizer_is_told_field_by_field(memory):
    one = sound(memory, tokenizer=tokenizer())
    other = sound(memory, "5.x", tokenizer=tokenizer(padding_side="right"))
    (change,) = changes(one, other)["tokenizer"]
    assert (change.what, change.reference, change.candidate) == ("padding_side", "left", "right")
    assert "tokenizer" not in changes(one, sound(memory, "5.x", tokenizer=tokenizer()))
    assert "tokenizer" not in changes(one, sound(memory, "5.x"))
