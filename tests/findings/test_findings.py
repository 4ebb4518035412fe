"""Tests of the rules: each finds its defect and nothing else."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from samebits.compare.signals import compare
from samebits.findings.case import Case
from samebits.questions.registry import explained, findings, rules, texts
from samebits.questions.relations.records import (
    RELATIONS,
    Inapplicable,
    LayerDistance,
    Relation,
    RelationsSignal,
)
from samebits.questions.usage.records import CACHES, UsageSignal
from samebits.records.capture import (
    ConfigField,
    Failure,
    FormulaFacts,
    Frame,
    LoadFacts,
    Skip,
    TokenFacts,
    WeightsSignal,
)
from samebits.records.code import ClassFact, CodeSignal, FunctionFact, Idiom, ImportFact, Symbol
from samebits.records.comparison import SignalComparison
from samebits.records.distance import Distance
from samebits.records.evidence import EvidenceSignal, PromptEvidence
from samebits.records.finding import ROPE_TABLES, Finding, Step
from samebits.records.ids import Variant, Verdict
from samebits.records.ladder import Constant, Decider, Ladder, LadderStep
from samebits.records.made import MadeModel
from samebits.records.provenance import IntegritySignal, Provenance, RoundTrip
from samebits.records.state import Draw, LeftBehind, StateSignal
from samebits.records.subject import Subject
from samebits.records.tokenizer import Answer, Encoded
from samebits.reports.plain import remedy_as_seen
from samebits_wire.arguments import (
    CHUNKED,
    CUT_TEXT,
    FIELDS,
    GATHERED,
    HEEDED,
    JOINED,
    LOADED_IN,
    OTHER_PROMPT,
    WHOLE_PROMPT,
    WHOLE_TEXT,
)
from tests.support.builders import STATE_LEFT as LEFT
from tests.support.builders import (
    Memory,
    attention,
    buffer,
    call,
    capture,
    decoded,
    forward,
    frequencies,
    ladder_step,
    sound,
    tokenizer,
    values,
    weight,
    weights_signal,
    with_outputs,
    with_signals,
)
from tests.support.sample_report import cell, distance

OWN, LIBRARY = "modeling_tiny.py", "transformers/modeling_utils.py"


def frame(file=OWN, code="x", function="__init__"):
    return Frame(file=file, line=7, function=function, code=code, own=file == OWN)


def failed(type_name, message, *frames, code=None, phase="load", config=None):
    failure = Failure(
        phase=phase, type=type_name, message=message, traceback="", frames=frames or (frame(),)
    )
    run = capture("5.x", status="failed", code=code or own_code(), config=config)
    return run.model_copy(update={"failure": failure})


def own_code(*, imports=(), classes=()):
    return CodeSignal(files={OWN: "0" * 64}, imports=imports, classes=classes)


def missing(name, owner="transformers.utils", **changed):
    symbol = Symbol(name=name, owner=owner, found=False)
    return ImportFact(symbol=symbol, file=OWN, line=3, **changed)


def cls(name="TinyForCausalLM", bases=("PreTrainedModel",), **changed):
    return ClassFact(name=name, bases=bases, file=OWN, line=40, **changed)


def with_idiom(run, name):
    idiom = Idiom(name=name, file=OWN, line=9, code="the line")
    code = own_code().model_copy(update={"idioms": (idiom,)})
    return with_signals(run, code=code)


def codes(case):
    return [finding.code for finding in findings(case)]


def codes_of(run, **changed):
    return codes(Case(capture=run, **changed))


def climbed(kind):
    return Ladder(kind=kind, rule="slope", reason=f"the ladder says {kind}")


def differs(signal="logits", outcome="differs"):
    n_differ = int(outcome == "differs")
    return (SignalComparison(signal=signal, outcome=outcome, n_items=1, n_differ=n_differ),)


def explaining(sightings, verdict, stack="5.x", **facts):
    """Return what explains the verdict of a cell with these findings."""
    variant = Variant(dtype="float32", attention="default")
    return explained(cell("m", variant, stack, verdict, **facts), {stack: sightings}).explained_by


def test_positions_that_generate_no_longer_counts_are_named_by_their_key():
    line = frame(code='model_kwargs["cache_position"][-1:] + 1')
    greedy = {"phase": "greedy short"}
    assert codes_of(failed("KeyError", "'cache_position'", line, **greedy)) == ["SB715"]
    assert codes_of(failed("KeyError", "'position_ids'", line, **greedy)) == []
    of_library = frame("transformers/generation/utils.py", 'model_kwargs["cache_position"]')
    assert codes_of(failed("KeyError", "'cache_position'", of_library, **greedy)) == []


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("SB702", "past = past_key_values[0][0].shape[2]"),
        ("SB715", "if cache_position[0] == 0:"),
    ],
)
def test_a_line_that_reads_what_generate_no_longer_passes_is_named(code, line):
    message = "'NoneType' object is not subscriptable"

    def of(line, file=OWN, message=message):
        failure = failed("TypeError", message, frame(file, line), phase="greedy short").failure
        return codes_of(sound(Memory(), "5.x").model_copy(update={"failures": (failure,)}))

    assert of(line) == [code]
    assert of("past = other[0]") == []
    assert of(line, LIBRARY) == []
    assert of(line, message="'int' object is not subscriptable") == []


def test_a_forward_that_does_not_take_the_positions_of_generate_is_named():
    message = "M.forward() got an unexpected keyword argument '{}'"
    assert "SB721" in codes_of(failed("TypeError", message.format("cache_position")))
    assert "SB721" not in codes_of(failed("TypeError", message.format("position_ids")))


@pytest.mark.parametrize(
    ("name", "is_stateful", "own", "expected"),
    [
        ("seqlen_offset", True, True, "SB722"),
        ("key_cache", True, True, "SB701"),
        ("seqlen_offset", False, True, "SB701"),
        ("seqlen_offset", True, False, "SB701"),
    ],
)
def test_a_cache_of_the_library_is_told_from_one_that_lost_an_attribute(
    name, is_stateful, own, expected
):
    """A state space model with a cache class of its own, whose forward takes ``cache``."""
    message = f"'DynamicCache' object has no attribute '{name}'"
    place = frame(OWN if own else LIBRARY, "the line")
    failure = failed("AttributeError", message, place, phase="greedy short").failure
    attributes = {"_is_stateful": "bool"} if is_stateful else {}
    run = with_signals(sound(Memory(), "5.x"), code=own_code(classes=(cls(attributes=attributes),)))
    run = run.model_copy(update={"failures": (failure,)})
    assert [code for code in codes_of(run) if code in ("SB701", "SB722")] == [expected]


@pytest.mark.parametrize(
    ("message", "phase", "codes"),
    [
        ("size (1, 4, 1, 41), but is torch.Size([1, 4, 1, 24])", "greedy long", ["SB725"]),
        (
            "The size of tensor a (41) must match the size of tensor b (24)",
            "greedy long",
            ["SB725"],
        ),
        ("size (1, 24, 1, 41), but is torch.Size([1, 24, 1, 40])", "greedy long", []),
        ("size (1, 4, 1, 41), but is torch.Size([1, 4, 1, 24])", "forward long", []),
    ],
)
def test_own_attention_that_counts_more_tokens_than_the_cache_keeps_is_named(message, phase, codes):
    own = {"code": own_code(), "phase": phase, "config": {"sliding_window": 24}}
    assert codes_of(failed("ValueError", message, frame(), **own)) == codes
    full = own | {"config": {"sliding_window": None}}
    assert codes_of(failed("ValueError", message, frame(), **full)) == []


def test_an_own_method_that_refuses_what_the_library_passes_is_named():
    message = "MyConfig.validate() got an unexpected keyword argument 'strict'"
    calls = frame("transformers/generation/configuration_utils.py", "self.validate(strict=True)")
    own = own_code(classes=(cls("MyConfig", methods={"validate": ("self",)}),))
    (finding,) = findings(Case(failed("TypeError", message, calls, code=own)))
    assert (finding.code, finding.where) == ("SB113", f"{OWN}:40")
    assert codes_of(failed("TypeError", message, frame(), code=own)) == []
    inherited = own_code(classes=(cls("MyConfig"),))
    assert codes_of(failed("TypeError", message, calls, code=inherited)) == []


def test_a_config_that_does_not_count_its_layers_as_the_cache_needs_is_named():
    message = "'ChatConfig' object has no attribute 'num_hidden_layers'"
    made = frame("transformers/cache_utils.py", "range(config.num_hidden_layers)")
    code, greedy = own_code(classes=(cls("ChatConfig"),)), {"phase": "greedy short"}
    run = failed("AttributeError", message, made, code=code, **greedy)
    (finding,) = findings(Case(run))
    assert (finding.code, finding.where) == ("SB723", f"{OWN}:40")
    assert codes_of(failed("AttributeError", message, frame(), **greedy)) == []
    other = message.replace("num_hidden_layers", "hidden_size")
    assert codes_of(failed("AttributeError", other, made, **greedy)) == []


def test_a_cache_without_a_place_for_a_layer_is_named():
    """T5 with more decoder than encoder layers, from 4.57 on."""
    message, update = (
        "list index out of range",
        "keys, values = self.layers[layer_idx].update(k, v)",
    )
    cache, model = "transformers/cache_utils.py", "transformers/models/t5/modeling_t5.py"

    def of(file, code=update):
        return codes_of(failed("IndexError", message, frame(file, code), phase="greedy short"))

    assert of(cache) == ["SB716"]
    assert of(model) == []
    assert of(cache, "return self.shapes[0]") == []


CRASHES = [
    ("SB101", "ImportError", "cannot import name 'LossKwargs' from 'transformers.utils' (…)"),
    ("SB101", "ImportError", "cannot import name 'TransformersKwargs' from 'transformers.utils'"),
    ("SB102", "ImportError", "cannot import name 'MambaCache' from 'transformers.cache_utils'"),
    ("SB102", "ImportError", "cannot import name 'download_url' from 'transformers.utils' (/x)"),
    ("SB102", "ModuleNotFoundError", "No module named 'transformers.masking_utils'"),
    ("SB102", "ModuleNotFoundError", "No module named 'transformers.modeling_attn_mask_utils'"),
    ("SB102", "ModuleNotFoundError", "No module named 'transformers.generation.beam_search'"),
    ("SB104", "AttributeError", "'Tiny' object has no attribute 'get_head_mask'"),
    ("SB104", "AttributeError", "'Tiny' object has no attribute '_extract_past_from_model_output'"),
    ("SB105", "TypeError", "f() got an unexpected keyword argument 'use_auth_token'"),
    ("SB713", "TypeError", "Tiny.forward() got an unexpected keyword argument 'cache'"),
    ("SB713", "TypeError", "TinyOutput.__init__() got an unexpected keyword argument 'cache'"),
    ("SB201", "AttributeError", "'TinyConfig' object has no attribute 'pad_token_id'"),
    ("SB201", "AttributeError", "'TinyConfig' object has no attribute 'forced_bos_token_id'"),
    ("SB202", "AttributeError", "'LlamaConfig' object has no attribute 'rope_theta'"),
    (
        "SB213",
        "KeyError",
        "\"Missing required keys in `rope_parameters` for 'rope_type'='longrope': {'factor'}\"",
    ),
    (
        "SB205",
        "huggingface_hub.errors.StrictDataclassFieldValidationError",
        "Validation error for field 'hidden_size': expected int, got str",
    ),
    (
        "SB205",
        "huggingface_hub.errors.StrictDataclassClassValidationError",
        "Class validation error for validator 'validate_architecture': ValueError: does not divide",
    ),
    ("SB305", "RuntimeError", "Tensor.item() cannot be called on meta tensors"),
    ("SB305", "TypeError", "can't convert meta device type tensor to numpy."),
    ("SB305", "RuntimeError", "Tensor on device meta is not on the expected device cpu!"),
    ("SB305", "RuntimeError", "Tensor on device cpu is not on the expected device meta!"),
    ("SB402", "AttributeError", "'Tiny' object has no attribute 'all_tied_weights_keys'"),
    (
        "SB403",
        "TypeError",
        "Tiny.tie_weights() got an unexpected keyword argument 'recompute_mapping'",
    ),
    (
        "SB502",
        "TypeError",
        "LlamaRotaryEmbedding.__init__() got an unexpected keyword argument 'device'",
    ),
    (
        "SB502",
        "TypeError",
        "Gemma3RotaryEmbedding.forward() missing 1 required positional argument: 'layer_type'",
    ),
    (
        "SB502",
        "AttributeError",
        "'Gemma3RotaryEmbedding' object has no attribute 'None_inv_freq'",
    ),
    (
        "SB603",
        "TypeError",
        "create_causal_mask() got an unexpected keyword argument 'input_embeds'",
    ),
    ("SB607", "AttributeError", "'Tiny' object has no attribute '_supports_sdpa'"),
    ("SB701", "AttributeError", "'DynamicCache' object has no attribute 'key_cache'"),
    ("SB701", "AttributeError", "type object 'DynamicCache' has no attribute 'from_legacy_cache'"),
    ("SB702", "TypeError", "'DynamicCache' object is not subscriptable"),
    ("SB702", "AttributeError", "'tuple' object has no attribute 'get_seq_length'"),
    ("SB707", "ValueError", "Calling `crop` with a positive value (`3`) is not supported"),
    ("SB868", "TypeError", "T._pad() got an unexpected keyword argument 'padding_side'"),
    ("SB810", "ValueError", "Tokenizer class TokenizersBackend does not exist or is not imported."),
]
STRICT = "huggingface_hub.errors.StrictDataclassClassValidationError"
NEAR = [
    (STRICT, "Class validation error for validator 'x':\n    TypeError: unsupported operand -="),
    (STRICT, "Class validation error for validator 'x':\n    AttributeError: no attribute 'y'"),
    ("ImportError", "cannot import name 'LossKwargs' from 'mypackage.utils'"),
    ("ImportError", "cannot import name 'NeverHeardOf' from 'transformers.utils'"),
    ("ModuleNotFoundError", "No module named 'torch.unheard_of'"),
    ("ModuleNotFoundError", "No module named 'transformers.unheard_of'"),
    ("AttributeError", "'Tiny' object has no attribute 'head_mask'"),
    ("AttributeError", "'TinyConfig' object has no attribute 'my_own_field'"),
    ("AttributeError", "'Tiny' object has no attribute 'pad_token_id'"),
    ("TypeError", "f() got an unexpected keyword argument 'my_dtype'"),
    ("RuntimeError", "Tensor.item() takes no arguments"),
    ("KeyError", "'default'"),
    ("AttributeError", "'list' object has no attribute 'keys'"),
    ("AttributeError", "'Memory' object has no attribute 'key_cache'"),
    ("ValueError", "Tokenizer class MyTokenizer does not exist"),
    ("TypeError", "pad() got an unexpected keyword argument 'padding_side'"),
    ("RuntimeError", "size of tensor a (24) must match the size of tensor b (12) at dimension 3"),
]


@pytest.mark.parametrize(("code", "type_name", "message"), CRASHES)
def test_an_exception_with_a_name_is_named(code, type_name, message):
    (finding,) = findings(Case(capture=failed(type_name, message)))
    assert finding.code == code
    assert finding.where == f"{OWN}:7"
    assert any(message in line for line in finding.evidence)


@pytest.mark.parametrize(("type_name", "message"), NEAR)
def test_an_exception_that_only_looks_alike_is_not_named(type_name, message):
    assert codes_of(failed(type_name, message)) == []


@pytest.mark.parametrize(("code", "type_name", "message"), CRASHES)
def test_the_same_message_in_another_type_is_not_named(code, type_name, message):
    assert codes_of(failed("MyOwnError", message)) == []


def test_a_tensor_without_values_after_the_load_is_no_fault_of_the_constructor():
    message = "Cannot copy out of meta tensor; no data!"
    moves = frame(LIBRARY, function="to"), frame("torch/nn/modules/module.py", function="convert")
    assert codes_of(failed("NotImplementedError", message, *moves)) == []
    assert codes_of(failed("NotImplementedError", message, frame(), *moves)) == ["SB305"]


def test_a_sound_cell_has_no_findings(memory):
    reference, candidate = sound(memory), sound(memory, "5.x")
    signals = compare(reference, candidate, memory)
    assert codes_of(candidate, reference=reference, signals=signals) == []
    assert codes_of(reference) == []


def test_own_code_is_named_as_the_checkpoint_calls_it():
    copied = Frame(file=f"tiny_hyphen_1/abc/{OWN}", line=7, function="f", code="x", own=True)
    message = "'TinyConfig' object has no attribute 'pad_token_id'"
    (finding,) = findings(Case(capture=failed("AttributeError", message, copied)))
    assert finding.where == f"{OWN}:7"
    assert not any("hyphen" in line for line in finding.evidence)


def test_a_module_that_is_missing_is_one_finding_and_not_two():
    fact = missing("create_causal_mask", "transformers.masking_utils")
    message = "No module named 'transformers.masking_utils'"
    run = failed("ModuleNotFoundError", message, code=own_code(imports=(fact,)))
    (finding,) = findings(Case(capture=run))
    assert finding.code == "SB102"
    assert any(message in line for line in finding.evidence)


def test_an_import_behind_the_first_is_named_before_it_is_reached():
    code = own_code(imports=(missing("LossKwargs"), missing("is_torch_fx_available")))
    run = failed(
        "ImportError", "cannot import name 'LossKwargs' from 'transformers.utils'", code=code
    )
    first, second = findings(Case(capture=run))
    assert (first.code, second.code) == ("SB101", "SB102")
    assert any("not reached yet" in line for line in second.evidence)
    assert not any("not reached yet" in line for line in first.evidence)
    assert any("drop the guard" in line for line in second.evidence)


def test_a_guarded_import_is_no_finding():
    code = own_code(imports=(missing("LossKwargs", guarded=True),))
    assert codes_of(failed("ValueError", "something else", code=code)) == []


def test_a_missing_import_of_a_model_that_runs_is_no_finding():
    code = own_code(imports=(missing("LossKwargs"),))
    assert codes_of(sound(Memory(), "5.x", code=code)) == []


def test_an_attention_that_config_json_asks_for_is_named_where_its_package_is_missing():
    message = (
        "FlashAttention2 has been toggled on, but it cannot be used due to the following error: …"
    )

    def of(attention, message=message):
        run = failed("ImportError", message)
        variant = Variant(dtype="float32", attention=attention)
        return run.model_copy(update={"cell": run.cell.model_copy(update={"variant": variant})})

    (finding,) = findings(Case(capture=of("default")))
    assert (finding.code, finding.where) == ("SB608", "attn_implementation")
    assert codes_of(of("flash_attention_2")) == []
    assert codes_of(of("default", "This modeling file requires flash_attn")) == []


def test_a_head_dim_of_none_is_named_where_a_rope_type_multiplies_it():
    message = "unsupported operand type(s) for *: 'NoneType' and 'float'"
    rope = "transformers/modeling_rope_utils.py"
    product = frame(rope, "dim = int(head_dim * partial_rotary_factor)", "_compute_yarn_parameters")
    (finding,) = findings(Case(capture=failed("TypeError", message, product)))
    assert (finding.code, finding.where) == ("SB509", "head_dim")
    scaled = frame(rope, "base = base * factor", "_compute_dynamic_ntk_parameters")
    assert codes_of(failed("TypeError", message, scaled)) == []
    assert codes_of(failed("TypeError", message, frame(OWN, "head_dim * 2.0"))) == []


def test_a_key_of_a_filled_rope_scaling_is_named_where_the_reference_works():
    read = frame(code='self.factor = config.rope_scaling["factor"] if config.rope_scaling else 1.0')
    works, fails = sound(Memory(), "4.48"), failed("KeyError", "'factor'", read)
    assert codes_of(fails, reference=works) == ["SB507"]
    assert codes_of(fails) == codes_of(fails, reference=fails) == []
    unrelated = frame(code='self.factor = table["factor"]')
    assert codes_of(failed("KeyError", "'factor'", unrelated), reference=works) == []
    other = failed("KeyError", "'width'", read)
    assert codes_of(other, reference=works) == []


def test_a_config_class_that_an_auto_class_refuses_is_named():
    text = "The model class you are passing has a `config_class` attribute that is not consistent"
    assert codes_of(failed("ValueError", text)) == ["SB216"]
    compared = frame("auto_factory.py", code="if model_class.config_class.__name__ != name:")
    message = "'NoneType' object has no attribute '__name__'"
    assert codes_of(failed("AttributeError", message, compared)) == ["SB216"]
    assert codes_of(failed("AttributeError", message, frame(code="x.__name__"))) == []
    without_lines = failed("AttributeError", message)
    failure = without_lines.failure.model_copy(update={"frames": ()})
    assert codes_of(without_lines.model_copy(update={"failure": failure})) == []


def test_beams_that_raise_are_named_only_beside_a_reordering_of_the_models_own():
    none = "'NoneType' object has no attribute 'index_select'"
    own = own_code(classes=(cls(methods={"_reorder_cache": ("past", "beam_idx")}),))
    assert "SB724" in codes_of(failed("AttributeError", none, code=own, phase="usage beams"))
    for phase, code in (("usage beams", own_code()), ("greedy short", own)):
        assert "SB724" not in codes_of(failed("AttributeError", none, code=code, phase=phase))


def test_the_default_rope_is_named_by_the_line_that_asked_for_it():
    rope_frame = frame(code="self.rope_init_fn = ROPE_INIT_FUNCTIONS[self.rope_type]")
    assert codes_of(failed("KeyError", "'default'", rope_frame)) == ["SB501"]
    unrelated = frame(code="colours = PALETTE[name]")
    assert codes_of(failed("KeyError", "'default'", unrelated)) == []


def test_a_list_of_ties_is_named_by_the_class_that_declares_it():
    message = "'list' object has no attribute 'keys'"
    declared = own_code(classes=(cls(attributes={"_tied_weights_keys": "list"}),))
    (finding,) = findings(Case(capture=failed("AttributeError", message, code=declared)))
    assert finding.code == "SB401"
    assert finding.where == f"{OWN}:40"
    proper = own_code(classes=(cls(attributes={"_tied_weights_keys": "dict"}),))
    assert codes_of(failed("AttributeError", message, code=proper)) == []
    inside = frame(LIBRARY, "tied_mapping = self._tied_weights_keys", "get_expanded_tied_weights")
    assert codes_of(failed("AttributeError", message, inside)) == ["SB401"]


def test_a_list_of_ties_that_only_a_save_reads_is_named():
    """A config that ties nothing: the model loads, and save_pretrained fails."""
    reason = "AttributeError: 'list' object has no attribute 'keys'"
    declared = own_code(classes=(cls(attributes={"_tied_weights_keys": "list"}),))

    def saved(reason, code=declared):
        trip = RoundTrip(outcome="save failed", reason=reason)
        signal = IntegritySignal(poison="NaN", round_trip=trip)
        return findings(Case(capture=sound(Memory(), "5.x", integrity=signal, code=code)))

    named = {finding.code: finding for finding in saved(reason)}
    assert set(named) == {"SB401"}  # one cause, one finding
    assert named["SB401"].where == f"{OWN}:40"
    assert f"save_pretrained: {reason}" in named["SB401"].evidence
    assert [f.code for f in saved("OSError: full")] == ["SB317"]
    assert [f.code for f in saved(reason, own_code(classes=(cls(),)))] == ["SB317"]


def test_a_class_without_post_init_is_named():
    message = "'Tiny' object has no attribute 'all_tied_weights_keys'"
    without = cls("Tiny", methods={"__init__": ("self",)}, calls={"__init__": ("super",)})
    proper = cls("Proper", methods={"__init__": ("self",)}, calls={"__init__": ("self.post_init",)})
    code = own_code(classes=(without, proper))
    (finding,) = findings(Case(capture=failed("AttributeError", message, code=code)))
    evidence = " ".join(finding.evidence)
    assert "class Tiny " in evidence
    assert "class Proper" not in evidence


def test_a_head_without_generation_mixin_is_named_where_nothing_generates():
    reason = "TinyForCausalLM does not generate"
    skips_greedy = [Skip(what="greedy", reason=reason, why="no generation")]
    load = LoadFacts(model_class="TinyForCausalLM", requested_dtype="float32")

    def run(bases, skips=skips_greedy):
        return sound(Memory(), skips=skips, load=load, code=own_code(classes=(cls(bases=bases),)))

    assert codes_of(run(("TinyPreTrainedModel",))) == ["SB103"]
    assert codes_of(run(("TinyPreTrainedModel", "GenerationMixin"))) == []
    assert codes_of(run(("TinyPreTrainedModel",), skips={})) == []
    assert codes_of(run(("PreTrainedModelWrapper",))) == []  # of trl, with a generate() of its own


def test_a_mask_one_column_too_long_is_named_inside_attention_alone():
    message = (
        "The size of tensor a (24) must match the size of tensor b (25) at non-singleton "
        "dimension 3"
    )
    inside = frame("transformers/integrations/sdpa_attention.py", function="sdpa_attention_forward")
    assert codes_of(failed("RuntimeError", message, frame(), inside)) == ["SB602"]
    elsewhere = frame("transformers/models/x/modeling_x.py", function="mlp")
    assert codes_of(failed("RuntimeError", message, frame(), elsewhere)) == []
    shorter = message.replace("25", "23")
    assert codes_of(failed("RuntimeError", shorter, frame(), inside)) == []
    by_two = message.replace("25", "26")
    assert codes_of(failed("RuntimeError", by_two, frame(), inside)) == []


def integrity(**tensors):
    provenances = {
        name: Provenance(**({"kind": "parameter", "source": "loaded", "written": "all"} | facts))
        for name, facts in tensors.items()
    }
    return IntegritySignal(poison="NaN", tensors=provenances)


def test_an_unwritten_buffer_and_an_unwritten_parameter_are_two_findings():
    facts = {"source": "unwritten", "written": "none"}
    signal = integrity(
        inv_freq=facts | {"kind": "non-persistent buffer", "fresh": "differs"}, scale=facts
    )
    both_findings = findings(Case(capture=sound(Memory(), integrity=signal)))
    assert [(f.code, f.where) for f in both_findings] == [("SB301", "inv_freq"), ("SB302", "scale")]


def test_a_partly_written_buffer_says_how_much_is_left():
    signal = integrity(
        table={
            "kind": "non-persistent buffer",
            "source": "partly written",
            "written": "partly",
            "n_unwritten": 12,
        }
    )
    (finding,) = findings(Case(capture=sound(Memory(), integrity=signal)))
    assert "12 of its elements" in finding.evidence[0]


def test_written_buffers_of_any_origin_are_no_finding():
    signal = integrity(
        mask={"kind": "non-persistent buffer", "source": "derived", "written": "all"},
        odd={"kind": "non-persistent buffer", "source": "unexplained", "written": "not covered"},
    )
    assert codes_of(sound(Memory(), integrity=signal)) == []


def drawn(*, in_checkpoint, missing_keys=(), classes=(), source="reinitialised", without=None):
    load = LoadFacts(model_class="Tiny", requested_dtype="float32", missing_keys=missing_keys)
    return sound(
        Memory(),
        load=load,
        integrity=integrity(
            q={"source": source, "ignored": in_checkpoint, "restored_without": without}
        ),
        code=own_code(classes=classes),
    )


def test_a_loaded_tensor_that_is_drawn_anew_is_told_from_one_that_is_missing():
    assert codes_of(drawn(in_checkpoint=True, without=("_init_weights",))) == ["SB303"]
    assert codes_of(drawn(in_checkpoint=False, missing_keys=("q",))) == ["SB304"]
    assert codes_of(drawn(in_checkpoint=True, missing_keys=("q",))) == ["SB323"]
    assert codes_of(drawn(in_checkpoint=True, missing_keys=("other",))) == ["SB310"]
    assert codes_of(drawn(in_checkpoint=False)) == []


@pytest.mark.parametrize(("in_index", "codes"), [(False, ["SB322"]), (True, ["SB310"])])
def test_a_tensor_that_the_index_leaves_out_accuses_no_load(in_index, codes):
    """4.57 reads the names from the index and 5.x the shards: 4.57 was called wrong, with two untrue reasons."""
    lost = drawn(in_checkpoint=True, missing_keys=() if in_index else ("q",), without=())
    weights = WeightsSignal(
        tensors={}, checkpoint_tensors=2, unlisted=("other",) if in_index else ("q",)
    )
    assert codes_of(with_signals(lost, weights=weights)) == codes
    loaded = sound(Memory(), integrity=integrity(q={"source": "loaded"}), weights=weights)
    assert codes_of(loaded) == []


@pytest.mark.parametrize(
    ("steady", "fresh", "codes"),
    [
        (None, "differs", ["SB304"]),
        (None, "not compared", []),
        (True, "differs", []),
    ],
)
def test_without_a_second_load_a_missing_tensor_is_named_where_a_new_model_has_other_values(
    steady, fresh, codes
):
    """``--quick`` makes one load: a checkpoint without its last layer passed, with nothing to do."""
    facts = {"source": "unexplained", "steady": steady, "fresh": fresh}
    load = LoadFacts(model_class="Tiny", requested_dtype="float32", missing_keys=("q",))
    assert codes_of(sound(Memory(), load=load, integrity=integrity(q=facts))) == codes
    loaded = load.model_copy(update={"missing_keys": ()})
    assert codes_of(sound(Memory(), load=loaded, integrity=integrity(q=facts))) == []


@pytest.mark.parametrize(
    ("without", "line"),
    [
        (("tie_weights",), "tried: with tie_weights() replaced by nothing"),
        (("_init_weights", "tie_weights"), "tried: with _init_weights() and tie_weights() "),
        (("_tied_weights_keys",), "tried: with _tied_weights_keys turned round"),
        ((), "tried: neither without _init_weights nor without or with turned ties"),
        (None, "possible causes are listed, not tried"),
    ],
)
def test_init_weights_is_not_accused_unless_leaving_it_out_brings_the_tensor_back(without, line):
    (finding,) = findings(Case(capture=drawn(in_checkpoint=True, without=without)))
    assert finding.code == "SB310"
    assert any(evidence.startswith(line) for evidence in finding.evidence)


@pytest.mark.parametrize("source", ["derived", "unexplained"])
def test_init_weights_is_accused_of_a_constant_that_leaving_it_out_takes_back(source):
    capture = drawn(in_checkpoint=True, source=source, without=("_init_weights",))
    (finding,) = findings(Case(capture=capture))
    assert finding.code == "SB303"
    assert any(line.startswith("its value is") for line in finding.evidence)


def test_a_tensor_that_is_not_taken_and_constant_has_a_finding_of_its_own():
    assert codes_of(drawn(in_checkpoint=True, source="derived")) == ["SB308"]
    assert codes_of(drawn(in_checkpoint=True, source="unexplained")) == ["SB308"]
    assert codes_of(drawn(in_checkpoint=True, source="unexplained", without=())) == ["SB308"]
    assert codes_of(drawn(in_checkpoint=False, source="derived")) == []


def test_a_constant_of_which_no_other_load_was_tried_says_so():
    """A quick run loads once: what a load without _init_weights would show is open."""
    line = "possible causes are listed, not tried"
    for without, is_open in ((None, True), ((), False)):
        capture = drawn(in_checkpoint=True, source="derived", without=without)
        (finding,) = findings(Case(capture=capture))
        assert any(each.startswith(line) for each in finding.evidence) is is_open


OUTSIDE = {"kind": "non-persistent buffer", "ignored": True}


@pytest.mark.parametrize("source", ["derived", "reinitialised"])
def test_a_buffer_outside_the_state_dict_is_not_taken_rather_than_overwritten(source):
    signal = integrity(table=OUTSIDE | {"source": source})
    (finding,) = findings(Case(capture=sound(Memory(), integrity=signal)))
    assert (finding.code, finding.where) == ("SB308", "table")
    assert "the buffer is not in the state_dict" in finding.evidence


def test_a_buffer_that_holds_what_the_file_has_is_no_finding():
    signal = integrity(table=OUTSIDE | {"source": "derived", "ignored": False})
    assert codes_of(sound(Memory(), integrity=signal)) == []


@pytest.mark.parametrize(("unexpected", "word"), [("base.table", "reported"), ("x", "not report")])
def test_a_tensor_that_is_not_taken_is_named_as_the_file_names_it(unexpected, word):
    signal = integrity(table=OUTSIDE | {"source": "derived", "stored_as": "base.table"})
    load = LoadFacts(model_class="Tiny", requested_dtype="float32", unexpected_keys=(unexpected,))
    (finding,) = findings(Case(capture=sound(Memory(), load=load, integrity=signal)))
    first, *_, last = finding.evidence
    assert first == "the checkpoint has base.table, and the model has different bytes as table"
    assert word in last


def test_the_line_of_init_weights_that_overwrites_is_evidence():
    guilty = cls("Tiny", calls={"_init_weights": ("module.weight.data.normal_",)})
    run = drawn(in_checkpoint=True, classes=(guilty,), without=("_init_weights",))
    (finding,) = findings(Case(capture=run))
    assert any("module.weight.data.normal_" in line for line in finding.evidence)


def adapted(lost, origin="loaded"):
    memory = Memory()
    tensors = {"q.base_layer.weight": weight(memory, values(4, 4), "q.weight")}
    if origin:
        own = weight(memory, values(2, 4, seed=2), origin=origin)
        tensors["q.lora_A.default.weight"] = own
    signal = weights_signal(tensors).model_copy(update={"adapter_lost": lost})
    return sound(memory, "5.x", weights=signal)


def test_an_adapter_that_is_not_put_into_the_model_is_named():
    stored = "base_model.model.q.lora_A.weight"
    own = {stored: "q.lora_A.default.weight"}
    (finding,) = findings(Case(capture=adapted(own, "unexplained")))
    assert (finding.code, finding.where) == ("SB319", "q.lora_A.default.weight")
    assert finding.evidence == (f"no tensor of the model holds the bytes of {stored}",)
    (finding,) = findings(Case(capture=adapted({stored: ""}, "reinitialised")))
    assert (finding.code, finding.where) == ("SB319", stored)
    assert finding.evidence[-1] == "every load gives q.lora_A.default.weight other random values"
    (finding,) = findings(Case(capture=adapted({stored: ""}, None)))
    assert finding.evidence[-1].endswith("without peft a load leaves it out")
    assert codes_of(adapted({})) == []
    assert codes_of(adapted({stored: ""}, "unexplained")) == []  # a load may have converted it


def with_dtype(stack, dtypes):
    signal = IntegritySignal(poison="NaN", default_dtypes=dtypes)
    return sound(Memory(), stack, integrity=signal)


def test_another_default_dtype_is_a_finding_and_the_same_is_none():
    old = with_dtype("4.48", {"float32": 9})
    assert codes_of(with_dtype("5.x", {"bfloat16": 9}), reference=old) == ["SB306"]
    assert codes_of(with_dtype("5.x", {"float32": 8}), reference=old) == []
    assert codes_of(with_dtype("5.x", None), reference=old) == []


@pytest.mark.parametrize(
    ("outcome", "code"), [("differs", "SB307"), ("save failed", "SB317"), ("load failed", "SB317")]
)
def test_a_lossy_round_trip_is_a_finding(outcome, code):
    trip = RoundTrip(outcome=outcome, tensors=("q",), config=("theta",), reason="why")
    signal = IntegritySignal(poison="NaN", round_trip=trip)
    (finding,) = findings(Case(capture=sound(Memory(), integrity=signal)))
    assert finding.code == code
    assert {"why", "different bytes: q", "config: theta"} <= set(finding.evidence)


@pytest.mark.parametrize("outcome", ["same bits", "not tried"])
def test_a_round_trip_that_keeps_all_is_none(outcome):
    signal = IntegritySignal(poison="NaN", round_trip=RoundTrip(outcome=outcome))
    assert codes_of(sound(Memory(), integrity=signal)) == []


def tied(stack, *, together):
    memory = Memory()
    embed = values(8, 4)
    if together:
        tensors = {"embed": weight(memory, embed, "embed", aliases=("head",))}
    else:
        head = values(8, 4, seed=3)
        tensors = {"embed": weight(memory, embed, "embed"), "head": weight(memory, head)}
    return sound(memory, stack, weights=weights_signal(tensors))


def both_stored(stack, *, together):
    memory = Memory()
    embed = values(8, 4)
    aliases = ("head",) if together else ()
    tensors = {"embed": weight(memory, embed, "embed", aliases=aliases)}
    if together:
        tie = {"kind": "parameter", "source": "tied", "detail": "tied to embed", "ignored": True}
        return sound(memory, stack, weights=weights_signal(tensors), integrity=integrity(head=tie))
    tensors["head"] = weight(memory, values(8, 4, seed=3), "head")
    return sound(memory, stack, weights=weights_signal(tensors))


def dropped(stack, *, holds, kind="parameter"):
    """Return a model that has a bias of the checkpoint, or drops it."""
    memory = Memory()
    tensors = {"up": weight(memory, values(8, 4), "up")}
    if holds:
        tensors["bias"] = weight(memory, values(8, seed=3), "bias", kind=kind)
    signal = weights_signal(tensors).model_copy(update={"unused": () if holds else ("bias",)})
    return sound(memory, stack, weights=signal)


def test_a_parameter_of_the_file_that_one_side_has_no_place_for_is_not_loaded():
    """Experts of DeepSeek-V2 with mlp_bias have no bias in 5.24."""
    kept, lost = dropped("4.57", holds=True), dropped("5.x", holds=False)

    def of(run, reference, scores="differs"):
        case = Case(run, reference, ladder=climbed("diverged"), signals=differs(outcome=scores))
        found = findings(case)
        return [(f.where, f.of_reference) for f in found if f.code == "SB308"]

    assert of(lost, kept) == [("bias", False)]
    assert of(kept, lost) == [("bias", True)]
    assert of(lost, lost) == of(kept, kept) == []
    # what nothing reads may go, and a buffer may be computed
    assert of(lost, kept, scores="identical") == []
    assert of(lost, dropped("4.57", holds=True, kind="buffer")) == []


@pytest.mark.parametrize(("without", "code"), [(("_init_weights",), "SB303"), ((), "SB308")])
def test_a_parameter_that_is_overwritten_has_a_place(without, code):
    kept, lost = dropped("4.57", holds=True), dropped("5.0", holds=False)
    tensor = {"source": "unexplained", "ignored": True, "restored_without": without}
    lost = with_signals(lost, integrity=integrity(bias=tensor))
    found = findings(Case(lost, kept, ladder=climbed("diverged"), signals=differs()))
    assert [(f.code, f.where) for f in found] == [(code, "bias")]


@pytest.mark.parametrize("kind", ["rounding", "same", "undecided", "diverged"])
def test_a_parameter_that_nothing_reads_may_go_while_another_change_rounds(kind):
    """A bias of bert-generation, which 4.57 has no place for, beside attention by SDPA."""
    kept, lost = dropped("5.x", holds=True), dropped("4.57", holds=False)
    step = LadderStep(
        signal="logits",
        subject=Subject(prompt="short"),
        own=1e-6,
        float32=1e-6,
        float64=1e-15,
        kind=kind,
    )
    judged = Ladder(kind="diverged", rule="stored constant", reason="", steps=(step,))
    found = findings(Case(kept, lost, ladder=judged, signals=differs()))
    expected = ["SB308"] if kind in ("undecided", "diverged") else []
    assert [f.code for f in found] == expected


def test_a_tie_that_moved_to_another_tensor_is_a_finding():
    """https://github.com/huggingface/transformers/issues/48154."""

    def run(stack, of_shared, other, of_other=()):
        memory = Memory()
        tensors = {
            "shared": weight(memory, values(8, 4), "a", aliases=of_shared),
            other: weight(memory, values(8, 4, seed=3), "b", aliases=of_other),
        }
        return sound(memory, stack, weights=weights_signal(tensors))

    old = run("4.57", ("encoder", "decoder"), "head")
    assert codes_of(run("5.2", ("encoder", "head"), "decoder"), reference=old) == ["SB404"]
    both = run("5.x", ("encoder",), "decoder")  # the checkpoint has a tensor for each
    assert codes_of(both, reference=old) == []


def test_a_tie_that_leaves_out_a_stored_tensor_is_a_finding_of_the_release_that_ties():
    old, new = both_stored("4.57", together=True), both_stored("5.x", together=False)
    assert codes_of(old) == ["SB405"]
    assert codes_of(new, reference=old) == []
    assert codes_of(tied("4.48", together=True)) == []


@pytest.mark.parametrize("is_stated", [True, False])
def test_a_switch_that_also_scales_is_no_remedy_for_t5(is_stated):
    """T5 in 4.57 and 5.24: with the switch off, logits are those of neither release."""
    code = "SB406" if is_stated else "SB405"
    (text,) = texts([code])

    def advice(model_type):
        used = {"tie_word_embeddings": ConfigField(written=True)} if is_stated else {}
        old = both_stored("4.57", together=True)
        run = with_signals(old, config={"model_type": model_type}, config_use=used)
        seen = tuple(findings(Case(run)))
        assert [f.code for f in seen] == [code]
        shown = cell("m", Variant(dtype="float32", attention="default"), "4.57", Verdict.DIVERGED)
        return remedy_as_seen(text, [shown.model_copy(update={"findings": seen})])

    assert advice("llama") == text.remedy
    assert advice("t5").startswith("Remove the tensor from the checkpoint if it is a leftover. ")


def tied_by_layer(stack, *, named):
    """Return a model whose three heads share the bytes of the first, and a checkpoint that has the second one, too."""
    memory = Memory()
    names = ("heads.1", "heads.2")
    tensors = {"heads.0": weight(memory, values(8, 4), "heads.0", aliases=names)}
    tie = {"kind": "parameter", "source": "tied", "detail": "tied to heads.0"}
    second, third = tie | {"ignored": True}, tie | {"ignored": named}
    provenance = integrity(**{"heads.1": second, "heads.2": third})
    return sound(memory, stack, weights=weights_signal(tensors), integrity=provenance)


def test_a_tie_by_layer_needs_every_name_in_the_checkpoint():
    """MM Grounding DINO saved by 4.57, in 5.0."""
    found = findings(Case(tied_by_layer("5.x", named=False)))
    assert [(f.code, f.where) for f in found] == [("SB407", "heads.1")]
    assert found[0].evidence[-1] == "the checkpoint has no heads.2, which the tie has, too"
    assert set(codes_of(tied_by_layer("5.x", named=True))) == {"SB405"}


def heads_of_two_names(stack, *, apart, second_seed=2):
    """Return a model with three heads. The second one is tied to the decoder, or to the first head."""
    memory = Memory()
    first, second = ("heads.0",), ("heads.1",)
    aliases = (first, second) if apart else (first + second, ())
    tensors = {
        f"decoder.{i}": weight(memory, values(8, 4, seed=seed), f"decoder.{i}", aliases=names)
        for i, (seed, names) in enumerate(zip((1, second_seed), aliases, strict=True))
    }
    return sound(memory, stack, weights=weights_signal(tensors))


def test_a_tie_to_another_tensor_than_the_reference_s_is_a_finding():
    """MM Grounding DINO saved by 4.57, in 5.24: its decoder keeps the bytes, and the heads are all the first one."""
    old, new = heads_of_two_names("4.57", apart=True), heads_of_two_names("5.24", apart=False)
    found = findings(Case(new, reference=old))
    assert [(f.code, f.where) for f in found] == [("SB407", "heads.1")]
    assert found[0].evidence[0] == "heads.1 shares its memory with decoder.0"
    assert codes_of(old, reference=new) == codes_of(old, reference=old) == []


def test_a_tie_to_another_tensor_with_the_same_bytes_changes_nothing():
    old, new = (
        heads_of_two_names("4.57", apart=True, second_seed=1),
        heads_of_two_names("5.24", apart=False, second_seed=1),
    )
    assert codes_of(new, reference=old) == []


def test_a_name_of_a_tied_vocabulary_that_the_checkpoint_lacks_is_no_layer():
    """The encoder of T5 has no tensor of its own in any checkpoint, and the config switches the tie of its head."""
    capture = tied_by_layer("5.x", named=False)
    for config in ({"vocab_size": 8}, {"text_config": {"vocab_size": 8}}):
        assert codes_of(with_signals(capture, config=config)) == ["SB405"]


def test_a_tie_that_config_json_states_leaves_both_readings_open():
    """4.57 ties and 5.2 keeps both tensors: the checkpoint contradicts its config."""
    old, new = both_stored("4.57", together=True), both_stored("5.x", together=False)

    def stating(capture, field, *, unused=()):
        used = {field: ConfigField(written=True)}
        weights = capture.signals.weights.model_copy(update={"unused": unused})
        return with_signals(capture, config_use=used, weights=weights)

    for field in ("tie_word_embeddings", "text_config.tie_word_embeddings"):
        ties, keeps = stating(old, field, unused=("head",)), stating(new, field)
        found = findings(Case(ties, keeps, ladder=climbed("diverged"), signals=differs()))
        assert [f.code for f in found] == ["SB406"]
        assert f"config.json states {field}: true" in found[0].evidence
        assert codes_of(keeps, reference=ties) == []
    assert codes_of(stating(old, "tie_encoder_decoder")) == ["SB405"]


def test_embeddings_that_part_are_a_finding_and_those_that_meet_are_none():
    assert codes_of(tied("5.x", together=False), reference=tied("4.48", together=True)) == ["SB404"]
    assert codes_of(tied("5.x", together=True), reference=tied("4.48", together=True)) == []
    assert codes_of(tied("5.x", together=True), reference=tied("4.48", together=False)) == []


def remedy_of_a_lost_tie(**facts):
    """Return what a report says to do of a cell without a tie, in which these signals were observed."""
    candidate = with_signals(tied("5.x", together=False), **facts)
    (found,) = findings(Case(candidate, reference=tied("4.48", together=True)))
    shown = cell("m", Variant(dtype="float32", attention="default"), "5.x", Verdict.DIVERGED)
    (text,) = texts(["SB404"])
    return remedy_as_seen(text, [shown.model_copy(update={"findings": (found,)})])


def remedy_of_arguments(*names):
    """Return what a report says to do where forward ignores these arguments."""
    found = tuple(
        Finding(code="SB926", where=f"forward({name}=…)", evidence=("4.57: other numbers",))
        for name in names
    )
    shown = cell("m", Variant(dtype="float32", attention="default"), "5.x", Verdict.IDENTICAL)
    return remedy_as_seen(texts(["SB926"])[0], [shown.model_copy(update={"findings": found})])


def test_what_mends_one_argument_is_no_remedy_of_another():
    """Eager attention gives T5 of 5.x its attentions, and no head_mask."""
    general = texts(["SB926"])[0].remedy
    eager = 'load with `attn_implementation="eager"`.'
    assert remedy_of_arguments("head_mask") == general
    assert remedy_of_arguments("output_attentions").lower() == eager
    both = remedy_of_arguments("head_mask", "output_attentions")
    assert both == f"{general} For forward(output_attentions=…), {eager}"


@pytest.mark.parametrize("kind", ["dict", "list", None])
@pytest.mark.parametrize("tie", [True, False])
def test_a_lost_tie_says_what_the_model_lacks_for_it(kind, tie):
    """5.x ties what a dict names and what the config says; what a model has is not asked of its author."""
    code = own_code(classes=(cls(attributes={"_tied_weights_keys": kind} if kind else {}),))
    remedy = remedy_of_a_lost_tie(code=code, config={"tie_word_embeddings": tie} if tie else {})
    if kind == "dict" and tie:
        assert remedy == texts(["SB404"])[0].remedy  # neither is seen to be missing
    else:
        assert ("_tied_weights_keys" in remedy) is (kind != "dict")
        assert ("config.json" in remedy) is not tie


@pytest.mark.parametrize("is_own", [False, True])
def test_a_tie_that_a_class_of_transformers_does_not_name_is_mended_in_the_checkpoint(is_own):
    """Pop2Piano of 5.x: nobody can declare the tie of its head, and the config says true already."""
    code = own_code(classes=(cls(attributes={"_tied_weights_keys": "dict"}),)) if is_own else None
    remedy = remedy_of_a_lost_tie(config={"tie_word_embeddings": True}, code=code)
    assert ("_tied_weights_keys" in remedy) is is_own
    assert remedy.startswith("Store the tensor under both names") is not is_own


@pytest.mark.parametrize("stated", [False, True])
def test_a_tie_is_not_to_be_stated_where_config_json_wants_embeddings_apart(stated):
    """The bias of xlm-roberta's head: with tie_word_embeddings=true 4.57 would tie its embeddings."""
    used = {"tie_word_embeddings": ConfigField(written=False)} if stated else {}
    remedy = remedy_of_a_lost_tie(config={"tie_word_embeddings": False}, config_use=used)
    assert ("tie_word_embeddings=true" in remedy) is not stated
    assert ("under both names" in remedy) is stated


def rotary(stack, max_ulp, *, written="all", dtype=np.float32, rope_type="default"):
    memory = Memory()
    formula = FormulaFacts(rope_type=rope_type, max_ulp=max_ulp, bound_ulp=50.0)
    facts = frequencies(memory, values(2, dtype=np.float32).astype(dtype), formula=formula)
    tensors = {
        "inv_freq": {
            "kind": "non-persistent buffer",
            "written": written,
            "source": "derived" if written == "all" else "unwritten",
        }
    }
    return sound(memory, stack, inv_freq={"inv_freq": facts}, integrity=integrity(**tensors))


def test_frequencies_off_their_formula_here_alone_are_a_finding():
    good, bad = rotary("4.48", 3.0), rotary("5.x", 9e6)
    assert codes_of(bad, reference=good) == ["SB503"]
    assert codes_of(rotary("5.x", 50.0), reference=good) == []
    assert codes_of(bad, reference=rotary("4.48", 9e6)) == []
    assert codes_of(bad) == []


def test_frequencies_off_their_formula_in_the_reference_are_its_defect():
    """YaRN of 4.48 ramps over max_position_embeddings, also where the config states the original length."""

    def named(candidate, reference):
        found = findings(Case(candidate, reference))
        return [(f.code, f.of_reference) for f in found if f.code == "SB503"]

    good = with_signals(rotary("4.51", 3.0), config={"rope_theta": 1e4})
    bad = with_signals(rotary("4.48", 9e6), config={"rope_theta": 1e4})
    assert named(good, bad) == [("SB503", True)]
    assert named(good, good) == named(bad, bad) == []
    # a formula of the model's own, which the release replaces by that of the library
    own = own_code(classes=(ClassFact(file="m.py", line=1, name="M", bases=("PreTrainedModel",)),))
    assert named(with_signals(good, code=own), bad) == []
    # the release loads another type, or another base
    assert named(good, with_signals(rotary("4.48", 9e6, rope_type="yarn"), config={})) == []
    assert named(good, with_signals(bad, config={"rope_theta": 5e5})) == []


def partial_rope(stack, n, share=0.5, **config):
    """Return a model of heads of 8 dimensions that rotates 2 n of them."""
    path = "rope_parameters.partial_rotary_factor"
    fields = {path: ConfigField(written=share, loaded=share)} if share else {}
    run = sound(Memory(), stack, inv_freq={"inv_freq": frequencies(Memory(), values(n))})
    config = {"hidden_size": 32, "num_attention_heads": 4} | config
    return with_signals(run, config=config, config_use=fields)


def test_a_release_that_rotates_whole_heads_is_wrong_where_the_config_has_a_part_of_them():
    part, whole = partial_rope("4.57", 2), partial_rope("5.x", 4)
    (found,) = [f for f in findings(Case(whole, part)) if f.code == "SB503"]
    assert (found.where, found.of_reference) == ("inv_freq", False)
    assert found.evidence == (
        "config.json has rope_parameters.partial_rotary_factor: 0.5",
        "5.x rotates all 8 dimensions of a head",
        "4.57 rotates 4 of them",
    )
    (found,) = [f for f in findings(Case(part, whole)) if f.code == "SB503"]
    assert found.of_reference
    assert codes_of(part, reference=part) == []
    # a factor of 1 is no part, as in Phi-3
    every = partial_rope("4.57", 4, share=1.0)
    assert codes_of(partial_rope("5.x", 4, share=1.0), reference=every) == []
    # nothing in the file says that a part is rotated, or heads have another size
    without = partial_rope("5.x", 4, share=None)
    assert codes_of(without, reference=partial_rope("4.57", 2, share=None)) == []
    others = {"head_dim": 16}
    before = partial_rope("4.57", 2, **others)
    assert codes_of(partial_rope("5.x", 4, **others), reference=before) == []


def test_a_default_for_theta_is_named_where_no_buffer_holds_the_frequencies():
    def run(status, inv_freq=None):
        bare = sound(Memory(), "5.x", inv_freq=inv_freq)
        steps = (Step(suspect=ROPE_TABLES, status=status, what="differ from position 1 on"),)
        return Case(with_idiom(bare, "default for a rope field"), sound(Memory()), steps=steps)

    (finding,) = findings(run("ruled in"))
    assert (finding.code, finding.where) == ("SB503", f"{OWN}:9")
    assert codes(run("follows")) == []
    assert codes(run("ruled out")) == []
    buffers = {"inv_freq": frequencies(Memory(), values(2))}
    assert codes(run("ruled in", buffers)) == []


def test_unwritten_frequencies_are_one_finding_and_not_two():
    bad = rotary("5.x", 9e6, written="none")
    assert codes_of(bad, reference=rotary("4.48", 3.0)) == ["SB301"]


def test_frequencies_in_another_dtype_are_a_finding():
    half = rotary("5.x", 3.0, dtype=np.float16)
    assert codes_of(half, reference=rotary("4.48", 3.0)) == ["SB504"]


def by_hand(layer):
    return call(layer).model_copy(update={"sdpa": None, "function": "eager_attention_forward"})


def moved_by_hand(memory, eager=None):
    """Return a reference by hand, a cell through sdpa with different logits, and the comparison."""
    evidence = EvidenceSignal(prompts={"short": PromptEvidence(eager_logits=eager)})
    moved = forward(memory, hidden=(), logits=values(1, 6, 8, seed=99))
    reference = sound(memory, attention=attention(by_hand(0), by_hand(1)), evidence=evidence)
    candidate = sound(memory, "5.x", forward={"short": moved}, evidence=evidence)
    return reference, candidate, compare(reference, candidate, memory)


def test_another_kernel_is_a_finding_only_where_numbers_move(memory):
    reference, candidate, signals = moved_by_hand(memory)
    comparison = {"reference": reference, "signals": signals}
    assert codes_of(candidate, **comparison, ladder=climbed("rounding")) == ["SB601"]
    assert codes_of(candidate, **comparison) == []
    same = sound(memory, "5.x")
    unmoved = compare(reference, same, memory)
    assert codes_of(same, reference=reference, signals=unmoved, ladder=climbed("rounding")) == []
    unlike = sound(memory)
    signals = compare(unlike, candidate, memory)
    assert codes_of(candidate, reference=unlike, signals=signals, ladder=climbed("rounding")) == []


def test_a_kernel_that_is_another_function_is_named_only_if_eager_attention_agrees(memory):
    reference, candidate, signals = moved_by_hand(memory, memory.put(values(1, 6, 8, seed=5)))
    comparison = {"reference": reference, "signals": signals}
    (finding,) = findings(Case(candidate, **comparison, ladder=climbed("diverged")))
    assert finding.code == "SB605"
    assert any("with eager attention" in line for line in finding.evidence)
    assert codes_of(candidate, **comparison, ladder=climbed("undecided")) == []
    reference, candidate, signals = moved_by_hand(memory)
    assert (
        codes_of(candidate, reference=reference, signals=signals, ladder=climbed("diverged")) == []
    )


def test_a_kernel_is_no_other_function_where_only_an_output_beside_the_logits_is_another(memory):
    """Idefics3 returns its image_hidden_states as a list in 5.24, and its logits round."""
    reference, candidate, signals = moved_by_hand(memory, memory.put(values(1, 6, 8, seed=5)))
    rounded = ladder_step(2e-5, 3e-14, "rounding", signal="logits", subject=Subject(prompt="short"))
    output = ladder_step(1.0, 1.0, "diverged", signal="outputs", subject=Subject(prompt="short"))
    scores = output.model_copy(update={"signal": "logits"})
    for rule, steps, codes in (
        ("shape", (rounded,), []),
        ("slope", (rounded, output), []),
        ("slope", (output, scores), ["SB605"]),
    ):
        ladder = climbed("diverged").model_copy(update={"rule": rule, "steps": steps})
        case = Case(candidate, reference=reference, signals=signals, ladder=ladder)
        assert [finding.code for finding in findings(case)] == codes


def test_without_eager_attention_a_softcap_in_the_config_names_the_kernel(memory):
    def found(config, eager=None):
        reference, candidate, signals = moved_by_hand(memory, eager)
        capped = with_config(candidate, config)
        case = Case(capped, reference=reference, signals=signals, ladder=climbed("diverged"))
        return [finding.code for finding in findings(case)]

    capped = {"attn_logit_softcapping": 50.0}
    assert found(capped) == ["SB605"]
    assert found({"attn_logit_softcapping": None, "final_logit_softcapping": 30.0}) == []
    # where eager attention was computed, it decides, and the defect is named once
    assert found(capped, memory.put(values(1, 6, 8, seed=5))) == ["SB605"]


def with_config(capture, config):
    return capture.model_copy(
        update={"signals": capture.signals.model_copy(update={"config": config})}
    )


def token(query, key, layer=0):
    layouts = {"query": f"float32{query} strides [1, 1, 1, 1]", "key": f"float32{key}"}
    attention_call = call(layer)
    return TokenFacts(
        attention=(
            attention_call.model_copy(
                update={"sdpa": attention_call.sdpa.model_copy(update=layouts)}
            ),
        ),
        functions=(),
    )


PACKED, REPEATED = token([2, 2, 2, 16], [2, 2, 14, 16]), token([2, 4, 1, 16], [2, 4, 14, 16])


def decoding(memory, reference_token, candidate_token, *, ids=(3, 1, 5)):
    reference = sound(memory, first_token={"padded": reference_token})
    greedy = {"short": decoded(memory, *ids)}
    candidate = sound(memory, "5.x", first_token={"padded": candidate_token}, greedy=greedy)
    return {"reference": reference, "signals": compare(reference, candidate, memory)}, candidate


def test_packed_heads_are_named_where_decoding_is_the_first_to_differ():
    comparison, candidate = decoding(Memory(), REPEATED, PACKED)
    (finding,) = findings(Case(candidate, **comparison, ladder=climbed("rounding")))
    assert (finding.code, finding.where) == ("SB604", "decoding, prompt padded")
    assert codes_of(candidate, **comparison, ladder=climbed("diverged")) == []
    comparison, candidate = decoding(Memory(), PACKED, REPEATED)
    assert codes_of(candidate, **comparison) == ["SB604"]


@pytest.mark.parametrize(
    "candidate_token",
    [
        REPEATED,
        token([2, 2, 3, 16], [2, 2, 14, 16]),
        token([2, 4, 2, 16], [2, 4, 14, 16]),
        token([2, 2, 2, 16], [2, 2, 14, 16], layer=1),
    ],
)
def test_a_token_that_is_not_packed_is_not_named(candidate_token):
    comparison, candidate = decoding(Memory(), REPEATED, candidate_token)
    assert codes_of(candidate, **comparison) == []


def test_packed_heads_that_move_nothing_are_not_named():
    comparison, candidate = decoding(Memory(), REPEATED, PACKED, ids=(3, 1, 4))
    assert codes_of(candidate, **comparison) == []


def relation(name, max_abs, promoted, **changed):
    def distance(value):
        return Distance(n=8, n_differ=4, max_abs=value, mean_abs=value / 2)

    return Relation(
        relation=name,
        case="40 tokens",
        holds=False,
        distance=distance(max_abs),
        promoted=distance(promoted),
        **changed,
    )


def with_relations(*relations, ran="LlamaAttention"):
    ran_too = FunctionFact(file="m.py", line=1, own=False, digest="d")
    code = CodeSignal(executed={f"modeling_x:{ran}.forward": ran_too})
    return sound(Memory(), code=code, relations=RelationsSignal(relations=relations))


FROM_EMBEDDINGS = "generate() from embeddings = from token ids"
DECODE, SPLIT = "full forward = prefill + decode", "prefill split anywhere"


def test_a_broken_cache_is_told_from_rounding_and_from_a_delta_net():
    broken, rounding = (3.0, 3.0), (1e-5, 1e-14)
    delta = "Qwen3NextGatedDeltaNet"
    assert codes_of(with_relations(relation(SPLIT, *broken), ran=delta)) == ["SB703"]
    assert codes_of(with_relations(relation(SPLIT, *broken))) == ["SB704"]
    relations = (relation(SPLIT, *broken), relation(DECODE, *broken))
    assert codes_of(with_relations(*relations, ran=delta)) == ["SB704"]
    assert codes_of(with_relations(relation(SPLIT, *rounding), ran=delta)) == []
    assert codes_of(with_relations(relation(DECODE, *rounding))) == []


MADE = MadeModel(n_layers=2, hidden_size=64, n_parameters=262_976)


def evidence_of(run):
    return [finding.evidence for finding in findings(Case(capture=run))]


@pytest.mark.parametrize("name", [DECODE, "left padding", "causality"])
def test_a_finding_seen_with_a_made_model_says_so(name):
    run = with_relations(relation(name, 3.0, 3.0))
    (plain,) = evidence_of(run)
    relations = RELATIONS.in_cell(run).model_copy(update={"asked_of": MADE})
    (evidence,) = evidence_of(with_signals(run, answers={"relations": relations}))
    assert evidence == (*plain, f"seen with {MADE.in_words}")
    assert "tiny model" not in "".join(plain)


def test_only_outputs_that_differ_are_named_as_those_that_do():
    outputs = {"output matches": 0.0, "output keypoints": 0.016}
    layers = tuple(LayerDistance(name=name, distance=distance(d)) for name, d in outputs.items())
    broken = relation("batch size", 0.016, 0.016).model_copy(update={"layers": layers})
    ((line,),) = evidence_of(with_relations(broken))
    assert "output keypoints differ" in line
    assert "matches" not in line


def delta_net(relation, *, step="torch_recurrent_gated_delta_rule"):
    run = with_relations(relation, ran="torch_chunk_gated_delta_rule")
    chunk = FunctionFact(file="m.py", line=1, own=False, digest="d")
    code = CodeSignal(executed={"modeling_x:torch_chunk_gated_delta_rule": chunk})
    token = TokenFacts(attention=(), functions=(f"modeling_x:{step}",))
    return codes_of(with_signals(run, code=code, first_token={"short": token}))


def test_two_formulations_are_named_where_both_ran_and_part_by_rounding():
    assert delta_net(relation(DECODE, 1e-5, 1e-14)) == ["SB710"]
    assert delta_net(relation(DECODE, 1e-5, 1e-14), step="torch_chunk_gated_delta_rule") == []
    assert "SB710" not in delta_net(relation(DECODE, 3.0, 3.0))
    assert codes_of(with_relations(relation(DECODE, 1e-5, 1e-14))) == []


def test_experts_that_are_numbered_otherwise_are_named_where_outputs_change_in_float64():
    name = "experts in another order"
    assert codes_of(with_relations(relation(name, 3.0, 3.0))) == ["SB719"]
    assert codes_of(with_relations(relation(name, 1e-5, 1e-14))) == []


@pytest.mark.parametrize("name", ["embeddings = token ids", FROM_EMBEDDINGS])
def test_embeddings_are_named_where_the_reference_takes_them_as_token_ids(name):
    broken = with_relations(relation(name, 3.0, 3.0))
    holds = with_relations(relation(name, 0.0, 0.0).model_copy(update={"holds": True}))
    rounds = with_relations(relation(name, 1e-5, 1e-14))
    assert codes_of(broken, reference=holds) == codes_of(broken, reference=rounds) == ["SB714"]
    assert codes_of(broken, reference=broken) == []
    assert codes_of(broken) == []
    assert codes_of(rounds, reference=holds) == []


def test_decoding_is_not_blamed_where_rows_see_the_future():
    ahead = relation("causality", 2.0, 2.0)
    relations = (relation(DECODE, 3.0, 3.0), relation("right padding", 3.0, 3.0), ahead)
    assert codes_of(with_relations(*relations)) == ["SB706"]
    assert codes_of(with_relations(*relations[:2])) == ["SB704", "SB705"]
    left = relation("left padding", 3.0, 3.0)
    assert codes_of(with_relations(ahead, left)) == ["SB705", "SB706"]


def test_other_linear_attention_is_no_delta_net():
    broken = relation(SPLIT, 3.0, 3.0)
    assert codes_of(with_relations(broken, ran="MiniMaxLightningAttention")) == ["SB704"]


def test_an_own_preparation_for_generate_is_named_where_generate_alone_fails():
    message = "The size of tensor a (19) must match the size of tensor b (10) at dimension 3"
    code = own_code(classes=(cls(methods={"prepare_inputs_for_generation": ("self",)}),))
    assert codes_of(failed("RuntimeError", message, code=code, phase="greedy short")) == ["SB805"]
    assert codes_of(failed("RuntimeError", message, code=code, phase="forward short")) == []
    assert codes_of(failed("RuntimeError", message, phase="greedy short")) == []


def test_a_mask_that_generate_leaves_out_is_named_where_an_own_method_uses_it():
    message = "'NoneType' object has no attribute 'new_ones'"
    place = {"function": "_update_model_kwargs_for_generation"}
    line = frame(code="torch.cat([attention_mask, attention_mask.new_ones((1, 1))])", **place)
    greedy = {"phase": "greedy short"}
    assert codes_of(failed("AttributeError", message, line, **greedy)) == ["SB718"]
    assert codes_of(failed("AttributeError", message, line, phase="forward short")) == []
    assert codes_of(failed("ValueError", message, line, **greedy)) == []
    of_none = frame(code="assert attention_mask is not None", function="forward")
    assert codes_of(failed("AssertionError", "", of_none, **greedy)) == ["SB718"]
    assert codes_of(failed("AssertionError", "", of_none, phase="forward short")) == []
    of_values = frame(code="assert attention_mask.all()", function="forward")
    assert codes_of(failed("AssertionError", "", of_values, **greedy)) == []
    other = frame(code="past.new_ones(1)", **place)
    assert "SB718" not in codes_of(failed("AttributeError", message, other, **greedy))


def test_what_differs_by_design_is_no_finding():
    noted = relation(DECODE, 3.0, 3.0, note="the rope depends on the length")
    assert codes_of(with_relations(noted)) == []
    tested = Idiom(name="truth of a cache", file=OWN, line=9, code="if past_key_values")
    code = own_code().model_copy(update={"idioms": (tested,)})
    by_design, broken = (
        with_signals(with_relations(r), code=code) for r in (noted, relation(DECODE, 3.0, 3.0))
    )
    assert codes_of(by_design) == []
    assert codes_of(broken) == ["SB704", "SB708"]


def test_rows_with_images_have_findings_of_their_own():
    apart, after = "rows with images = one by one", "rows of text after images = before"
    assert codes_of(with_relations(relation(apart, 2.0, 2.0))) == ["SB705"]
    assert codes_of(with_relations(relation(after, 2.0, 2.0))) == ["SB717"]
    assert codes_of(with_relations(*(relation(n, 1e-5, 1e-14) for n in (apart, after)))) == []


def test_generation_with_an_image_is_named_where_that_of_the_reference_is_its_forward():
    name = "generate() with images or sounds = forward"
    kept, broken = (with_relations(relation(name, d, d)) for d in (0.0, 2.0))
    rounded = with_relations(relation(name, 1e-5, 1e-14))
    assert codes_of(broken, reference=kept) == ["SB704"]
    assert codes_of(broken, reference=rounded) == ["SB704"]
    assert codes_of(broken, reference=broken) == []
    assert codes_of(rounded, reference=kept) == []


def test_a_later_turn_that_its_cache_changes_is_named_if_the_reference_keeps_it():
    name = "generate() over the cache of a turn = anew"
    broken, rounded = (with_relations(relation(name, *d)) for d in ((2.0, 2.0), (1e-5, 1e-14)))
    assert codes_of(broken, reference=rounded) == ["SB704"]
    assert codes_of(broken, reference=broken) == []
    assert codes_of(rounded, reference=broken) == []


def test_steps_without_a_cache_that_forget_the_image_are_named_on_the_side_that_has_them():
    name = "generate(use_cache=False) with images or sounds = with a cache"
    broken, rounded = (with_relations(relation(name, *d)) for d in ((2.0, 2.0), (1e-5, 1e-14)))
    assert codes_of(broken, reference=rounded) == ["SB704"]
    assert codes_of(rounded, reference=broken) == ["SB704"]
    assert codes_of(broken, reference=broken) == []


def test_generation_that_padding_changes_is_named_whatever_the_reference_does():
    name = "generate() of a padded row = without padding"
    broken, rounded = (with_relations(relation(name, *d)) for d in ((2.0, 2.0), (1e-5, 1e-14)))
    assert codes_of(broken, reference=broken) == ["SB704"]
    assert codes_of(rounded, reference=broken) == []


def test_sdpa_and_eager_attention_of_different_functions_are_named_and_rounding_is_not():
    assert codes_of(with_relations(relation("SDPA = eager attention", 1.2, 1.2))) == ["SB606"]
    assert codes_of(with_relations(relation("SDPA = eager attention", 3e-6, 4e-15))) == []


def test_padding_and_causality_have_findings_of_their_own():
    assert codes_of(with_relations(relation("left padding", 2.0, 2.0))) == ["SB705"]
    memory = Memory()
    rows = {"padded": ((3, 6), (0, 6)), "several": ((0, 6), (0, 6)), "short": None}
    forwards = {name: forward(memory, real_rows=spans) for name, spans in rows.items()}
    for names, of_prompts in (
        (("left padding",), ("padded",)),
        (("right padding", "left padding"), ("padded",)),
        (("left padding", "batch size"), None),
    ):
        signal = RelationsSignal(relations=tuple(relation(n, 2.0, 2.0) for n in names))
        (found,) = findings(Case(capture=sound(memory, forward=forwards, relations=signal)))
        assert found.of_prompts == of_prompts, names
    assert codes_of(with_relations(relation("causality", 2.0, 2.0))) == ["SB706"]
    assert codes_of(with_relations(relation("left padding", 1e-5, 1e-14))) == []


@pytest.mark.parametrize(
    "name", ["left padding, positions left out", "generate() of a padded row = without padding"]
)
def test_padding_that_one_side_alone_counts_is_a_defect_of_that_side(name):
    """BioGPT of 5.24 counts positions from the first pad on, openai-gpt of 4.57 in generate(): the other side does not."""
    broken, kept = (
        with_relations(relation(name, d, d, note="by design" if d else "")) for d in (2.0, 0.0)
    )
    (found,) = findings(Case(capture=broken, reference=kept))
    assert (found.code, found.of_reference) == ("SB705", False)
    (found,) = findings(Case(capture=kept, reference=broken))
    assert (found.code, found.of_reference) == ("SB705", True)
    # both may be so by design
    assert codes_of(broken, reference=broken) == []
    assert codes_of(broken) == []
    rounded = with_relations(relation(name, 1e-5, 1e-14))
    assert codes_of(rounded, reference=kept) == []


def tokenized(**changed):
    """Return the codes of a cell whose tokenizer has these changes from the reference's."""
    reference = sound(Memory(), tokenizer=tokenizer())
    return codes_of(sound(Memory(), "5.x", tokenizer=tokenizer(**changed)), reference=reference)


def texts_of(text, *ids, bare=(5, 6)):
    return {"fixed": Encoded(text=text, ids=ids, bare=bare)}


def test_a_tokenizer_that_is_the_same_has_no_finding():
    assert tokenized() == []
    assert tokenized(class_name="LlamaTokenizer", knows_backend=True) == []
    assert codes_of(sound(Memory(), "5.x", tokenizer=tokenizer(padding_side="right"))) == []


def test_a_special_token_less_is_a_finding():
    assert tokenized(texts=texts_of("Hello", 5, 6)) == ["SB801"]
    assert tokenized(texts=texts_of("Hello", 1, 5, 6, 2)) == []
    assert tokenized(texts=texts_of("Hello there", 5, 6)) == []


def test_a_special_token_that_the_checkpoint_states_not_to_add_may_go():
    def lost(stated):
        unasked = tokenizer(unlike={"add_bos_token": (stated, "other")})
        candidate = sound(Memory(), "5.x", tokenizer=tokenizer(**NO_BOS))
        return codes_of(candidate, reference=sound(Memory(), tokenizer=unasked))

    assert lost("false") == []
    assert lost("true") == ["SB801"]


def test_other_tokens_are_told_from_a_special_token_less():
    assert tokenized(texts=texts_of("Hello", 1, 5, 7, bare=(5, 7))) == ["SB806"]
    assert tokenized(texts=texts_of("Hello", 1, 5, bare=(5,))) == ["SB806"]
    assert tokenized(texts=texts_of("Hello", 5, bare=(5,))) == ["SB801", "SB806"]


def test_a_class_that_the_reference_lacks_is_a_finding_where_it_is_written():
    assert tokenized(saved_class="TokenizersBackend", knows_backend=True) == ["SB802"]
    reference = sound(Memory(), tokenizer=tokenizer(knows_backend=True))
    written = tokenizer(saved_class="TokenizersBackend", knows_backend=True)
    assert codes_of(sound(Memory(), "5.x", tokenizer=written), reference=reference) == []


def test_another_padding_side_is_a_finding():
    assert tokenized(padding_side="right") == ["SB807"]


STATES = {"extra": ('{"a": 1}', '{"a": 2}')}
UNREAD = {"add_bos_token": ("true", "false")}
NO_BOS = {"texts": texts_of("Hello", 5, 6)}


def test_a_key_that_the_tokenizer_has_otherwise_is_a_finding():
    assert tokenized(unlike=STATES) == ["SB827"]
    assert codes_of(sound(Memory(), tokenizer=tokenizer(unlike=STATES))) == ["SB827"]
    reference = sound(Memory(), tokenizer=tokenizer(unlike=STATES))
    candidate = sound(Memory(), "5.x", tokenizer=tokenizer())
    assert codes_of(candidate, reference=reference) == []


def test_a_key_that_no_tokenizer_keeps_is_no_finding():
    absent = {"extra": ("1", "absent")}
    assert tokenized(unlike=absent) == ["SB827"]
    assert codes_of(sound(Memory(), tokenizer=tokenizer(unlike=absent))) == []
    reference = sound(Memory(), tokenizer=tokenizer(unlike=absent))
    candidate = sound(Memory(), "5.x", tokenizer=tokenizer(unlike=absent))
    assert codes_of(candidate, reference=reference) == []


def test_an_attribute_is_no_finding_where_the_ids_are_as_stated():
    assert tokenized(unlike=UNREAD) == []
    assert tokenized(unlike=UNREAD, **NO_BOS) == ["SB801", "SB827"]
    assert tokenized(unlike={"add_eos_token": ("false", "true")}) == []


NEEDED = [
    ("ImportError", "\nLlamaConverter requires the protobuf library but it was not found in your"),
    ("ImportError", "\nXTokenizer requires the SentencePiece library but it was not found in your"),
    ("ValueError", "`tiktoken` is required to read a `tiktoken` file. Install it with `pip …`."),
    ("ValueError", "… You need to have sentencepiece or tiktoken installed to convert a slow …"),
    ("ModuleNotFoundError", "No module named 'sentencepiece'"),
]


@pytest.mark.parametrize(("type_name", "message"), NEEDED)
def test_a_package_that_a_tokenizer_needs_is_a_finding_with_its_command(type_name, message):
    run = failed(type_name, message, phase="tokenizer")
    (finding,) = findings(Case(capture=run))
    assert finding.code == "SB828"
    assert "samebits check --environment-package sentencepiece" in finding.evidence[-1]
    assert "SB828" not in codes_of(failed(type_name, message))


def test_another_failure_of_a_tokenizer_needs_no_package():
    assert codes_of(failed("ValueError", "sentencepiece: wrong magic", phase="tokenizer")) == []
    assert codes_of(failed("OSError", "`tiktoken` is required", phase="tokenizer")) == []
    run = failed(
        "ImportError", "requires the protobuf library but it was not found", phase="tokenizer"
    )
    for first, codes in (
        ("TypeError: x", []),
        ("ImportError: No module named 'google'", ["SB828"]),
    ):
        text = f"{first}\n\nDuring handling of the above exception, another exception occurred:\n"
        failure = run.failure.model_copy(update={"traceback": text})
        assert codes_of(run.model_copy(update={"failure": failure})) == codes


def test_another_answer_of_the_chat_template_is_a_finding():
    ids, batch = Answer(type="list"), Answer(type="BatchEncoding")
    reference = sound(Memory(), tokenizer=tokenizer(chat=ids))
    for answer, expected in ((batch, ["SB808"]), (ids, []), (None, ["SB819"])):
        candidate = sound(Memory(), "5.x", tokenizer=tokenizer(chat=answer))
        assert codes_of(candidate, reference=reference) == expected


def test_methods_and_answers_that_changed_are_one_finding():
    gone = {"methods": {"encode_plus": False}, "batch": Answer(type="list")}
    assert tokenized(**gone) == ["SB809"]
    assert tokenized(gives=("input_ids", "token_type_ids", "attention_mask")) == ["SB809"]
    assert tokenized(methods={"encode_plus": True, "another": False}) == []
    assert tokenized(batch=Answer(raised="TypeError: other words")) == []


def named(stack, **tensors):
    memory = Memory()
    facts = {
        name: weight(memory, values(4, 4, seed=seed), *pieces)
        for seed, (name, pieces) in enumerate(tensors.items())
    }
    return sound(memory, stack, weights=weights_signal(facts))


def test_names_that_are_the_files_in_the_reference_alone_are_a_finding():
    reference = named("4.48", head=("head",), w1=("w1",), w2=("w2",))
    fused = named("5.x", head=("head",), gate=(("w1", "[0:2]"), ("w2", "[0:2]")))
    (finding,) = findings(Case(fused, reference=reference))
    assert finding.code == "SB309"
    assert finding.evidence[0].startswith("2 of 3 tensors")
    assert "w1 is in gate" in finding.evidence
    assert codes_of(reference, reference=reference) == []
    assert codes_of(reference, reference=fused) == []
    assert codes_of(fused, reference=fused) == []


def test_a_name_that_is_an_alias_here_is_still_a_name():
    reference = named("4.48", head=("head",))
    memory = Memory()
    tied = {"embed": weight(memory, values(4, 4), "head", aliases=("head",))}
    assert codes_of(sound(memory, "5.x", weights=weights_signal(tied)), reference=reference) == []


def tables(stack, kind, *, frozen=()):
    """Return a capture with a table of two names, of which the signal of buffers has the first one alone."""
    memory = Memory()
    table = weight(memory, values(4, 4), "own.table", kind=kind, aliases=("own.table",))
    signal = weights_signal({"shared.table": table}).model_copy(update={"frozen": frozen})
    is_buffer = kind == "buffer"
    buffers = {"shared.table": buffer(memory, values(4, 4), persistent=True)} if is_buffer else {}
    return sound(memory, stack, weights=signal, buffers=buffers)


def test_a_tensor_that_only_one_release_trains_is_a_finding():
    trained, stored = tables("4.48", "parameter"), tables("5.x", "buffer")
    frozen = tables("5.x", "parameter", frozen=("shared.table", "own.table"))
    (finding,) = findings(Case(stored, reference=trained))
    assert (finding.code, finding.where) == ("SB966", "own.table, shared.table")
    assert finding.evidence == ("4.48: a parameter that is trained", "5.x: a buffer")
    (finding,) = findings(Case(trained, reference=stored))
    assert finding.code == "SB966"
    (finding,) = findings(Case(frozen, reference=trained))
    assert finding.evidence[1] == "5.x: a frozen parameter"
    for same in (trained, stored, frozen):
        assert codes_of(same, reference=same) == []
    assert codes_of(frozen, reference=stored) == []


def pair(memory, **changed):
    reference, candidate = sound(memory), sound(memory, "5.x", **changed)
    return reference, candidate, compare(reference, candidate, memory)


@pytest.mark.parametrize(
    ("name", "code"), [("truth of a cache", "SB708"), ("past_key_value keyword", "SB709")]
)
def test_a_suspicious_line_is_named_only_where_decoding_differs(memory, name, code):
    reference, candidate, signals = pair(memory, greedy={"short": decoded(memory, 3, 1, 5)})
    (finding,) = findings(Case(with_idiom(candidate, name), reference, signals))
    assert (finding.code, finding.where) == (code, f"{OWN}:9")
    assert codes_of(candidate, reference=reference, signals=signals) == []
    reference, candidate, signals = pair(memory)
    assert codes_of(with_idiom(candidate, name), reference=reference, signals=signals) == []


def decoded_by_hand(holds):
    """Return the answer whether greedy decoding by hand gives what generate() gives."""
    made = relation("greedy by hand = generate()", *((1e-6, 1e-15) if holds else (2.0, 2.0)))
    return {"answers": {"relations": RelationsSignal(relations=(made,))}}


@pytest.mark.parametrize(
    ("window", "short", "own", "holds", "of_reference"),
    [
        (10, (3, 1, 4), "Attention", (True, False), False),
        (10, (3, 1, 4), "Attention", (False, True), True),
        (10, (3, 1, 4), "Attention", (True, True), None),
        (10, (3, 1, 5), "Attention", (True, False), None),  # a text that fits moves, too
        (40, (3, 1, 4), "Attention", (True, False), None),  # no text is longer
        (None, (3, 1, 4), "Attention", (True, False), None),
        (10, (3, 1, 4), "Embedding", (True, False), None),
    ],
)
def test_ids_that_move_beyond_the_window_alone_are_named(
    memory, window, short, own, holds, of_reference
):
    def decoding(short_ids, long_ids):
        return {
            "forward": {"short": forward(memory), "long": forward(memory, ids=[range(20)])},
            "greedy": {"short": decoded(memory, *short_ids), "long": decoded(memory, *long_ids)},
        }

    code = {"code": own_code(classes=(cls(own),)), "config": {"sliding_window": window}}
    reference = sound(memory, **decoding((3, 1, 4), (1, 5, 9)))
    candidate = sound(memory, "5.x", **code, **decoding(short, (1, 5, 2)))
    signals = compare(reference, candidate, memory)
    runs = [
        with_signals(run, **decoded_by_hand(held))
        for run, held in zip((candidate, reference), holds[::-1], strict=True)
    ]
    case = Case(*runs, signals)
    named = {finding.of_reference for finding in findings(case) if finding.code == "SB725"}
    assert named == (set() if of_reference is None else {of_reference})


def test_the_old_name_of_the_cache_is_named_only_where_decoding_alone_differs():
    memory, name = Memory(), "old name of the cache"
    reference, candidate, signals = pair(memory, greedy={"short": decoded(memory, 3, 1, 5)})
    lost = with_idiom(candidate, name)
    (finding,) = findings(Case(lost, reference, signals))
    assert (finding.code, finding.where) == ("SB713", f"{OWN}:9")
    recomputed = Ladder(kind="rounding", rule="slope", reason="…")
    (finding,) = findings(Case(lost, reference, signals, ladder=recomputed))
    assert "each step computes the whole text" in finding.evidence[1]
    # a line that only runs on a cache is not blamed where generate() hands none over
    tested = Idiom(name="truth of a cache", file=OWN, line=12, code="if past_key_values")
    code = own_code().model_copy(update={"idioms": (*lost.signals.code.idioms, tested)})
    both = with_signals(lost, code=code)
    assert codes_of(both, reference=reference, signals=signals) == ["SB713"]
    # a reference whose generate() passes the same name decodes as badly
    assert codes_of(lost, reference=with_idiom(reference, name), signals=signals) == []
    reference, candidate, signals = pair(memory)
    assert codes_of(with_idiom(candidate, name), reference=reference, signals=signals) == []


@pytest.mark.parametrize(("holds_before", "named"), [(True, ["SB713"]), (False, [])])
def test_a_loop_over_the_forward_shows_the_old_name_where_the_forward_differs_too(
    holds_before, named
):
    """A lost tie changes every number, and generate() loses its cache beside it."""
    memory, name = Memory(), "old name of the cache"
    moved = forward(memory, hidden=(), logits=values(1, 6, 8, seed=99))

    reference, candidate, signals = pair(memory, forward={"short": moved})
    reference = with_signals(reference, **decoded_by_hand(holds_before))
    lost = with_signals(with_idiom(candidate, name), **decoded_by_hand(holds=False))
    case = Case(lost, reference, signals)
    assert [code for code in codes(case) if code == "SB713"] == named
    sound_ = with_signals(with_idiom(candidate, name), **decoded_by_hand(holds=True))
    assert "SB713" not in codes(Case(sound_, reference, signals))


@pytest.mark.parametrize(
    ("rests_on", "named"), [(("decode",), ["SB713"]), (("logits", "decode"), []), ((), [])]
)
def test_the_old_name_of_the_cache_explains_no_forward(memory, rests_on, named):
    moved = forward(memory, hidden=(), logits=values(1, 6, 8, seed=99))
    reference, candidate, signals = pair(
        memory, forward={"short": moved}, greedy={"short": decoded(memory, 3, 1, 5)}
    )
    deciders = tuple(Decider(signal=s, subject=Subject(prompt="short")) for s in rests_on)
    ladder = Ladder(kind="diverged", rule="slope", reason="…", rests_on=deciders)
    lost = with_idiom(candidate, "old name of the cache")
    case = Case(lost, reference, signals, ladder=ladder)
    assert [c for c in codes(case) if c.startswith("SB7")] == named


def test_a_suspicious_line_is_not_blamed_for_an_exception_that_has_a_name():
    message = "'DynamicCache' object is not subscriptable"
    named = with_idiom(failed("TypeError", message, phase="greedy short"), "truth of a cache")
    assert codes_of(named) == ["SB702"]
    crop = "Calling `crop` with a positive value (`3`) is not supported"
    cropped = with_idiom(failed("ValueError", crop, phase="greedy short"), "truth of a cache")
    assert codes_of(cropped) == ["SB707"]
    candidate = with_idiom(
        failed("TypeError", "no len()", phase="greedy short"), "truth of a cache"
    )
    assert codes_of(candidate) == ["SB708"]


@pytest.mark.parametrize(
    ("phase", "message", "codes"),
    [("greedy short", "no len()", ["SB708"]), ("tokenizer", "no attribute vocab_size", [])],
)
def test_a_suspicious_line_explains_no_exception_that_it_is_not_about(phase, message, codes):
    """Baichuan's tokenizer raises, and its cached decoding is broken beside that."""
    case = Case(
        with_idiom(failed("TypeError", "no len()", phase="greedy short"), "truth of a cache")
    )
    failure = failed("TypeError", message, phase=phase).failure
    named = explaining(findings(case), Verdict.FAILED, failure=failure)
    assert [explanation.code for explanation in named] == codes


def test_what_a_forward_raises_is_no_fault_of_a_line_behind_the_cache():
    """ChatGLM3's tokenizer raises for every text, be it for a forward or for generate()."""
    raised = [
        failed("TypeError", "_pad() got an unexpected keyword argument", phase=phase).failure
        for phase in ("forward short", "greedy short")
    ]
    run = with_idiom(capture("5.x"), "truth of a cache")
    assert codes_of(run.model_copy(update={"failures": tuple(raised)})) == []
    assert codes_of(run.model_copy(update={"failures": tuple(raised[1:])})) == ["SB708"]


OF_TOKENIZER = ("tokenization_tiny.py", "__init__", "super().__init__(**kwargs)", True)
OF_BASE = ("transformers/tokenization_utils.py", "__init__", "self._add_tokens(", False)
VOCABULARY = ("tokenization_tiny.py", "get_vocab", "range(self.vocab_size)", True)


@pytest.mark.parametrize(
    ("frames", "phase", "named"),
    [
        ((OF_TOKENIZER, OF_BASE, VOCABULARY), "tokenizer", True),
        ((OF_TOKENIZER, OF_BASE), "tokenizer", False),
        ((VOCABULARY,), "tokenizer", False),
        ((OF_TOKENIZER, OF_BASE, VOCABULARY), "forward short", False),
    ],
)
def test_a_tokenizer_whose_base_class_asks_before_it_can_answer_is_named(frames, phase, named):
    made = [
        Frame(file=file, line=n, function=function, code=code, own=own)
        for n, (file, function, code, own) in enumerate(frames, 71)
    ]
    message = "TinyTokenizer has no attribute vocab_size"
    found = findings(Case(capture=failed("AttributeError", message, *made, phase=phase)))
    places = [(f.code, f.where) for f in found]
    assert places == ([("SB867", "tokenization_tiny.py:71")] if named else [])


@pytest.mark.parametrize(
    ("caller", "named"), [("self.__class__().to_dict()", True), ("cls(**config_dict)", False)]
)
def test_a_config_that_needs_arguments_is_named_where_it_gets_none(caller, named):
    """InternVL's config raises without the config of its language model."""
    frames = [
        Frame(file="transformers/configuration_utils.py", line=893, function="f", code=caller),
        Frame(file="configuration_tiny.py", line=61, function="__init__", code="raise", own=True),
    ]
    found = findings(Case(capture=failed("ValueError", "Unsupported", *frames, phase="config")))
    expected = [("SB214", "configuration_tiny.py:61")] if named else []
    assert [(f.code, f.where) for f in found] == expected


def test_an_import_behind_the_one_that_raised_does_not_explain_it():
    code = own_code(imports=(missing("is_torch_fx_available"),))
    run = failed("ModuleNotFoundError", "No module named 'my_package'", code=code)
    named = findings(Case(capture=run))
    assert [finding.code for finding in named] == ["SB102", "SB318"]
    (explanation,) = explaining(named, Verdict.FAILED, failure=run.failure)
    assert explanation.code == "SB318"


@pytest.mark.parametrize("phase", ["tokenizer", "forward short"])
def test_each_exception_is_named_and_explains_the_verdict(phase):
    """Qwen's tokenizer needs tiktoken, and beside that its forward calls a method that left."""
    tokenizer, forward = (
        failed(type_name, message, phase=phase).failure
        for type_name, message, phase in (
            ("ImportError", "No module named 'tiktoken'", "tokenizer"),
            ("AttributeError", "'Tiny' object has no attribute 'get_head_mask'", "forward short"),
        )
    )
    run = capture("5.x").model_copy(update={"failures": (tokenizer, forward)})
    named = findings(Case(capture=run))
    assert [finding.code for finding in named] == ["SB104", "SB828"]
    failure = next(f for f in (tokenizer, forward) if f.phase == phase)
    # the model works when both are mended, whichever of them is the cell's first
    both = explaining(named, Verdict.FAILED, failure=failure, failures=run.failures)
    assert [explanation.code for explanation in both] == ["SB104", "SB828"]


def test_the_first_of_a_layers_output_is_named_only_where_the_forward_differs():
    memory, name = Memory(), "first of a layer's output"
    moved = forward(memory, hidden=(), logits=values(1, 6, 8, seed=99))
    reference, candidate, signals = pair(memory, forward={"short": moved})
    assert codes_of(with_idiom(candidate, name), reference=reference, signals=signals) == ["SB803"]
    reference, candidate, signals = pair(memory)
    assert codes_of(with_idiom(candidate, name), reference=reference, signals=signals) == []
    died = with_idiom(failed("RuntimeError", "shapes", phase="forward padded"), name)
    assert codes_of(died) == ["SB803"]
    loading = with_idiom(failed("RuntimeError", "shapes", phase="load"), name)
    assert codes_of(loading) == []


def test_logits_of_more_positions_are_named_by_the_keyword():
    memory, name = Memory(), "logits_to_keep keyword"
    reference = sound(memory, forward={"short": forward(memory, logits=values(1, 1, 8))})
    candidate = sound(memory, "5.x", forward={"short": forward(memory, logits=values(1, 6, 8))})
    signals = compare(reference, candidate, memory)
    assert "SB804" in codes_of(with_idiom(candidate, name), reference=reference, signals=signals)
    assert "SB804" not in codes_of(candidate, reference=reference, signals=signals)


def test_a_test_of_a_buffers_values_is_said_to_be_no_remedy():
    facts = {"source": "unwritten", "written": "none", "kind": "non-persistent buffer"}
    run = with_idiom(sound(Memory(), integrity=integrity(t=facts)), "truth of a buffer's values")
    (finding,) = findings(Case(run))
    assert finding.code == "SB301"
    assert any("not a remedy" in line for line in finding.evidence)


MAPS = {"implementation": "sdpa", "given": "an empty tuple", "eager": "tensors"}
HELD = {"fed": 40, "kind": "DynamicCache", "seq_length": 40}
SLIDING = {"kind": "DynamicSlidingWindowLayer", "keys": 7, "n": 2}
WAYS = ("no mask, no cache", "a mask of ones, no cache", "no mask, use_cache=True")
SB907 = (
    "ValueError: Passing `MinLengthLogitsProcessor` when using `assisted_generation is disabled."
)
SB908 = "ValueError: Contrastive Search requires `trust_remote_code=True` in your `generate` call"


def packed(*by_the_first, ordinary=6.0):
    ways = [
        {"way": way, "by_the_first": by, "from_alone": by}
        for way, by in zip(WAYS, by_the_first, strict=True)
    ]
    return {"ordinary": ordinary, "ways": ways}


def fed(*positions, same_logits=False):
    return {"prompt": 5, "fed": positions, "same_logits": same_logits}


def searched(**changed):
    return {"n_moved": 4, "greedy": 1e-6, "of_others": 3.0} | changed


SECOND = {"steps": [4, 4], "n_same": 4, "apart": 0.0, "of_steps": 1.5}
USAGE = [
    ("SB901", "attentions", MAPS, MAPS | {"given": "tensors", "logits_changed": False}),
    ("SB901", "attentions", MAPS | {"given": "None for each layer"}, MAPS | {"eager": "None"}),
    ("SB901", "attentions", MAPS | {"given": "None"}, MAPS | {"given": "None", "eager": None}),
    # a hybrid has no map for a layer without attention; that a layer with it has none is a loss
    (
        "SB901",
        "attentions",
        MAPS | {"given": "tensors and None", "eager": "tensors"},
        MAPS | {"given": "tensors and None", "eager": "tensors and None"},
    ),
    (
        "SB902",
        "attentions",
        {"implementation": "sdpa", "given": "tensors", "logits_changed": True},
        {"implementation": "eager", "given": "tensors", "logits_changed": False},
    ),
    ("SB903", "packed", packed(0, 9.4, 9.4), packed(0, 2.4e-6, 0)),
    ("SB903", "packed", packed(8, 8, 8), packed(8, 8, 8, ordinary=0)),
    (
        "SB904",
        "cache",
        HELD | {"layers": [SLIDING, {"kind": "DynamicLayer", "keys": 40, "n": 1}]},
        HELD | {"layers": [{"kind": "DynamicLayer", "keys": 40, "n": 3}]},
    ),
    (
        "SB905",
        "cache_position",
        {"named": False, "wrong": "the same logits"},
        {"named": True, "wrong": "other logits"},
    ),
    (
        "SB905",
        "cache_position",
        {"named": False, "wrong": "the same logits"},
        {"named": False, "wrong": "TypeError: forward() got an unexpected keyword argument"},
    ),
    ("SB906", "position_ids", fed(4, 4, 4), fed(4, 5, 6, same_logits=True)),
    ("SB906", "position_ids", fed(4, 4), fed(4, 4, same_logits=True)),
    ("SB906", "position_ids", fed(4, 4), {"refused": "ValueError: not used by the model"}),
    ("SB907", "assisted", {"min_new_tokens": SB907}, {"min_new_tokens": ""}),
    ("SB907", "assisted", {"min_new_tokens": SB907}, {"min_new_tokens": SB907, "plain": "No"}),
    ("SB908", "strategies", {"penalty_alpha": SB908}, {"penalty_alpha": "ValueError: stateful"}),
    ("SB909", "saved", {"files": ["model.safetensors"]}, {"files": ["pytorch_model.bin"]}),
    ("SB825", "beams", searched(by_cache=0.8), searched(by_cache=2e-6)),
    ("SB825", "beams", searched(by_cache=0.8), searched(by_cache=0.8, greedy=0.7)),
    ("SB825", "beams", searched(by_cache=0.8), {"refused": "ValueError: no beams"}),
    *(
        ("SB925", "several", {"image-padded": searched(by_cache=0.8)}, {"image-padded": clean})
        for clean in (
            searched(by_cache=2e-6),
            searched(by_cache=0.8, greedy=0.7),
            {"refused": "RuntimeError: sizes differ"},
        )
    ),
    ("SB915", "repeated", SECOND | {"n_same": 0, "apart": 0.7}, SECOND),
    ("SB915", "repeated", SECOND | {"n_same": 2, "apart": 0.1}, SECOND | {"apart": 1e-6}),
    ("SB915", "repeated", SECOND | {"steps": [4, 3], "n_same": 3}, SECOND | {"of_steps": 0.0}),
    ("SB915", "repeated", SECOND | {"apart": 0.7}, {"refused": "RuntimeError: sizes differ"}),
    ("SB916", "static", SECOND | {"apart": 0.7}, SECOND | {"apart": 1e-6}),
    ("SB916", "static", SECOND | {"apart": 0.7}, {"refused": "RuntimeError: sizes differ"}),
    ("SB954", "flex", SECOND | {"apart": 0.7}, SECOND | {"apart": 1e-6}),
    ("SB954", "flex", SECOND | {"apart": 0.7}, {"refused": "RuntimeError: sizes differ"}),
    *(
        ("SB916", "caches", {name: SECOND | {"apart": 0.7}}, {name: clean})
        for name in CACHES
        for clean in (SECOND | {"apart": 1e-6}, {"refused": "RuntimeError: sizes differ"})
    ),
]
"""Code, part of the signal, a value that the rule finds, and one that it does not."""


def used(stack="5.x", **parts):
    return sound(Memory(), stack, usage=UsageSignal.model_validate(parts))


@pytest.mark.parametrize(("code", "part", "bad", "clean"), USAGE)
def test_an_answer_of_a_made_model_is_named_as_such(code, part, bad, clean):
    (plain,), (evidence,) = (
        evidence_of(used(**{part: bad}, **asked)) for asked in ({}, {"asked_of": MADE.model_dump()})
    )
    assert evidence == (*plain, f"seen with {MADE.in_words}")
    assert codes_of(used(**{part: clean}, asked_of=MADE.model_dump())) == []


@pytest.mark.parametrize(("code", "part", "bad", "clean"), USAGE)
def test_what_a_release_answers_is_named(code, part, bad, clean):
    assert codes_of(used(**{part: bad})) == [code]
    assert codes_of(used(**{part: clean})) == []


COMPARED = [
    ("SB910", "saved", {"dtype_keys": ["torch_dtype"]}, {"dtype_keys": ["dtype"]}),
    ("SB910", "saved", {"max_shard_size": "5GB"}, {"max_shard_size": "50GB"}),
    ("SB911", "checkpointing", {"use_reentrant": True}, {"use_reentrant": False}),
]


TEXT, OTHER_TEXT = (
    {"get_text_features": {"returned": "Tensor", "shape": [1, 16], "digest": digest}}
    for digest in ("aa", "bb")
)
REFUSED = {"get_text_features": {"refused": "TypeError: no"}}
OBJECT = {"get_text_features": TEXT["get_text_features"] | {"returned": "Output"}}
LEFT_OUT = {"get_text_features": {"left_out": "it needs boxes"}}
SAME = differs("outputs", "identical")
GIVEN, GIVEN_ROUNDED, GIVEN_OTHER = (
    {"forward(text_embeds=get_text_features())": {"returned": "text_embeds", "distance": distance}}
    for distance in (0.0, 1e-6, 0.5)
)
GIVEN_REFUSED = {"forward(text_embeds=get_text_features())": {"raises": "AttributeError: no"}}


@pytest.mark.parametrize(
    ("reference", "candidate", "signals", "expected"),
    [
        (TEXT, TEXT, SAME, []),
        (TEXT, OTHER_TEXT, SAME, ["SB917"]),
        (TEXT, OTHER_TEXT, (), []),  # forward differs, or is not compared: it may round
        (TEXT, REFUSED, SAME, ["SB917"]),
        (REFUSED, TEXT, (), ["SB917"]),
        (REFUSED, REFUSED, SAME, []),
        (TEXT, LEFT_OUT, SAME, []),
        (TEXT, OBJECT, SAME, ["SB918"]),
        (GIVEN, GIVEN_REFUSED, (), ["SB917"]),
        (GIVEN, GIVEN_OTHER, (), ["SB917"]),
        (GIVEN, GIVEN_ROUNDED, (), []),
        (GIVEN_OTHER, GIVEN, (), []),  # the reference is not right, so nothing was lost
        (GIVEN_OTHER, GIVEN_OTHER, SAME, []),
        (GIVEN_REFUSED, GIVEN_REFUSED, SAME, []),
        (GIVEN_REFUSED, GIVEN, SAME, ["SB917"]),
        (GIVEN_OTHER, GIVEN_REFUSED, SAME, []),  # they have another meaning
        (GIVEN_REFUSED, GIVEN_OTHER, SAME, []),
    ],
)
def test_methods_for_features_are_compared(reference, candidate, signals, expected):
    sides = used("4.48", features=reference), used(features=candidate)
    assert codes(Case(sides[1], reference=sides[0], signals=signals)) == expected


APEX, FLA = "import apex.normalization.FusedRMSNorm", "import fla.modules.FusedRMSNormGated"


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        ([APEX], [], ["SB957"]),
        ([APEX], [APEX, FLA], ["SB957"]),
        ([APEX, FLA], [FLA, APEX], []),
        ([], [], []),
        (None, [APEX], []),  # it was not asked
    ],
)
def test_packages_that_only_one_release_asks_for_are_named(reference, candidate, expected):
    sides = used("4.48", optional=reference), used(optional=candidate)
    assert codes(Case(sides[1], reference=sides[0])) == expected


SHARED = ("forward", "generate")
ON_TOP = {"class_name": "ForImages", "own": ("model", "visual"), "shared": SHARED}
WITHIN = {
    "class_name": "ForImages",
    "own": ("model",),
    "shared": SHARED,
    "within": {"visual": "model"},
}
GONE = WITHIN | {"within": {}}
INHERITED = GONE | {"shared": (*SHARED, "visual")}
RENAMED = WITHIN | {"class_name": "ForVideos"}


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        (ON_TOP, WITHIN, "AttributeError for visual; there is model.model.visual"),
        (ON_TOP, GONE, "AttributeError for visual"),
        (WITHIN, ON_TOP, "has visual"),
        (GONE, ON_TOP, None),  # the newer release brings it
        (ON_TOP, INHERITED, None),
        (ON_TOP, RENAMED, None),
        (ON_TOP, ON_TOP, None),
        (None, WITHIN, None),  # it was not asked
    ],
)
def test_names_of_a_model_that_one_release_has_elsewhere(reference, candidate, expected):
    sides = used("4.48", names=reference), used(names=candidate)
    _expect_names(Case(sides[1], reference=sides[0]), "SB959", expected)


HANDS = {"class_name": "OfTwo", "own": ("text_config", "width"), "shared": ("model_type",)}
LEAVES = HANDS | {"own": ("text_config",), "within": {"width": "text_config"}}
DROPS = LEAVES | {"within": {}}
FOR_ALL = DROPS | {"shared": ("model_type", "width")}


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        (HANDS, LEAVES, "AttributeError for width; there is config.text_config.width"),
        (LEAVES, HANDS, "has width"),
        (HANDS, DROPS, None),  # no part has it any more
        (DROPS, HANDS, None),  # the newer release brings it
        (HANDS, FOR_ALL, None),
        (FOR_ALL, LEAVES, None),  # all configs had it
        (HANDS, LEAVES | {"class_name": "OfThree"}, None),
        (LEAVES, LEAVES, None),
        (HANDS, None, None),  # it was not asked
    ],
)
def test_fields_of_parts_that_the_config_of_one_release_answers(reference, candidate, expected):
    sides = used("4.48", config_names=reference), used(config_names=candidate)
    _expect_names(Case(sides[1], reference=sides[0]), "SB961", expected)


def _expect_names(case, code, expected):
    assert codes(case) == ([code] if expected else [])
    lines = [finding.evidence[1] for finding in findings(case)]
    assert lines == ([f"5.x: {expected}"] if expected else [])
    raising = {finding.raises for finding in findings(case)}
    assert raising == ({"5.x" if "Error" in expected else "4.48"} if expected else set())


NAMED = {"eager, then sdpa": {"parts": {"text_config": "sdpa", "vision_config": "sdpa"}}}
KEPT = {"eager, then sdpa": {"parts": {"text_config": "eager", "vision_config": "eager"}}}
REFUSED_DICT = {"eager, then sdpa": {"refused": "AttributeError: no"}}
WHOLE = {"whole": "eager"}


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        (NAMED, NAMED, []),
        (NAMED, KEPT, ["SB919"]),
        (KEPT, NAMED, ["SB919"]),
        (NAMED, REFUSED_DICT, ["SB919"]),
        (NAMED, None, []),
        (WHOLE | {"backbone": "eager"}, WHOLE | {"backbone": "sdpa"}, ["SB919"]),
        # a part that only one release has as a model of its own is not compared
        (WHOLE, WHOLE | {"backbone": "sdpa"}, []),
    ],
)
def test_an_attention_that_reaches_other_parts_is_named(reference, candidate, expected):
    sides = used("4.48", attention=_way(reference)), used(attention=_way(candidate))
    assert codes(Case(sides[1], reference=sides[0])) == expected


@pytest.mark.parametrize(
    ("reference", "candidate", "raises"),
    [
        ({"features": TEXT}, {"features": REFUSED}, "5.x"),
        ({"features": REFUSED}, {"features": TEXT}, "4.48"),
        ({"features": GIVEN}, {"features": GIVEN_REFUSED}, "5.x"),
        ({"features": GIVEN_REFUSED}, {"features": GIVEN}, "4.48"),
        ({"features": GIVEN}, {"features": GIVEN_OTHER}, ""),
        ({"attention": NAMED}, {"attention": REFUSED_DICT}, "5.x"),
        ({"attention": REFUSED_DICT}, {"attention": NAMED}, "4.48"),
        ({"attention": NAMED}, {"attention": KEPT}, ""),
    ],
)
def test_the_side_that_raises_is_named(reference, candidate, raises):
    case = Case(used(**candidate), reference=used("4.48", **reference))
    assert [found.raises for found in findings(case)] == [raises]


def _way(parts):
    return {"eager for all parts": {"parts": parts}} if parts and "whole" in parts else parts


CALL = "prepare_decoder_input_ids_from_labels(labels=…)"
GETTER = "get_decoder() of the base model"
SETTING = "model.config.output_hidden_states = True"
SHIFTED, KEPT_IDS = ({CALL: {"gave": ids}} for ids in ("[[0, 5, 6, 7]]", "[[5, 6, 7, 0]]"))


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        (SHIFTED, SHIFTED, []),
        (SHIFTED, KEPT_IDS, ["SB946"]),
        (SHIFTED, {CALL: {"left_out": "no such part"}}, []),
        (SHIFTED, {}, []),
        ({GETTER: {"gave": "MistralModel"}}, {GETTER: {"gave": "None"}}, ["SB946"]),
        ({GETTER: {"gave": "MistralModel"}}, {GETTER: {"gave": "MistralModel"}}, []),
    ],
)
def test_a_method_that_does_something_else_is_named(reference, candidate, expected):
    sides = used("4.48", methods=reference), used(methods=candidate)
    assert codes(Case(sides[1], reference=sides[0])) == expected


OF_EMBEDDINGS = "generate() from embeddings = from token ids"


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        ("", "IndexError: size 0", ["5.x"]),
        ("IndexError: size 0", "", ["4.48"]),
        ("IndexError: size 0", "IndexError: size 0", []),
        ("", "", []),
    ],
)
def test_embeddings_that_own_code_takes_beside_no_cache_alone_are_named(
    reference, candidate, expected
):
    def side(stack, raised):
        tried = Inapplicable(relation=OF_EMBEDDINGS, reason=raised, raised=True)
        holds = Relation(relation=OF_EMBEDDINGS, case="short: generate()", holds=True)
        relations = RelationsSignal(
            relations=() if raised else (holds,), inapplicable=(tried,) if raised else ()
        )
        return sound(Memory(), stack, relations=relations)

    sides = side("4.48", reference), side("5.x", candidate)
    case = Case(with_idiom(sides[1], "embeddings beside no cache"), reference=sides[0])
    assert [f.raises for f in findings(case) if f.code == "SB729"] == expected
    assert "SB729" not in codes(Case(sides[1], reference=sides[0]))


LAYERS, NONE = (
    {FIELDS: {"gave": f"hidden_states 3 of {n}, sequences [1, 12]"}} for n in ("4", "none")
)


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        (LAYERS, NONE, ["SB890"]),
        (NONE, LAYERS, ["SB890"]),
        (NONE, NONE, []),
        (LAYERS, {FIELDS: {"gave": "sequences [1, 12]"}}, ["SB946"]),
        (LAYERS, {FIELDS: {"refused": "TypeError: no such"}}, ["SB931"]),
    ],
)
def test_hidden_states_that_own_code_drops_are_named(reference, candidate, expected):
    sides = used("4.48", methods=reference), used(methods=candidate)
    case = Case(with_idiom(sides[1], "keywords of generate() dropped"), reference=sides[0])
    assert codes(case) == expected
    assert "SB890" not in codes(Case(sides[1], reference=sides[0]))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"gave": "no hidden_states"}, ["SB956"]),
        ({"gave": HEEDED}, []),
        ({"left_out": "the argument does nothing"}, []),
    ],
)
@pytest.mark.parametrize("is_of_reference", [False, True])
def test_a_setting_of_the_config_that_is_not_read_is_named(other, expected, is_of_reference):
    sides = [{SETTING: each} for each in ({"gave": HEEDED}, other)]
    reference, candidate = reversed(sides) if is_of_reference else sides
    case = Case(used(settings=candidate), reference=used("4.48", settings=reference))
    shown = findings(case)
    assert [found.code for found in shown] == expected
    assert all(found.of_reference is is_of_reference for found in shown)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ({"gave": "the same tensors, embeddings apart"}, ["SB960"]),
        ({"gave": "other tensors, tied embeddings"}, []),
        ({"left_out": "ImportError: no accelerate"}, []),
        ({"refused": "TypeError: an unexpected argument"}, ["SB932"]),
    ],
)
def test_an_argument_of_a_load_that_one_release_drops_is_named(candidate, expected):
    heeded = {"gave": "other tensors, tied embeddings"}
    sides = [{"from_pretrained(tie_word_embeddings=True)": each} for each in (heeded, candidate)]
    case = Case(used(loads=sides[1]), reference=used("4.48", loads=sides[0]))
    assert codes(case) == expected


@pytest.mark.parametrize("coarser", ["reference", "candidate"])
@pytest.mark.parametrize(
    ("dtype", "asked", "kind", "expected"),
    [
        ("bfloat16", "float32", "cast", ["SB980"]),
        ("bfloat16", "float32", "changed", []),  # other numbers than the rounded ones
        ("bfloat16", "bfloat16", "cast", []),  # the other side keeps more than is asked for
        ("float32", "float32", "cast", []),
    ],
)
def test_a_load_in_float32_that_rounds_weights_is_named(coarser, dtype, asked, kind, expected):
    def side(stack, dtype):
        memory = Memory()
        tensor = weight(memory, values(4), "alpha")
        tensor = tensor.model_copy(update={"ref": tensor.ref.model_copy(update={"dtype": dtype})})
        load = LoadFacts(model_class="Llama", requested_dtype=asked, seconds=0.1)
        return sound(memory, stack, load=load, weights=weights_signal({"alpha": tensor}))

    dtypes = {"reference": "float32", "candidate": "float32", coarser: dtype}
    cast = Constant(signal="weights", subject=Subject(tensor="alpha"), kind=kind, coarser=coarser)
    ladder = climbed("rounding").model_copy(update={"constants": (cast,)})
    case = Case(side("5.x", dtypes["candidate"]), side("4.48", dtypes["reference"]), ladder=ladder)
    rounded = [f for f in findings(case) if f.code == "SB980"]
    assert [f.code for f in rounded] == expected
    if rounded:
        blamed = {"reference": "4.48", "candidate": "5.x"}[coarser]
        assert rounded[0].evidence[0].startswith(blamed)


@pytest.mark.parametrize(
    ("call", "gave", "code"),
    [
        (LOADED_IN, ("parameters in bfloat16", "parameters in bfloat16 and float32"), "SB967"),
        (f"config.dtype of {LOADED_IN}", ("'bfloat16'", "torch.bfloat16"), "SB960"),
    ],
)
def test_a_load_in_bfloat16_that_gives_other_dtypes_is_named(call, gave, code):
    reference, candidate = (used(loads={call: {"gave": words}}) for words in gave)
    assert codes(Case(candidate, reference=reference)) == [code]
    assert codes(Case(candidate, reference=candidate)) == []


def test_a_load_that_does_not_heed_its_dtype_is_named():
    reference = used(loads={LOADED_IN: {"gave": "parameters in bfloat16"}})
    candidate = used(loads={LOADED_IN: {"gave": "parameters in float32"}})
    assert codes(Case(candidate, reference=reference)) == ["SB324"]
    assert codes(Case(candidate)) == ["SB324"]
    assert codes(Case(reference, reference=candidate)) == []


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ({"float32": 9}, ["SB324"]),
        ({"bfloat16": 8, "float32": 1}, []),  # the class keeps a part in float32
        ({"bfloat16": 9}, []),
        ({"float8_e4m3fn": 7, "float32": 2}, []),
        ({}, []),
    ],
)
def test_parameters_in_another_dtype_than_the_cell_asks_for_are_named(dtypes, expected):
    load = LoadFacts(model_class="M", requested_dtype="bfloat16", parameter_dtypes=dtypes)
    assert codes(Case(sound(Memory(), "5.x", load=load))) == expected


@pytest.mark.parametrize(
    ("call", "right", "wrong", "code"),
    [
        (CHUNKED, WHOLE_PROMPT, OTHER_PROMPT, "SB963"),
        (JOINED, WHOLE_TEXT, CUT_TEXT, "SB895"),
    ],
)
def test_a_call_that_gives_what_is_right_on_one_side_alone_is_named(call, right, wrong, code):
    def shown(reference, candidate):
        sides = [
            used(release, methods={call: {"gave": gave}})
            for release, gave in (("4.48", reference), ("5.x", candidate))
        ]
        return [(f.code, f.of_reference) for f in findings(Case(sides[1], reference=sides[0]))]

    assert shown(right, wrong) == [(code, False)]
    assert shown(wrong, right) == [(code, True)]
    assert shown(right, right) == shown(wrong, "") == []


ALL_ROWS = {"gave": "all rows"}
UNGATHERED = {"refused": "RuntimeError: no Scalar (at transformers/cache_utils.py:9 in __init__)"}
NOT_ASKED = {"left_out": "the plain forward raised"}


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        (ALL_ROWS, UNGATHERED, ["SB894"]),
        (UNGATHERED, ALL_ROWS, ["SB894"]),
        (ALL_ROWS, ALL_ROWS, []),
        (UNGATHERED, UNGATHERED, []),
        (NOT_ASKED, UNGATHERED, []),
    ],
)
def test_an_output_that_one_release_gathers_alone_is_named(reference, candidate, expected):
    sides = [{GATHERED: side} for side in (reference, candidate)]
    shown = findings(Case(used(methods=sides[1]), reference=used("4.48", methods=sides[0])))
    assert [found.code for found in shown] == expected
    raising = "5.x" if candidate is UNGATHERED else "4.48"
    assert all(found.raises == raising for found in shown)


TIMED = "generate(return_token_timestamps=True)"


@pytest.mark.parametrize(
    ("outcome", "times", "expected"),
    [("identical", 0.5, ["SB946"]), ("identical", 0.0, []), ("differs", 0.5, [])],
)
def test_times_of_tokens_are_compared_where_nothing_else_differs(outcome, times, expected):
    gave = [{TIMED: {"gave": f"[[5]] at [[{time}]]"}} for time in (0.0, times)]
    sides = used("4.48", methods=gave[0]), used(methods=gave[1])
    signals = differs(outcome=outcome)
    assert codes(Case(sides[1], reference=sides[0], signals=signals)) == expected


@pytest.mark.parametrize(("signal", "expected"), [("inputs", []), ("logits", ["SB946"])])
def test_the_lengths_of_another_prompt_are_no_other_method(signal, expected):
    methods = [{FIELDS: {"gave": f"sequences [1, {n}]"}} for n in (22, 25)]
    sides = used("4.48", methods=methods[0]), used(methods=methods[1])
    assert codes(Case(sides[1], reference=sides[0], signals=differs(signal))) == expected


WAY = {"tokens": [[9, 1]], "scores": ["a"]}
GENERATED = {
    "prompt": "p",
    "config": {"temperature": 0.5, "do_sample": True},
    "ways": {"greedy": WAY, "beams": WAY},
    "processors": {"TopKLogitsWarper": {"scores": "a"}},
}


@pytest.mark.parametrize(
    ("code", "changed", "where"),
    [
        ("SB821", {"config": {"do_sample": True}}, "generation_config: temperature"),
        ("SB822", {"ways": {"greedy": WAY, "beams": WAY | {"scores": ["b"]}}}, "generate(): beams"),
        (
            "SB823",
            {"processors": {"TopKLogitsWarper": {"scores": "b"}}},
            "logits processor: TopKLogitsWarper",
        ),
        (
            "SB824",
            {"ways": {"greedy": WAY, "beams": {"refused": "ValueError: no"}}},
            "generate(): beams",
        ),
    ],
)
def test_what_generate_does_otherwise_is_named(code, changed, where):
    reference = used("4.48", generation=GENERATED)
    (finding,) = findings(Case(used(generation=GENERATED | changed), reference=reference))
    assert (finding.code, finding.where) == (code, where)
    assert codes(Case(used(generation=GENERATED), reference=reference)) == []


@pytest.mark.parametrize(
    ("field", "value", "of_prompts"),
    [("top_p", 0.5, ()), ("num_beams", 2, ()), ("repetition_penalty", 2.0, None)],
)
def test_a_default_that_the_greedy_decode_names_is_not_why_its_tokens_differ(
    field, value, of_prompts
):
    """BART's checkpoint without forced_eos_token_id: another last token from 5.0 on, from the same logits."""
    reference = used("4.48", generation=GENERATED)
    changed = GENERATED | {"config": GENERATED["config"] | {field: value}}
    (found,) = findings(Case(used(generation=changed), reference=reference))
    assert (found.where, found.of_prompts) == (f"generation_config: {field}", of_prompts)


FLOAT8 = "TypeError: Unsupported dtype float8_e4m3fn"


@pytest.mark.parametrize(
    ("code", "field", "question", "where"),
    [
        ("SB931", "integrity", "load without a dtype", "integrity load without a dtype"),
        ("SB932", "usage", "beams", "usage beams"),
    ],
)
@pytest.mark.parametrize("raises_here", [True, False])
def test_a_check_that_raises_on_one_side_is_named(code, field, question, where, raises_here):
    def run(stack, exception):
        facts = {"raised": {question: exception}} | ({"poison": ""} if field == "integrity" else {})
        kind = {"integrity": IntegritySignal, "usage": UsageSignal}[field]
        return capture(stack, **{field: kind(**facts)})

    answers, raises = run("4.48", ""), run("5.x", FLOAT8)
    pair = (answers, raises) if raises_here else (raises, answers)
    (finding,) = findings(Case(pair[1], reference=pair[0]))
    sides = ("5.x raises", "the reference 4.48 works")
    if not raises_here:
        sides = ("the reference 5.x raises", "4.48 works")
    assert (finding.code, finding.raises) == (code, "5.x")
    assert finding.where == f"{', '.join(sides)}: {where}"
    assert finding.evidence == (FLOAT8, "; ".join(sides))
    assert codes(Case(answers, reference=answers)) == []
    assert codes(Case(raises, reference=raises)) == []


NO_LEGACY = "AttributeError: type object 'DynamicCache' has no attribute 'from_legacy_cache'"
AT = " (at own/modeling_own.py:101 in forward)"


def test_an_exception_of_a_check_has_the_rule_of_its_message():
    checks = {
        "static": NO_LEGACY + AT,
        "caches": f"text: 3 pads: {NO_LEGACY}{AT}",
        "repeated": FLOAT8,
    }
    other = used("4.48", raised=dict.fromkeys(checks, ""))
    raises, same = used(raised=checks), used("4.48", raised=checks)
    cache, unknown = findings(Case(raises, reference=other))
    assert (cache.code, cache.where, cache.raises) == ("SB701", "own/modeling_own.py:101", "5.x")
    assert cache.evidence[0] == NO_LEGACY.replace(":", " in phase usage static:", 1)
    assert "instead of from_legacy_cache: write DynamicCache()" in "\n".join(cache.evidence)
    assert (unknown.code, unknown.evidence[0]) == ("SB932", FLOAT8)
    assert codes(Case(raises, reference=same)) == []
    assert codes(Case(other, reference=raises)) == ["SB932", "SB932", "SB932"]
    of_another = {"static": "AttributeError: 'Stats' object has no attribute 'seen_tokens'"}
    assert codes(Case(used(raised=of_another), reference=other)) == ["SB932"]


def test_an_exception_that_a_rule_knows_is_named_once():
    ways = {"greedy": WAY, "beams": {"refused": FLOAT8}}
    reference = used("4.48", generation=GENERATED)
    assert codes(Case(used(generation=GENERATED | {"ways": ways}), reference=reference)) == [
        "SB824"
    ]


def test_the_exception_of_a_check_has_the_name_of_the_rule_that_knows_it():
    left = "type object 'DynamicCache' has no attribute 'from_legacy_cache'"
    failure = failed("AttributeError", left, phase="greedy short").failure

    def run(stack, exception, *failures):
        integrity = IntegritySignal(poison="", raised={"second load": exception})
        return capture(stack, integrity=integrity).model_copy(update={"failures": failures})

    reference = run("4.48", "")
    text = f"33 tokens: AttributeError: {left} (at m.py:7 in forward)"
    (alone,) = findings(Case(run("5.x", text), reference=reference))
    assert (alone.code, alone.where) == ("SB701", "m.py:7")
    assert codes_of(run("5.x", text, failure), reference=reference) == ["SB701"]  # once
    other = run("5.x", "33 tokens: ValueError: other shapes", failure)
    assert codes_of(other, reference=reference) == ["SB701", "SB931"]
    # the clean twin: what both sides raise is no change
    assert codes_of(run("5.x", text), reference=run("4.48", text)) == []


@pytest.mark.parametrize(("code", "part", "reference", "candidate"), COMPARED)
def test_what_a_release_chooses_otherwise_is_named_beside_the_reference(
    code, part, reference, candidate
):
    old, new = used("4.48", **{part: reference}), used(**{part: candidate})
    (finding,) = findings(Case(new, reference=old))
    assert finding.code == code
    assert [line.partition(":")[0] for line in finding.evidence] == ["4.48", "5.x"]
    assert codes_of(new) == codes_of(new, reference=used("4.48", **{part: candidate})) == []
    assert codes_of(new, reference=sound(Memory())) == codes_of(new, reference=used("4.48")) == []


def test_a_save_that_was_refused_says_nothing_of_the_dtype_s_key():
    refused = {"refused": "AttributeError: no", "max_shard_size": "5GB"}
    wrote = {"dtype_keys": ["torch_dtype"], "files": ["x.bin"], "max_shard_size": "5GB"}
    assert codes_of(used(saved=refused), reference=used("4.48", saved=wrote)) == ["SB932"]
    assert codes_of(used(saved=wrote), reference=used("4.48", saved=refused)) == ["SB932"]
    resized = refused | {"max_shard_size": "50GB"}
    finding, _ = findings(Case(used(saved=resized), reference=used("4.48", saved=wrote)))
    assert finding.evidence == ("4.48: max_shard_size is 5GB", "5.x: max_shard_size is 50GB")


def test_a_method_that_raises_on_one_side_is_a_finding_of_the_model_and_each_has_its_own():
    works = {"gave": "gradients reach it: True"}
    raises = {"refused": "RuntimeError: a leaf Variable that requires grad"}
    text, sound_ = "frozen", "frozen, audio"
    sides = ({text: works, sound_: works}, {text: {"refused": "ValueError: no"}, sound_: raises})
    clean, planted = (
        used(stack, methods=m) for stack, m in zip(("4.48", "5.x"), sides, strict=True)
    )
    found = findings(Case(planted, reference=clean))
    assert [each.code for each in found] == ["SB931", "SB931"]
    assert found[1].where == "5.x raises, the reference 4.48 works: usage methods frozen, audio"
    assert codes_of(planted, reference=used("4.48", methods=sides[1])) == []
    assert codes_of(used(methods=sides[0]), reference=clean) == []


def test_a_class_that_cannot_checkpoint_has_no_other_default():
    old = used("4.48", checkpointing={"use_reentrant": True})
    assert codes_of(used(checkpointing={"refused": "ValueError: no"}), reference=old) == ["SB932"]


def test_rounding_of_a_coarser_dtype_is_not_seeing_the_first_sequence():
    signal = UsageSignal.model_validate({"packed": packed(0.02, 0.02, 0.02)})
    assert signal.packed is not None
    way = signal.packed.ways[0]
    sees = [signal.packed.sees(way, dtype) for dtype in ("bfloat16", "float16", "float32")]
    assert sees == [False, False, True]


def with_state(state):
    return with_signals(sound(Memory(), "5.2"), state=state)


def test_state_that_changes_the_next_forward_is_named():
    (finding,) = findings(Case(capture=with_state(LEFT)))
    assert (finding.code, finding.where) == ("SB711", "model.rotary_emb.inv_freq")


@pytest.mark.parametrize(
    "cause",
    [
        LeftBehind(name="model.rope_deltas", kind="attribute"),
        LeftBehind(name="model.rotary_emb.another", kind="buffer"),
    ],
)
def test_state_that_is_no_rotary_frequency_does_not_get_the_remedy_of_rope(cause):
    (finding,) = findings(Case(capture=with_state(LEFT.model_copy(update={"causes": (cause,)}))))
    assert (finding.code, finding.where) == ("SB712", cause.name)
    remedies = {text.code: text.remedy for text in texts(["SB711", "SB712"])}
    assert "rotary" in remedies["SB711"]
    assert "rotary" not in remedies["SB712"]

    assert "off by 0.006" in finding.evidence[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"holds": True, "outputs": ()},
        {"repeats": False},
        {"is_undone": False, "causes": ()},
    ],
)
def test_state_is_not_named_without_proof_that_it_matters(changed):
    assert not codes_of(with_state(LEFT.model_copy(update=changed)))


@pytest.mark.parametrize(
    ("signals", "codes"),
    [(("decode", "greedy"), ["SB712"]), (("weights", "decode"), []), ((), [])],
)
def test_state_explains_two_runs_that_differ_only_where_no_weight_does(signals, codes):
    cause = LeftBehind(name="model.rope_deltas", kind="attribute")
    found = findings(Case(capture=with_state(LEFT.model_copy(update={"causes": (cause,)}))))
    named = explaining(found, Verdict.UNSTABLE, "5.2", unstable_signals=signals)
    assert [explanation.code for explanation in named] == codes
    assert all(explanation.where == "model.rope_deltas" for explanation in named)


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({"holds": False, "repeats": False}, ["SB934"]),
        ({"holds": False, "repeats": False, "draws": ()}, []),  # it counts
        ({"holds": True, "repeats": True}, []),
    ],
)
def test_a_forward_that_draws_is_named_where_it_does_not_repeat(changed, codes):
    draw = Draw(op="native_dropout", function="forward", place="modeling_x.py:7")
    state = StateSignal.model_validate({"prompt": "short", "draws": (draw,)} | changed)
    sightings = findings(Case(capture=with_state(state)))
    assert [each.code for each in sightings] == codes
    named = explaining(sightings, Verdict.UNSTABLE, "5.2", unstable_signals=("logits",))
    assert [(each.code, each.where) for each in named] == [(c, "modeling_x.py:7") for c in codes]


POOLED, PROJECTED = values(1, 4, seed=50), values(1, 4, seed=51)


def with_pooled(candidate, kind="diverged", signal="outputs", **changed):
    """Return a case in which forward returns another pooled output; ``kind`` is the ladder's."""
    memory = Memory()
    reference = with_outputs(memory, sound(memory), pooler_output=POOLED)
    run = with_outputs(memory, sound(memory, "5.x", **changed), pooler_output=candidate)
    subject = Subject(prompt="short", tensor="pooler_output" if signal == "outputs" else "")
    step = ladder_step(2.0, 2.0, kind, signal=signal, subject=subject)
    signals = compare(reference, run, memory)
    ladder = Ladder(kind=kind, rule="slope", reason="", steps=(step,))
    return Case(run, reference=reference, signals=signals, ladder=ladder)


def test_an_output_that_holds_something_else_is_named():
    (finding,) = findings(with_pooled(PROJECTED))
    assert (finding.code, finding.where) == ("SB912", "pooler_output")
    assert finding.evidence == ("short · pooler_output: 2 → float64 2",)


def test_an_output_of_another_shape_holds_something_else():
    case = with_pooled(values(1, 6, seed=51))
    (finding,) = findings(replace(case, ladder=case.ladder.model_copy(update={"steps": ()})))
    assert (finding.code, finding.where) == ("SB912", "pooler_output")
    assert "[1, 4] in the reference, [1, 6] in the candidate" in finding.evidence[0]


def test_an_output_of_as_many_elements_in_another_shape_holds_nothing_else():
    case = with_pooled(POOLED.reshape(4, 1))
    (item,) = next(signal for signal in case.signals if signal.signal == "outputs").items
    assert (
        item.note == "shape [1, 4] in the reference, [4, 1] in the candidate, with the same bytes"
    )
    assert not findings(replace(case, ladder=case.ladder.model_copy(update={"steps": ()})))


def test_an_output_that_rounds_or_follows_from_logits_holds_nothing_else():
    assert not findings(with_pooled(POOLED))
    assert not findings(with_pooled(PROJECTED, kind="rounding"))
    assert not findings(with_pooled(PROJECTED, signal="logits"))


def test_codes_are_in_order_and_one_rule_each():
    numbers = [rule.code for rule in rules()]
    assert numbers == sorted(set(numbers))
    assert all(re.fullmatch(r"SB\d{3}", number) for number in numbers)


def test_texts_come_once_and_in_order():
    assert [text.code for text in texts(["SB301", "SB101", "SB301"])] == ["SB101", "SB301"]


def test_every_rule_spoke_in_these_files():
    folder = Path(__file__).parent
    files = [*folder.glob("test_*.py"), *folder.parent.glob("questions/*/test_*.py")]
    spoken = {code for p in files for code in re.findall(r"SB\d{3}", p.read_text("utf-8"))}
    assert {rule.code for rule in rules()} <= spoken


OTHER, RAISES = {"effect": "other logits"}, {"effect": "raises", "message": "ValueError: missing"}


def fed(stack="5.x", omitted=(), optional=()):
    """Return a capture whose prompt with an image has these optional arguments."""
    facts = {
        "short": sound(Memory()).signals.forward["short"],
        "image": forward(Memory(), optional=tuple(optional), omitted=dict(omitted)),
    }
    return sound(Memory(), stack, forward=facts)


@pytest.mark.parametrize("effect", [OTHER, RAISES])
def test_an_argument_that_only_this_release_needs_is_named(effect):
    needs = fed(omitted={"token_type_ids": effect}, optional=["token_type_ids"])
    assert codes_of(needs, reference=fed("4.57")) == ["SB913"]
    ignores = {"token_type_ids": {"effect": "none"}}
    assert codes_of(needs, reference=fed("4.57", ignores, ignores)) == ["SB913"]


@pytest.mark.parametrize("effect", [OTHER, RAISES])
def test_an_argument_that_both_need_or_neither_is_not_named(effect):
    omitted = {"token_type_ids": effect}
    needs = fed(omitted=omitted, optional=omitted)
    assert codes_of(needs, reference=fed("4.57", omitted, omitted)) == []
    assert codes_of(needs, reference=fed("4.57", optional=omitted)) == []  # it was not tried
    ignores = {"token_type_ids": {"effect": "none"}}
    assert codes_of(fed(omitted=ignores, optional=ignores), reference=fed("4.57")) == []


def of_text(**omission):
    """Return the findings of a text prompt with other logits than the reference's."""
    logits = values(1, 6, 8, seed=3)
    before = forward(Memory(), logits=logits, omitted={"token_type_ids": {"effect": "none"}})
    complete = before.logits.hash if omission.pop("is_mended", True) else "0" * 64
    omitted = {"token_type_ids": {**omission, "complete": complete}}
    now = forward(Memory(), logits=logits + 1, omitted=omitted)
    reference = sound(Memory(), "4.57", forward={"padded": before})
    return codes_of(sound(Memory(), "5.x", forward={"padded": now}), reference=reference)


def test_an_argument_explains_other_logits_only_if_adding_it_gives_those_of_the_reference():
    assert of_text(**OTHER) == ["SB914"]
    assert of_text(**OTHER, is_mended=False) == []
    assert of_text(effect="none") == []


GPT_OSS = {"model_type": "gpt_oss", "num_local_experts": 4}


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ({"router_aux_loss_coef": 0.9}, {"router_aux_loss_coef": 0.001}, "router_aux_loss_coef"),
        ({"router_aux_loss_coef": 0.001}, {"router_aux_loss_coef": 0.9}, "router_aux_loss_coef"),
        ({"router_aux_loss_coef": 0.9}, {"router_aux_loss_coef": 0.9}, None),
        # one of them stands in config.json and a release changes it: no default
        ({"router_aux_loss_coef": 0.5}, {"router_aux_loss_coef": 0.001}, None),
        ({"router_aux_loss_coef": 0.9}, {}, None),
        (
            {"text_config": GPT_OSS | {"router_aux_loss_coef": 0.9}},
            {"text_config": GPT_OSS | {"router_aux_loss_coef": 0.001}},
            "text_config.router_aux_loss_coef",
        ),
    ],
)
def test_a_default_that_moved_is_named_where_config_json_leaves_it_out(before, after, where):
    """transformers 5.6.0 sets router_aux_loss_coef of GptOssConfig to 0.001."""
    reference, run = (
        with_signals(capture(stack), config=GPT_OSS | config)
        for stack, config in (("4.57", before), ("5.x", after))
    )
    named = [f for f in findings(Case(capture=run, reference=reference)) if f.code == "SB209"]
    assert [finding.where for finding in named] == ([where] if where else [])
    if where:
        assert named[0].evidence[1] == "the default moved between 5.5.4 and 5.6.0"


RELATIVE = ConfigField(
    written="relative_key",
    loaded="relative_key",
    is_default=False,
    read="models/bert/modeling_bert.py:141",
)
FIELD = {"text_config.position_kind": RELATIVE}
NOWHERE = {"read": ""}
TIED = ConfigField(written=False, loaded=False)


def of_config(before, after, kind="diverged", scores="differs"):
    reference, run = (
        with_signals(capture(stack), config_use=fields)
        for stack, fields in (("4.57", before), ("5.x", after))
    )
    found = findings(Case(run, reference, ladder=climbed(kind), signals=differs(outcome=scores)))
    return [finding for finding in found if finding.code in ("SB211", "SB212")]


def changed(field, **update):
    return {name: each.model_copy(update=update) for name, each in field.items()}


def patterned(stack, copy, types, *, part=""):
    """Return a run whose config class makes the types of layers of a pattern, which config.json has as 2."""
    config = {"sliding_window_pattern": 2, "_sliding_window_pattern": copy, "layer_types": types}
    path = f"{part}.sliding_window_pattern".lstrip(".")
    used = {path: ConfigField(written=2, loaded=2, is_default=False)}
    config = {part: config} if part else config
    return with_signals(capture(stack), config_use=used, config=config)


def test_a_default_that_a_config_class_takes_for_the_value_of_config_json_is_named():
    """Cohere2Config of 5.0 to 5.3."""

    def of(reference, candidate, outcome="differs", kind="diverged"):
        signals = differs(outcome=outcome)
        case = Case(candidate, reference, ladder=climbed(kind), signals=signals)
        return [(f.where, f.of_reference) for f in findings(case) if f.code == "SB215"]

    for part in ("", "text_config"):
        kept = patterned("4.57", 2, ["s", "f"], part=part)
        lost = patterned("5.0", 4, ["s", "s"], part=part)
        path = f"{part}.sliding_window_pattern".lstrip(".")
        assert of(kept, lost) == [(path, False)]
        assert of(lost, kept) == [(path, True)]
        assert of(kept, kept) == of(lost, lost) == of(kept, lost, "identical") == []
        assert of(kept, lost, kind="rounding") == []
    # config.json has the types: no copy is of use
    assert of(patterned("4.57", 2, ["s", "f"]), patterned("5.0", 4, ["s", "f"])) == []
    # both take the default
    assert of(patterned("4.57", 4, ["s", "f"]), patterned("5.0", 4, ["s", "s"])) == []


def test_a_setting_that_no_code_reads_any_more_is_named_with_the_line_that_did():
    (found,) = of_config(FIELD, changed(FIELD, **NOWHERE))
    assert (found.code, found.where) == ("SB212", "text_config.position_kind")
    assert found.evidence == (
        'config.json has text_config.position_kind: "relative_key", which is not the default',
        "4.57 reads it in models/bert/modeling_bert.py:141",
        "5.x reads it nowhere",
    )
    # what differs is an output of another shape, and the setting may have no effect at all
    assert of_config(FIELD, changed(FIELD, **NOWHERE), scores="identical") == []
    gone = changed(FIELD, **NOWHERE, loaded=None)
    assert [each.code for each in of_config(FIELD, gone)] == ["SB212"]


def test_a_number_that_a_rewritten_class_leaves_out_is_named():
    """5.24 divides the logits of Granite Speech by no ``logits_scaling``."""
    read = "models/granite/modeling_granite.py:550"
    number = ConfigField(written=1.25, loaded=1.25, is_default=False, read=read)
    (found,) = of_config(
        {"text_config.logits_scaling": number},
        {"text_config.logits_scaling": number.model_copy(update=NOWHERE)},
    )
    assert (found.code, found.where) == ("SB212", "text_config.logits_scaling")
    # 5.x reads it as a part of rope_parameters
    for name in (
        "rope_theta",
        "partial_rotary_factor",
        "router_aux_loss_coef",
        "initializer_range",
    ):
        assert of_config({name: number}, {name: number.model_copy(update=NOWHERE)}) == []


def test_a_setting_that_becomes_the_config_of_a_backbone_is_not_named():
    """5.3 makes a backbone_config of ``use_timm_backbone``: deformable_detr."""
    read = "models/deformable_detr/modeling_deformable_detr.py:323"
    of_backbone = ConfigField(written=False, loaded=False, is_default=False, read=read)
    named = {"use_timm_backbone": of_backbone}
    assert of_config(named, changed(named, **NOWHERE)) == []
    other = {"use_other_backbone": of_backbone}
    assert [each.code for each in of_config(other, changed(other, **NOWHERE))] == ["SB212"]


def test_a_setting_that_the_reference_does_not_know_is_a_defect_of_the_reference():
    """5.24 writes ``scale_decoder_outputs`` into the config of an untied T5, and 4.57 reads it nowhere."""
    (found,) = of_config(changed(FIELD, **NOWHERE), FIELD)
    assert (found.code, found.of_reference) == ("SB212", True)
    assert found.evidence[1:] == (
        "5.x reads it in models/bert/modeling_bert.py:141",
        "4.57 reads it nowhere",
    )
    assert not of_config(FIELD, changed(FIELD, **NOWHERE))[0].of_reference
    assert of_config(changed(FIELD, **NOWHERE), changed(FIELD, is_default=True)) == []


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (FIELD, FIELD, "diverged"),
        (FIELD, changed(FIELD, **NOWHERE), "rounding"),
        (changed(FIELD, is_default=True), changed(FIELD, **NOWHERE), "diverged"),
        # the class of the config makes another field of it
        (FIELD, changed(FIELD, read="models/bert/configuration_bert.py:9"), "diverged"),
        (
            changed(FIELD, read="models/bert/configuration_bert.py:9"),
            changed(FIELD, **NOWHERE),
            "diverged",
        ),
        (
            changed(FIELD, written=3, loaded=3),
            changed(FIELD, written=3, loaded=3, **NOWHERE),
            "diverged",
        ),
        ({"use_cache": RELATIVE}, changed({"use_cache": RELATIVE}, **NOWHERE), "diverged"),
        (
            {"vision.output_attentions": RELATIVE},
            changed({"vision.output_attentions": RELATIVE}, **NOWHERE),
            "diverged",
        ),
        (FIELD, {}, "diverged"),
        (FIELD, None, "diverged"),
    ],
)
def test_a_setting_that_is_read_or_has_no_effect_is_not_called_ignored(before, after, kind):
    assert of_config(before, after, kind) == []


def test_a_value_that_the_class_of_the_config_overwrites_is_named():
    (found,) = of_config({"tie": TIED}, {"tie": TIED.model_copy(update={"loaded": True})})
    assert (found.code, found.where) == ("SB211", "tie")
    assert found.evidence == ("config.json has tie: false; 4.57 keeps it", "5.x loads true")


def test_a_value_by_which_weights_do_not_fit_is_named_and_one_that_is_kept_is_not():
    width = ConfigField(written=8, loaded=8)
    plain = with_signals(capture("4.57"), config_use={"width": width})
    for loaded, expected in ((16, ["SB211"]), (8, [])):
        used = {"width": width.model_copy(update={"loaded": loaded})}
        run = with_signals(failed("RuntimeError", "size mismatch"), config_use=used)
        assert [f.code for f in findings(Case(run, reference=plain))] == expected


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (TIED, TIED, "diverged"),
        (TIED, TIED.model_copy(update={"loaded": None}), "diverged"),
        (
            TIED,
            TIED.model_copy(update={"loaded": 0}),
            "diverged",
        ),  # a type of its own, as enums are
        (
            TIED.model_copy(update={"loaded": True}),
            TIED.model_copy(update={"loaded": True}),
            "diverged",
        ),
        (TIED.model_copy(update={"loaded": True}), TIED, "diverged"),
    ],
)
def test_a_value_that_stays_or_that_both_overwrite_is_not_called_replaced(before, after, kind):
    assert of_config({"tie": before}, {"tie": after}, kind) == []


FLAT = {"model_type": "olmo3", "rope_theta": 500.0, "vocab_size": 99}


def _by_kind(full: float, sliding: float) -> dict[str, object]:
    kinds = {"full_attention": {"rope_theta": full}, "sliding_attention": {"rope_theta": sliding}}
    return {"model_type": "olmo3", "rope_parameters": kinds}


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        (FLAT, _by_kind(500.0, 500000.0), "rope_parameters"),
        (
            {"model_type": "olmo3", "rope_parameters": {"rope_theta": 500, "factor": 4.0}},
            _by_kind(500.0, 500000.0),
            "rope_parameters",
        ),
        (
            {"model_type": "whole", "text_config": FLAT},
            {"model_type": "whole", "text_config": _by_kind(500.0, 500000.0)},
            "text_config.rope_parameters",
        ),
        (FLAT, _by_kind(500.0, 500.0), None),
        # the second base is a field of its own, as in Gemma 3
        (FLAT | {"rope_local_base_freq": 500000.0}, _by_kind(500.0, 500000.0), None),
        (FLAT | {"nested": {"bases": [500000]}}, _by_kind(500.0, 500000.0), None),
        # neither kind has the value: another default, or another meaning
        (FLAT, _by_kind(10000.0, 500000.0), None),
        (FLAT, FLAT | {"rope_theta": 500000.0}, None),
        (_by_kind(500.0, 500.0), _by_kind(500.0, 500000.0), None),
    ],
)
def test_a_base_that_reaches_only_some_kinds_of_layers_is_named(before, after, where):
    """transformers 5.13.0 takes rope_theta away from Olmo3Config with the first kind of layer."""
    reference, run = (
        with_signals(capture(stack), config=config)
        for stack, config in (("4.57", before), ("5.x", after))
    )
    named = [f for f in findings(Case(capture=run, reference=reference)) if f.code == "SB505"]
    assert [finding.where for finding in named] == ([where] if where else [])
    if where:
        assert "rope_theta of sliding_attention: 500000.0" in named[0].evidence
        assert "4.57 has 500.0 for all layers" in named[0].evidence


SAVED_BY_5 = {"model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("config", "where"),
    [
        (SAVED_BY_5 | {"rope_theta": 1e4, "rope_scaling": None}, "rope_parameters"),
        ({"rope_parameters": YARN, "rope_theta": 1e4, "rope_scaling": None}, "rope_parameters"),
        ({"text_config": SAVED_BY_5 | {"rope_theta": 1e4}}, "text_config.rope_parameters"),
        (_by_kind(1e6, 1e6) | {"rope_theta": 5e5}, "rope_parameters"),
    ],
)
def test_rope_parameters_that_flat_fields_take_the_place_of_are_named(config, where):
    def codes(max_ulp, rope_type="default"):
        run = with_signals(rotary("4.57", max_ulp, rope_type=rope_type), config=config)
        return [(f.code, f.where) for f in findings(Case(capture=run))]

    assert codes(max_ulp=1e6) == [("SB506", where)]
    # the flat field is a default that nothing reads
    assert codes(max_ulp=1.0, rope_type="yarn") == []


LOST = {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}


@pytest.mark.parametrize(
    ("before", "after", "fields", "where"),
    [
        ({"rope_theta": 5e5}, LOST, {"rope_theta": 5e5}, "rope_theta"),
        # a default of the class, as config.json leaves it out
        ({"rope_theta": 5e5}, LOST, {}, "rope_theta"),
        (
            {"text_config": {"model_type": "own", "rope_theta": 5e5}},
            {"text_config": {"model_type": "own", **LOST}},
            {"text_config.rope_theta": 5e5},
            "text_config.rope_theta",
        ),
        # config.json has both, so that 4.x is wrong
        ({"rope_theta": 5e5}, LOST, {"rope_theta": 5e5, "rope_parameters.rope_theta": 1e4}, None),
        ({"rope_theta": 5e5}, {"rope_parameters": {"rope_theta": 5e5}}, {"rope_theta": 5e5}, None),
        # a field that neither side rotates by
        ({"rope_theta": 1e4}, LOST, {"rope_theta": 5e5}, None),
    ],
)
def test_a_base_that_does_not_reach_rope_parameters_is_named(before, after, fields, where):
    """5.0 and 5.1 fill rope_parameters of a class that takes rope_theta for itself with 10000."""
    used = {path: ConfigField(written=value) for path, value in fields.items()}
    old = with_signals(rotary("4.57", 1.0), config=before, config_use=used)
    new = with_signals(rotary("5.0", 1.0), config=after, config_use=used)

    def named(capture, reference, outcome="differs"):
        found = findings(Case(capture, reference, signals=differs("inv_freq", outcome)))
        return [(f.where, f.of_reference) for f in found if f.code == "SB508"]

    assert named(new, old) == ([(where, False)] if where else [])
    assert named(old, new) == ([(where, True)] if where else [])
    assert named(new, old, outcome="identical") == []
    off = with_signals(rotary("5.0", 1e6), config=after, config_use=used)
    assert named(off, old) == []


def test_a_rope_type_that_is_ignored_is_named_where_the_base_is_the_default():
    """A Qwen3 with yarn and a base of 10000, saved by 5.x, has in 4.57 frequencies without yarn."""

    def codes(rope_type):
        config = {"rope_parameters": YARN, "rope_theta": YARN["rope_theta"], "rope_scaling": None}
        return codes_of(with_signals(rotary("4.57", 1.0, rope_type=rope_type), config=config))

    assert codes("default") == ["SB506"]
    assert codes("yarn") == []


def test_a_flat_base_of_a_custom_class_ignores_no_rope_type():
    """5.24 loads InternLM2 so; its frequencies are off as they are never written (SB301)."""
    config = {"rope_parameters": YARN, "rope_theta": YARN["rope_theta"]}
    run = with_signals(rotary("5.x", 1e6, rope_type="default"), config=config)
    assert "SB506" not in codes_of(run)


@pytest.mark.parametrize(
    ("code", "file", "config", "named"),
    [
        ('config.rope_scaling.get("mrope_section")', LIBRARY, SAVED_BY_5, ["SB506"]),
        ('config.rope_scaling.get("mrope_section")', LIBRARY, {"rope_theta": 1e4}, []),
        ('config.rope_scaling.get("mrope_section")', OWN, SAVED_BY_5, []),  # its file may lack both
        ("config.window.get(1)", LIBRARY, SAVED_BY_5, []),
    ],
)
def test_a_class_that_needs_the_flat_field_is_told_what_the_file_has(code, file, config, named):
    """Qwen3-VL saved by 5.x, in 4.57."""
    message = "'NoneType' object has no attribute 'get'"
    run = failed("AttributeError", message, frame(file=file, code=code))
    reference = with_signals(sound(Memory(), "5.x"), config=config)
    assert codes_of(run, reference=reference) == named


@pytest.mark.parametrize(
    "config",
    [
        SAVED_BY_5,
        SAVED_BY_5 | {"rope_theta": 5e5},
        {"rope_theta": 1e4},
        {"rope_parameters": YARN, "rope_theta": 1e4, "rope_scaling": {"type": "yarn"}},
        _by_kind(1e6, 1e4) | {"rope_theta": 1e6},
    ],
)
def test_rope_parameters_alone_or_with_equal_flat_fields_are_no_finding(config):
    assert codes_of(with_signals(rotary("4.57", 1e6), config=config)) == []
