"""questions.arguments: what each argument of forward and generate() changes, on real models and on planted ones."""

from unittest import mock

import tiny
import torch
import transformers
from samebits_probe.model.leftover import Leftover
from samebits_probe.questions.arguments import ones
from samebits_probe.questions.arguments.arguments import beside_media, effects, given
from samebits_probe.questions.arguments.generating import (
    OWN_LIMIT,
    Generation,
    asked,
    assistants,
    inputs,
    with_media,
)
from samebits_probe.questions.arguments.states import held
from transformers.generation import candidate_generator

MAJOR, MINOR = (int(part) for part in transformers.__version__.split(".")[:2])
ADDS_THE_PROMPT = MAJOR == 5 and MINOR < 3
"""Whether generate() takes the model's own max_length for a number of new tokens."""
OTHER_TOKENIZER = "assistant_model (of another tokenizer)"
DRAFTED = {"prefill_chunk_size", "prompt_lookup_num_tokens", "assistant_early_exit"}
DRAFTED |= {"assistant_model", OTHER_TOKENIZER}
QUANTIZED = "cache_implementation (quantized)"
GIVEN = {"generation_config", "generation_config (sampling)"}
REFUSED_BY_SOME = {"watermarking_config (as a dict)"}
"""What 4.57 refuses of every model."""
SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "initializer_range": 0.5,
}
IDS = {"input_ids": torch.arange(5, 14)[None]}


class Plain(torch.nn.Module):
    """A model of one table; what it reads is given to its class."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(99, 8)
        self.config = transformers.LlamaConfig(
            num_hidden_layers=2, num_attention_heads=4, head_dim=2
        )

    def logits(self, input_ids):
        return self.table(input_ids) @ self.table.weight.T


class Reads(Plain):
    def forward(self, input_ids, head_mask=None, logits_to_keep=0):
        logits = self.logits(input_ids)[:, -logits_to_keep:]
        return {"logits": logits if head_mask is None else logits * head_mask.mean()}


class Swallows(Plain):
    def forward(self, input_ids, logits_to_keep=0, **kwargs):
        return {"logits": self.logits(input_ids)[:, -logits_to_keep:]}


class Rounds(Plain):
    def __init__(self, by=1e-3):
        super().__init__()
        self.by = by

    def forward(self, input_ids, head_mask=None):
        logits = self.logits(input_ids)
        return {"logits": logits if head_mask is None else logits * (1 + self.by)}


class Routes(Plain):
    """Its routers are in the output, or nothing is in their place."""

    def __init__(self, found=None):
        super().__init__()
        self.found = (torch.ones(1),) if found is None else found

    def forward(self, input_ids, output_router_logits=False):
        routers = {"router_logits": self.found} if output_router_logits else {}
        return {"logits": self.logits(input_ids), **routers}


def of(model, kwargs=IDS):
    model = model.eval()
    return effects(model, kwargs, given(model, kwargs), lambda: None)


def test_a_planted_argument_that_is_swallowed_has_no_effect_and_its_twin_has_one():
    reads, swallows, rounds = of(Reads()), of(Swallows()), of(Rounds())
    head_mask = reads["head_mask"]
    assert (head_mask["named"], head_mask["effect"]) == (True, "other numbers")
    pairs = zip(head_mask["numbers"], head_mask["without"], strict=True)
    assert all(abs(after - 0.75 * before) < 1e-5 for after, before in pairs)
    assert swallows["head_mask"] == {"named": False, "effect": "none"}
    assert rounds["head_mask"] == {"named": True, "effect": "rounding"}
    assert of(Rounds(by=1e-6))["head_mask"]["effect"] == "order of sums"
    assert swallows["num_logits_to_keep"] == {"named": False, "effect": "none"}
    assert reads["logits_to_keep"] == {
        "named": True,
        "effect": "another shape",
        "message": "(1, 9, 99) → (1, 1, 99)",
    }
    assert reads["position_ids"]["effect"] == "raises"
    assert "position_ids" in reads["position_ids"]["message"]


def test_a_field_with_nothing_in_it_is_no_field():
    clean = of(Routes())["output_router_logits"]
    assert (clean["effect"], clean["message"]) == ("more fields", "router_logits")
    for empty in ((), (None, None), ((), ())):
        assert of(Routes(empty))["output_router_logits"] == {"named": True, "effect": "none"}


class Maps(Plain):
    """An encoder within another model returns its maps, or nothing in their place."""

    def __init__(self, maps):
        super().__init__()
        self.maps = maps

    def forward(self, input_ids, output_attentions=False):
        part = {"pooled": torch.ones(1)} | ({"attentions": self.maps} if output_attentions else {})
        return {"logits": self.logits(input_ids), "text_output": part}


class MapsForCausalLM(Maps):
    main_input_name = "input_ids"


def test_maps_that_an_inner_output_lost_are_seen():
    clean = of(Maps((torch.ones(1),)))["output_attentions"]
    assert (clean["effect"], clean["message"]) == ("more fields", "text_output.attentions")
    assert of(Maps(()))["output_attentions"] == {"named": True, "effect": "none"}
    assert "output_attentions" not in of(
        MapsForCausalLM(())
    )  # usage asks it, and with eager attention, too


def test_arguments_of_bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES, num_hidden_layers=2, max_position_embeddings=32)
    found = {k: v["effect"] for k, v in of(transformers.BertForMaskedLM(config)).items()}
    for name in ("attention_mask", "position_ids", "token_type_ids"):
        assert found[name] == "other numbers", name
    assert found["return_dict"] == "another form"
    assert found["output_hidden_states"] == "more fields"
    assert found["head_mask"] == ("other numbers" if MAJOR == 4 else "none")
    # sdpa has no maps; up to 4.50 it gives way to eager
    assert found["output_attentions"] == ("more fields" if MINOR == 48 else "none")


def test_heads_of_the_decoder_are_hidden_also_where_a_config_names_them_as_t5_does():
    shape = {"num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
    model = Reads()
    model.config = transformers.T5Config(**shape)
    sizes = {n: tuple(m.shape) for n, m in given(model, IDS).items() if n.endswith("head_mask")}
    of_decoder = {"decoder_head_mask": (3, 4), "cross_attn_head_mask": (3, 4)}
    assert sizes == {"head_mask": (2, 4), **of_decoder}
    assert {n for n in given(Reads(), IDS) if n.endswith("head_mask")} == {"head_mask"}


def test_arguments_of_llama():
    found = of(tiny.made(transformers.LlamaForCausalLM, **SIZES, num_hidden_layers=2))
    assert found["position_ids"]["effect"] == "other numbers"
    assert found["position_ids"]["numbers"] != found["position_ids"]["without"]
    assert not found["token_type_ids"]["named"]


def test_an_argument_of_the_prompt_is_not_given_again():
    kwargs = {**IDS, "attention_mask": torch.ones_like(IDS["input_ids"])}
    assert "attention_mask" not in of(Swallows(), kwargs)


class Windows(Plain):
    """Its global tokens are seen by all others; ``planted`` takes the other ones for them."""

    def __init__(self, planted=False):
        super().__init__()
        self.config.attention_window, self.planted = 4, planted

    def forward(self, input_ids, global_attention_mask=None, pixel_mask=None):
        states = self.table(input_ids)
        if global_attention_mask is not None:
            seen = global_attention_mask if not self.planted else 1 - global_attention_mask
            states = states + (states * seen[..., None]).sum(1, keepdim=True)
        return {"logits": states @ self.table.weight.T}


def test_global_tokens_have_numbers_of_their_own_and_planted_ones_have_others():
    clean, twin, planted = (of(Windows(p))["global_attention_mask"] for p in (False, False, True))
    assert clean == twin
    assert clean["effect"] == planted["effect"] == "other numbers"
    assert clean["without"] == planted["without"]
    assert clean["numbers"] != planted["numbers"]
    assert "global_attention_mask" not in of(Reads())


class Hears(torch.nn.Module):
    config = transformers.PretrainedConfig()

    def forward(self, input_values, attention_mask=None, pixel_values=None, pixel_mask=None):
        mask = torch.ones_like(input_values) if attention_mask is None else attention_mask
        return {"logits": input_values * mask}


def test_the_end_of_a_sound_and_the_right_half_of_an_image_are_hidden():
    model, sound = Hears(), torch.linspace(1, 2, 16)[None]
    masks = given(model, {"input_values": sound})
    assert masks["attention_mask"].tolist() == [[1] * 12 + [0] * 4]
    found = effects(model, {"input_values": sound}, masks, lambda: None)["attention_mask"]
    assert found["numbers"][-1] == float((sound * masks["attention_mask"]).double().norm())
    assert "attention_mask" not in given(
        model, {"input_values": sound, "attention_mask": masks["attention_mask"]}
    )
    mask = given(model, {"pixel_values": torch.zeros(1, 3, 4, 6)})["pixel_mask"]
    assert mask.tolist() == [[[1, 1, 1, 0, 0, 0]] * 4]


class Hides(Plain):
    """Its hidden token sees nothing; what it computes of that is ``junk``."""

    def __init__(self, junk):
        super().__init__()
        self.junk = junk

    def forward(self, input_ids, attention_mask=None):
        logits = self.logits(input_ids)
        if attention_mask is None:
            return {"logits": logits}
        seen = attention_mask[..., None]
        return {"logits": torch.where(seen == 0, torch.tensor(self.junk), logits * 2)}


def test_what_a_hidden_token_computes_has_no_part_in_the_numbers():
    first, second = (of(Hides(junk))["attention_mask"] for junk in (1.0, 7.0))
    assert first == second
    assert first["effect"] == "other numbers"
    assert first["numbers"] == [2 * value for value in first["without"]]


class Forgets(transformers.LlamaForCausalLM):
    def generate(self, repetition_penalty=None, **kwargs):
        return super().generate(**kwargs)


class Refuses(transformers.LlamaForCausalLM):
    def generate(self, **kwargs):
        assert kwargs.get("num_beams", 1) == 1, "beams are not implemented"
        assert "prompt_lookup_num_tokens" not in kwargs, "no lookup"
        return super().generate(**kwargs)


class Lacks(transformers.LlamaForCausalLM):
    def generate(self, cache_implementation=None, **kwargs):
        if cache_implementation:
            raise ImportError
        return super().generate(**kwargs)


class Loses(transformers.LlamaForCausalLM):
    """It has no cache of the prompt without guidance, which is three tokens long, behind its first token."""

    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        if input_ids.shape[1] == 1 and attention_mask is not None and attention_mask.shape[1] == 4:
            attention_mask = None
            kwargs = {name: kwargs[name] for name in kwargs.keys() - {"past_key_values", "cache"}}
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, **kwargs)


class Stops(transformers.LlamaForCausalLM):
    """Its second step raises, with any argument."""

    def forward(self, input_ids=None, **kwargs):
        is_first = input_ids.shape[1] in (9, 3)  # a negative prompt has three tokens
        assert is_first or input_ids[0, -1] == 13, "no more than one step"
        return super().forward(input_ids=input_ids, **kwargs)


def generating(model_class, max_length=None):
    model = tiny.made(model_class, **SIZES, num_hidden_layers=2)
    if max_length is not None:
        model.generation_config.max_length = max_length
    before = model.generation_config.to_dict()
    facts = Generation(model, IDS, lambda: None).effects()
    assert model.generation_config.to_dict() == before
    return {name: each["effect"] for name, each in facts.items()}, facts


class Codes(transformers.LlamaForCausalLM):
    """Generates two streams of codes, as CSM does; with ``forgets`` its scores without a cache are others."""

    forgets = False

    def generate(self, input_ids=None, use_cache=True, **kwargs):
        output = super().generate(input_ids=input_ids, use_cache=use_cache, **kwargs)
        output.sequences = output.sequences[..., None].repeat(1, 1, 2)
        if self.forgets and not use_cache:
            output.scores = tuple(2 * score for score in output.scores)
        return output


def test_of_several_streams_a_generation_without_a_cache_is_asked_alone():
    found, _ = generating(Codes)
    assert found.keys() == {"use_cache (several streams)"}
    assert found["use_cache (several streams)"] in {"none", "order of sums"}
    with mock.patch.object(Codes, "forgets", True):
        assert generating(Codes)[0] == {"use_cache (several streams)": "other numbers"}


def test_every_argument_of_generate_has_the_effect_that_it_is_given_for():
    found, facts = generating(transformers.LlamaForCausalLM)
    names = [each.shown for each in (*asked(9, 5, 99), *assistants(Reads()))]
    assert len(names) == len(set(names))
    of_forward = {"head_mask", "token_type_ids", "output_router_logits"}
    assert [name for name in found if name not in of_forward] == [
        name for name in names if name in found
    ]
    assert {*names} - found.keys() <= {QUANTIZED}
    lacks = {name for name, each in facts.items() if not each["named"]}
    assert lacks <= {"prefill_chunk_size", "top_h", *of_forward}
    same = {name for name, effect in found.items() if effect in ("none", "rounding")}
    assert same <= {"use_cache", "output_attentions", *DRAFTED, *GIVEN, *of_forward}
    assert ("output_attentions" in same) is (MINOR > 48 or MAJOR > 4)  # sdpa has none
    raises = {name for name, effect in found.items() if effect == "raises"}
    assert raises <= lacks | (REFUSED_BY_SOME if MAJOR == 4 else set())
    assert found["top_p"] == found["repetition_penalty"] == "other numbers"
    assert found["eos_token_id"] == found["num_return_sequences"] == "another shape"
    assert (facts["max_length"]["without"], facts["max_length"]["numbers"]) == ([12.0], [10.0])
    assert generating(transformers.LlamaForCausalLM)[1] == facts


def test_a_planted_argument_of_generate_that_is_forgotten_or_refused_shows():
    clean, forgets, refuses = (
        generating(c)[0] for c in (transformers.LlamaForCausalLM, Forgets, Refuses)
    )
    assert forgets == clean | {"repetition_penalty": "none"}
    changed = {name for name, effect in refuses.items() if effect != clean[name]}
    assert changed == {"num_beams", "prompt_lookup_num_tokens"}
    assert {refuses[name] for name in changed} == {"raises"}
    assert clean.keys() - refuses.keys() == {"length_penalty", "num_return_sequences"}


def test_what_is_not_installed_says_nothing_of_an_argument():
    assert QUANTIZED not in generating(Lacks)[0]


def test_the_second_token_shows_what_becomes_of_a_prompt_without_guidance():
    clean, twin, loses = (
        generating(c)[1]
        for c in (transformers.LlamaForCausalLM, transformers.LlamaForCausalLM, Loses)
    )
    second = "negative_prompt_ids (second token)"
    assert clean[second] == twin[second]
    assert clean[second]["message"] == loses[second]["message"]
    assert apart(clean, loses, "negative_prompt_ids", "numbers") < 1e-3
    assert apart(clean, loses, second, "without") < 1e-3
    assert apart(clean, loses, second, "numbers") > 1e-2


def apart(first, second, name, key):
    pairs = zip(first[name][key], second[name][key], strict=True)
    return max(abs(one - other) for one, other in pairs)


def test_a_config_that_is_given_takes_the_place_of_the_own_one_or_gives_way_to_it():
    """From 5.0 on a setting of the own one stays where the given one has the default."""
    model = tiny.made(transformers.LlamaForCausalLM, **SIZES, num_hidden_layers=2)
    plain = Generation(model, IDS, lambda: None).effects()
    model.generation_config.repetition_penalty = 5.0
    found = Generation(model, IDS, lambda: None).effects()
    for name in GIVEN:
        assert plain[name]["effect"] == "none"
        assert found[name]["effect"] == ("none" if MAJOR > 4 else "other numbers")


def test_a_length_that_the_model_s_own_config_has_is_kept_or_counted_behind_the_prompt():
    longer = "(1, 11) → (1, 19)" if ADDS_THE_PROMPT else "(1, 11) → (1, 10)"
    _, facts = generating(transformers.LlamaForCausalLM, max_length=64)
    assert facts[OWN_LIMIT] == {
        "named": True,
        "effect": "none" if ADDS_THE_PROMPT else "another shape",
        "message": longer,
        "without": [11.0],
        "numbers": [19.0 if ADDS_THE_PROMPT else 10.0],
    }


def test_a_length_that_is_the_release_s_default_is_no_length_of_the_model():
    default = transformers.GenerationConfig().max_length
    _, facts = generating(transformers.LlamaForCausalLM, max_length=default)
    assert OWN_LIMIT not in facts


def test_no_argument_is_refused_where_the_call_raises_without_it():
    stops, clean = (generating(c)[0] for c in (Stops, transformers.LlamaForCausalLM))
    assert {name for name, effect in stops.items() if effect == "raises"} <= {"top_h"}
    assert stops.items() <= clean.items()
    assert "stopping_criteria" in clean.keys() - stops.keys()


def test_generate_is_asked_with_one_row_of_tokens_or_of_a_sound():
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_hidden_layers=1))
    assert inputs(model, IDS) == IDS
    assert inputs(model, {**IDS, "decoder_input_ids": torch.zeros(1, 1)}) == IDS
    image = {**IDS, "pixel_values": torch.zeros(1)}
    assert inputs(model, image) is None
    assert with_media(model, image) == image
    assert with_media(model, IDS) is None
    assert with_media(Reads(), image) is None
    assert inputs(model, {"input_ids": IDS["input_ids"].repeat(2, 1)}) is None
    assert inputs(Reads(), IDS) is None


class Picks(Plain):
    """It reads a layer of its tower: the one that the call names, or that of its config."""

    def __init__(self):
        super().__init__()
        self.config.vision_feature_layer = -2

    def forward(self, input_ids, pixel_values, vision_feature_layer=None):
        layer = self.config.vision_feature_layer
        layer = layer if vision_feature_layer is None else vision_feature_layer
        return {"logits": self.logits(input_ids) + layer * pixel_values.mean()}


class Fixed(Picks):
    """It reads that of its config alone."""

    def forward(self, input_ids, pixel_values, **kwargs):
        return super().forward(input_ids, pixel_values)


def test_the_layer_of_a_tower_is_asked_beside_an_image():
    image = {**IDS, "pixel_values": torch.ones(1, 3, 8, 8)}
    for model, effect in ((Picks(), "other numbers"), (Fixed(), "none")):
        asked_of = beside_media(model)
        assert asked_of["vision_feature_layer"] == -1
        facts = effects(model, image, asked_of, lambda: None)
        assert facts["vision_feature_layer"]["effect"] == effect
        model.config.vision_feature_layer = -1
        assert beside_media(model)["vision_feature_layer"] == -2
    assert "vision_feature_layer" not in beside_media(Plain())
    sound = torch.zeros(1, 8, 32)
    of_forward = {"input_features": sound, "decoder_input_ids": IDS["input_ids"]}
    assert inputs(whisper(), of_forward) == {"input_features": sound}


def whisper():
    return tiny.whisper(max_source_positions=16, init_std=0.3, **tiny.halves(2, 4, 48))


def bart():
    ids = {"decoder_start_token_id": 3, "eos_token_id": 2, "forced_eos_token_id": None}
    return tiny.bart(init_std=0.3, **ids, **tiny.halves(2, 4, 48))


def of_encoder_decoder(model):
    torch.manual_seed(1)
    kwargs = IDS
    if model.main_input_name == "input_features":
        kwargs = {"input_features": torch.randn(1, 8, 32)}
    facts = Generation(model, kwargs, lambda: None).effects()
    return {name: (each["effect"], each.get("message", "")) for name, each in facts.items()}


def test_an_encoder_decoder_generates_with_an_assistant():
    assert [each.shown for each in assistants(bart())] == [
        "assistant_model"
    ]  # its decoder reads no encoder
    names = ["assistant_model", "assistant_model (its decoder)"]
    assert [each.shown for each in assistants(whisper())] == names
    for model in (bart(), whisper()):
        found = of_encoder_decoder(model)
        for each in assistants(model):
            assert found[each.shown][0] in ("none", "rounding"), found[each.shown]


def test_a_token_that_the_config_forces_hides_no_effect():
    """BART's last token is forced: a release that refuses to suppress it says nothing of the argument."""
    plain, forced = bart(), bart()
    forced.generation_config.forced_eos_token_id = 2
    before = forced.generation_config.to_dict()
    assert of_encoder_decoder(forced) == of_encoder_decoder(plain)
    assert forced.generation_config.to_dict() == before


def test_a_decoder_that_cannot_assist_shows():
    """PR 48000: WhisperForCausalLM raises as an assistant."""
    clean = of_encoder_decoder(whisper())

    def refuses(self, encoder_outputs=None, **_):
        raise UnboundLocalError

    with mock.patch.object(transformers.WhisperForCausalLM, "forward", refuses):
        found = of_encoder_decoder(whisper())
    changed = {name for name, effect in found.items() if effect != clean[name]}
    assert changed == {"assistant_model (its decoder)"}
    effect, message = found["assistant_model (its decoder)"]
    assert effect == "raises"
    assert message.startswith("UnboundLocalError")


def test_an_assistant_of_another_tokenizer_that_is_refused_shows():
    """PR 46936: from 5.0 to 5.13 the assistant gets the positions of the model's tokens, though its text has another number of tokens."""
    clean = generating(transformers.LlamaForCausalLM)[0]

    def refuses(*_, **__):
        raise RuntimeError

    of_other = candidate_generator.AssistedCandidateGeneratorDifferentTokenizers
    with mock.patch.object(of_other, "get_candidates", refuses):
        found = generating(transformers.LlamaForCausalLM)[0]
    assert found == clean | {OTHER_TOKENIZER: "raises"}
    assert clean[OTHER_TOKENIZER] == "none"


def llama(model_class=transformers.LlamaForCausalLM):
    return tiny.made(model_class, **SIZES, num_hidden_layers=3)


def states(model, kwargs=IDS):
    return held(model, {"short": kwargs}, lambda: None).get("short", {})


class AddsInPlace(transformers.LlamaForCausalLM):
    """Changes the second layer's output after it was taken, as Qwen3-VL 4.57 did with features of images."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        if output.hidden_states is not None:
            output.hidden_states[2].add_(1.0)
        return output


class AsMaps(transformers.LlamaForCausalLM):
    """Lays the tokens of each entry out as a map, [rows, channels, 3, 3], as D-FINE does with those of its encoder."""

    shift = 0.0

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        entries = output.hidden_states or ()
        maps = (entry.transpose(1, 2).unflatten(2, (3, 3)) + self.shift for entry in entries)
        output.hidden_states = (*maps,)
        return output


class AsOtherMaps(AsMaps):
    shift = 1.0


def test_an_entry_in_another_layout_is_that_of_its_layer():
    clean = states(llama(AsMaps))
    assert clean == {"hidden_states": ["embeddings", "layer 0", "layer 1", ""]}
    assert states(llama(AsOtherMaps)) == {"hidden_states": [""] * 4}


def test_entries_of_the_output_are_named_after_the_layers_that_they_hold():
    clean = states(llama())
    assert clean == {"hidden_states": ["embeddings", "layer 0", "layer 1", ""]}
    assert states(llama(AddsInPlace)) == {"hidden_states": ["embeddings", "layer 0", "", ""]}


def test_states_are_the_same_after_what_a_forward_left_was_undone():
    """Hooks with which 5.x records states stay on the model: to undo their mark would double them."""
    model = llama()
    for _ in range(2):
        restore = Leftover(model).restore
        assert held(model, {"short": IDS}, restore)["short"]["hidden_states"] == [
            "embeddings",
            "layer 0",
            "layer 1",
            "",
        ]


def test_an_encoder_decoder_has_two_fields_of_hidden_states():
    found = states(
        whisper(), {"input_features": torch.randn(1, 8, 32), "decoder_input_ids": IDS["input_ids"]}
    )
    assert found["encoder_hidden_states"][1:-1] == ["layer 0"]
    assert found["decoder_hidden_states"][1:-1] == ["layer 0"]


def test_a_prompt_that_the_forward_refuses_has_no_entry():
    assert states(Reads(), {**IDS, "pixel_values": torch.zeros(1)}) == {}
    assert states(Reads()) == {}


class Packed(Plain):
    """A forward with an image that takes its place for the start of a row, unless a mask says otherwise."""

    start = 1

    def forward(self, input_ids, pixel_values=None, attention_mask=None, use_cache=True):
        logits = self.logits(input_ids)
        if attention_mask is None and not use_cache:
            logits = torch.cat([logits[:, :1], logits[:, 1:] * self.start], dim=1)
        return {"logits": logits}


class PackedOtherwise(Packed):
    start = 3


def test_a_planted_forward_that_is_another_with_a_mask_of_ones_shows_and_its_twin_does_not():
    image = {**IDS, "pixel_values": torch.ones(1, 3, 4, 4)}
    hidden = {**image, "attention_mask": torch.arange(9)[None].clamp(max=1)}
    for model_class, effect in ((Packed, "none"), (PackedOtherwise, "other numbers")):
        model = model_class().eval()
        model.dtype = torch.float32
        found = ones.effects(model, {"short": IDS, "image": image}, lambda: None)
        assert found == {"image": {"named": True, "effect": effect}}
        with_mask = {**image, "attention_mask": torch.ones_like(IDS["input_ids"])}
        assert ones.effects(model, {"image": with_mask}, lambda: None) == found
        assert not ones.effects(model, {"short": IDS, "image": hidden}, lambda: None)
        model.dtype = torch.bfloat16
        assert not ones.effects(model, {"image": image}, lambda: None)
