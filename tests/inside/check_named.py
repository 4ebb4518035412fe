"""named: arguments that follow from fields of a config have their shape, and what forward returns follows from them."""

import torch
import transformers
from samebits_probe.jobs import auto
from samebits_probe.model import choice, inputs, named, precision

torch.set_num_threads(1)

SHAPES = {
    "bros": {"bbox": (1, 9, 4)},
    "layoutlm": {"bbox": (1, 9, 4)},
    "lxmert": {"visual_feats": (1, 6, 64), "visual_pos": (1, 6, 4)},
    "decision_transformer": {
        "states": (1, 6, 17),
        "actions": (1, 6, 4),
        "returns_to_go": (1, 6, 1),
    },
    "pix2struct": {"flattened_patches": (1, 6, 770), "decoder_input_ids": (1, 7)},
}


def short(name):
    """Return a tiny model of a type, and the arguments of its first prompt."""
    made = auto.make(name, 1)
    assert not made.refused, made.refused
    return made.model, dict(made.prompts[0][1])


def computed(model, kwargs):
    torch.manual_seed(0)
    with torch.no_grad():
        result = model(**kwargs)
    return torch.cat([t.flatten().float() for t in result.values() if torch.is_tensor(t)])


def test_each_argument_has_its_shape_and_is_used():
    for name, shapes in SHAPES.items():
        model, kwargs = short(name)
        for argument, shape in shapes.items():
            assert tuple(kwargs[argument].shape) == shape, (name, argument)
            moved = kwargs | {argument: kwargs[argument].flip(1)}
            assert not torch.equal(computed(model, kwargs), computed(model, moved)), argument


def test_boxes_are_boxes_of_a_page():
    _, kwargs = short("layoutlm")
    left, top, right, bottom = kwargs["bbox"].unbind(-1)
    assert kwargs["bbox"].dtype == torch.int64
    assert bool((left <= right).all())
    assert bool((top <= bottom).all())
    assert int(kwargs["bbox"].max()) <= 1000


def test_the_box_of_a_token_moves_with_it():
    model, _ = short("layoutlm")
    ids = torch.tensor([[20, 21, 22], [22, 20, 21]])
    boxes = named.beside(model, ids)["bbox"]
    assert torch.equal(boxes[0].roll(1, 0), boxes[1])
    assert not torch.equal(boxes[0], boxes[1])


def test_arithmetic_in_float64_does_not_see_how_they_are_made():
    model, _ = short("lxmert")
    watch = precision.Leaks(precision.smaller_than(torch.float64))
    with watch:
        made = named.beside(model, torch.ones(2, 3, dtype=torch.long))
    assert {*made} == {"visual_feats", "visual_pos"}
    assert not watch.leaks


def test_a_name_alone_makes_nothing():
    """In a user's class, and in a config without the field, a bbox may be anything."""
    takes = choice.signature_of(transformers.LayoutLMModel.forward)
    of_layoutlm = transformers.LayoutLMModel, takes, transformers.LayoutLMConfig()
    assert named.names(*of_layoutlm) == ("bbox",)
    assert not named.names(*of_layoutlm[:2], transformers.BertConfig())

    class Own(transformers.LayoutLMModel):
        pass

    assert not named.names(Own, *of_layoutlm[1:])
    assert (
        named.beside(
            transformers.BertModel(transformers.BertConfig(num_hidden_layers=1)), torch.ones(1, 3)
        )
        == {}
    )


def test_a_decoder_gets_ids_for_each_codebook():
    model, kwargs = short("musicgen")
    codebooks = model.config.decoder.num_codebooks
    assert kwargs["decoder_input_ids"].shape == (codebooks, inputs.DECODER_LENGTH)
    assert len({*map(tuple, kwargs["decoder_input_ids"].tolist())}) == codebooks


def test_a_spectrogram_has_the_shape_of_the_config():
    model, kwargs = short("audio-spectrogram-transformer")
    assert kwargs["input_values"].shape == (1, model.config.max_length, model.config.num_mel_bins)
    _, kwargs = short("clap")
    assert {"input_ids", "input_features"} == {*kwargs}


def test_characters_are_fed_to_a_model_that_hashes_them():
    _, kwargs = short("canine")
    assert int(kwargs["input_ids"].max()) > 1 << 16


def test_widths_fill_the_groups_of_a_norm():
    """Chameleon's image tokenizer has GroupNorm of 32 groups in its code."""
    made = auto.make("chameleon", 1)
    norms = [m for m in made.model.modules() if isinstance(m, torch.nn.GroupNorm)]
    assert norms
    assert not made.refused


def test_logits_may_be_masked():
    """Grounding DINO has minus infinity where its text ends. Its code cuts texts at [CLS] and [SEP]."""
    made = auto.make("grounding-dino", 1)
    prompts = dict(made.prompts)
    assert prompts["short"]["input_ids"][0, [0, -1]].tolist() == [101, 102]
    assert prompts["padded"]["input_ids"][:, 0].tolist() == [101, 101], "padded on the right"
