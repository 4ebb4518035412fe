"""What a model is fed follows from its signature and config, and a refusal is told from a failure."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from samebits_probe.model.choice import (
    DoesNotApply,
    NotFed,
    Parameter,
    Signature,
    Traits,
    arguments,
    kinds_of,
    signature_of,
    takes_special,
    traits_of,
)
from samebits_probe.model.refusal import missing_input, refusals

TEXT, IMAGE = {"vocab_size": 99}, {"image_size": 24}
DUAL = {"text_config": TEXT, "vision_config": IMAGE}


def signature(text):
    """Return a signature of names; ``!`` behind one is "required", ``**`` any keyword."""
    names = text.split()
    parameters = [Parameter(n.rstrip("!"), n.endswith("!")) for n in names if n != "**"]
    return Signature(tuple(parameters), "**" in names)


def chosen(names, config=(), main="input_ids", vocabulary=99, generates=False):
    traits = traits_of(dict(config), main=main, vocabulary=vocabulary, generates=generates)
    return arguments(signature(names), traits)


def reason(*given, **more):
    with pytest.raises(NotFed) as refused:
        chosen(*given, **more)
    return str(refused.value)


ENCODER_DECODER = {"is_encoder_decoder": True, **TEXT}
FED = {
    "llama": (("input_ids", "attention_mask", "labels", "**"), TEXT, {"generates": True}),
    "bert for classification": (("input_ids", "token_type_ids", "inputs_embeds"), TEXT, {}),
    "a main input that is embeddings": (("input_ids", "inputs_embeds"), TEXT, {"main": "inputs_embeds"}),
    "an encoder of a config with both": (("input_ids", "attention_mask", "**"), ENCODER_DECODER, {}),
    "git: a text model that may see": (
        ("input_ids", "pixel_values"),
        {**TEXT, "vision_config": IMAGE},
        {"generates": True},
    ),
    "llava: its image stands among the tokens": (
        ("input_ids", "pixel_values", "labels"),
        {**DUAL, "image_token_index": 7, "is_encoder_decoder": False},
        {"generates": True},
    ),
    "llava's base": (("input_ids", "pixel_values"), {**DUAL, "image_token_id": 7}, {}),
    "a text model with an image, which it is not given": (
        ("input_ids", "pixel_values"),
        DUAL,
        {"generates": True},
    ),
    "layoutlm: an image of no known size": (("input_ids", "bbox", "pixel_values"), TEXT, {}),
    "nothing listed": (("**",), TEXT, {}),
    "only switches listed": (("labels", "**"), TEXT, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", FED)
def test_token_ids_alone_are_fed(case):
    names, config, more = FED[case]
    assert chosen(" ".join(names), config, **more) == ("input_ids",)


def test_a_decoder_is_fed_where_config_and_signature_both_say_so():
    both = ("input_ids", "decoder_input_ids")
    assert chosen("input_ids decoder_input_ids", ENCODER_DECODER) == both
    assert chosen("input_ids decoder_input_ids", TEXT) == ("input_ids",)
    assert chosen("**", ENCODER_DECODER) == both
    sound = {"main": "input_features"}
    assert chosen("input_features decoder_input_ids", ENCODER_DECODER, **sound) == (
        "input_features",
        "decoder_input_ids",
    )
    # whisper for classification has an encoder alone
    assert chosen("input_features", ENCODER_DECODER, **sound) == ("input_features",)


DUAL_ENCODERS = {
    "clip": ("input_ids pixel_values attention_mask position_ids return_loss", DUAL, "input_ids"),
    "siglip": ("input_ids pixel_values **", DUAL, "input_ids"),
    "blip": ("pixel_values! input_ids", DUAL, "pixel_values"),
    "owlvit": ("input_ids! pixel_values!", DUAL, "pixel_values"),
    "vilt, whose config is flat": ("input_ids pixel_values", {**TEXT, **IMAGE}, "input_ids"),
}


@pytest.mark.parametrize("case", DUAL_ENCODERS)
def test_a_model_of_text_and_image_is_fed_both(case):
    names, config, main = DUAL_ENCODERS[case]
    assert chosen(names, config, main) == ("input_ids", "pixel_values")


def test_images_and_sounds_are_fed_as_the_class_says():
    assert chosen("pixel_values labels", IMAGE, "pixel_values", 0) == ("pixel_values",)
    assert chosen("input_values attention_mask", {}, "input_values", 0) == ("input_values",)
    # a speech encoder with a decoder calls it "inputs", and takes values by name, too
    assert chosen("inputs input_values", {}, "inputs", 0) == ("input_values",)
    # a class of images that does not say what its main input is
    assert chosen("pixel_values", IMAGE, vocabulary=0) == ("pixel_values",)
    assert chosen("input_ids pixel_values", IMAGE, vocabulary=0) == ("pixel_values",)


def test_what_forward_requires_is_fed_where_it_can_be_made():
    assert chosen("input_ids! attention_mask!", TEXT) == ("input_ids", "attention_mask")
    assert chosen("input_ids! pixel_values!", TEXT, generates=True) == ("input_ids", "pixel_values")
    assert chosen("input_ids attention_mask", TEXT) == ("input_ids",)


def test_what_cannot_be_made_is_named():
    write = "give them with --inputs FILE, or under inputs: in matrix.yaml"
    makes = f"samebits makes token ids, pixel values and audio: for others, {write}"
    assert reason("protein_embeddings special_tokens_mask return_dict", vocabulary=0) == (
        f"forward takes protein_embeddings, special_tokens_mask; {makes}"
    )
    assert reason("protein_embeddings! special_tokens_mask", vocabulary=0) == (
        f"forward takes protein_embeddings (required), which samebits cannot make: {write}"
    )
    assert reason("input_ids bbox!", TEXT) == (
        f"forward takes bbox (required), which samebits cannot make: {write}"
    )
    assert reason("protein_embeddings **", vocabulary=0).startswith("forward takes protein_emb")
    assert "any keyword" in reason("**", vocabulary=0)
    many = " ".join(f"p{i}" for i in range(9))
    assert reason(many) == f"forward takes p0, p1, p2, p3, p4, p5 and 3 more; {makes}"


def test_tokens_whose_number_an_image_decides_cannot_be_made():
    blip2 = {**DUAL, "num_query_tokens": 32}
    told = reason("pixel_values! input_ids!", blip2, "pixel_values", generates=True)
    assert "num_query_tokens" in told
    assert chosen("pixel_values! input_ids!", DUAL, "pixel_values") == ("input_ids", "pixel_values")


def test_a_sound_beside_a_text_has_no_known_shape():
    clap = {"text_config": TEXT, "audio_config": {}}
    assert "input_features and input_ids" in reason("input_ids input_features is_longer", clap)
    assert chosen("input_ids input_features", {**clap, "audio_token_id": 3}) == ("input_ids",)


def test_annotations_are_told():
    def forward(self, embeddings: Path, mask: float | None = None, *rest, **more):
        raise NotImplementedError

    found = signature_of(forward)
    assert found.names == {"embeddings", "mask"}
    assert found.takes_any
    with pytest.raises(NotFed, match=r"takes embeddings: pathlib\..*Path \(required\), which"):
        arguments(found, traits_of({}, main="input_ids", vocabulary=9, generates=False))


def test_a_model_that_cannot_be_fed_is_told_from_a_prompt_without_meaning():
    assert (DoesNotApply.why, NotFed.why) == ("plain", "inputs")


# refusals


class Module:
    """A module of torch in as much as its call goes through a frame of another function."""

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)


class Vision(Module):
    def forward(self, pixel_values=None):
        if pixel_values is None:
            raise ValueError("You have to specify pixel_values")
        return pixel_values


class Clip(Module):
    vision = Vision()

    def forward(self, input_ids=None, pixel_values=None, attention_mask=None):
        return self.vision(pixel_values=pixel_values)


class Checks(Module):
    """Checks its inputs itself, in a helper, and with a TypeError."""

    def forward(self, input_ids=None, embeddings=None):
        self.check(embeddings)

    def check(self, embeddings):
        if embeddings is None:
            raise TypeError("embeddings must be given.\nRead the card.")


LOST = {
    "ids": "You must specify exactly one of input_ids or inputs_embeds",
    "embeddings": "You have to specify inputs_embeds",
    "encoder": "encoder_outputs is missing",
}


class Text(Module):
    """Loses its ids, or its embeddings, on the way to the part that computes."""

    def __init__(self, lost):
        self.lost = lost

    def forward(self, input_ids=None, inputs_embeds=None, encoder_outputs=None):
        raise ValueError(LOST[self.lost])


class Inner(Module):
    def forward(self, hidden, head_mask=None):
        return hidden


class OwnError(ValueError):
    """An exception of a model's code."""


RAISED = {
    "another class of exception": RuntimeError("pixel_values is missing"),
    "a class of the code's own": OwnError("pixel_values is missing"),
    "a state that generate() hands in": ValueError("cache_position must be given"),
    "a mask that the release no longer makes": ValueError("attention_mask must be given"),
    "a word that is only like one": ValueError("pixel_values_videos are missing"),
}


class Raises(Module):
    """Fails in ways that speak of parameters which were not fed."""

    inner = Inner()

    def __init__(self, how):
        self.how = how

    def forward(self, input_ids, pixel_values=None, cache_position=None, attention_mask=None):
        if self.how == "an inner call with an unknown keyword":
            return self.inner(input_ids, pixel_values=pixel_values)
        if self.how == "an attribute of None":
            return pixel_values.shape
        if self.how in RAISED:
            raise RAISED[self.how]
        if self.how == "an input that was lost on the way":
            pixel_values = input_ids
            return Vision().forward(None)
        if self.how == "an input that was there":
            pixel_values = input_ids
            raise ValueError("pixel_values are not of this model's size")
        return int("pixel_values")


FAILURES = [
    *RAISED,
    "an inner call with an unknown keyword",
    "an attribute of None",
    "an input that was lost on the way",
    "an input that was there",
    "a message of Python's own",
]


def call(model, *, whole=True, **fed):
    with refusals(model.forward, fed, whole=whole):
        return model(**fed)


def refused(model, **fed):
    with pytest.raises(NotFed) as why:
        call(model, **fed)
    return str(why.value)


def test_a_check_of_forward_or_of_its_part_that_an_input_is_missing_refuses():
    assert refused(Clip(), input_ids=1) == (
        "forward needs pixel_values, which samebits did not pass: You have to specify pixel_values"
    )
    assert refused(Checks(), input_ids=1) == (
        "forward needs embeddings, which samebits did not pass: embeddings must be given."
    )
    assert call(Clip(), input_ids=1, pixel_values=2) == 2


def test_arguments_that_do_not_bind_are_refused():
    assert "unexpected keyword argument 'decoder_input_ids'" in refused(
        Clip(), input_ids=1, decoder_input_ids=1
    )
    assert "missing a required argument: 'input_ids'" in refused(Raises(""), pixel_values=1)
    # generate() gives more than it is given
    with pytest.raises(TypeError):
        call(Raises(""), pixel_values=1, whole=False)


@pytest.mark.parametrize("lost", LOST)
def test_another_form_of_what_was_fed_is_not_asked_for(lost):
    with pytest.raises(ValueError, match=r"inputs_embeds|encoder_outputs"):
        call(Text(lost), input_ids=1)


@pytest.mark.parametrize("lost", ["ids", "embeddings"])
def test_who_was_fed_neither_form_was_refused(lost):
    assert "needs input" in refused(Text(lost))


@pytest.mark.parametrize("how", FAILURES)
def test_everything_else_that_a_forward_raises_is_its_failure(how):
    with pytest.raises((TypeError, ValueError, AttributeError, RuntimeError)) as error:
        call(Raises(how), input_ids=1)
    assert not isinstance(error.value, DoesNotApply)


def test_an_exception_that_came_from_outside_of_forward_is_no_refusal():
    def generate(pixel_values=None):
        raise ValueError("pixel_values are missing")

    with pytest.raises(ValueError, match="missing") as error:
        generate()
    assert missing_input(Clip().forward, {"input_ids"}, error.value) == ""
    assert missing_input(Clip().forward, {"input_ids"}, ValueError("pixel_values")) == ""


def test_a_wrapped_forward_is_seen_through():
    import functools

    class Wrapped(Clip):
        @functools.wraps(Clip.forward)
        def forward(self, *args, **kwargs):
            return Clip.forward(self, *args, **kwargs)

    assert "needs pixel_values" in refused(Wrapped(), input_ids=1)


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        ("input_ids attention_mask **", ()),
        ("input_ids pixel_values", ("images",)),
        ("input_ids image_patches image_patches_indices", ("images",)),
        ("input_ids pixel_values_videos", ("images",)),
        ("input_features", ("sounds",)),
        ("input_ids input_values pixel_values", ("images", "sounds")),
        ("input_ids image_grid_thw image_sizes", ()),  # they say nothing without an image
    ],
)
def test_the_kinds_of_data_follow_from_the_parameters(names, kinds):
    assert kinds_of(signature(names)) == kinds


SPECIAL = {
    "an encoder": ("BertModel", (), False, True),
    "a masked model, of which 4.48 says that it generates": ("BertForMaskedLM", (), True, True),
    "an encoder with a decoder": (
        "BartForSequenceClassification",
        ("decoder_input_ids",),
        False,
        True,
    ),
    "a model that generates": ("LlamaForCausalLM", (), True, False),
    "several choices per row": ("BertForMultipleChoice", (), False, False),
    "text and image": ("CLIPModel", ("pixel_values",), False, False),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_tokens_are_for_models_that_pad_on_the_right(name):
    class_name, more, generates, expected = SPECIAL[name]
    parameters = tuple(Parameter(n) for n in ("input_ids", "attention_mask", *more))
    traits = Traits(vocabulary=9, generates=generates)
    fed = ("input_ids", *more)
    assert takes_special(class_name, Signature(parameters), traits, fed) is expected


def test_without_a_mask_nothing_is_padded():
    signature = Signature((Parameter("input_ids"),))
    assert not takes_special("FNetModel", signature, Traits(), ("input_ids",))


def test_what_is_made_by_its_name_is_fed_beside_the_tokens_or_alone():
    named = traits_of(TEXT, main="input_ids", vocabulary=99, generates=False, named=("bbox",))
    assert arguments(signature("input_ids bbox attention_mask"), named) == ("input_ids", "bbox")
    pix2struct = named._replace(main="flattened_patches", named=("flattened_patches",))
    assert arguments(signature("flattened_patches labels"), pix2struct) == ("flattened_patches",)
    assert arguments(signature("input_ids! states!"), named._replace(named=("states",))) == (
        "input_ids",
        "states",
    )


def test_a_spectrogram_beside_text_has_a_shape_where_the_config_says_it():
    clap = {"text_config": TEXT, "audio_config": {"spec_size": 256, "num_mel_bins": 64}}
    assert chosen("input_ids input_features", clap) == ("input_ids", "input_features")
    unknown = {"text_config": TEXT, "audio_config": {"num_mel_bins": 64}}
    assert "cannot tell the shape" in reason("input_ids input_features", unknown)
    assert chosen("input_ids input_values", unknown) == ("input_ids", "input_values")
