"""What other classes read of a checkpoint: the base model for its features, a head to train, an encoder alone.

A tensor is read if its bytes are in the other model, in a tensor that is not missing from the files: names and
layouts differ between releases, and between classes. The result has the form of ClassesSignal in
samebits/questions/classes/records.py.
"""

from __future__ import annotations

import copy
import importlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
import transformers
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from samebits_probe.model import alignment, forks, heap, load, outputs
from samebits_probe.model.tensor import hash_or_none, same_bytes
from samebits_probe.process import consent, progress
from samebits_probe.process.failure import in_one_line, raised
from samebits_probe.questions.classes import heads

Facts = dict[str, Any]
_AUTO = (
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForMaskedLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForTextEncoding",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "AutoModelForQuestionAnswering",
    "AutoModelForImageTextToText",
    "AutoModelForImageClassification",
    "AutoModelForAudioClassification",
    "AutoModelForMultipleChoice",
    "AutoModelForNextSentencePrediction",
    "AutoModelForMaskedImageModeling",
    "AutoModelForObjectDetection",
    "AutoModelForZeroShotObjectDetection",
    "AutoModelForSemanticSegmentation",
    "AutoModelForInstanceSegmentation",
    "AutoModelForUniversalSegmentation",
    "AutoModelForMaskGeneration",
    "AutoModelForDepthEstimation",
    "AutoModelForKeypointDetection",
    "AutoModelForKeypointMatching",
    "AutoModelForVideoClassification",
    "AutoModelForVisualQuestionAnswering",
    "AutoModelForDocumentQuestionAnswering",
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForCTC",
    "AutoModelForAudioFrameClassification",
    "AutoModelForAudioXVector",
    "AutoBackbone",
)
_HEAD = re.compile(r"(For|With)[A-Z]\w+$")
_MAX_NAMES = 8
_ROUNDING = 64
"""Units of a dtype's epsilon, of the largest value, that a kernel may round otherwise for another place in memory."""


class Own:
    """The checkpoint as its own class loads it: its tensors that come from the files, and the base model's outputs."""

    def __init__(self, loaded: load.Loaded, known: dict[str, str], kwargs: Facts | None) -> None:
        """Take the hashes that are ``known`` by name, and the arguments of a forward that answers."""
        self.model, self.kwargs = loaded.model, kwargs
        alignment.align(self.model)  # as the others are, whose rounding is compared with its
        state = loaded.model.state_dict()
        without_value = {*loaded.facts["missing_keys"], *loaded.facts["mismatched_keys"]}
        digests = {name: known.get(name) or hash_or_none(t) for name, t in state.items()}
        self.tensors: dict[str, tuple[str, int]] = {}
        """Hash -> name and number of elements."""
        for name, digest in digests.items():
            if digest and name not in without_value:
                self.tensors.setdefault(digest, (name, state[name].numel()))

    def of_base(self) -> Own | None:
        """Return the same with the tensors of the base model alone; None where that is the whole model, or none of its type.

        ColPali's is a PaliGemma, of whose files its own class would make the default config, with billions of parameters.
        """
        base = self.model.base_model
        if base is self.model or type(base.config) is not type(self.model.config):
            return None
        of_base = {hash_or_none(tensor) for tensor in base.state_dict().values()}
        own = copy.copy(self)
        own.tensors = {digest: t for digest, t in self.tensors.items() if digest in of_base}
        return own if own.tensors else None

    def outputs(self, model: Any) -> Facts:
        """Return whether the base model in another model computes what that of its own does."""
        first, second = self.model.base_model, model.base_model
        if self.kwargs is None or type(first) is not type(second):
            return {}
        kwargs = {name: value for name, value in self.kwargs.items() if forks.accepts(first, name)}
        try:
            with torch.no_grad():
                before, after = (outputs.tensors(base(**kwargs)) for base in (first, second))
        except Exception as error:  # noqa: BLE001  a base model alone may need what its head makes
            return {"not_compared": in_one_line(error)}
        common = before.keys() & after.keys()
        return {"outputs": _likeness([(before[n], after[n]) for n in common])} if common else {}


def _likeness(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> str:
    """Return ``same bits``, ``rounding`` or ``other bits``, of the outputs of two loads of the same tensors."""
    if all(same_bytes(*pair) for pair in pairs):
        return "same bits"
    return "rounding" if all(_is_rounding(*pair) for pair in pairs) else "other bits"


def _is_rounding(before: torch.Tensor, after: torch.Tensor) -> bool:
    if before.shape != after.shape or not before.numel() or not before.is_floating_point():
        return same_bytes(before, after)
    first, second = before.double(), after.double()
    allowed = _ROUNDING * torch.finfo(before.dtype).eps * float(first.abs().max())
    return bool(((first - second).abs() <= allowed).all())


def is_of_library(model: Any) -> bool:
    """Return True for a model whose class is one of transformers."""
    return type(model).__module__.startswith("transformers.")


def asked(source: load.Source) -> dict[str, Any]:
    """Return what users call ``from_pretrained`` of -> the class that it loads; None where it knows none for the config.

    An Auto class reads the config of the folder by AutoConfig. The checkpoint's own class can have read another one:
    that of a part, such as the text model below a model of images.
    """
    from transformers.models.auto.auto_factory import _get_model_class  # noqa: PLC0415  not every job needs it

    try:
        config = transformers.AutoConfig.from_pretrained(source.where, **source.config_arguments())
    except Exception:  # noqa: BLE001  a type that no Auto class knows: its own class alone loads it
        return {}
    heads: dict[str, Any] = {}
    for name in _AUTO:
        if (mapping := getattr(getattr(transformers, name, None), "_model_mapping", None)) is None:
            continue
        if type(config) not in mapping:
            heads[name] = None
            continue
        with suppress(Exception):  # a class whose packages are missing
            heads[name] = _get_model_class(config, mapping)
    parts = _parts(config)
    mapping = transformers.AutoModel._model_mapping
    for part in parts:
        with suppress(Exception):  # a part that has no class of its own
            part_class = mapping[type(part)]
            heads[part_class.__name__] = part_class
    mapped = {*heads.values()}
    heads_of = (head for each in (config, *parts) for head in _heads(each))
    return heads | {head.__name__: head for head in heads_of if head not in mapped}


def declared(source: load.Source, model: Any) -> dict[str, Any]:
    """Return Auto class -> the class that ``auto_map`` names for it, beside that of a model of its own code.

    A file that does not import is left to the load, whose exception is an answer.
    """
    named = load.own_classes(model.config, source)
    wanted = {name: named[name] for name in _AUTO if name in named}
    own = type(model).__name__
    return {
        name: _imported(place, source) or getattr(transformers, name)
        for name, place in wanted.items()
        if place.rpartition(".")[2] != own and hasattr(transformers, name)
    }


def _imported(place: str, source: load.Source) -> Any:
    """Return a class of the checkpoint's files; None if they do not import."""
    with suppress(Exception):
        return get_class_from_dynamic_module(place, source.where, **source.arguments())
    return None


def _heads(config: Any) -> Iterator[Any]:
    """Yield the public heads of a config's modeling file, of which no Auto class may know some, as of Informer's.

    Of a part, such as CLIP's text model, they are loaded from the whole checkpoint as well.
    """
    name = type(config).__module__.replace("configuration_", "modeling_")
    try:
        own = vars(importlib.import_module(name))
    except ImportError:
        return
    for name, each in own.items():
        is_head = isinstance(each, type) and _HEAD.search(name) is not None
        is_own = is_head and getattr(each, "config_class", None) is type(config)
        if not is_own or each.forward is torch.nn.Module.forward:
            continue  # an abstract base computes nothing
        if getattr(transformers, name, None) is each:
            yield each


def _parts(config: Any) -> list[Any]:
    """Return the parts of a config, such as a text encoder, whose classes load from the whole checkpoint."""
    return [
        part
        for part in vars(config).values()
        if getattr(type(part), "base_config_key", "")
        and type(part).__module__ == type(config).__module__
    ]


def facts(source: load.Source, own: Own, classes: dict[str, Any]) -> dict[str, Facts]:
    """Return name -> what its class reads; a class that several names load is loaded once."""
    loads: dict[str, Facts] = {}
    by_class: dict[Any, Facts] = {type(own.model): {}}
    for i, (name, model_class) in enumerate(classes.items(), 1):
        progress.tick(name, i, len(classes))
        if model_class is None:
            loads[name] = {"model_class": ""}
            continue
        if model_class not in by_class:
            by_class[model_class] = _of_class(
                getattr(transformers, name, model_class), source, own, name
            )
        loads[name] = {"model_class": model_class.__name__, **by_class[model_class]}
    return loads


def from_base(own: Own, source: load.Source) -> dict[str, Facts]:
    """Return what the checkpoint's own class reads of its base model, saved alone; {} where it has none.

    Users train a base model, or get one, and put a head on it.
    """
    if (of_base := own.of_base()) is None:
        return {}
    own_class = type(own.model)
    with tempfile.TemporaryDirectory() as folder:
        try:
            own.model.base_model.save_pretrained(folder)
        except Exception as error:  # noqa: BLE001  an exception is one of the possible results
            content = {"raised": raised(error)}
        else:
            _, content, _ = _read(own_class, source.at(folder), of_base, own_class.__name__)
    name = f"base_model, saved alone, by {own_class.__name__}"
    return {name: {"model_class": own_class.__name__, **content}}


def _names_without_value(model: Any, info: Facts) -> set[str]:
    """Return the names that the files do not have: zeros and ones of a new model have the bytes of many a read tensor.

    4.x writes them as the checkpoint would, with or without the base model's prefix.
    """
    keys = forks.loading_info(info)
    prefix = f"{model.base_model_prefix}."
    names = {*keys["missing_keys"]}
    return names | {prefix + name for name in names} | {name.removeprefix(prefix) for name in names}


def _of_class(loader: Any, source: load.Source, own: Own, name: str) -> Facts:
    model, answer, fresh = _read(loader, source, own, name)
    if model is None or type(model.config) is not type(own.model.config):
        return answer  # a part does not take the arguments of the whole model
    return answer | heads.numbers(model, fresh, own.kwargs)  # last, as it changes the model


def _read(loader: Any, source: load.Source, own: Own, name: str) -> tuple[Any, Facts, list[str]]:
    """Return a model, what it reads, and its tensors whose bytes are not from the files."""
    try:
        model, info = load.from_pretrained(loader, source, 0, name)
    except consent.NOT_ASKED as error:
        return None, {"left_out": in_one_line(error)}, []
    except Exception as error:  # noqa: BLE001  an exception is one of the possible results
        return None, {"raised": raised(error)}, []
    alignment.align(model)
    of_model = model.state_dict()
    digests = {name: hash_or_none(tensor) for name, tensor in of_model.items()}
    without_value = _names_without_value(model, info)
    held = {digest for name, digest in digests.items() if name not in without_value}
    left = {digest: tensor for digest, tensor in own.tensors.items() if digest not in held}
    fresh = [name for name, digest in digests.items() if digest and digest not in own.tensors]
    facts = {
        "n_tensors": len(own.tensors),
        "n_left": len(left),
        "elements": sum(n for _, n in own.tensors.values()),
        "elements_left": sum(n for _, n in left.values()),
        "left": [name for name, _ in left.values()][:_MAX_NAMES],
        "n_fresh": len(fresh),
        "fresh": fresh[:_MAX_NAMES],
        "unwritten": [n for n, t in of_model.items() if heap.holds_pattern(t, "a")][:_MAX_NAMES],
        **own.outputs(model),
    }
    return model, facts, fresh
