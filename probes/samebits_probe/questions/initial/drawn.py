"""The first weights of a new model: constant or drawn, and then how, for each parameter and persistent buffer.

A model is made several times. Tensors with the same bytes under every seed are constants or tables; the others are
drawn, and their values of all models are one sample. Names that differ in the number of a layer alone are one. The
result has the form of InitialSignal in samebits/questions/initial/records.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import torch
import transformers

from samebits_probe.model import forks, heap, load
from samebits_probe.model.tensor import flattened, is_plain, spaced, tensor_hash
from samebits_probe.process import consent, progress
from samebits_probe.process.failure import in_one_line, raised
from samebits_probe.questions.classes.classes import asked
from samebits_probe.questions.initial.writers import Writes

Facts = dict[str, Any]
Made = tuple[Any, "set[str] | None"]
"""A model, and the names of its tensors that no file has; None for all of them."""
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_SCALES = ("initializer_range", "init_std", "initializer_factor")
"""Fields of configs from which rules take a standard deviation."""
_SEEDS = (1, 2)
"""Seeds of the models beside those of the first seed, which are two."""
_FIRST = 0
_MAX_VALUES = 1 << 16
"""Values of a tensor that are looked at, evenly spaced: they tell its scale to one part in 360."""
_MAX_TRIED = 4
"""Other classes that are loaded, to find one with tensors that no file has."""
FROM_CONFIG = "from_config"
ON_META = "from_config on the meta device, to_empty, init_weights"


def facts(source: load.Source, model_class: Any, config: Any) -> Facts:
    """Return the first weights of a model of the config, and of another head on the checkpoint."""
    source = source._replace(dtype="float32")  # the fewer bits, the fewer values a draw has

    def of_config(seed: int) -> Made:
        return load.from_config(model_class, config, source, seed), None

    made = {FROM_CONFIG: _observed(FROM_CONFIG, model_class.__name__, of_config)}
    if model_class.__module__.startswith("transformers."):
        made |= on_meta(source, model_class, config)
    made |= _head(source, model_class, config)
    return {"scales": scales(config), "made": made}


def scales(config: Any) -> dict[str, float]:
    """Return the standard deviations that a config and its parts state, by their fields."""
    parts = {
        f"{name}.": part
        for name, part in vars(config).items()
        if isinstance(part, transformers.PretrainedConfig)
    }
    return {
        f"{prefix}{name}": float(value)
        for prefix, part in {"": config, **parts}.items()
        for name in _SCALES
        if isinstance(value := forks.value_of(part, name), (int, float))
    }


def on_meta(source: load.Source, model_class: Any, config: Any) -> dict[str, Facts]:
    """Return the tensors that ``init_weights`` leaves unwritten in a model of the meta device; {} if there are none.

    Up to 4.57 the constructor marks its modules as initialised there as well, so that a later call does nothing.
    """
    progress.tick(ON_META)
    pools: dict[str, Facts] = {}
    with suppress(Exception):  # a constructor that needs values; a load of 5.x raises the same
        with torch.device("meta"):
            model = load.from_config(model_class, config, source)
        if any(getattr(module, "_is_hf_initialized", False) for module in model.modules()):
            return {}
        model.to_empty(device="cpu").init_weights()
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if heap.holds_pattern(tensor, "a"):
                of_name = {"n_tensors": 0, "n_unwritten": 0}
                pool = pools.setdefault(_NUMBER.sub("*", name), of_name)
                pool["n_tensors"] += 1
                pool["n_unwritten"] += tensor.numel()
    return {ON_META: {"model_class": model_class.__name__, "tensors": pools}} if pools else {}


def _head(source: load.Source, own_class: Any, config: Any) -> dict[str, Facts]:
    """Return the weights that another head gets which the checkpoint lacks; {} where the first few lack none."""
    for name in _other_heads(source, own_class, config)[:_MAX_TRIED]:

        def loaded(seed: int, name: str = name) -> Made:
            model, info = load.from_pretrained(getattr(transformers, name), source, seed, name)
            keys = forks.loading_info(info)
            return model, {*keys["missing_keys"], *keys["mismatched_keys"]}

        observed = _observed(name, "", loaded)
        if observed.get("tensors"):
            return {f"{name}.from_pretrained": observed}
    return {}


def _other_heads(source: load.Source, own_class: Any, config: Any) -> list[str]:
    """Return the Auto classes that load another class than the checkpoint's own, those to classify first."""
    mapped = {
        name: place.rpartition(".")[2] for name, place in load.own_classes(config, source).items()
    }
    auto = {name: kind.__name__ for name, kind in asked(source).items() if kind is not None}
    first: dict[str, str] = {}
    for name, kind in (auto | mapped).items():
        if _is_head(name) and kind != own_class.__name__:
            first.setdefault(kind, name)
    return sorted(first.values(), key=lambda name: "Classification" not in name)


def _is_head(name: str) -> bool:
    return name.startswith("AutoModelFor") and hasattr(transformers, name)


def _observed(what: str, class_name: str, make: Callable[[int], Made]) -> Facts:
    """Return what several models show: two of one seed, the second one in poisoned memory, and one of each other."""
    pools: dict[str, _Pool] = {}
    kinds = [(_FIRST, ""), (_FIRST, "poisoned"), *((seed, "") for seed in _SEEDS)]
    for i, (seed, kind) in enumerate(kinds, 1):
        progress.tick(what, i, len(kinds))
        writes = Writes()
        try:
            with (
                heap.poisoned("a", "cpu") if kind else nullcontext(),
                writes if kind else nullcontext(),
            ):
                model, names = make(seed)
        except consent.NOT_ASKED as error:
            return {"model_class": class_name, "left_out": in_one_line(error)}
        except Exception as error:  # noqa: BLE001  an exception is one of the possible results
            return {"model_class": class_name, "raised": raised(error)}
        class_name = type(model).__name__
        tensors = own_tensors(model, names)
        if not tensors:
            break
        for name, tensor in tensors.items():
            pool = pools.setdefault(_NUMBER.sub("*", name), _Pool())
            pool.add(name, tensor, kind)
            if kind and pool.writer is None:
                pool.writer = writes.of(tensor)
    return {
        "model_class": class_name,
        "tensors": {name: pool.facts() for name, pool in pools.items()},
    }


def own_tensors(model: Any, names: set[str] | None) -> dict[str, torch.Tensor]:
    """Return the floating parameters and persistent buffers with values, of these names."""
    persistent = set(model.state_dict())
    return {
        name: tensor.detach()
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
        if (name in persistent if names is None else name in names)
        and tensor.is_floating_point()
        and tensor.numel()
        and is_plain(tensor)
    }


class _Pool:
    """The values of tensors whose names differ in a number, in several models."""

    def __init__(self) -> None:
        self.writer: dict[str, str] | None = None
        self._first: dict[str, tuple[str, torch.Tensor]] = {}
        """Name -> hash of the first model's tensor, and which of its elements nothing seems to have written."""
        self._hashes: dict[str, None] = {}
        """Hashes of tensors whose values are in the sample."""
        self._sample: list[torch.Tensor] = []
        self._is_fixed = self._repeats = True
        self._unwritten = self._zero_rows = 0

    def add(self, name: str, tensor: torch.Tensor, kind: str) -> None:
        """Take a tensor of one more model: of the first seed at first, then of the same in poisoned memory."""
        digest = tensor_hash(tensor)
        if kind:
            first, suspect = self._first.get(name, (digest, torch.zeros(tensor.numel()).bool()))
            self._repeats &= first == digest
            self._unwritten += int((suspect & heap.elements_with_poison(tensor)).sum())
            return
        if name not in self._first:
            self._first[name] = digest, heap.elements_with_pattern(tensor, "a")
            if tensor.ndim == 2 and (n := int((~tensor.bool()).all(1).sum())) < len(tensor):
                self._zero_rows += n
        self._is_fixed &= self._first[name][0] == digest
        if digest not in self._hashes:
            self._hashes[digest] = None
            self._sample.append(spaced(flattened(tensor), _MAX_VALUES).double())

    def facts(self) -> Facts:
        """Return FirstWeights of samebits/questions/initial/records.py."""
        values = torch.cat(self._sample)
        finite = values[values.isfinite()]
        facts: Facts = {
            "n_tensors": len(self._first),
            "is_fixed": self._is_fixed,
            "repeats": self._repeats,
            "n_unwritten": self._unwritten,
            "is_finite": len(finite) == len(values),
            "zero_rows": self._zero_rows,
            "writer": self.writer,
        }
        if not len(finite):
            return facts
        mean, std = float(finite.mean()), float(finite.std(unbiased=False))
        kurtosis = float(((finite - mean) ** 4).mean()) / std**4 if std else 0.0
        numbers = {
            "mean": mean,
            "std": std,
            "least": float(finite.min()),
            "largest": float(finite.max()),
            "kurtosis": kurtosis,
        }
        return {
            **facts,
            "n_values": len(finite.unique()),
            **{name: float(f"{value:.6g}") for name, value in numbers.items()},
        }
