"""Loading of a checkpoint in this release: config, model class, model, tokenizer, fresh model.

A model that the release does not know raises :class:`Unknown`, which is a result. Any other
exception is a failure of its phase.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import logging
import math
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import transformers

from samebits_probe.model import forks, heap, meta, outputs, packages
from samebits_probe.model.checkpoint import refuse_code, refuse_outside
from samebits_probe.model.choice import DECODER, TOKENS, kinds_of, signature_of
from samebits_probe.model.tensor import dtype_name
from samebits_probe.process import progress
from samebits_probe.process.failure import PhaseFailed, Unknown, phase
from samebits_wire import jobs, vocabularies
from samebits_wire.folders import without_folders

_GENERATES = "causal-lm or seq2seq-lm"
"""Head of a class whose name does not show whether the model has an encoder."""
_HEADS = (
    ("ForCausalLM", "causal-lm"),
    ("LMHeadModel", "causal-lm"),
    ("ModelWithLMHead", "causal-lm"),
    ("BertGenerationDecoder", "causal-lm"),
    ("ForMaskedLM", "masked-lm"),
    ("ForSeq2SeqLM", "seq2seq-lm"),
    ("MTModel", "seq2seq-lm"),
    ("EncoderDecoderModel", "seq2seq-lm"),
    ("ForTextToText", "seq2seq-lm"),
    ("ForSpeechToText", "seq2seq-lm"),
    ("ForConditionalGeneration", _GENERATES),
    ("ForImageClassification", "image-classification"),
    ("ForCTC", "ctc"),
)


_OF_FILES = frozenset({"subfolder", "variant", "use_safetensors"})
"""Options that say which files to read."""
_NOT_OF_CONFIG = frozenset({"attn_implementation", "ignore_mismatched_sizes", *_OF_FILES})
"""Options of the model alone."""

_UNKNOWN_KEYS = (
    "{}.from_pretrained returned a model that PreTrainedModel.from_pretrained did not load: missing and "
    "unexpected keys are not known"
)

_NEEDS_PACKAGE = re.compile("tiktoken` is required")
"""What 5.x says of a file that it has and cannot read; a tokenizer that is not there gives other messages."""
_MIN_BYTES_TO_TRIM = 64 << 20
"""Bytes of parameters from which on trimming the heap is worth its time."""


class Loaded(NamedTuple):
    """A model in evaluation mode, and the facts about its load."""

    model: Any
    config: Any
    tokenizer: Any
    head: str
    facts: dict[str, Any]
    tokenizer_failure: Any = None
    """What the load of the tokenizer raised. ``tokenizer`` is then made of tokenizer.json alone, to feed texts;
    None without that file."""


class Source(NamedTuple):
    """What to load and how; the same for both runs and for every later load of a cell."""

    where: str
    revision: str | None
    trust_remote_code: bool
    dtype: str
    attention: str
    device: str
    imports: tuple[str, ...] = ()
    """Modules to import before the load."""
    model_class: str | None = None
    """The class as ``package.module:Name``."""
    options: tuple[tuple[str, Any], ...] = ()
    """Further arguments of from_pretrained, by name."""
    logits: str | None = None
    """Name of the output that plays the part of the logits."""
    chosen_class: str = ""
    """Name of the class that was chosen for every stack; '' where none was: then this one chooses."""
    chosen_kinds: tuple[str, ...] | None = None
    """The kinds of data that the chosen class takes; None where none was chosen."""

    @classmethod
    def of(cls, model: jobs.ModelSource, variant: jobs.Variant) -> Source:
        """Return the source for the model and the variant of a job."""
        inputs = model.get("inputs")
        chosen = inputs if isinstance(inputs, dict) and inputs.get("model_class") else {}
        return cls(
            where=model["source"],
            revision=model.get("revision"),
            trust_remote_code=bool(model["trust_remote_code"]),
            dtype=variant["dtype"],
            attention=variant["attention"],
            device=variant["device"],
            imports=tuple(model.get("imports", ())),
            model_class=model.get("model_class"),
            options=tuple(model.get("load", {}).items()),
            logits=model.get("logits"),
            chosen_class=str(chosen.get("model_class", "")),
            chosen_kinds=tuple(chosen["kinds"]) if "kinds" in chosen else None,
        )

    def at(self, folder: str) -> Source:
        """Return the source for a copy that was saved in a folder, with the same options.

        ``save_pretrained`` writes neither a subfolder nor the files of a variant.
        """
        options = tuple(item for item in self.options if item[0] not in _OF_FILES)
        return self._replace(where=folder, revision=None, options=options)

    @property
    def subfolder(self) -> str:
        """The folder in the source that holds config and weights; '' for the source itself."""
        return str(dict(self.options).get("subfolder") or "")

    @property
    def weights_variant(self) -> str:
        """The name in the files of the weights, as in model.fp16.safetensors; '' without one."""
        return str(dict(self.options).get("variant") or "")

    def config_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the config, some of which are values of its fields."""
        options = {name: value for name, value in self.options if name not in _NOT_OF_CONFIG}
        return options | self.arguments()

    def model_arguments(self, config: Any = None) -> dict[str, Any]:
        """Return the keyword arguments of the model; with a config, those that it does not hold."""
        options = dict(self.options)
        if config is not None:
            options = {name: v for name, v in options.items() if not _is_field(config, name)}
        arguments = copy.deepcopy(options) | self.arguments()
        if self.attention != "default":
            arguments["attn_implementation"] = self.attention
        return arguments

    def constructor_arguments(self, model_class: Any, config: Any) -> dict[str, Any]:
        """Return the options that the constructor of the class takes, such as add_pooling_layer."""
        parameters = inspect.signature(model_class.__init__).parameters
        arguments = {
            name: value
            for name, value in self.options
            if name in parameters and not _is_field(config, name)
        }
        if "attn_implementation" in dict(self.options):
            arguments["attn_implementation"] = dict(self.options)["attn_implementation"]
        if self.attention != "default":
            arguments["attn_implementation"] = self.attention
        return copy.deepcopy(arguments)

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that config, model and tokenizer share."""
        arguments: dict[str, Any] = {"trust_remote_code": self.trust_remote_code}
        if self.revision is not None:
            arguments["revision"] = self.revision
        if self.subfolder:
            arguments["subfolder"] = self.subfolder
        return arguments


def _is_field(config: Any, name: str) -> bool:
    return name != "attn_implementation" and hasattr(config, name)


def load(source: Source, seed: int = 0) -> Loaded:
    """Load the model of ``source``, and its tokenizer if it has one that loads.

    Raises:
        Unknown: the release has no such architecture.
        PhaseFailed: config or load raised.

    """
    loaded = load_model(source, seed)
    progress.tick("tokenizer")
    try:
        with phase("tokenizer"):
            return loaded._replace(tokenizer=load_tokenizer(source))
    except PhaseFailed as failed:
        return loaded._replace(tokenizer=_of_file(source), tokenizer_failure=failed.failure)


def has_no_model(source: Source) -> bool:
    """Return True for a folder with a tokenizer or processors alone."""
    return vocabularies.has_no_model(Path(source.where) / source.subfolder)


def without_model(source: Source) -> Loaded:
    """Load the tokenizer of a folder that has no model, if it has one."""
    with phase("files"):
        refuse_outside(source.where, source.weights_variant)
        refuse_code(source.where, source.weights_variant)
    with phase("tokenizer"):
        return Loaded(None, None, load_tokenizer(source), "", {})


def load_model(source: Source, seed: int = 0) -> Loaded:
    """Load the model of ``source`` without its tokenizer.

    Raises:
        Unknown: the release has no such architecture.
        PhaseFailed: config or load raised.

    """
    progress.loading(source.where)
    config = load_config(source)
    pristine = copy.deepcopy(config)
    started = time.perf_counter()
    progress.loading(source.where)
    with phase("load"), _collected_messages() as messages, _unsupported_attention_is_unknown():
        model_class = _model_class(config, source)
        _require_chosen_kinds(model_class, source)
        model, info = from_pretrained(model_class, source, seed)
    progress.loaded(model)
    facts = {
        "model_class": type(model).__name__,
        "class_module": packages.module_of(type(model)),
        **forks.loading_info(info),
        "messages": [m.replace(source.where, "<checkpoint>") for m in messages],
        "requested_dtype": source.dtype,
        "parameter_dtypes": _parameter_dtypes(model),
        "activation_dtypes": {},
        "seconds": round(time.perf_counter() - started, 4),
    }
    head = head_of(type(model).__name__, encoder_decoder=is_encoder_decoder(model))
    return Loaded(model, pristine, None, head, facts)


def load_config(source: Source) -> Any:
    """Load the config of ``source``.

    Raises:
        Unknown: the release has no such architecture.
        PhaseFailed: config raised.

    """
    packages.import_all(source.imports)
    outputs.use_as_logits(source.logits)
    config_class = config_class_of(source)
    if config_class is transformers.AutoConfig:
        _require_known_architecture(source)
    with phase("files"):
        refuse_outside(source.where, source.weights_variant)
        refuse_code(source.where, source.weights_variant)
    with phase("config"):
        return config_class.from_pretrained(source.where, **source.config_arguments())


def written_config(source: Source) -> dict[str, Any]:
    """Return the content of config.json, as transformers finds it, without fields that an argument of the load sets."""
    written, _ = transformers.PretrainedConfig.get_config_dict(source.where, **source.arguments())
    options = dict(source.options)
    return {name: value for name, value in written.items() if name not in options}


def config_class_of(source: Source) -> Any:
    """Return the config class of the class that the user names; without one, AutoConfig.

    Raises:
        PhaseFailed: the module or the class does not exist.

    """
    if source.model_class is None:
        return transformers.AutoConfig
    model_class = packages.named_class(source.model_class)
    return getattr(model_class, "config_class", None) or transformers.AutoConfig


def from_pretrained(
    model_class: Any, source: Source, seed: int, what: str = "load"
) -> tuple[Any, dict[str, Any]]:
    """Return a loaded model in evaluation mode and transformers' loading info.

    ``what`` names the load in the progress of the job.
    """
    progress.loading(source.where, what)
    arguments = source.model_arguments() | {forks.dtype_keyword(): getattr(torch, source.dtype)}
    torch.manual_seed(seed)
    with watched_loads() as loads:
        model = model_class.from_pretrained(source.where, **arguments)
    if (info := next((info for loaded, info in reversed(loads) if loaded is model), None)) is None:
        warnings.warn(_UNKNOWN_KEYS.format(model_class.__name__), stacklevel=2)
    trim_heap(model)
    return model.to(source.device).eval(), info or {}


@contextmanager
def watched_loads() -> Iterator[list[tuple[Any, dict[str, Any]]]]:
    """Collect what PreTrainedModel.from_pretrained loads: each model with its loading info.

    A class that overrides it is not asked for the info: many an override works on the model that
    it gets back, and fails with the pair that ``output_loading_info`` makes of it.
    """
    loads: list[tuple[Any, dict[str, Any]]] = []
    original = transformers.PreTrainedModel.from_pretrained.__func__

    @functools.wraps(original)
    def watched(cls: Any, *args: Any, **kwargs: Any) -> Any:
        pair = original(cls, *args, **{**kwargs, "output_loading_info": True})
        loads.append(pair)
        return pair if kwargs.get("output_loading_info") else pair[0]

    patched = mock.patch.object(
        transformers.PreTrainedModel, "from_pretrained", classmethod(watched)
    )
    with patched, forks.adapters_with_info():
        yield loads


def n_bytes(model: Any, dtype: torch.dtype | None = None) -> int:
    """Return the bytes of a model's parameters, as they are or in ``dtype``."""
    return sum(p.numel() * (dtype or p.dtype).itemsize for p in model.parameters())


def largest_share(model: Any) -> float:
    """Return which share of the bytes of a model's parameters the largest one has."""
    sizes = [p.numel() * p.element_size() for p in model.parameters()]
    return max(sizes) / sum(sizes) if sum(sizes) else 0.0


def trim_heap(model: Any) -> None:
    """Return freed memory to the system after making a large model: 4.x makes it twice."""
    if n_bytes(model) > _MIN_BYTES_TO_TRIM:
        heap.trim()


def loaded_with(
    loaded: Loaded, source: Source, options: dict[str, Any], fields: dict[str, Any]
) -> Any:
    """Return the model loaded once more, with other options and other values of config fields."""
    config = copy.deepcopy(loaded.config)
    arguments = source.model_arguments(config)
    arguments |= {forks.dtype_keyword(): getattr(torch, source.dtype)}
    for path, value in fields.items():
        *inner, name = path.split(".")
        owner = config
        for part in inner:
            owner = owner[part] if isinstance(owner, dict) else getattr(owner, part)
        if isinstance(owner, dict):
            owner[name] = value
        else:
            setattr(owner, name, value)
    torch.manual_seed(0)
    progress.loading(source.where, "load with other options")
    model = type(loaded.model).from_pretrained(source.where, config=config, **(arguments | options))
    return model.to(source.device).eval()


def fresh_twin(model: Any, config: Any, source: Source) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a model of the same class made from the config only."""
    progress.tick("fresh model", allowance=progress.moving(n_bytes(model)))
    return _named_tensors(from_config(type(model), config, source).to(source.device))


def fresh_buffers(model: Any, config: Any, source: Source) -> dict[str, torch.Tensor]:
    """Return the same as :func:`fresh_twin`, but with parameters on the meta device.

    A buffer that is made of a parameter is on the meta device, too. A class whose constructor reads
    values of parameters raises.
    """
    progress.tick("fresh model without parameters")
    with meta.parameters_without_values():
        twin = from_config(type(model), config, source)
    return {
        name: tensor if tensor.is_meta else tensor.to(source.device)
        for name, tensor in _named_tensors(twin).items()
    }


def from_config(model_class: Any, config: Any, source: Source, seed: int = 1) -> Any:
    """Return a model of a class that is made from the config alone, in the source's dtype."""
    arguments = source.constructor_arguments(model_class, config)
    arguments |= {forks.dtype_keyword(): getattr(torch, source.dtype)}
    torch.manual_seed(seed)
    with forks.default_dtype_kept():
        return model_class._from_config(copy.deepcopy(config), **arguments)


def _named_tensors(model: Any) -> dict[str, torch.Tensor]:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return parameters | dict(model.named_buffers(remove_duplicate=False))


def input_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a config without those that name its folder and its release."""
    values = plain_config(config)
    for name in ("transformers_version", "_name_or_path", "_attn_implementation_autoset"):
        values.pop(name, None)
    return values


def effective_config(config: Any) -> dict[str, Any]:
    """Return the config as plain data, without fields that depend only on the release."""
    values = input_fields(config)
    if "torch_dtype" in values:
        values.setdefault("dtype", values.pop("torch_dtype"))
    if "rope_parameters" not in values and {"rope_theta", "rope_scaling"} & set(values):
        values["rope_parameters"] = _rope_parameters(values)
    return values


def plain_config(config: Any) -> dict[str, Any]:
    """Return the config as plain data, with the field names of this release."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = _plain_data(config.to_dict())
    assert isinstance(values, dict)
    return values


def _rope_parameters(values: dict[str, Any]) -> dict[str, Any]:
    """Return 4.x's rope_theta and rope_scaling in the form of 5.x."""
    scaling = dict(values.pop("rope_scaling", None) or {})
    kind = scaling.pop("type", None)
    return {"rope_theta": values.pop("rope_theta", None), "rope_type": kind or "default", **scaling}


def head_of(class_name: str, *, encoder_decoder: bool) -> str:
    """Return the head of a model class: ``causal-lm``, ``masked-lm`` … or ``base``.

    t5 and llava are both ForConditionalGeneration; ``encoder_decoder`` distinguishes them.
    """
    head = next((head for suffix, head in _HEADS if class_name.endswith(suffix)), "base")
    if head != _GENERATES:
        return head
    return "seq2seq-lm" if encoder_decoder else "causal-lm"


def is_encoder_decoder(model: Any) -> bool:
    """Return True if the config declares an encoder-decoder and forward takes decoder ids."""
    declared = bool(getattr(model.config, "is_encoder_decoder", False))
    return declared and signature_of(model.forward).takes(DECODER)


def continues_text(model: Any) -> bool:
    """Return True for a language model without an encoder, whose first argument is token ids."""
    head = head_of(type(model).__name__, encoder_decoder=is_encoder_decoder(model))
    takes_ids = getattr(model, "main_input_name", TOKENS) == TOKENS
    has_encoder = getattr(model.config, "is_encoder_decoder", False)
    return head == "causal-lm" and takes_ids and not has_encoder


def _plain_data(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain_data(item) for item in value]
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)


@contextmanager
def _unsupported_attention_is_unknown() -> Iterator[None]:
    """Turn "this class has no such attention implementation" into Unknown."""
    try:
        yield
    except (ValueError, ImportError) as error:
        if forks.refuses_attention(str(error)):
            raise Unknown(without_folders(str(error).splitlines()[0])) from error
        raise


def _require_known_architecture(source: Source) -> None:
    """Raise Unknown for a local checkpoint whose architecture this release does not have."""
    path = Path(source.where) / source.subfolder / "config.json"
    if not path.exists():
        return
    with phase("config"):
        config = json.loads(path.read_text("utf-8"))
        if not isinstance(config, dict):
            raise TypeError(f"config.json holds no mapping but a {type(config).__name__}")
        model_type = config.get("model_type")
        is_known = model_type in transformers.CONFIG_MAPPING
    if source.trust_remote_code and config.get("auto_map"):
        return
    if not is_known:
        raise Unknown(
            f"transformers {transformers.__version__} does not know model_type {model_type!r}"
        )


def _model_class(config: Any, source: Source) -> Any:
    """Return the class to load with.

    It is the one that the user names, else the remote code's of the first architecture, else the one that was
    chosen for every stack. Without a choice it is the first of the config's architectures, which a package may
    have registered.
    """
    if source.model_class is not None:
        return packages.named_class(source.model_class)
    auto_map = own_classes(config, source)
    if auto_map:
        return getattr(transformers, auto_class_of(auto_map, architectures(config, source)))
    names = [source.chosen_class] if source.chosen_class else architectures(config, source)
    name = next(iter(names), None)
    if (registered := packages.registered_class(config, name)) is not None:
        return registered
    if name is None:
        return transformers.AutoModel
    model_class = getattr(transformers, name, None) or _unlisted_class(config, name)
    if model_class is None:
        msg = f"transformers {transformers.__version__} has no class {name}"
        if source.chosen_class and name not in architectures(config, source):
            msg += ", which was chosen for every release, as config.json names no class of its own"
        if source.imports:
            msg += f", and {', '.join(source.imports)} registers none of that name for the config"
        raise Unknown(msg)
    return model_class


def _unlisted_class(config: Any, name: str) -> Any:
    """Return AutoModel's class of a config if it has this name; some are not at the top of transformers."""
    mapped = transformers.AutoModel._model_mapping.get(type(config), ())
    classes = mapped if isinstance(mapped, (list, tuple)) else (mapped,)
    return next((each for each in classes if each.__name__ == name), None)


def _require_chosen_kinds(model_class: Any, source: Source) -> None:
    """Raise Unknown if a class takes other data than the class of this name that was chosen.

    Qwen2VLModel is the model of the text in 4.48, and that of text and images in 5.x.
    """
    forward = getattr(model_class, "forward", None)
    if source.chosen_kinds is None or source.model_class is not None or forward is None:
        return
    chosen, own = source.chosen_kinds, kinds_of(signature_of(forward))
    if set(chosen) == set(own):
        return
    raise Unknown(
        f"transformers {transformers.__version__} has another class {model_class.__name__}: its forward "
        f"takes {' and '.join(own) or 'no images and no sounds'}, and the one that was chosen for every "
        f"release takes {' and '.join(chosen) or 'none'}. Name the class that is meant under architectures "
        f"in config.json, or as the model's class (class: in matrix.yaml, --class)"
    )


def architectures(config: Any, source: Source) -> list[str]:
    """Return the architectures that config.json names, as it is written.

    A release may look elsewhere: 4.57 writes those of Qwen2-VL into text_config, where 5.x finds none. Those
    of a nested config count where the config names none, if they are of the config's own model type.
    """
    written, _ = type(config).get_config_dict(source.where, **source.arguments())
    if names := written.get("architectures"):
        return list(names)
    nested = [part for part in written.values() if isinstance(part, dict)]
    names = [name for part in nested for name in part.get("architectures") or ()]
    return [name for name in names if _is_of(getattr(transformers, name, None), config)]


def _is_of(model_class: Any, config: Any) -> bool:
    config_class = getattr(model_class, "config_class", None)
    return bool(getattr(config_class, "model_type", None) == config.model_type)


def own_classes(config: Any, source: Source) -> dict[str, str]:
    """Return Auto class -> the place of the checkpoint's own class that ``auto_map`` names for it.

    Empty without ``trust_remote_code``, as no release reads it then.
    """
    named = getattr(config, "auto_map", None) or {}
    return {name: str(place) for name, place in named.items()} if source.trust_remote_code else {}


def auto_class_of(auto_map: dict[str, str], architectures: Iterable[str]) -> str:
    """Return the name of the Auto class to load remote code with.

    It is the one that maps to the class that saved the checkpoint. Any other class would give the
    head of the checkpoint up, or a head random weights.
    """
    classes = {
        name: place.rpartition(".")[2]
        for name, place in auto_map.items()
        if name.startswith("AutoModel")
    }
    saved_by = next((name for name in architectures if name in classes.values()), None)
    names = [name for name in classes if saved_by is None or classes[name] == saved_by]
    preferred = "AutoModelForCausalLM"
    return preferred if preferred in names else next(iter(names), "AutoModel")


def class_of(config: Any, source: Source) -> Any:
    """Return the class of a loaded model; only its code is loaded.

    Raises:
        Unknown: the release has no such class.

    """
    from transformers.dynamic_module_utils import (  # noqa: PLC0415  one kind of job needs them
        get_class_from_dynamic_module,
    )
    from transformers.models.auto.auto_factory import _get_model_class  # noqa: PLC0415

    chosen = _model_class(config, source)
    if not hasattr(chosen, "_model_mapping"):
        return chosen
    if reference := own_classes(config, source).get(chosen.__name__):
        return get_class_from_dynamic_module(reference, source.where, revision=source.revision)
    return _get_model_class(config, chosen._model_mapping)


def has_tokenizer(source: Source) -> bool:
    """Return True if the checkpoint has a tokenizer, whether or not this release can load it."""
    folder = Path(source.where)
    if folder.is_dir():
        return vocabularies.has_tokenizer(folder)
    try:
        return load_tokenizer(source) is not None
    except Exception:  # noqa: BLE001  the load in each stack reports the error
        return True


def load_tokenizer(source: Source, **options: Any) -> Any:
    """Return the tokenizer; None for a checkpoint that has none.

    ``options`` are further arguments of ``AutoTokenizer.from_pretrained``.
    """
    folder = Path(source.where)
    if folder.is_dir() and not vocabularies.has_tokenizer(folder):
        return None
    try:
        arguments = source.arguments() | options
        return transformers.AutoTokenizer.from_pretrained(source.where, **arguments)
    except (OSError, ValueError) as error:
        if folder.is_dir() or _NEEDS_PACKAGE.search(str(error)):
            raise
        return None  # a hub model without a tokenizer gets token ids


def _of_file(source: Source) -> Any:
    """Return a tokenizer of the file tokenizer.json alone; None without one that can be read."""
    path = Path(source.where) / source.subfolder / "tokenizer.json"
    if not path.exists():
        return None
    with suppress(Exception):
        return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    return None


def load_processor(source: Source) -> Any:
    """Return the processor of images or sounds; None for a folder without the file of one."""
    folder = Path(source.where)
    if folder.is_dir() and not any((folder / name).exists() for name in vocabularies.PROCESSORS):
        return None
    return transformers.AutoProcessor.from_pretrained(source.where, **source.arguments())


def _parameter_dtypes(model: torch.nn.Module) -> dict[str, int]:
    counts: dict[str, int] = {}
    for parameter in model.parameters():
        name = dtype_name(parameter.dtype)
        counts[name] = counts.get(name, 0) + 1
    return counts


class _Collector(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(without_folders(record.getMessage()))


@contextmanager
def _collected_messages() -> Iterator[list[str]]:
    """Collect Python warnings and transformers' log records of level WARNING and above."""
    messages: list[str] = []
    logger, handler = logging.getLogger("transformers"), _Collector(messages)
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield messages
        messages += [f"{w.category.__name__}: {without_folders(str(w.message))}" for w in caught]
    finally:
        logger.removeHandler(handler)
