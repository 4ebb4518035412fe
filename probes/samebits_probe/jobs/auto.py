"""A tiny model of any ``model_type`` that a release knows, from its config class alone.

A plan of model.scale is taken if the class makes a small model of it and if its forward runs with the inputs that
jobs.inputs chooses, and returns numbers. Then it is given, as far as it still runs, what defaults would hide.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import transformers

from samebits_probe.jobs import inputs as jobs_inputs
from samebits_probe.model import composite, forks, outputs, repairs, scale, shrink, timm_towers
from samebits_probe.model.choice import NotFed
from samebits_probe.model.tensor import stored
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line

LIMITS = 4_000_000, 32_000_000
"""Parameters of a tiny model, 16 MB in float32: made, saved and run in a second; and of a type whose plans all have more."""
HEADS = (
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForImageTextToText",
    "AutoModelForSeq2SeqLM",
    "AutoModelForCTC",
    "AutoModelForMaskedLM",
    "AutoModelForCausalLM",
    "AutoModelForImageClassification",
    "AutoModelForObjectDetection",
    "AutoModelForUniversalSegmentation",
    "AutoModelForInstanceSegmentation",
    "AutoModelForSemanticSegmentation",
    "AutoModelForDepthEstimation",
    "AutoModelForZeroShotObjectDetection",
    "AutoModelForMaskGeneration",
    "AutoModelForVideoClassification",
    "AutoModelForAudioClassification",
    "AutoModelForTimeSeriesPrediction",
    "AutoModelForDocumentQuestionAnswering",
    "AutoModelForVisualQuestionAnswering",
    "AutoModelForQuestionAnswering",
    "AutoModelForKeypointDetection",
    "AutoModelForKeypointMatching",
    "AutoModelForImageToImage",
    "AutoModelForTextToWaveform",
    "AutoModelForTextToSpectrogram",
    "AutoModelForPreTraining",
    "AutoModel",
    "AutoBackbone",
)
"""Auto classes, the one that most users load first."""


_MAX_REASON = 300
_MOST_FILLED = 5
"""Configs that are tried: the default, and with what the class was seen to need."""
_MOST_UNFED = 4
"""Plans after which a type is given up for which no inputs are known: those of the first may have the wrong sizes."""
_TOWERS = ("vision_config", "audio_config")
"""Parts of a config that hold a tower each."""
_NO_CLASS = "transformers has no model class for it"

Prompt = tuple[str, dict[str, Any]]
Prompts = tuple[Prompt, ...]


class NoneMade(Exception):  # noqa: N818
    """No tiny model can be made; the message is the reason."""


class NoForward(NoneMade):
    """A class computes nothing by itself; the message names its parts that do."""


class TooLarge(NoneMade):
    """A plan leaves too many parameters."""


class Made(NamedTuple):
    """A tiny model, and how it was made."""

    model: Any
    plan: str
    extras: tuple[str, ...]
    prompts: Prompts = ()
    """The inputs with which its forward runs."""
    missed: tuple[str, ...] = ()
    """Why there are none of another kind, such as images beside the text."""
    refused: str = ""
    """Why forward does not run; '' if it does."""


def model_class(architecture: str, head: str | None = None) -> Any:
    """Return the class that an Auto class makes for a type; of all Auto classes, the first that makes one."""
    config_class = transformers.CONFIG_MAPPING[architecture]
    for name in [head] if head else HEADS:
        auto = getattr(transformers, name, None)
        mapped = None if auto is None else _mapped(auto, config_class)
        chosen = mapped[0] if isinstance(mapped, (list, tuple)) else mapped
        if chosen is not None and (head or _takes(chosen, config_class)):
            return _with_forward(chosen)
    if head:
        raise NoneMade(f"transformers {transformers.__version__} has no {head} for {architecture}")
    try:
        classes = vars(modeling(config_class)).values()
    except ImportError as error:
        raise NoneMade(_NO_CLASS) from error
    own: list[Any] = [
        each
        for each in classes
        if inspect.isclass(each)
        and issubclass(each, transformers.PreTrainedModel)
        and not each.__name__.endswith("PreTrainedModel")
        and getattr(each, "config_class", None) is config_class
        and getattr(transformers, each.__name__, None) is each
    ]
    if not own:
        raise NoneMade(_NO_CLASS)
    return _with_forward(own[0])


def modeling(config_class: Any) -> ModuleType:
    """Return the module with the models of a config class. Raises ImportError without one."""
    name = str(config_class.__module__).replace("configuration_", "modeling_")
    return importlib.import_module(name)


def _mapped(auto: Any, config_class: Any) -> Any:
    """Return what an Auto class makes for a config; None if it makes nothing, or names a class that does not exist."""
    try:
        return auto._model_mapping.get(config_class, None)
    except ValueError:
        return None


def _takes(model_class: Any, config_class: Any) -> bool:
    """Return False for a class of a part of what the config describes, such as the decoder of MusicGen."""
    if (declared := getattr(model_class, "config_class", None)) is None:
        return True
    return issubclass(config_class, declared) or issubclass(declared, config_class)


def _with_forward(class_of_model: Any) -> Any:
    """Return a class. Raises NoForward if it has no forward, as a codec may have."""
    if composite.has_no_forward(class_of_model):
        raise NoForward(composite.why(class_of_model))
    return class_of_model


_CODES = 16
"""Codes of a tiny codebook, each of which the vocabulary names."""
_GIVEN: dict[str, dict[str, Any]] = {
    "encoder-decoder": {
        "encoder": {"model_type": "bert"},
        "decoder": {"model_type": "bert", "is_decoder": True, "add_cross_attention": True},
        "pad_token_id": 0,
    },
    "vision-encoder-decoder": {
        "encoder": {"model_type": "vit"},
        "decoder": {"model_type": "gpt2", "add_cross_attention": True},
        "pad_token_id": 0,
    },
    "speech-encoder-decoder": {
        "encoder": {"model_type": "wav2vec2"},
        "decoder": {"model_type": "bert", "is_decoder": True, "add_cross_attention": True},
        "pad_token_id": 0,
    },
    "vision-text-dual-encoder": {
        "vision_config": {"model_type": "vit"},
        "text_config": {"model_type": "bert"},
    },
    "musicgen": {
        "text_encoder": {"model_type": "t5"},
        "audio_encoder": {"model_type": "encodec"},
        "decoder": {"model_type": "musicgen_decoder"},
    },
    "musicgen_melody": {
        "text_encoder": {"model_type": "t5"},
        "audio_encoder": {"model_type": "encodec"},
        "decoder": {"model_type": "musicgen_melody_decoder"},
    },
    "rag": {"question_encoder": {"model_type": "dpr"}, "generator": {"model_type": "bart"}},
    "autoformer": {"prediction_length": 16},  # its decoder takes the last 10 values
    "bamba": {"attn_layer_indices": [1]},  # without attention, its cache has no length
    "blip-2": {"image_token_index": 7},  # releases differ in what they do without one
    "chameleon": {
        "vocabulary_map": {"<image>": 7, **{f"IMGIMG{n}Z": 20 + n for n in range(_CODES)}},
        "vq_config": {"num_embeddings": _CODES},
    },
    "efficientnet": {"hidden_dim": 1280},  # 2560 is for twice the width
    "emu3": {
        "vocabulary_map": {
            "<image>": 7,
            "<|extra_200|>": 6,
            **{f"<|visual token {n:06}|>": 20 + n for n in range(_CODES)},
        },
        "vq_config": {"codebook_size": _CODES},
    },
    "fuyu": {"image_token_id": 7},  # no field of 4.48, and 71011 in later releases
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "gpt_oss": {"hidden_size": 2048, "intermediate_size": 2048},  # 2880 / 32 is no multiple of 4
    "instructblip": {"image_token_index": 7},
    "jamba": {"use_mamba_kernels": False},  # the kernels need a GPU
    "granitemoehybrid": {"num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"]},
    # its layer norms are for maps of timm, with the channels last, and as wide as those of its default backbone
    "omdet-turbo": {
        "apply_layernorm_after_vision_backbone": False,
        "encoder_in_channels": [512, 1024, 2048],
    },
    "pp_doclayout_v2": {"class_thresholds": [0.5] * 25, "class_order": [*range(25)]},
    # 4.57 drops its own defaults
    "superglue": {
        "keypoint_encoder_sizes": [32, 64, 128, 256],
        "gnn_layers_types": ["self", "cross"],
    },
    "upernet": {"auxiliary_in_channels": 1024},  # that of its default backbone
    # two layers share weights, which 5.x requires
    "zamba": {"num_hidden_layers": 3, "layers_block_type": ["hybrid", "hybrid", "mamba"]},
}
"""What configs of types are given: parts where they have no default (they raise), and numbers where the default does not
fit the rest."""
_DERIVED = frozenset({"num_layers_per_stack"})
"""What a config makes of its other fields where it is left out."""
_OPEN = {
    "prediction_length": 8,
    "sliding_window": 512,
    "vocab_size": 512,
    "pad_token_id": 0,
    "mask_token_id": 3,
    "image_token_id": 7,
    "image_token_index": 7,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_routed_experts": 8,
    "num_experts": 8,
    "n_shared_experts": 1,
    "top_k_experts": 2,
    "moe_intermediate_size": 128,
    "clip_qkv": 8.0,
}
"""Numbers without which some classes raise, and which their configs leave open."""
_KINDS_OF_LAYERS = {"layer_types": "full_attention", "mlp_layer_types": "dense"}
"""Lists with a word for each layer -> a word that any class takes; the class names the others."""
_NO_TOKEN = re.compile(r"Config' object has no attribute '(\w+_token_id)'")
_OWN_TOKEN = re.compile(r"getattr\((?:self\.)?config, \"(\w+_token_(?:id|index))\", ([\d_]+)\)")
"""A token that the code has a default of its own for, as ShieldGemma 2 has for its answers."""
_NO_FIELD = re.compile(r"Config' object has no attribute '(\w+)'")
_UNDECLARED = {"dropout_rate": 0.0, "rope_theta": 10000.0, "shared_expert_intermediate_size": 128}
"""Numbers that some classes read and their configs do not have."""
_GROUPS = re.compile(r"divisible by num_groups \((\d+)\)")
_FIRST_FREE = 8
"""An id that shrink.fewer_tokens gives to no other token."""
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_STAGES = ("stage1", "stage2", "stage3", "stage4")
_TIMM = frozenset({"timm_backbone", "timm_wrapper"})


def _default(config_class: Any) -> dict[str, Any]:
    """Return the default config as plain data, with a backbone of transformers in place of timm's."""
    values: dict[str, Any] = config_class(
        **copy.deepcopy(_GIVEN.get(config_class.model_type, {}))
    ).to_dict()
    values = {name: value for name, value in values.items() if name not in _DERIVED}
    values |= _towers(config_class, values)
    if values.get("return_loss"):  # a plain forward gets no labels
        values["return_loss"] = False
    if values.get("is_encoder_decoder") and values.get("decoder_start_token_id") is None:
        values["decoder_start_token_id"] = values.get("pad_token_id") or 0  # as T5's checkpoints
    backbone = values.get("backbone_config")
    kind = backbone.get("model_type") if isinstance(backbone, dict) else None
    if kind in _TIMM or (values.get("use_timm_backbone") and backbone is None):
        stages = _STAGES[1:] if "num_feature_levels" in values else _STAGES
        made = transformers.CONFIG_MAPPING["resnet"](out_features=[*stages]).to_dict()
        values |= {"backbone_config": made, "backbone": None}
        for name in ("use_timm_backbone", "use_pretrained_backbone", "backbone_kwargs"):
            if name in values:
                values[name] = None if name == "backbone_kwargs" else False
    return values


def _towers(config_class: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return the configs of parts that a default leaves out and checkpoints have, as Gemma 4's of images and sounds."""
    parts = getattr(config_class, "sub_configs", None)  # a property of some classes
    named = parts if isinstance(parts, dict) else {}
    classes = {name: getattr(part, "config_class", part) for name, part in named.items()}
    return {
        name: made.to_dict()
        for name, part in classes.items()
        if name.endswith(_TOWERS)
        and values.get(name, "") is None
        and isinstance(part, type)
        and issubclass(part, transformers.PretrainedConfig)
        and (made := part()).model_type
    }


def _filled(values: dict[str, Any], model_class: Any, refusals: Iterable[str]) -> dict[str, Any]:
    """Return a config with what a class may need and its config leaves open: sizes, a language, kinds of layers."""
    filled = copy.deepcopy(values)
    missing = dict.fromkeys(name for why in refusals for name in _NO_TOKEN.findall(why))
    filled |= {name: _FIRST_FREE - number for number, name in enumerate(missing)}
    own = {name: int(value) for name, value in _OWN_TOKEN.findall(_source(model_class))}
    filled = own | filled
    unknown = {name for why in refusals for name in _NO_FIELD.findall(why)}
    for part in scale.parts(filled):
        part |= {n: v for n, v in _UNDECLARED.items() if n in unknown and n not in part}
        for name, value in _OPEN.items():
            if name in part and part[name] is None:
                part[name] = value
        heads = part.get("num_attention_heads")
        if shrink.is_size(heads):
            sizes = {"head_dim": part.get("hidden_size", 0) // heads, "num_key_value_heads": heads}
            part |= {
                n: v for n, v in sizes.items() if part.get(n, n not in unknown or None) is None
            }
        if part.get("rope_theta") and part.get("rope_scaling", "none") is None:
            part["rope_scaling"] = {"rope_type": "default"}
        if part.get("num_feature_levels") == 0:  # LW-DETR's, as many as its projector has factors
            part |= {"num_feature_levels": 1, "projector_scale_factors": [1.0]}
        if part.get("use_mamba_kernels"):  # they need a GPU
            part["use_mamba_kernels"] = False
        if "default_language" in part and part.get("languages"):
            part["default_language"] = part["languages"][0]
        if part.get("model_type") in _TIMM and not part.get("backbone", "no"):
            part["backbone"] = "resnet18"
        if part.get("rope_parameters") == {} and part.get("layer_types"):
            kinds = dict.fromkeys(part["layer_types"])
            part["rope_parameters"] = {kind: {**_ROPE} for kind in kinds}
        for name, plain in _KINDS_OF_LAYERS.items():
            if name in part and not part[name]:
                words = rf"\b{name[:-1]}s?\[\w+\] [!=]= \"(\w+)\""
                both = sorted({*re.findall(words, _source(model_class))} | {plain})
                count = int(part.get("num_hidden_layers") or 0)
                part[name] = [both[index % len(both)] for index in range(count)]
    return filled


def _source(model_class: Any) -> str:
    return Path(inspect.getfile(model_class)).read_text("utf-8")


_TIME_LAST = re.compile(r"\"mrope_section\", \[(\d+), \1, (?!\1)\d+\]")
"""Sections of rows and columns before those of time, as Ernie has them: the two are of one size."""


def _with_sections(values: dict[str, Any], model_class: Any) -> None:
    """Give a text part the sections of its rope, as a default of the code's is for heads of 128 dimensions."""
    if "mrope_section" not in _source(model_class):
        return
    for part in scale.parts(values):
        heads = part.get("num_attention_heads")
        if "vocab_size" not in part or not isinstance(heads, int):
            continue
        if part.get("rope_parameters") == {}:  # no layer rotates
            continue
        rope = part.get("rope_parameters") or part.get("rope_scaling") or {}
        dims = part.get("head_dim") or part.get("hidden_size", 0) // heads
        partial = rope.get("partial_rotary_factor") or part.get("partial_rotary_factor") or 1.0
        half = int(dims * partial) // 2
        first = max(half // 4, 1)
        sections = [half - 2 * ((half - first) // 2), *[(half - first) // 2] * 2]
        if _TIME_LAST.search(_source(model_class)):
            sections.reverse()
        key = "rope_parameters" if part.get("rope_parameters") else "rope_scaling"
        of_kinds = [value for value in rope.values() if isinstance(value, dict)]
        for of_kind in of_kinds:
            of_kind["mrope_section"] = sections
        if not of_kinds:
            part[key] = {"rope_type": "default", **rope, "mrope_section": sections}


def make(
    architecture: str,
    seed: int,
    given: dict[str, Any] | None = None,
    head: str | None = None,
    named: Any = None,
) -> Made:
    """Return a tiny model of a type, with the fields of its config that are given as they are.

    ``named`` is the class that a user names; its own config class then counts, as that of a part of the type.
    """
    cls = _with_forward(named) if named is not None else model_class(architecture, head)
    config_class = getattr(named, "config_class", None) or transformers.CONFIG_MAPPING[architecture]
    default = _default(config_class)
    refusals: dict[str, str] = {}
    classes = (cls, config_class)
    limits = Limits(seed, _given(cls, default, given or {}))
    made = _of_plans(classes, default, limits, refusals)
    if not _is_fed(made) and (groups := _GROUPS.search(str([*refusals]))):
        limits = limits._replace(multiple=int(groups[1]))
        made = _of_plans(classes, default, limits, refusals) or made
    if made is None:
        raise NoneMade("; ".join(f"{name}: {why}" for why, name in refusals.items()))
    return made


def _given(cls: Any, default: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a config that no plan changes: those that are given, and small towers of timm."""
    _merge(whole := copy.deepcopy(default), given)
    fixed = timm_towers.smaller(whole, _source(cls))
    _merge(fixed, given)
    return fixed


def _of_plans(
    classes: tuple[Any, Any], default: dict[str, Any], limits: Limits, refusals: dict[str, str]
) -> Made | None:
    """Return the first model that runs, of the default config and of it filled; else one that is made, or None."""
    made: Made | None = None
    values = default
    for _ in range(_MOST_FILLED):
        for limit in LIMITS:
            made = _made(classes, values, limits._replace(n_parameters=limit), refusals) or made
            if _is_fed(made) or "million parameters" not in str(refusals):
                break
        if _is_fed(made):
            break
        filled = _filled(default, classes[0], refusals)
        if filled == values:
            break
        values = filled
    return made


def _is_fed(made: Made | None) -> bool:
    return made is not None and not made.refused


class Limits(NamedTuple):
    """How a model is made."""

    seed: int
    given: dict[str, Any]
    """Fields of its config that stay as they are."""
    n_parameters: int = LIMITS[0]
    multiple: int = 1
    """Of which widths are made."""


def _made(
    classes: tuple[Any, Any], default: dict[str, Any], limits: Limits, refusals: dict[str, str]
) -> Made | None:
    """Return the model of the first plan that runs, else of the first that is made; None if none is."""
    cls, config_class = classes
    first: Made | None = None
    too_small = unfed = 0
    for plan in scale.plans(default, limits.multiple):
        if plan.divisor <= too_small:
            continue
        _with_sections(plan.config, cls)
        _merge(plan.config, limits.given)
        try:
            model = constructed(cls, config_class, plan.config, limits)
        except Exception as error:  # noqa: BLE001  a class may refuse a config in any way
            refusals.setdefault(in_one_line(error, _MAX_REASON), plan.name)
            too_small = plan.divisor if isinstance(error, TooLarge) else too_small
            if isinstance(error, ImportError):
                break
            continue
        try:
            prompts, missed = _run_prompts(model)
        except Exception as error:  # noqa: BLE001  a forward may refuse inputs in any way
            why = str(error) if isinstance(error, NotFed) else in_one_line(error, _MAX_REASON)
            if first is None and (mended := _mended(model, plan, limits)):
                return mended
            refusals.setdefault(why, plan.name)
            first = first or Made(model, plan.name, (), refused=why)
            unfed += isinstance(error, NotFed)
            if unfed == _MOST_UNFED:
                break
            continue
        made = Made(model, plan.name, (), prompts, missed)
        made, repaired = _repaired(made, plan, limits) if missed else (made, plan)
        return _moved(made, repaired, limits)
    return first


def _mended(model: Any, plan: Any, limits: Limits) -> Made | None:
    """Return the model with a repair with which its forward runs; None if none helps."""
    made, repaired = _repaired(Made(model, plan.name, ()), plan, limits)
    return _moved(made, repaired, limits) if made.prompts else None


def _moved(made: Made, plan: Any, limits: Limits) -> Made:
    """Return a model that runs with what defaults would hide."""
    model, extras = _with_extras(made.model, plan, made.prompts, limits)
    return made._replace(model=model, extras=(*made.extras, *extras))


def _repaired(made: Made, plan: Any, limits: Limits) -> tuple[Made, Any]:
    """Return the model and its plan with the repairs that feed most kinds of prompts; as they are without one."""
    best, of_best = made, plan
    for name, config in repairs.repaired(plan.config):
        _merge(config, limits.given)
        try:
            model = constructed(type(made.model), type(made.model.config), config, limits)
            prompts, missed = _run_prompts(model)
        except Exception:  # noqa: BLE001, S112  a class may refuse a config in any way
            continue
        if len(prompts) > len(best.prompts):
            best = made._replace(model=model, extras=(name,), prompts=prompts, missed=missed)
            of_best = plan._replace(config=config)
        if not best.missed:
            break
    return best, of_best


def _merge(values: dict[str, Any], given: dict[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, dict) and isinstance(values.get(name), dict):
            _merge(values[name], value)
        else:
            values[name] = copy.deepcopy(value)


def _with_extras(
    model: Any, plan: Any, prompts: Prompts, limits: Limits
) -> tuple[Any, tuple[str, ...]]:
    """Return the model with what defaults would hide, as far as it still runs: all of it, else one by one."""
    values = plan.config
    taken: list[str] = []
    wanted = [name for name in scale.EXTRAS if scale.with_extras(values, [name]) != values]
    for names in dict.fromkeys([(*wanted,), *((name,) for name in wanted)]):
        if not names or set(names) <= {*taken}:
            continue
        changed = scale.with_extras(values, names)
        try:
            rebuilt = constructed(type(model), type(model.config), changed, limits)
            for _, kwargs in prompts:
                require_numbers(rebuilt, kwargs)
        except Exception:  # noqa: BLE001, S112  a class may refuse a config in any way
            continue
        model, values = rebuilt, changed
        taken += names
    return model, tuple(taken)


def constructed(cls: Any, config_class: Any, values: dict[str, Any], limits: Limits) -> Any:
    """Return a model of a config. Raises what its class raises, and NoneMade if it is not tiny."""
    progress.tick("tiny model")
    with forks.default_dtype_kept():
        config = config_class.from_dict(copy.deepcopy(values))
        keyword = {forks.dtype_keyword(): torch.float32}
        try:
            with torch.device("meta"):
                skeleton = cls._from_config(copy.deepcopy(config), **keyword)
        except Exception:  # noqa: BLE001  some need the values of their tensors
            skeleton = None
        if skeleton is not None:
            _require_tiny(skeleton, limits)
        torch.manual_seed(limits.seed)
        model = _in_float32(cls._from_config(config, **keyword).eval())
    _require_tiny(model, limits)
    return model


def _in_float32(model: Any) -> Any:
    """Return a model whose class gives some tensors a small dtype of their own, with these in float32.

    Apertus has a bfloat16 activation in 4.57 whatever dtype is asked for.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dtype in (torch.bfloat16, torch.float16):
            tensor.data = tensor.data.float()
    return model


def _require_tiny(model: Any, limits: Limits) -> None:
    n_parameters = sum(int(p.numel()) for p in model.parameters())
    if n_parameters > limits.n_parameters:
        raise TooLarge(f"{n_parameters / 1e6:.0f} million parameters")


_PROMPTS = {
    "short": {"length": 9},
    "long": {"length": "past-window"},
    "padded": {"batch": [{"length": 5}, {"length": 13}]},
}
"""As samebits/matrix/spec.py has them for a model without a tokenizer."""


def _run_prompts(model: Any) -> tuple[Prompts, tuple[str, ...]]:
    """Return the inputs with which a forward returns numbers, as jobs.inputs chooses them, and why there are no more."""
    with tempfile.TemporaryDirectory(prefix="samebits-auto-") as folder:
        config = copy.deepcopy(model.config)
        config.architectures = [type(model).__name__]
        config.save_pretrained(folder)
        chooser = jobs_inputs.Chooser(_inputs_job(folder, model))
        made: list[Prompt] = []
        reasons: dict[str, None] = {}
        for facts in (chooser.plain, chooser.beside):
            for name, fact in facts().items():
                if "reason" in fact:
                    reasons |= {fact["reason"]: None} if fact["why"] == NotFed.why else {}
                    continue
                kwargs = _arguments(fact, Path(folder) / "tensors", model)
                require_numbers(model, kwargs)
                made.append((name, kwargs))
        if not made:
            raise NotFed("; ".join(reasons) or "no prompt applies")
        return tuple(made), tuple(reasons)


def _inputs_job(folder: str, model: Any) -> Any:
    source = {"source": folder, "revision": None, "trust_remote_code": False, "prompts": _PROMPTS}
    if model.config.model_type not in transformers.CONFIG_MAPPING:  # a part of a type
        source["model_class"] = f"{type(model).__module__}:{type(model).__name__}"
    return {"model": source, "places": {}, "store": {"root": folder}}


def _arguments(fact: dict[str, Any], tensors: Path, model: Any) -> dict[str, Any]:
    names, optional = inspect.signature(model.forward).parameters, fact.get("optional", ())
    kwargs: dict[str, Any] = {
        name: stored(tensors, ref)
        for name, ref in fact["tensors"].items()
        if name not in optional or name in names
    }
    constants: dict[str, Any] = fact.get("constants", {})
    return kwargs | constants


def require_numbers(model: Any, kwargs: dict[str, Any]) -> None:
    """Raise unless a forward returns numbers."""
    with torch.no_grad():
        result = model(**kwargs)
    if not outputs.has_numbers(result):
        raise NoneMade("forward returns no finite numbers")
