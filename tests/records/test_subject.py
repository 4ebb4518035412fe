"""The names of subjects: made from the fields, in one place, in the form that reports show."""

import pytest
from pydantic import ValidationError

from samebits.compare.phases import row_subject, word_and_prompt
from samebits.records.comparison import ItemComparison
from samebits.records.ladder import Constant, LadderStep
from samebits.records.subject import Subject

LAYER = Subject(
    prompt="long", layer=3, tensor="model.layers.2", counterpart="language_model.layers.2"
)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"prompt": "short"}, "short"),
        ({"prompt": "pair", "row": 1}, "pair[1]"),
        ({"prompt": "short", "tensor": "input_ids"}, "short · input_ids"),
        ({"prompt": "a · b", "layer": 0, "tensor": "embed"}, "a · b · layer 0 (embed)"),
        ({"tensor": "lm_head.weight"}, "lm_head.weight"),
        ({"tensor": "rotary_emb.inv_freq", "counterpart": "b"}, "rotary_emb.inv_freq → b"),
    ],
)
def test_the_name_of_a_subject(fields, name):
    assert str(Subject(**fields)) == name


def test_the_parts_of_a_layer():
    assert str(LAYER) == "long · layer 3 (model.layers.2 → language_model.layers.2)"
    assert LAYER.place == "layer 3 (model.layers.2 → language_model.layers.2)"
    assert LAYER.names == ("model.layers.2", "language_model.layers.2")
    assert LAYER.prompt_row == "long"


def test_a_record_takes_its_name_from_its_subject_alone():
    item = ItemComparison(subject=LAYER, name="another", outcome="differs")
    assert item.name == str(LAYER)
    assert ItemComparison.model_validate_json(item.model_dump_json()) == item
    assert "name" in item.model_dump(exclude_defaults=True)
    with pytest.raises(ValidationError, match="subject"):
        ItemComparison(name="short", outcome="differs")
    constant = Constant(signal="weights", subject=Subject(tensor="w"), kind="changed")
    assert constant.name == "w"


@pytest.mark.parametrize(
    ("signal", "subject", "words"),
    [
        ("hidden_states", LAYER, ("long", LAYER.place)),
        ("logits", Subject(prompt="short"), ("short", "logits")),
        ("decode", Subject(prompt="pair", row=0), ("pair[0]", "decode")),
    ],
)
def test_a_step_of_the_ladder_takes_its_words_from_its_subject(signal, subject, words):
    step = LadderStep(
        signal=signal, subject=subject, own=1.0, float32=1.0, float64=0.0, kind="rounding"
    )
    assert (step.prompt, step.what) == words
    assert LadderStep.model_validate_json(step.model_dump_json()) == step


def test_the_key_of_a_decode_in_a_capture():
    assert row_subject("pair[1]") == Subject(prompt="pair", row=1)
    assert row_subject("short") == Subject(prompt="short")
    assert row_subject("odd[1]", ["odd[1]"]) == Subject(prompt="odd[1]")


@pytest.mark.parametrize(
    ("phase", "parts"),
    [
        ("greedy long", ("greedy", "long")),
        ("trace weights", ("weights", "")),
        ("weights: origin", ("weights", "origin")),
        ("forward a:b", ("forward", "a:b")),
        ("load", ("load", "")),
    ],
)
def test_the_parts_of_a_phase(phase, parts):
    assert word_and_prompt(phase) == parts
