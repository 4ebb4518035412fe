"""usage: a model that leaks, forgets or refuses is seen to, and nothing stays behind."""

import ast
import contextlib
import copy
import functools
import importlib
import itertools
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import tiny
import torch
import transformers
from planting import fed_otherwise, plant
from raising import raised
from samebits_probe.model import forks, tokenizers
from samebits_probe.model.state import hashes
from samebits_probe.process import fork
from samebits_probe.questions.usage import (
    attention,
    beams,
    cached,
    checked,
    features,
    forward,
    generate,
    methods,
    names,
    optional,
    paired,
    usage,
)
from samebits_probe.questions.usage.subject import NoMeaning, Subject
from transformers.generation import configuration_utils

from samebits_wire.arguments import CHUNKED, OF_PADDED, OTHER_PROMPT, WHOLE_PROMPT

for name in ("transformers.modeling_utils", "transformers.generation", "torch._dynamo"):
    importlib.import_module(name)  # once, for the forks that the tests run in
torch.set_num_threads(1)


MADE = (transformers.LlamaForCausalLM, transformers.BloomForCausalLM)
"""Named here so that they, too, are imported once."""


WINDOW = {"sliding_window": 200, "num_key_value_heads": 2}
"""A window that no prompt fills: in 4.48 a full one of the kind sliding_window gives other scores."""
ALL = getattr(configuration_utils, "ALL_CACHE_IMPLEMENTATIONS", ())
OF_WINDOWS = {"sliding_window", "hybrid"}
DIVIDED = {"refused": "ZeroDivisionError: division by zero"}


def subject(made):
    return Subject(made, "causal-lm", Path(tempfile.mkdtemp()))


def ask(question, made):
    with torch.no_grad():
        return question(subject(made))


def test_a_child_leaves_the_model_as_it_was():
    made = tiny.model()
    before = hashes(made), made.config.to_dict(), made.training
    loaded = SimpleNamespace(model=made, head="causal-lm", tokenizer=None)
    folder = Path(tempfile.mkdtemp())
    outcome = fork.run_in_fork(lambda: usage.usage(loaded, folder, 60))
    assert outcome["skips"] == {}, outcome["skips"]
    assert {question.name for question in usage.QUESTIONS} <= set(outcome)
    assert (hashes(made), made.config.to_dict(), made.training) == before


def test_the_defaults_of_generate_are_those_before_any_other_question():
    made = tiny.model(eos_token_id=2)
    loaded = SimpleNamespace(model=made, head="causal-lm", tokenizer=None)
    answers = usage.usage(loaded, Path(tempfile.mkdtemp()), 60)
    assert answers["assisted"]
    assert answers["generation"]["config"]["eos_token_id"] == 2
    assert made.generation_config.eos_token_id == 2


def test_no_time_is_a_reason():
    loaded = SimpleNamespace(model=tiny.model(), head="causal-lm", tokenizer=None)
    outcome = usage.usage(loaded, Path(tempfile.mkdtemp()), -1.0)
    assert set(outcome["skips"]) == {question.name for question in usage.QUESTIONS}
    assert all("no time was left" in reason for reason in outcome["skips"].values())


def test_a_forward_that_raises_is_asked_nothing_about_tokens():
    made = tiny.model()
    made.forward = lambda *_args, **_kwargs: 1 / 0
    loaded = SimpleNamespace(model=made, head="causal-lm", tokenizer=None)
    outcome = usage.usage(loaded, Path(tempfile.mkdtemp()), 60)
    told = {name for name, reason in outcome["skips"].items() if "ZeroDivisionError" in reason}
    assert told == {question.name for question in usage.QUESTIONS if question.of_text}
    assert outcome["saved"]["files"]


def test_what_a_model_without_positions_is_not_asked():
    made = tiny.model("bloom", n_head=4, n_layer=2)
    for question in (forward.packed, generate.position_ids):
        reason = raised(NoMeaning, ask, question, made)
        assert str(reason) == "forward takes no position_ids"


def test_a_sequence_that_is_shut_off_is_told_from_one_that_is_seen():
    """Planted: logits of a token that depend on nothing before it, and on everything."""
    made = tiny.model()
    table = torch.randn(99, 99, dtype=torch.float64)

    def shut(input_ids, position_ids=None, use_cache=None, attention_mask=None):
        return SimpleNamespace(logits=table[input_ids])

    def seen(input_ids, position_ids=None, use_cache=None, attention_mask=None):
        return SimpleNamespace(logits=table[input_ids].cumsum(1))

    for planted, changes in ((shut, False), (seen, True)):
        made.forward = planted
        facts = ask(forward.packed, made)
        assert (facts["ordinary"] > 0) is changes
        assert [way["by_the_first"] > 0 for way in facts["ways"]] == [changes] * 3
        assert [way["from_alone"] > 0 for way in facts["ways"]] == [changes] * 3


def test_positions_that_stand_still_are_seen_as_they_are_fed():
    """Planted: a class that cuts whatever it is handed to its last entry."""

    def stubborn(fed, _ids):
        if fed.get("position_ids") is not None:
            fed["position_ids"] = torch.zeros_like(fed["position_ids"])

    assert ask(generate.position_ids, fed_otherwise(tiny.model(), stubborn))["fed"] == [0] * 4


def test_eager_is_put_back():
    made = tiny.model()
    before = made.config._attn_implementation
    facts = ask(forward.attentions, made)
    assert made.config._attn_implementation == before == "sdpa"
    assert "tensors" in (facts["given"], facts.get("eager"))


def test_beams_that_keep_their_state_agree_with_a_forward_without_a_cache():
    outcome = ask(beams.beams, tiny.model())
    assert outcome["n_moved"]
    assert outcome["greedy"] < 1e-3 < outcome["of_others"]
    assert outcome["by_cache"] < 1e-3


def test_a_beam_that_goes_on_with_another_ones_state_is_seen():
    kind = transformers.DynamicCache
    with mock.patch.object(kind, "reorder_cache", return_value=None):
        outcome = ask(beams.beams, tiny.model())
    assert outcome["greedy"] < 1e-3
    assert outcome["by_cache"] > 0.1 * outcome["of_others"]


def test_a_model_without_beams_says_why():
    made = tiny.model()
    made.generate = lambda *_args, **_kwargs: 1 / 0
    assert ask(beams.beams, made) == DIVIDED


def test_a_second_call_gives_what_the_first_gave():
    for made, question in itertools.product(
        (tiny.model(), tiny.model("mamba", state_size=4)), (generate.repeated, generate.static)
    ):
        outcome = ask(question, made)
        assert outcome["steps"] == [4, 4]
        assert outcome["n_same"] == 4
        assert outcome["apart"] < 1e-5
        assert outcome["of_steps"] > 1e-2


def leaves_arguments(made):
    """Write the arguments of every call into the generation config."""

    def generate_and_write(generate, ids, **arguments):
        output = generate(ids, **arguments)
        if "repetition_penalty" in arguments:
            made.generation_config.repetition_penalty = arguments["repetition_penalty"]
        return output

    plant(made, "generate", generate_and_write).start()


def leaves_a_state(made):
    """Add what the last call computed last to the logits of the next prompt."""
    state = []

    def hook(_module, _args, kwargs, output):
        logits = output.logits.clone()
        if state and kwargs["input_ids"].shape[1] > 1:
            output.logits = logits + state.pop()
        state[:] = [logits[:, -1:]]

    made.register_forward_hook(hook, with_kwargs=True)


def test_what_a_call_leaves_behind_is_seen_in_the_second():
    for leaving in (leaves_arguments, leaves_a_state):
        made = tiny.model()
        leaving(made)
        outcome = ask(generate.repeated, made)
        assert outcome["apart"] > 0.01 * outcome["of_steps"], (leaving, outcome)


def test_a_second_call_that_raises_says_so():
    made, calls = tiny.model(), []

    def only_twice(plain, ids, **arguments):
        calls.append(ids)
        return plain(ids, **arguments) if len(calls) <= 2 else 1 / 0

    with plant(made, "generate", only_twice):
        assert ask(generate.repeated, made) == DIVIDED


def test_a_first_call_that_raises_is_recorded_as_raised():
    made = tiny.model()
    made.generate = lambda *_args, **_kwargs: 1 / 0
    loaded = SimpleNamespace(model=made, head="causal-lm", tokenizer=None)
    outcome = usage.usage(loaded, Path(tempfile.mkdtemp()), 60)
    assert outcome["raised"]["repeated"] == "ZeroDivisionError: division by zero"


def asked_of_window(window, refuses_past, **more):
    """Return what a static cache gives in a model that raises for more tokens than ``refuses_past`` with it."""
    made = tiny.model("mistral", sliding_window=window, **more)

    def refusing(plain, ids, **arguments):
        if arguments.get("cache_implementation") and ids.shape[1] + 4 > refuses_past:
            raise IndexError(ids.shape[1])
        return plain(ids, **arguments)

    with plant(made, "generate", refusing):
        return ask(generate.static, made)


def test_a_window_fills_up_while_tokens_are_generated_if_it_is_no_large_one():
    for window, length in ((None, 5), (24, 22), (6, 5), (4, 5), (131, 5)):
        assert generate._filling(subject(tiny.model("mistral", sliding_window=window))) == length
    short = tiny.model("mistral", sliding_window=24, max_position_embeddings=26)
    assert generate._filling(subject(short)) == 5
    assert asked_of_window(24, 24)["refused"].startswith("IndexError: 22")
    assert "refused" not in asked_of_window(24, 26)
    assert "refused" not in asked_of_window(None, 24)


def test_a_model_that_computes_otherwise_over_a_static_cache_is_seen():
    made = tiny.model()

    def hook(_module, _args, output):
        if isinstance(output.past_key_values, transformers.StaticCache):
            output.logits = output.logits / 2

    made.register_forward_hook(hook)
    outcome = ask(generate.static, made)
    assert outcome["apart"] > 0.01 * outcome["of_steps"]
    assert ask(generate.repeated, made)["apart"] < 1e-5


def test_flex_attention_over_a_static_cache_is_asked_without_compiling_it():
    made = tiny.model(hidden_size=32, num_attention_heads=2)
    if tiny.RELEASE < (5, 13):
        return  # it raises with a static cache, or with any
    outcome, compiled = ask(generate.flex, made), torch.compile
    assert (outcome["steps"], made.config._attn_implementation) == ([4, 4], "sdpa")
    assert torch.compile is compiled
    with mock.patch.object(type(made), "_supports_flex_attn", False):
        raised(NoMeaning, ask, generate.flex, made)


def only_dynamic(plain, ids, **arguments):
    """Generate as usual, and raise for a cache that is asked for by its name."""
    return plain(ids, **arguments) if "cache_implementation" not in arguments else 1 / 0


def test_a_static_cache_that_a_model_or_flex_attention_refuses_is_a_refusal():
    made = tiny.model(hidden_size=32, num_attention_heads=2)
    with plant(made, "generate", only_dynamic):
        assert ask(generate.static, made) == DIVIDED
        with contextlib.suppress(NoMeaning):  # up to 4.52 it raises with any cache
            assert ask(generate.flex, made) == DIVIDED


def test_each_kind_of_cache_that_fits_gives_what_the_default_gives():
    plain, windowed = (
        ask(generate.caches, tiny.model()),
        ask(generate.caches, tiny.model("mistral", **WINDOW)),
    )
    assert set(plain) == {"dynamic", "dynamic_full"} & set(ALL) | {OF_PADDED}
    assert not OF_WINDOWS & set(plain)
    assert OF_WINDOWS & set(windowed)
    for outcome in (*plain.values(), *windowed.values()):
        assert (outcome["steps"], outcome["n_same"]) == ([4, 4], 4)
        assert outcome["apart"] < 1e-5


def test_a_model_without_a_window_gets_no_cache_of_a_window():
    outcome = ask(generate.caches, tiny.model("mistral", **WINDOW | {"sliding_window": None}))
    assert set(outcome) == {"dynamic", "dynamic_full"} & set(ALL) | {OF_PADDED}


def test_a_kind_of_cache_that_raises_leaves_no_cache_to_the_next():
    made, left = tiny.model("mistral", **WINDOW), []

    def generating(plain, ids, **arguments):
        if "cache_implementation" not in arguments:
            return plain(ids, **arguments)
        left.append(hasattr(made, "_cache"))
        made._cache = transformers.DynamicCache()
        raise RuntimeError("half made")

    with plant(made, "generate", generating):
        outcome = ask(generate.caches, made)
    assert all("half made" in one["refused"] for one in outcome.values())
    # of two rows it is no answer where one row is refused, too
    assert left == [False] * (len(outcome) + 2)
    assert OF_PADDED not in outcome


def apart_with(made, halves):
    """Return the kinds of caches seen to be apart, where the logits of the last row are halved for some arguments."""

    def generating(plain, ids, **arguments):
        hook = made.register_forward_hook(halve) if halves(ids, arguments) else None
        try:
            return plain(ids, **arguments)
        finally:
            _ = hook and hook.remove()

    def halve(_module, _args, output):
        output.logits[-1] /= 2

    with plant(made, "generate", generating):
        outcome = ask(generate.caches, made)
    return {name for name, one in outcome.items() if one["apart"] > 0.01 * one["of_steps"]}


def test_a_static_cache_that_forgets_a_padded_row_is_seen_alone():
    """RecurrentGemma of 4.57 and 5.0 has it so."""

    def is_static_of_two(ids, arguments):
        return len(ids) == 2 and "cache_implementation" in arguments

    assert apart_with(tiny.model(), is_static_of_two) == {OF_PADDED}


def test_a_kind_of_cache_that_forgets_is_seen_alone():
    """Planted: only a cache that was asked for by the name of a window is halved."""
    made = tiny.model("mistral", **WINDOW)
    name = min(OF_WINDOWS & set(ask(generate.caches, made)))
    assert apart_with(made, lambda _, given: given.get("cache_implementation") == name) == {name}


SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def clip(**text):
    torch.manual_seed(0)
    config = transformers.CLIPConfig(
        text_config=SMALL | {"vocab_size": 64, "eos_token_id": 2} | text,
        vision_config=SMALL | {"image_size": 16, "patch_size": 8},
        projection_dim=16,
    )
    return Subject(transformers.CLIPModel(config).eval(), "base", Path())


def test_methods_for_features_are_called_with_what_they_need():
    with torch.no_grad():
        first, second = features.features(clip()), features.features(clip())
    assert first == second
    assert {*first} == {"get_image_features", "get_text_features"}
    assert all(facts["shape"] == [1, 16] and facts["digest"] for facts in first.values())


class Taker(torch.nn.Module):
    """A model whose forward takes features of a text, or makes them."""

    def __init__(self, factor=1.0, pooled="pooler_output"):
        super().__init__()
        self.factor, self.pooled = factor, pooled
        self.config = transformers.PretrainedConfig()
        self.dtype = torch.float32

    def get_text_features(self, input_ids):
        made = input_ids.float().cos()
        return transformers.modeling_outputs.BaseModelOutputWithPooling(pooler_output=made)

    def forward(self, pixel_values=None, input_ids=None, text_embeds: torch.Tensor = None):
        if text_embeds is None:
            return {"logits": self.get_text_features(input_ids).pooler_output}
        return {"logits": self.factor * getattr(text_embeds, self.pooled)}


def test_features_are_given_in_place_of_their_inputs():
    name = "forward(text_embeds=get_text_features())"
    prompts = {"p": {"input_ids": torch.tensor([[1, 2, 3]]), "pixel_values": torch.ones(1)}}

    def answer(taker, prompts=prompts):
        with torch.no_grad():
            return features.features(Subject(taker, "base", Path(), prompts))[name]

    assert answer(Taker(pooled="data")) == {"returned": "text_embeds", "distance": 0.0}
    assert answer(Taker(pooled="data", factor=3.0))["distance"] > 1.9
    assert answer(Taker())["raises"].startswith("AttributeError: 'Tensor' object has no")
    assert answer(Taker(), {}) == {"left_out": "no prompt has what the method takes"}


def test_a_method_that_raises_or_needs_more_says_so():
    subject = clip()

    def broken(input_ids):
        raise TypeError("no pooler")

    subject.model.get_text_features = broken
    subject.model.get_image_features = lambda pixel_values, boxes: pixel_values
    facts = features.features(subject)
    assert facts["get_text_features"] == {"refused": "TypeError: no pooler"}
    assert facts["get_image_features"] == {"left_out": "it needs boxes"}


def test_pixels_among_tokens_are_those_of_a_prompt():
    subject = clip()
    subject.model.config.image_token_id = 9
    facts = features.features(subject)
    assert facts["get_image_features"]["left_out"] == "no prompt has pixel_values"
    assert facts["get_text_features"]["digest"]
    pixels = torch.linspace(-1, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)
    fed = Subject(subject.model, "base", Path(), {"image": {"pixel_values": pixels}})
    with torch.no_grad():
        assert features.features(fed)["get_image_features"]["shape"] == [1, 16]


def test_a_tokenizer_is_loaded_from_the_cache_of_the_hub():
    with tempfile.TemporaryDirectory() as folder:
        tokenizers.write(Path(folder), "byte-level", unused=50)
        tiny.model().config.save_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        assert len(tokenizer) > 400
        subject = Subject(tiny.model(), "causal-lm", Path(), tokenizer=tokenizer)
        ((name, call),) = cached.calls(subject)
        with mock.patch.object(cached.constants, "HF_HUB_OFFLINE", True):
            assert methods.asked(call) == {"gave": "the ids of the folder"}
            with mock.patch.object(cached.AutoTokenizer, "from_pretrained", side_effect=OSError):
                assert methods.asked(call)["refused"].startswith("OSError")
        with mock.patch.object(cached.constants, "HF_HUB_OFFLINE", False):
            assert methods.asked(call) == {"left_out": "this environment may ask the hub"}
    assert name.startswith("AutoTokenizer")
    assert list(cached.calls(Subject(tiny.model(), "causal-lm", Path()))) == []


def test_what_code_asks_of_absent_packages_and_of_kernels_is_read():
    tree = ast.parse(
        "import torch\n"
        "if is_here():\n    from absent_here.ops import rule, other\n    import torch.nn\n"
        "try:\n    import absent_there\nexcept ImportError:\n    pass\n"
        "@use_kernel_func_from_hub_with_fallback('scan', 'package')\ndef scan():\n    pass\n"
        "@use_kernel_forward_from_hub('RMSNorm')\nclass Norm:\n    pass\n"
        "def forward():\n    import absent_inside\n    return lazy_load_kernel('conv')\n"
    )
    assert sorted(optional._imports(tree)) == [
        "import absent_here.ops.other",
        "import absent_here.ops.rule",
        "import absent_there",
    ]
    kernels = ["lazy_load_kernel('conv')"]
    kernels += ["use_kernel_func_from_hub_with_fallback('scan', 'package')"]
    assert sorted(optional._kernels(tree)) == kernels
    assert optional.optional(Subject(tiny.model(), "causal-lm", Path())) == []


def free():
    """A function that a class takes from its module."""


class Inner(tiny.model().__class__):
    """A model of the library that is within another."""

    free = free

    def reach(self):
        """Is a method of its own."""

    @property
    def visual(self):
        """Is a property of its own."""

    @property
    def projector(self):
        """Only says that there is none, as Ovis2's of 4.57 does."""
        raise AttributeError("Not needed")

    @property
    def broken(self):
        """Is one of its own, whatever is wrong with it."""
        raise ValueError("broken")

    def save_pretrained(self, *args):
        """Is one of all models."""


def test_names_are_those_of_the_models_own_classes():
    inner = Inner(tiny.model().config)
    Inner.__module__ = "transformers.models.planted"
    answer = ask(names.names, inner)
    assert {"reach", "visual", "broken", "lm_head"} <= {*answer["own"]}
    assert not {"free", "projector", "save_pretrained", "forward"} & {*answer["own"]}
    assert {"forward", "save_pretrained"} <= {*answer["shared"]}
    outer = tiny.model()
    outer.inner = inner
    answer = ask(names.names, outer)
    assert answer["within"]["reach"] == "inner"
    assert "inner" in answer["own"]
    assert "lm_head" not in answer["within"], "the outer model has one, too"


class Handing(transformers.CLIPConfig):
    """Hands the names that it lacks to a part, as configs of 4.57 do."""

    def __getattr__(self, name):
        if name == "patch_size":
            return vars(self)["vision_config"].patch_size
        raise AttributeError(name)


def test_a_config_answers_its_own_fields_and_leaves_others_to_its_parts():
    plain = clip().model
    answer = ask(names.config_names, plain)
    assert {"projection_dim", "text_config"} <= {*answer["own"]}
    assert answer["within"]["patch_size"] == "vision_config"
    assert answer["within"]["vocab_size"] == "text_config"
    assert "model_type" not in {*answer["own"], *answer["within"]}, "each config has one"
    plain.config.__class__ = Handing
    handed = ask(names.config_names, plain)
    assert "patch_size" in handed["own"]
    assert handed["within"].keys() == answer["within"].keys() - {"patch_size"}


def test_a_config_without_parts_has_no_names_of_parts():
    answer = ask(names.config_names, tiny.model())
    assert "hidden_size" in answer["own"]
    assert answer["within"] == {}


def test_a_model_without_such_methods_has_no_features():
    assert features.features(Subject(tiny.model(), "causal-lm", Path())) == {}


def test_the_attention_of_parts_is_read_behind_a_config_that_had_eager():
    facts = attention.attention(clip())
    assert {*facts} == {"eager for one part", "eager, then sdpa"}
    assert facts["eager, then sdpa"].keys() in ({"parts"}, {"refused"})
    assert attention.attention(Subject(tiny.model(), "causal-lm", Path())) == {}


class Late(transformers.PretrainedConfig):
    """Makes its part behind the base's constructor, as the config of CSM does in 4.57."""

    model_type = "late"
    sub_configs = {"text_config": transformers.CLIPTextConfig}  # noqa: RUF012  as the library has it

    def __init__(self, text_config=None, **kwargs):
        transformers.PretrainedConfig.__init__(self, **kwargs)
        self.text_config = transformers.CLIPTextConfig(**text_config or {})


class LateModel(transformers.PreTrainedModel):
    """Has nothing but a weight."""

    config_class = Late
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        self.weight = torch.nn.Linear(2, 2)
        self.post_init()


def test_the_attention_of_a_part_that_is_made_late_is_that_of_a_loaded_model():
    """The constructor alone leaves the part without one, which accused 4.57 of CSM."""
    named = {"": "sdpa", "text_config": "eager"}
    with tempfile.TemporaryDirectory() as folder:
        LateModel(Late()).save_pretrained(folder)
        load = functools.partial(LateModel.from_pretrained, folder, attn_implementation=named)
        facts = attention._of_parts(lambda: load().config, ["text_config"])
    read = attention._of_parts(lambda: attention._loaded(Late(), named), ["text_config"])
    assert read.get("parts") == facts.get("parts")
    assert read == {"parts": {"text_config": "eager"}} or not forks.gives_attention_again()


def called(made):
    fed = {"input_ids": torch.arange(3, 12)[None]}
    with torch.no_grad():
        return methods.methods(Subject(made, "causal-lm", Path(), {"short": fed}))


TRAINED = "forward in training mode"
FROZEN = "forward of a frozen model after enable_input_require_grads()"


class Former(transformers.modeling_outputs.CausalLMOutputWithPast):
    """Has a property of a former name, as the output of LLaVA in 5.24 does."""

    part = None

    @property
    def image_hidden_states(self):
        return self.part.pooler_output


def test_a_property_of_an_output_that_cannot_be_read_is_seen():
    asked = "properties of forward's output"
    made = tiny.model()
    forward = made.forward
    with mock.patch.object(made, "forward", lambda *a, **k: Former(**forward(*a, **k))):
        assert called(made)[asked] == {"gave": "each has a value"}, "a class of no model"
        Former.__module__ = "transformers.models.planted"
        assert "'NoneType' object" in called(made)[asked]["refused"]
        with mock.patch.object(Former, "part", SimpleNamespace(pooler_output=None)):
            assert called(made)[asked] == {"gave": "each has a value"}
    assert called(made)[asked] == {"gave": "each has a value"}


def test_methods_that_libraries_call_do_what_they_are_for():
    facts = called(tiny.model())
    assert facts["set_input_embeddings(…)"] == facts["set_output_embeddings(…)"] == {"gave": "True"}
    assert facts[FROZEN] == {"gave": "gradients reach it: True"}
    assert not any("refused" in fact for fact in facts.values())


def test_a_model_that_makes_no_cache_in_training_mode_is_told_apart():
    assert called(tiny.model())[TRAINED] == {"gave": "the fields of evaluation"}
    model = tiny.model()
    plain = model.forward

    def without(**arguments):
        return plain(**arguments, use_cache=not model.training)

    with mock.patch.object(model, "forward", without):
        assert called(model)[TRAINED] == {"gave": "no cache"}


class Letters(dict):
    """A tokenizer of one token for each letter."""

    pad_token_id, bos_token_id = 0, 1

    def __call__(self, texts, **_options):
        rows = [[3 + ord(letter) % 60 for letter in text] for text in [texts]]
        return {"input_ids": torch.tensor(rows)}


HEALED = "generate(token_healing=True)"
GIVEN = "forward(input_ids, per_layer_inputs=get_per_layer_inputs(…))"


def healed(made, heal):
    made.heal_tokens = heal
    fed = {"short": {"input_ids": torch.arange(3, 12)[None]}}
    with torch.no_grad():
        return methods.methods(Subject(made, "causal-lm", Path(), fed, None, Letters()))[HEALED]


def test_a_prompt_is_healed_and_a_healing_that_raises_is_seen():
    ids = healed(tiny.model(), lambda ids, _tokenizer=None: ids)["gave"]
    other = healed(tiny.model(), lambda ids, _tokenizer=None: ids.flip(1))["gave"]
    assert ids != other
    assert "ZeroDivisionError" in healed(tiny.model(), lambda *_: 1 / 0)["refused"]
    assert HEALED not in called(tiny.model())


STOPS = "stops behind 'hello': True, 'said hello': True"
REJECTED = "generate(assistant_model=…) whose drafts are all rejected"
STREAMED = "tokens that a streamer of generate() gets"
HAS_CHUNKS = hasattr(transformers.GenerationConfig(), "prefill_chunk_size")
OF_TEXT = {STREAMED: "those of the text: True, and the end: True"}
CROSSED = "cross attention in the cache of generate()"
BEHIND_PADS = "generate(decoder_input_ids=…) behind pads"
OVER_STATIC = "generate(cache_implementation='static')"
SCORED, OF_BEAMS, STOPPED, BEGUN = (
    "compute_transition_scores(…)",
    "compute_transition_scores(…) of beams",
    "generate(stop_strings=…)",
    "generate(decoder_input_ids=…)",
)


def gave(made, head="causal-lm", tokenizer=None, fed=None):
    subject = Subject(made, head, Path(), fed or {}, None, tokenizer)
    return {name: methods.asked(call).get("gave") for name, call in checked.calls(subject)}


def test_scores_of_tokens_are_their_log_probabilities_and_planted_ones_are_not():
    clean = {
        SCORED: "the log-probabilities of the tokens: True",
        OF_BEAMS: "their sum is sequences_scores: True",
        REJECTED: "the scores without it: True",
        CHUNKED: WHOLE_PROMPT if HAS_CHUNKS else None,
    } | OF_TEXT
    assert gave(tiny.model()) == clean
    plain = transformers.GenerationMixin.compute_transition_scores
    for change in (lambda scores: scores * 1.01, lambda scores: scores[:, :-1]):
        with mock.patch.object(
            transformers.GenerationMixin,
            "compute_transition_scores",
            lambda *a, change=change, **k: change(plain(*a, **k)),
        ):
            changed = {name for name, text in gave(tiny.model()).items() if text != clean[name]}
            assert changed == {SCORED, OF_BEAMS}


def rolled(values):
    values.copy_(values.roll(1, dims=-2))


def test_a_cache_that_takes_back_the_wrong_tokens_is_seen():
    kinds = tiny.model(), tiny.model("mistral", sliding_window=12)
    alike = "the scores without it: True"
    assert [gave(made)[REJECTED] for made in kinds] == [alike, alike]
    plain = transformers.DynamicCache.crop

    def crop(self, *arguments):
        plain(self, *arguments)
        for layer in getattr(self, "layers", ()):
            rolled(layer.values)
        for values in getattr(self, "value_cache", ()):
            rolled(values)

    with mock.patch.object(transformers.DynamicCache, "crop", crop):
        assert not {alike} & {gave(made)[REJECTED] for made in kinds}


def test_a_streamer_that_gets_no_end_is_seen():
    with mock.patch.object(checked._Kept, "end"):
        assert gave(tiny.model())[STREAMED] == "those of the text: True, and the end: False"
    with mock.patch.object(checked._Kept, "put"):
        assert gave(tiny.model())[STREAMED].startswith("those of the text: False")


def demanding(made):
    """Return the model with a generate() that makes no cache for a prompt in chunks, as 5.0 has it."""
    copied = copy.copy(made)

    @functools.wraps(made.generate)
    def generate(ids, **named):
        if named.get("prefill_chunk_size") and "past_key_values" not in named:
            raise ValueError("Cannot use prefill chunking without a cache")
        return made.generate(ids, **named)

    copied.generate = generate
    return copied


def test_a_chunk_of_a_prompt_that_sees_the_padding_of_its_row_is_seen():
    """Decoders of 4.52 to 4.57 have it so."""
    made = tiny.model()

    def forgets(forward, input_ids=None, attention_mask=None, **named):
        if input_ids.shape[1] == 2:
            attention_mask = torch.ones_like(attention_mask)
        return forward(input_ids=input_ids, attention_mask=attention_mask, **named)

    assert gave(made)[CHUNKED] == (WHOLE_PROMPT if HAS_CHUNKS else None)
    assert gave(demanding(made))[CHUNKED] == (WHOLE_PROMPT if HAS_CHUNKS else None)
    plant(made, "forward", forgets).start()
    assert gave(demanding(made))[CHUNKED] == (OTHER_PROMPT if HAS_CHUNKS else None)
    assert gave(made)[CHUNKED] == (OTHER_PROMPT if HAS_CHUNKS else None)


def test_scores_between_near_and_far_are_of_no_meaning():
    scores = torch.tensor([[1.0, -2.0]])
    assert checked._are_alike(scores * (1 + 1e-4), scores)
    assert not checked._are_alike(scores * 1.1, scores)
    raised(NoMeaning, checked._are_alike, scores * 1.005, scores)


def test_a_string_that_ends_a_text_too_late_is_seen():
    folder = Path(tempfile.mkdtemp())
    tokenizers.write(folder, "byte-level")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert gave(tiny.model(vocab_size=400), tokenizer=tokenizer)[STOPPED] == STOPS
    criteria = transformers.StopStringCriteria

    def never(_self, input_ids, _scores, **_named):
        return torch.zeros(len(input_ids), dtype=torch.bool)

    with mock.patch.object(criteria, "__call__", never):
        assert gave(tiny.model(vocab_size=400), tokenizer=tokenizer)[STOPPED] == STOPS.replace(
            "True", "False"
        )


def test_a_token_that_is_no_word_does_not_end_a_text_or_raise():
    """4.48 looks it up in a table of the words: StopStringCriteria, in generation/stopping_criteria.py."""
    folder = Path(tempfile.mkdtemp())
    tokenizers.write(folder, "byte-level")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    is_mended = not transformers.__version__.startswith("4.48.")
    of_all = gave(tiny.model(vocab_size=400), tokenizer=tokenizer)
    assert of_all[checked.STOPS_OF_NO_WORD] == ("3 tokens" if is_mended else None)
    words = max(tokenizer.get_vocab().values()) + 1
    of_words = gave(tiny.model(vocab_size=words), tokenizer=tokenizer)
    assert of_words[checked.STOPS_OF_NO_WORD] is None

    def looked_up(_self, input_ids, _scores, **_named):
        return torch.zeros(words)[input_ids[:, -1]] > 0

    with mock.patch.object(transformers.StopStringCriteria, "__call__", looked_up):
        of_all = gave(tiny.model(vocab_size=400), tokenizer=tokenizer)
    assert of_all[checked.STOPS_OF_NO_WORD] is None


def test_a_start_token_that_is_hidden_from_the_decoder_is_seen():
    clean = {
        BEHIND_PADS: None,
        OVER_STATIC: None,
        BEGUN: "as if the start token were given: True",
        CROSSED: mock.ANY,
    }
    clean |= OF_TEXT
    assert gave(tiny.bart(), "seq2seq-lm") == clean
    name = "_prepare_decoder_input_ids_for_generation"
    plain = getattr(transformers.GenerationMixin, name)

    def hidden(self, *arguments, **named):
        given = next(v for v in (*arguments, *named.values()) if isinstance(v, dict))
        lacks = given.get("decoder_input_ids", BEGUN) is not BEGUN
        lacks = lacks and given["decoder_input_ids"].shape[1] == 2
        ids, kwargs = plain(self, *arguments, **named)
        if lacks:
            kwargs["decoder_attention_mask"][:, 0] = 0
        return ids, kwargs

    with mock.patch.object(transformers.GenerationMixin, name, hidden):
        assert gave(tiny.bart(), "seq2seq-lm") == clean | {
            BEGUN: "as if the start token were given: False"
        }


def t5():
    fields = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2}
    made = tiny.made(transformers.T5ForConditionalGeneration, num_heads=4, **fields)
    made.generation_config.decoder_start_token_id = 0
    return made


def test_a_window_of_cross_attention_is_seen_behind_a_short_text():
    assert gave(t5(), "seq2seq-lm")[CROSSED] in ("a text of any length", None)
    layers = [SimpleNamespace(), SimpleNamespace(sliding_window=4096)]
    cache = SimpleNamespace(cross_attention_cache=SimpleNamespace(layers=layers))
    planted = SimpleNamespace(past_key_values=cache)
    with mock.patch.object(checked, "_generated", return_value=planted):
        assert gave(t5(), "seq2seq-lm")[CROSSED] == "the last 4096 tokens of a text"


def behind_pads(made, call=BEHIND_PADS):
    fed = {"input_ids": torch.arange(5, 14)[None], "input_features": torch.randn(1, 8, 32)}
    fed = {name: value for name, value in fed.items() if name == made.main_input_name}
    return gave(made, "seq2seq-lm", fed={"short": fed})[call]


def test_a_static_cache_of_an_encoder_decoder_that_forgets_is_seen():
    assert behind_pads(t5(), OVER_STATIC) == "the scores without it: True"
    made = t5()
    generate = transformers.GenerationMixin.generate

    def halved(_module, _args, output):
        output.logits = output.logits / 2

    def forgets(*arguments, cache_implementation=None, **named):
        named |= {"cache_implementation": cache_implementation}
        if cache_implementation is None:
            return generate(*arguments, **named)
        with made.register_forward_hook(halved):
            return generate(*arguments, **named)

    with mock.patch.object(transformers.GenerationMixin, "generate", forgets):
        assert behind_pads(made, OVER_STATIC) == "the scores without it: False"


def test_pads_before_the_first_tokens_of_a_decoder_change_nothing_and_planted_ones_do():
    """PR 48028: Whisper's positions count the pads from 5.3 to 5.15; BART's do in every release."""
    assert behind_pads(t5()) == "as alone: True"
    assert behind_pads(tiny.bart(init_std=0.3)) == "as alone: False"
    name = "_prepare_decoder_input_ids_for_generation"
    plain = getattr(transformers.GenerationMixin, name)

    def unmasked(*arguments, **named):
        ids, kwargs = plain(*arguments, **named)
        return ids, kwargs | {"decoder_attention_mask": torch.ones_like(ids)}

    with mock.patch.object(transformers.GenerationMixin, name, unmasked):
        assert behind_pads(t5()) == "as alone: False"


def test_a_step_behind_the_first_that_sees_the_pads_of_a_decoder_is_seen():
    made = t5()

    def forgets(forward, *arguments, decoder_input_ids=None, decoder_attention_mask=None, **named):
        if decoder_input_ids.shape[1] == 1 and decoder_attention_mask is not None:
            decoder_attention_mask = torch.ones_like(decoder_attention_mask)
        named |= {"decoder_input_ids": decoder_input_ids}
        return forward(*arguments, decoder_attention_mask=decoder_attention_mask, **named)

    with plant(made, "forward", forgets):
        assert behind_pads(made) == "as alone: False"


def test_what_a_method_makes_of_ids_is_given_beside_them():
    class Extra(type(tiny.model())):
        scale = 0.0

        def get_per_layer_inputs(self, input_ids):
            return input_ids[..., None].float()

        def forward(self, input_ids=None, per_layer_inputs=None, **kwargs):
            output = super().forward(input_ids, **kwargs)
            if per_layer_inputs is not None:
                output.logits = output.logits + self.scale * per_layer_inputs
            return output

    made = tiny.model()
    assert GIVEN not in called(made)
    made.__class__ = Extra
    assert called(made)[GIVEN] == {"gave": "the logits of the ids alone"}
    Extra.scale = 1.0
    assert called(made)[GIVEN] == {"gave": "other logits"}


def test_a_model_is_made_without_memory_unless_it_reads_a_number_of_a_tensor():
    class Reads(type(tiny.model())):
        def __init__(self, config):
            super().__init__(config)
            self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 2)]

    on_meta = methods._ON_META
    assert called(tiny.model())[on_meta] == {"gave": "parameters on meta"}
    assert "Tensor.item()" in called(Reads(tiny.model().config))[on_meta]["refused"]


LARGER = "forward(…, interpolate_pos_encoding=True) of images of twice the size"


class Whole(transformers.PretrainedConfig):
    """A config that keeps one part that it is given as a config, and the other one only as a dict."""

    def __init__(self, text_config=None, vision_config=None, **kwargs):
        self.text_config = text_config or transformers.LlamaConfig()
        if not isinstance(vision_config, dict):
            vision_config = {}
        self.vision_config = transformers.ViTConfig(**vision_config)
        super().__init__(**kwargs)


class Loses(Whole):
    """A config without the part that it is given as a config."""

    def __init__(self, text_config=None, **kwargs):
        super().__init__(text_config, **kwargs)
        if text_config is not None:
            del self.text_config


class OnlyDicts(transformers.PretrainedConfig):
    """A config that takes its part as a dict alone."""

    def __init__(self, text_config=None, **kwargs):
        self.text_config = transformers.LlamaConfig(**(text_config or {}))
        super().__init__(**kwargs)


def test_a_config_that_takes_another_part_than_it_is_given_is_seen():
    whole = Whole(transformers.LlamaConfig(hidden_size=32), {"hidden_size": 16})
    parts = methods._parts_of(whole)
    assert parts.keys() == {"text_config", "vision_config"}
    assert methods._made_of_parts(whole, parts) == "another vision_config"
    whole.vision_config = transformers.ViTConfig()
    assert methods._made_of_parts(whole, methods._parts_of(whole)) == "its parts as they were given"
    assert methods._parts_of(whole.text_config) == {}
    only_dicts = OnlyDicts()
    asked = methods.asked(lambda: methods._made_of_parts(only_dicts, methods._parts_of(only_dicts)))
    assert asked["left_out"].startswith("its class takes parts as dicts alone: TypeError")
    loses = Loses()
    assert methods._made_of_parts(loses, methods._parts_of(loses)) == "no text_config"


def test_larger_images_are_taken_unless_their_positions_are_not_stretched():
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.ViTConfig(**small, num_attention_heads=2, image_size=16, patch_size=8)

    def asked(made):
        fed = {"pixel_values": torch.zeros(1, 3, 16, 16)}
        return methods.methods(Subject(made, "base", Path(), {"image": fed}))

    made = transformers.ViTModel(config).eval()
    assert asked(made)[LARGER] == {"gave": "last_hidden_state [1, 17, 16]"}
    positions = made.embeddings.position_embeddings
    made.embeddings.interpolate_pos_encoding = lambda *_: positions
    assert asked(made)[LARGER]["refused"].startswith("RuntimeError: The size of tensor a (17)")
    assert LARGER not in called(tiny.model())


def test_a_part_in_the_place_of_another_is_seen_by_its_setter_alone():
    class Misplaces(type(tiny.model())):
        def set_input_embeddings(self, value):
            self.lm_head = value

    made = Misplaces(tiny.model().config).eval()
    parts = [*made.modules()]
    facts = called(made)
    assert facts["set_input_embeddings(…)"] == {"gave": "False"}
    assert facts["set_output_embeddings(…)"] == {"gave": "True"}
    assert facts[FROZEN] == {"gave": "gradients reach it: True"}
    assert all(own is part for own, part in zip(made.modules(), parts, strict=True))


def test_getters_return_the_class_of_a_part_of_the_model_and_of_its_base():
    made = tiny.model()
    facts = called(made)
    assert facts["get_decoder()"] == {"gave": type(made.base_model).__name__}
    assert facts["get_input_embeddings() of the base model"] == {"gave": "Embedding"}
    assert facts["get_output_embeddings()"] == {"gave": "Linear"}
    assert not facts.keys() & {"get_encoder()", "get_output_embeddings() of the base model"}
    made.base_model.get_decoder = lambda: None
    made.get_decoder = lambda: made
    facts = called(made)
    assert facts["get_decoder() of the base model"] == {"gave": "None"}
    assert facts["get_decoder()"] == {"gave": f"{type(made).__name__}, the model itself"}


def whisper(**settings):
    made = tiny.whisper(
        vocab_size=128,
        max_source_positions=50,
        init_std=0.3,
        median_filter_width=3,
        **tiny.halves(2, 4, 48),
    )
    named = {"is_multilingual": False, "no_timestamps_token_id": 76, "prev_sot_token_id": 75}
    for name, value in (named | {"max_initial_timestamp_index": 10} | settings).items():
        setattr(made.generation_config, name, value)
    return made


def timed(made):
    fed = {"sound": {"input_features": torch.linspace(-1, 1, 800).reshape(1, 8, 100)}}
    facts = methods.methods(Subject(made, "seq2seq-lm", Path(), fed))
    return {name: fact for name, fact in facts.items() if "token_timestamps" in name}


def test_times_of_tokens_are_those_of_the_same_call_and_are_seen_to_move():
    facts = timed(whisper(alignment_heads=[[0, 0], [1, 2]]))
    assert facts.keys() == {
        "generate(return_token_timestamps=True)",
        "generate(return_token_timestamps=True, return_timestamps=True)",
    }
    assert all(" at [[" in fact["gave"] for fact in facts.values()), facts
    moved = whisper(alignment_heads=[[0, 0], [1, 2]])
    extract = moved._extract_token_timestamps
    moved._extract_token_timestamps = lambda *args, **kwargs: extract(*args, **kwargs) + 0.5
    assert timed(moved) != facts
    assert timed(whisper(alignment_heads=[[0, 0], [1, 2]])) == facts
    assert timed(whisper()) == {}


def test_a_method_that_libraries_call_is_seen_to_refuse_and_to_do_something_else():
    made = tiny.model()
    made.prepare_decoder_input_ids_from_labels = lambda labels: labels.roll(1)
    made.enable_input_require_grads = lambda: None
    facts = called(made)
    assert facts["prepare_decoder_input_ids_from_labels(labels=…)"] == {"gave": "[[-100, 5, 6, 7]]"}
    assert facts[FROZEN] == {"gave": "gradients reach it: False"}

    def refuses(encoder, modality=None):
        raise ValueError(modality)

    made.set_encoder = refuses
    made.get_encoder = lambda modality=None: made.lm_head if modality == "image" else made
    facts = called(made)
    assert facts["set_encoder(…, modality='image')"] == {"refused": "ValueError: image"}
    assert facts["set_encoder(…, modality='audio')"]["left_out"]


def pictured(merge):
    """Return a model whose forward also takes pixels, which it merges with the embeddings of its tokens."""
    made = tiny.model()
    plain = made.forward

    def forward(input_ids, pixel_values=None):
        embeds = made.get_input_embeddings()(input_ids)
        return plain(inputs_embeds=merge(embeds, pixel_values))

    made.forward = forward
    return made


def frozen_with_an_image(merge):
    ids = torch.arange(3, 12)[None]
    made = pictured(merge)
    width = made.config.hidden_size
    image = {"input_ids": ids, "pixel_values": torch.ones(1, 2, width)}
    prompts = {"short": {"input_ids": ids}, "image": image, "image-padded": image}
    with torch.no_grad():
        facts = methods.methods(Subject(made, "causal-lm", Path(), prompts))
    assert facts[FROZEN] == {"gave": "gradients reach it: True"}
    assert f"{FROZEN}, image-padded" not in facts
    return facts[f"{FROZEN}, image"]


def test_a_frozen_model_that_writes_an_image_into_its_embeddings_is_seen_to_raise():
    def in_place(embeds, pixels):
        if pixels is not None:
            embeds[:, : pixels.shape[1]] = pixels
        return embeds

    def merged(embeds, pixels):
        return embeds if pixels is None else in_place(embeds.clone(), pixels)

    assert frozen_with_an_image(merged) == {"gave": "gradients reach it: True"}
    refused = frozen_with_an_image(in_place)["refused"]
    assert "a leaf Variable that requires grad" in refused or "is a view of" in refused


def test_a_frozen_model_whose_backward_raises_is_seen():
    def merged(embeds, pixels):
        if pixels is None:
            return embeds
        raised_to_e = embeds.exp()
        raised_to_e += 1.0  # exp() keeps its result for the backward
        return raised_to_e

    assert "modified by an inplace operation" in frozen_with_an_image(merged)["refused"]


def test_the_attention_of_models_inside_a_model_is_that_of_a_load_with_eager():
    backbone = {**SMALL, "image_size": 16, "patch_size": 8, "out_features": ["stage1", "stage2"]}
    config = transformers.DepthAnythingConfig(
        backbone_config=transformers.Dinov2Config(**backbone, reshape_hidden_states=False),
        reassemble_hidden_size=32,
        reassemble_factors=[2, 1],
        neck_hidden_sizes=[8, 8],
        fusion_hidden_size=8,
    )
    made = transformers.DepthAnythingForDepthEstimation(config)
    whole = {"depth_anything": "eager", "dinov2": "eager"}
    for planted in ("eager", "sdpa"):
        made.backbone.config._attn_implementation = planted
        facts = attention.attention(Subject(made, "base", Path(), {}, lambda: made))
        assert facts == {"eager for all parts": {"parts": whole | {"dinov2": planted}}}
    refused = Subject(made, "base", Path(), {}, lambda: raised(ValueError, print))
    assert attention.attention(refused) == {}


class Seeing(torch.nn.Module):
    """Returns the sums of the ids that each token sees, or takes a mask of another form."""

    def __init__(self, takes):
        super().__init__()
        self.takes = takes
        self.config = transformers.BertConfig()

    def forward(self, input_ids, attention_mask):
        if self.takes == "rows":
            attention_mask = attention_mask.expand(1, 1, *input_ids.shape)
        mask = torch.ones_like(attention_mask) if self.takes == "all" else attention_mask
        return {"logits": (mask @ input_ids[..., None]).float()}


def test_a_mask_of_pairs_of_tokens_is_asked_of_encoders_of_text():
    fed = {"short": {"input_ids": torch.tensor([[5, 6, 7]])}}

    def answer(takes, head="masked-lm", fed=fed):
        asked = dict(paired.calls(Subject(Seeing(takes), head, Path(), fed)))
        return {name: methods.asked(call) for name, call in asked.items()}

    assert answer("pairs") == {paired.PAIRED: {"gave": "the tokens that it shows"}}
    assert answer("all") == {paired.PAIRED: {"gave": "all tokens are shown"}}
    assert "refused" in answer("rows")[paired.PAIRED]
    assert answer("pairs", head="causal-lm") == {}
    assert answer("pairs", fed={"image": {**fed["short"], "pixel_values": torch.ones(1)}}) == {}


def test_bert_takes_a_mask_of_pairs_up_to_4():
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    made = transformers.BertModel(config).eval()
    fed = {"short": {"input_ids": torch.tensor([[5, 6, 7]])}}
    ((_, call),) = paired.calls(Subject(made, "base", Path(), fed))
    expected = {"gave"} if transformers.__version__ < "5" else {"refused"}
    assert methods.asked(call).keys() == expected
