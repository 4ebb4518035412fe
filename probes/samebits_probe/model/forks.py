"""Differences between the APIs of transformers releases, one small function for each (a fork).

Their branches were checked against the sources of the releases.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import torch
import transformers


def _version() -> tuple[int, int]:
    major, minor = transformers.__version__.split(".")[:2]
    return int(major), int(minor)


def values_of(config: Any, name: str) -> list[Any]:
    """Return what a config has in a field: [None] without it, and the values of all layers if they differ.

    From 5.17 on a config can have a field for each layer, as Gemma 4's has ``head_dim``. Such a field of the config
    as a whole raises AmbiguousGlobalPerLayerAttributeError, which is no AttributeError
    (integrations/heterogeneity/configuration_utils.py, __getattribute__).
    """
    spec = getattr(config, "__dict__", {}).get("_heterogeneity_spec")
    if spec is None or name not in spec.per_layer_attributes:
        return [getattr(config, name, None)]
    return [getattr(layer, name, None) for layer in config.per_layer_config]


def value_of(config: Any, name: str) -> Any:
    """Return what a config has in a field; of several values, the first that is not None."""
    return next((value for value in values_of(config, name) if value is not None), None)


def dtype_keyword() -> str:
    """Return from_pretrained's keyword for a dtype: ``dtype`` from 4.57 on, else ``torch_dtype``.

    4.53 has only the old one, 4.57 both (modeling_utils.py, from_pretrained).
    """
    return "dtype" if _version() >= (4, 57) else "torch_dtype"


def in_float32() -> dict[str, Any]:
    """Return the keyword that makes a model in float32."""
    return {dtype_keyword(): torch.float32}


@contextmanager
def default_dtype_kept() -> Iterator[None]:
    """Set torch's default dtype back: 4.x leaves it changed where a constructor raises."""
    dtype = torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)


def prepare() -> None:
    """Do the first step of every load in this process, so that its forks need not do it.

    5.x compiles a thousand patterns for the checkpoint layouts of all models once per process,
    which is half the time of saving a tiny model (conversion_mapping.py, a global made on demand).
    """
    with suppress(ImportError, AttributeError):
        from transformers import conversion_mapping  # noqa: PLC0415  4.x has none

        conversion_mapping.get_checkpoint_conversion_mapping("")


def refuse_custom_generate() -> None:
    """Let no model of this process run custom_generate/generate.py of its checkpoint.

    4.52 to 4.57 run it in every from_pretrained of a folder, trusted or not, and refuse the whole
    model if it is one of the hub (modeling_utils.py); up to 4.51 there is no such file, and from 5.0
    on transformers asks for trust. All take an OSError for "the checkpoint has none".
    """
    from transformers import generation  # noqa: PLC0415  a job in a new interpreter starts here

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(
            "custom_generate is code of the model, which runs only with trust_remote_code"
        )

    if hasattr(generation.GenerationMixin, "load_custom_generate"):
        generation.GenerationMixin.load_custom_generate = refused


def knows_accelerate() -> bool:
    """Return True if this process's transformers has found accelerate, in a version it takes."""
    from transformers.utils import import_utils  # noqa: PLC0415  late: it may be asked again

    return bool(import_utils.is_accelerate_available())


def ask_for_accelerate_again() -> None:
    """Have transformers look for accelerate anew, as it remembers that there was none.

    4.x has the answer in two globals of utils/import_utils.py, 5.x in functions with a cache.
    """
    from transformers.utils import import_utils  # noqa: PLC0415  late: other jobs need it not

    if hasattr(import_utils, "_accelerate_available"):
        is_installed, version = import_utils._is_package_available(
            "accelerate", return_version=True
        )
        import_utils._accelerate_available = is_installed
        import_utils._accelerate_version = version
        return
    for function in (import_utils._is_package_available, import_utils.is_accelerate_available):
        getattr(function, "cache_clear", lambda: None)()


def config_dtype(config: Any) -> str | None:
    """Return the dtype in a config: field ``torch_dtype`` in 4.48, ``dtype`` from 4.56 on."""
    values = vars(config)
    value = values.get("dtype" if "dtype" in values else "torch_dtype")
    return None if value is None else str(value).removeprefix("torch.")


@contextmanager
def adapters_with_info() -> Iterator[None]:
    """Let loads of an adapter return a loading info.

    ``load_adapter`` of 5.1 and 5.2 returns None, and ``from_pretrained`` with ``output_loading_info``
    raises there, which users do not ask for.
    """
    original = transformers.PreTrainedModel.load_adapter

    @functools.wraps(original)
    def load_adapter(self: Any, *args: Any, **kwargs: Any) -> Any:
        info = original(self, *args, **kwargs)
        return _NoInfo if info is None else info

    with mock.patch.object(transformers.PreTrainedModel, "load_adapter", load_adapter):
        yield


class _NoInfo:
    """Takes the place of a loading info that the release does not have."""

    @staticmethod
    def to_dict() -> dict[str, Any]:
        return {}


def loading_info(info: dict[str, Any]) -> dict[str, list[str]]:
    """Return missing, unexpected and mismatched keys as sorted lists.

    4.x has lists, 5.x sets; mismatched keys are tuples of name and both shapes in both.
    """
    return {
        kind: sorted(
            key if isinstance(key, str) else str(tuple(key)) for key in info.get(kind) or ()
        )
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
    }


def rope_settings(config: Any, layer_type: str | None = None) -> dict[str, Any]:
    """Return rope_type, rope_theta and scaling fields in one dict.

    4.x keeps ``rope_theta`` and ``rope_scaling`` on the config, gemma3 also
    ``rope_local_base_freq``; 5.x has ``rope_parameters``, per layer type in mixed models.
    """
    parameters = value_of(config, "rope_parameters")
    if isinstance(parameters, dict):
        if layer_type in parameters and isinstance(parameters[layer_type], dict):
            return dict(parameters[layer_type])
        return dict(parameters)
    if layer_type == "sliding_attention" and hasattr(config, "rope_local_base_freq"):
        return {"rope_type": "default", "rope_theta": config.rope_local_base_freq}
    scaling = value_of(config, "rope_scaling") or {}
    theta = value_of(config, "rope_theta") or value_of(config, "rotary_emb_base")
    settings = {"rope_theta": theta, **scaling}
    settings.setdefault("rope_type", scaling.get("type", "default"))
    return settings


def rope_layer_type(buffer: str, module: str) -> str | None:
    """Return the layer type of a rotary buffer in models that mix several; else None.

    5.x names the buffer ``sliding_attention_inv_freq``, 4.x the module ``rotary_emb_local``.
    """
    if prefix := buffer.removesuffix("inv_freq").rstrip("_"):
        return prefix
    return "sliding_attention" if module.rsplit(".", 1)[-1] == "rotary_emb_local" else None


def rope_type(module: Any, layer_type: str | None) -> str | None:
    """Return the ``rope_type`` of a rotary module: a string, in 5.x also a dict per layer type."""
    value = getattr(module, "rope_type", None)
    if isinstance(value, dict):
        return value.get(layer_type)
    return value if isinstance(value, str) else None


def attention_scaling(module: Any, layer_type: str | None) -> float | None:
    """Return a rotary module's factor on cos and sin; 5.x has one per layer type."""
    value = getattr(module, f"{layer_type}_attention_scaling", None) if layer_type else None
    if value is None:
        value = getattr(module, "attention_scaling", None)
    return float(value) if isinstance(value, (int, float)) else None


def refuses_attention(message: str) -> bool:
    """Return True if a load was refused because the class lacks the attention implementation.

    The words are from the checks of modeling_utils.py in 4.48 to 5.23.
    """
    return "does not support" in message and ("attention" in message.lower() or "sdpa" in message)


@contextmanager
def attention(model: Any, named: str) -> Iterator[None]:
    """Switch a loaded model to another attention, if it reads its config in every forward.

    4.48 has no set_attn_implementation, 4.57 has it. Before, forward reads the config's field,
    unless the class chooses its attention at construction (modeling_llama.py, 4.48).
    """
    plainly = functools.partial(setattr, model.config, "_attn_implementation")
    setter = getattr(model, "set_attn_implementation", None) or plainly
    previous = model.config._attn_implementation
    setter(named)
    try:
        yield
    finally:
        setter(previous)


def gives_attention_again() -> bool:
    """Return True if from_pretrained gives its attn_implementation to the config once more, behind its constructor: from 4.54 on.

    Some configs make their parts behind the base's constructor, which has none to pass it on to (modeling_utils.py).
    """
    return _version() >= (4, 54)


_OLD_NAMES = ("past_key_values", "cache_params", "state")
_STATE_MODELS = frozenset({"falcon_mamba", "mamba", "mamba2", "xlstm"})
"""Model types whose cache holds states alone. Through 5.23 it is ``cache_params``, later ``cache``."""
_MADE_BY_CALLER = (
    "HybridMambaAttentionDynamicCache",
    "FalconHybridMambaAttentionDynamicCache",
    "Zamba2HybridDynamicCache",
    "HybridCache",
)
_STATE_ATTRIBUTES = ("conv_states", "conv_cache", "recurrent_states", "ssm_states", "linear_cache")


def accepts(model: Any, name: str) -> bool:
    """Return True if the model's forward has a parameter of that name."""
    return name in _parameter_names(getattr(model.forward, "__func__", model.forward))


def uncached(model: Any) -> dict[str, Any]:
    """Return the argument with which a forward makes no cache; {} if it takes none.

    From 4.57 on many a class takes it among ``**kwargs``, such as Qwen3-VL and LLaVA.
    """
    others = accepts(model, "kwargs") and getattr(model, "can_generate", lambda: False)()
    return {_USE_CACHE: False} if others or accepts(model, _USE_CACHE) else {}


_USE_CACHE = "use_cache"


@functools.cache
def _parameter_names(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


@functools.cache
def cache_name() -> str:
    """Return the keyword by which generate() hands a model its cache.

    It is ``past_key_values`` through 5.23 and ``cache`` from 5.24 on (ALL_CACHE_NAMES in
    generation/utils.py, which 4.48 does not have).
    """
    from transformers.generation import utils  # noqa: PLC0415  a job that never decodes needs it not

    return "cache" if "cache" in getattr(utils, "ALL_CACHE_NAMES", ()) else "past_key_values"


def cache_keyword(model: Any) -> str | None:
    """Return forward's keyword for the cache; "" if modules keep it, None if there is none.

    That of generate() comes first, as a forward may take the names of several releases. Through 5.23
    it is ``cache_params`` in mamba; it is ``state`` in rwkv. recurrent_gemma keeps the cache in its
    modules through 5.2.
    """
    keyword = next((key for key in (cache_name(), *_OLD_NAMES) if accepts(model, key)), None)
    if keyword is None and getattr(model.config, "model_type", "") == "recurrent_gemma":
        return ""
    return keyword


def takes_kv_cache(model: Any) -> bool:
    """Return True if forward takes keys and values of earlier tokens as an argument."""
    return cache_keyword(model) in {"cache", "past_key_values"} and not _takes_states(model)


def _takes_states(model: Any) -> bool:
    model_type = getattr(model.config, "model_type", "")
    return accepts(model, "cache_params") or model_type in _STATE_MODELS


def empty_cache_is_true() -> bool:
    """Return True if generate() hands over a cache that is true before it holds a token.

    From 4.56 on it is made with a config and has that many layers; before, it has none until it is filled. 5.0
    leaves it to the forward to make one.
    """
    return _version() >= (4, 56) and _version() != (5, 0)


def new_cache(model: Any, rows: int, length: int, dtype: torch.dtype) -> Any:
    """Return an empty cache where the caller must make it, else None: forward makes its own.

    Without one, jamba, bamba, zamba2, falcon_h1 and granitemoehybrid warn and return no cache in
    4.x and 5.0 to 5.2; gemma2 and cohere2 of 4.48 make one that is only as long as their first
    input; recurrent_gemma of 5.23 makes one and does not return it.
    """
    if getattr(model.config, "model_type", "") == "recurrent_gemma":
        return transformers.DynamicCache(config=model.config)
    cache_class = _own_cache_class(model)
    return None if cache_class is None else _new_cache_of(cache_class, model, rows, length, dtype)


def _own_cache_class(model: Any) -> Any:
    module = sys.modules.get(type(model).__module__)
    return next((getattr(module, name) for name in _MADE_BY_CALLER if hasattr(module, name)), None)


def takes_static_cache(model: Any) -> bool:
    """Return True if the class declares support for a StaticCache.

    The flag is ``_supports_static_cache`` through 4.53 and ``_can_compile_fullgraph`` later.
    Classes with a cache class of their own set it, too, but refuse a StaticCache.
    """
    if not takes_kv_cache(model) or _own_cache_class(model):
        return False
    flags = ("_supports_static_cache", "_can_compile_fullgraph")
    flag = next((flag for flag in flags if hasattr(type(model), flag)), None)
    return bool(flag and getattr(model, flag))


def generates_behind_cache(model: Any) -> bool:
    """Return True if generate() accepts a filled cache.

    With mamba's ``cache_params``, prepare_inputs_for_generation of 4.48 to 5.2 passes only the last
    token, even if more tokens are missing from the cache.
    """
    return takes_kv_cache(model)


def behind_cache(model: Any, cache: Any, ids: torch.Tensor) -> dict[str, Any]:
    """Return the arguments of generate() for a filled cache; ``ids`` include those in the cache.

    5.23 removes the ids in the cache only if the decoder's mask is as long as its ids. Without an
    explicit mask, an encoder-decoder would process the prefix twice.
    """
    arguments = {cache_name(): cache}
    if not getattr(model.config, "is_encoder_decoder", False):
        return arguments
    return arguments | {"decoder_attention_mask": torch.ones_like(ids)}


def static_cache(model: Any, rows: int, length: int, dtype: torch.dtype) -> Any:
    """Return an empty StaticCache: 4.48 needs rows, device and dtype, 4.57 allocates lazily."""
    import transformers.cache_utils  # noqa: PLC0415  only some jobs need it

    return _new_cache_of(transformers.cache_utils.StaticCache, model, rows, length, dtype)


def cache_implementations(model: Any) -> list[str]:
    """Return the names of caches beside the static one that fit a model, lose nothing and need no accelerator.

    Names of windows are for models with one. Up to 4.55 each is a class that only models which import it
    can use. Since then it gives the static cache. Offloading needs an accelerator.
    """
    from transformers.generation import configuration_utils as release  # noqa: PLC0415  only some jobs need it

    classes = getattr(release, "NEED_SETUP_CACHE_CLASSES_MAPPING", {})
    fitting = ["dynamic", "dynamic_full"]
    text = getattr(model.config, "text_config", None) or model.config
    if any(value_of(text, name) for name in ("sliding_window", "attention_chunk_size")):
        fitting += ["sliding_window", "hybrid", "hybrid_chunked"]
    available = getattr(release, "ALL_CACHE_IMPLEMENTATIONS", ())
    own = vars(sys.modules[type(model).__module__])
    return [
        name
        for name in fitting
        if name in available and (name not in classes or classes[name].__name__ in own)
    ]


def drop_cache(model: Any) -> None:
    """Remove the cache that generate() up to 5.13 keeps in a model; one whose call raised is half made."""
    if isinstance(getattr(model, "_cache", None), transformers.Cache):
        del model._cache


def _new_cache_of(cache_class: Any, model: Any, rows: int, length: int, dtype: torch.dtype) -> Any:
    layers = int(getattr(model.config, "num_hidden_layers", 0))
    device = next(model.parameters()).device
    arguments = {
        "config": model.config,
        "batch_size": rows,
        "max_batch_size": rows,
        "max_cache_len": length,
        "dtype": dtype,
        "device": device,
        "devices": [device] * layers,
    }
    parameters = inspect.signature(cache_class.__init__).parameters
    if "max_batch_size" in parameters:  # 4.48 warns of the older name
        arguments.pop("batch_size")
    return cache_class(**{name: value for name, value in arguments.items() if name in parameters})


def placement(model: Any, past: int, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the arguments by which generate() gives forward the positions after ``past`` tokens.

    ``cache_position`` is gone after 5.2. In mamba its length, that of the convolution, only marks a
    prefill (prepare_inputs_for_generation, 4.48 to 5.2). mamba gets the mask only in a prefill.
    """
    arguments: dict[str, torch.Tensor] = {"attention_mask": mask}
    if accepts(model, "position_ids"):
        arguments["position_ids"] = (mask.long().cumsum(-1) - 1).masked_fill(mask == 0, 1)[:, past:]
    mamba = _takes_states(model)
    if mamba and past:
        arguments.pop("attention_mask")
    if accepts(model, "cache_position"):
        stop = int(model.config.conv_kernel) if mamba and not past else mask.shape[1]
        arguments["cache_position"] = torch.arange(past, stop, device=mask.device)
    return arguments


def cache_kinds(cache: Any) -> list[str]:
    """Return the classes of a cache's layers, or its own class in releases without layers.

    Layers exist since 4.56. A DynamicCache made with a config also has sliding ones since 4.57.
    """
    if (layers := getattr(cache, "layers", None)) is None:
        name = type(cache).__name__
        return ["DynamicLayer" if name == "DynamicCache" else name]
    kinds = {type(layer).__name__ for layer in layers}
    layer_class = getattr(cache, "layer_class_to_replicate", None)
    return sorted(kinds or ({layer_class.__name__} if layer_class is not None else set()))


def head_keyword(model: Any) -> str | None:
    """Return forward's keyword for the number of last positions with logits; None without one.

    ``num_logits_to_keep`` through 4.49, ``logits_to_keep`` later.
    """
    names = ("logits_to_keep", "num_logits_to_keep")
    return next((name for name in names if accepts(model, name)), None)


def cache_tensors(cache: Any) -> list[tuple[str, torch.Tensor]]:
    """Return a cache's tensors by name: keys and values, convolution and recurrent states.

    4.48 has lists ``key_cache`` and ``value_cache``, 4.57 and later ``layers``. Hybrid caches of
    4.x and 5.2 add lists or dicts of states. gpt2's cache is a tuple of tuples in 4.48.
    """
    if cache is None:
        return []
    if hasattr(cache, "self_attention_cache"):
        self_attention = cache_tensors(cache.self_attention_cache)
        cross = cache_tensors(cache.cross_attention_cache)
        return self_attention + [(f"cross-attention {name}", tensor) for name, tensor in cross]
    if isinstance(cache, (tuple, list)):
        return _tuple_tensors(cache)
    tensors = _listed_tensors(cache)
    for index, layer in enumerate(getattr(cache, "layers", None) or ()):
        for kind in ("keys", "values", "conv_states", "recurrent_states"):
            tensors += _named_tensors(f"layer {index} {kind}", getattr(layer, kind, None))
    return tensors


def cache_layer_kind(cache: Any, index: int) -> str:
    """Return the class of one layer, or the cache's class where it has lists, as in 4.48."""
    layers = getattr(cache, "layers", None)
    return type(cache if layers is None else layers[index]).__name__


def cache_length(cache: Any) -> int | None:
    """Return a cache's own sequence length; None for tuples, such as gpt2's in 4.48."""
    return int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else None


def _tuple_tensors(cache: Any) -> list[tuple[str, torch.Tensor]]:
    names = ("keys", "values", "cross-attention keys", "cross-attention values")
    tensors: list[tuple[str, torch.Tensor]] = []
    for index, layer in enumerate(cache):
        if isinstance(layer, torch.Tensor):
            tensors += _named_tensors(f"state {index}", layer)
            continue
        for name, tensor in zip(names, layer, strict=False):
            tensors += _named_tensors(f"layer {index} {name}", tensor)
    return tensors


def _listed_tensors(cache: Any) -> list[tuple[str, torch.Tensor]]:
    tensors: list[tuple[str, torch.Tensor]] = []
    for attribute in ("key_cache", "value_cache", *_STATE_ATTRIBUTES):
        stored = getattr(cache, attribute, None)
        kind = {"key_cache": "keys", "value_cache": "values"}.get(attribute, attribute)
        items = (
            stored.items()
            if isinstance(stored, dict)
            else enumerate(stored if stored is not None else ())
        )
        for index, tensor in items:
            tensors += _named_tensors(f"layer {index} {kind}", tensor)
    return tensors


def _named_tensors(name: str, value: Any) -> list[tuple[str, torch.Tensor]]:
    """Return a tensor with its name, or each of several, as in the layers of 5.23."""
    if isinstance(value, torch.Tensor):
        return [(name, value)] if value.numel() else []
    if isinstance(value, dict):
        return [p for key, item in value.items() for p in _named_tensors(f"{name} {key}", item)]
    if isinstance(value, (list, tuple)):
        is_numbered = len(value) > 1
        return [
            part
            for index, item in enumerate(value)
            for part in _named_tensors(f"{name} {index}" if is_numbered else name, item)
        ]
    return []
