"""Integrity of a load: whether every tensor was written, and where its values come from.

The model is loaded a second time, with another seed and over poisoned memory (model.heap).
Elements that hold the heap's byte after the first load and the poison after the second were never
written. Elements that differ in another way need a third load, with the second's seed and the
first's fill: it separates random values from values that are read from unwritten memory.

This happens in a forked child (process.fork) that has the model as it was loaded, before any
prompt. The result is an IntegritySignal of samebits/records/provenance.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from samebits_probe.cell import written
from samebits_probe.cell.roundtrip import Original, round_trip
from samebits_probe.model import forks, heap, savedfiles
from samebits_probe.model import load as model_load
from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.fresh import Fresh, against
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.state import State, drop_tensors, everything
from samebits_probe.model.tensor import (
    NotHashable,
    dtype_name,
    is_plain,
    require_plain,
    same_bytes,
    tensor_hash,
)
from samebits_probe.process import progress
from samebits_probe.process.failure import in_words

Facts = dict[str, Any]
SEED = 20
"""Seed of every load except the first, also of the load with which a cell detects random values."""

_MIN_PATTERN_BYTES = 8
_MIN_PATTERN_WIDTH = 4
"""Minimum bytes of a tensor and of its elements for which one byte everywhere is no coincidence:
63 is a common integer, and 0.746 a common bfloat16."""


class LoadFacts(NamedTuple):
    """What a cell has already observed when its load is checked."""

    loaded: model_load.Loaded
    source: model_load.Source
    run: str
    signals: Facts
    """load, weights and buffers, as the capture has them."""
    twin: Fresh | None
    reloaded: Callable[[], dict[str, str]]
    """Hashes by name of a load under :data:`SEED`, over the first load's kind of memory."""
    known_hashes: Callable[[], dict[str, str]]
    """Hashes by name of the loaded model's tensors, as far as they are known."""
    inputs: Callable[[], Inputs | None]
    """Returns the inputs for a comparison of logits."""
    too_large: str
    """Why the model is neither written to the disk nor loaded a third time; '' if it may be."""


def integrity(load_facts: LoadFacts, folder: Path, no_second_load: str) -> Facts:
    """Return the integrity signal; ``folder`` takes the saved model.

    ``no_second_load`` is why no second model may be made next to the first. If it is '', this must
    be a forked child, because poisoned loads and saves change the process.
    """
    progress.begin("integrity")
    started = time.perf_counter()
    second_model: Any = None
    second_load_error = ""
    poison = f"not tried: {no_second_load}"
    has_own_process = not no_second_load
    if has_own_process:
        try:
            second_model, poison = _poisoned_load(load_facts)
        except Exception as error:  # noqa: BLE001  a model that loads only once is a result
            second_load_error = in_words(error)
            no_second_load = f"a second load raised {second_load_error}"
            poison = f"not observed: {no_second_load}"
    facts: Facts = {"poison": poison} | _compared_loads(load_facts, second_model, no_second_load)
    if has_own_process:
        _try_without(load_facts, facts["tensors"])
        drop_tensors(load_facts.loaded.model)  # its values are not needed in this process any more
    round_trip = _round_trip(load_facts, second_model, folder, facts["tensors"], no_second_load)
    if "written" in round_trip:
        facts["written"] = round_trip.pop("written")
    dtypes, default_load = None, {}
    if not no_second_load:
        try:
            dtypes = _default_dtypes(load_facts, facts["stored_dtypes"])
            default_load = {} if dtypes is None else {"load without a dtype": ""}
        except Exception as error:  # noqa: BLE001  users' loads raise it, too
            default_load = {"load without a dtype": in_words(error)}
    raised = {"second load": second_load_error} if has_own_process else {}
    raised |= _exceptions_of(round_trip) | default_load
    seconds = round(time.perf_counter() - started, 4)
    return facts | {
        "default_dtypes": dtypes,
        "round_trip": round_trip,
        "raised": raised,
        "seconds": seconds,
    }


def _exceptions_of(round_trip: Facts) -> dict[str, str]:
    """Return what a save and a load of the saved model raised, '' for what worked."""
    outcome = round_trip["outcome"]
    if outcome == "not tried":
        return {}
    if outcome == "save failed":
        return {"save": round_trip["reason"]}
    return {
        "save": "",
        "load of the saved": round_trip["reason"] if outcome == "load failed" else "",
    }


def _compared_loads(load_facts: LoadFacts, second_model: Any, no_second_load: str) -> Facts:
    """Return the facts of every tensor from the first two loads; keeps no reference to a tensor."""
    first = everything(load_facts.loaded.model)
    judge = Judge(
        load_facts, everything(second_model) if second_model is not None else None, no_second_load
    )
    tensors: Facts = {}
    for i, (name, state) in enumerate(first.items(), 1):
        size = state.tensor.numel() * state.tensor.element_size()
        progress.tick(name, i, len(first), allowance=progress.moving(2 * size))
        tensors[name] = judge.facts(name, state, first)
    return {
        "tensors": tensors,
        "silent": [name for name in tensors if judge.is_silent(name, tensors)],
        "stored_dtypes": judge.stored_dtypes,
    }


_TIES = "_tied_weights_keys"
_STEPS = (("_init_weights",), (_TIES,), ("tie_weights",), ("_init_weights", "tie_weights"))
"""Methods that are left out of a load, the smallest set first, to see what replaced a loaded tensor;
ties are turned round: target for source."""


def _try_without(load_facts: LoadFacts, tensors: Facts) -> None:
    """Record without which steps of a load lost tensors hold the checkpoint's bytes.

    A tensor is lost if the checkpoint has it and every load gives it other values, random ones or the same ones.
    """
    checkpoint = Checkpoint.of_or_none(load_facts.source)
    lost = {
        name: checkpoint.tensor(facts.get("stored_as", name))
        for name, facts in tensors.items()
        if checkpoint is not None
        and facts["source"] != "tied"
        and facts.get("ignored")
        and facts["kind"] != "non-persistent buffer"
    }
    if load_facts.too_large:
        return
    for steps in _STEPS if lost else ():
        try:
            names = _holding_stored(load_facts, steps, lost)
        except Exception:  # noqa: BLE001, S112  a load that needs the step shows nothing
            continue
        for name in names:
            lost.pop(name)
            tensors[name]["restored_without"] = list(steps)
    for name in lost:
        tensors[name]["restored_without"] = []


def _nothing(*_: Any, **__: Any) -> None:
    """Stand in for a step of a load that is left out."""


def _turned_ties(cls: Any) -> Any:
    """Turn the ties of a class round where they are names of tensors.

    A declaration may be patterns, or belong to the instance.
    """
    expanded = cls.get_expanded_tied_weights_keys

    def turned(self: Any, all_submodels: bool = False) -> dict[str, str]:
        ties = expanded(self, all_submodels)
        return ties if all_submodels else {source: target for target, source in ties.items()}

    return mock.patch.object(cls, expanded.__name__, turned)


def _holding_stored(
    load_facts: LoadFacts, steps: tuple[str, ...], stored: dict[str, torch.Tensor]
) -> list[str]:
    """Return the tensors that hold the checkpoint's bytes after a load without some steps."""
    model = load_facts.loaded.model
    classes = {type(module) for module in model.modules()} | {type(model)}
    if steps == (_TIES,) and not isinstance(getattr(model, _TIES, None), dict):
        return []  # a list has no direction
    with ExitStack() as stack:
        for cls, step in product(classes, steps):
            if step == _TIES and cls is type(model):
                stack.enter_context(_turned_ties(cls))
            elif step != _TIES and hasattr(cls, step):
                stack.enter_context(mock.patch.object(cls, step, _nothing))
        what = f"load without {' and '.join(steps)}"
        again, _ = model_load.from_pretrained(type(model), load_facts.source, SEED, what)
    tensors = dict(again.named_parameters(remove_duplicate=False)) | dict(again.named_buffers())
    return [
        name
        for name, tensor in stored.items()
        if name in tensors
        and is_plain(tensor)
        and is_plain(tensors[name])
        and _would_be_same(tensor, tensors[name])
    ]


def tensors_compared_with_fresh(model: torch.nn.Module, signals: Facts) -> list[str]:
    """Return the tensors whose bytes will be compared with a fresh model's."""
    weights = signals["weights"]["tensors"]
    missing = signals["load"]["missing_keys"]
    prefix = _base_prefix(model)
    return [
        name
        for name, state in everything(model).items()
        if not state.tied
        and name not in signals["buffers"]
        and (
            weights.get(name, {}).get("origin") != "loaded"
            or any(_same_key(name, key, prefix) for key in missing)
        )
    ]


def _base_prefix(model: Any) -> str:
    return str(getattr(model, "base_model_prefix", ""))


def _poisoned_load(load_facts: LoadFacts) -> tuple[Any, str]:
    with heap.poisoned(load_facts.run, load_facts.source.device) as poison:
        model, _ = model_load.from_pretrained(
            type(load_facts.loaded.model), load_facts.source, SEED, "load over poisoned memory"
        )
    return model, poison


def _round_trip(
    load_facts: LoadFacts, second_model: Any, folder: Path, tensors: Facts, no_second_load: str
) -> Facts:
    if no_second_load:
        return {"outcome": "not tried", "reason": no_second_load}
    unwritten = [name for name, facts in tensors.items() if facts["n_unwritten"]]
    chance = {name for name, facts in tensors.items() if facts["steady"] is False}
    absent = {*load_facts.signals["load"]["missing_keys"], *chance}

    def load_again() -> Any:
        model_class = type(load_facts.loaded.model)
        return model_load.from_pretrained(model_class, load_facts.source, SEED, "load once more")[0]

    digests = load_facts.known_hashes()
    steady = {name for name, facts in tensors.items() if facts["steady"] is True}
    original = Original(
        load_facts.source,
        load_facts.loaded.config,
        # a tensor on which both loads agree has the first model's hash
        {name: digest for name, digest in digests.items() if name in steady},
        # what a load gives follows from its input only where two loads gave the same
        None
        if unwritten or len(steady) < len(tensors)
        else Checkpoint.of_or_none(load_facts.source),
    )
    writer = savedfiles.Writer(original.checkpoint, may_write=not load_facts.too_large)
    config_class = type(load_facts.loaded.config)
    facts = round_trip(
        second_model,
        original,
        folder,
        writer,
        load_facts.inputs,
        absent,
        unwritten,
        load_again,
        load_facts.too_large,
    )
    drop_tensors(second_model)
    if facts["outcome"] != "save failed":
        facts["written"] = written.of_model(folder, load_facts.source, config_class, writer.tensors)
    return facts


def _default_dtypes(load_facts: LoadFacts, stored: dict[str, int]) -> dict[str, int] | None:
    """Return the dtypes of a load without a dtype argument; None where everything is float32."""
    if load_facts.too_large:
        return None
    config_dtype = forks.config_dtype(load_facts.loaded.config)
    floats = {name for name in stored if "float" in name}
    if floats <= {"float32"} and config_dtype in {None, "float32"}:
        return None
    arguments = load_facts.source.model_arguments()
    progress.loading(load_facts.source.where, "load without a dtype")
    model = type(load_facts.loaded.model).from_pretrained(load_facts.source.where, **arguments)
    return dict(Counter(dtype_name(parameter.dtype) for parameter in model.parameters()))


class Judge:
    """Determines for every tensor where it comes from and whether it was written."""

    def __init__(
        self, load_facts: LoadFacts, second_states: dict[str, State] | None, no_second_load: str
    ) -> None:
        self.load_facts = load_facts
        self.second_states = second_states
        self.no_second_load = no_second_load
        self.weights: Facts = load_facts.signals["weights"]["tensors"]
        self.buffers: Facts = load_facts.signals["buffers"]
        self.unused = set(load_facts.signals["weights"]["unused"])
        self.checkpoint = Checkpoint.of_or_none(load_facts.source)
        self.stored_dtypes = self.checkpoint.dtypes() if self.checkpoint is not None else {}
        config = written.stated(load_facts.source, "config.json")
        self.holds_codes = config.get("quantization_config") is not None

    def facts(self, name: str, state: State, first: dict[str, State]) -> Facts:
        """Return the provenance of one tensor."""
        facts = {"kind": state.kind, **self._written_facts(name, state)}
        if state.tied:
            tie = {"source": "tied", "detail": f"tied to {state.tied}"}
            return facts | tie | self._ignored_checkpoint_tensor(name, state, [name])
        names = [name, *(alias for alias, alias_state in first.items() if alias_state.tied == name)]
        facts["fresh"] = self._compared_with_fresh(name, state, names)
        facts |= self._source(name, state, facts, names)
        return facts | (
            {}
            if facts["source"] == "loaded"
            else self._ignored_checkpoint_tensor(name, state, names)
        )

    def _ignored_checkpoint_tensor(self, name: str, state: State, names: list[str]) -> Facts:
        """Return facts about a checkpoint tensor that the load ignored; {} if there is none."""
        key = self._unused_key(name, names)
        if self.checkpoint is None or not key:
            return {}
        stored = self.checkpoint.tensor(key)
        plain = is_plain(stored) and is_plain(state.tensor)
        if not plain or _would_be_same(stored, state.tensor):
            return {}
        if self.holds_codes and _are_numbers_of_codes(stored, state.tensor):
            return {}
        return {"ignored": True} | ({"stored_as": key} if key != name else {})

    def _unused_key(self, name: str, names: list[str]) -> str:
        """Return the unused checkpoint tensor of a name, with or without the base prefix; or ''."""
        if self.checkpoint is None or name in self.checkpoint:
            return name if name in self.unused else ""
        if not self._prefix or self._all_missing(names):
            return ""  # the load itself reports a missing key whose name does not match
        keys = (f"{self._prefix}.{name}", name.removeprefix(f"{self._prefix}."))
        return next((key for key in keys if key in self.unused), "")

    def is_silent(self, name: str, tensors: Facts) -> bool:
        """Return True if a random or unwritten tensor is in none of the load's reported keys."""
        if tensors[name]["source"] not in {"reinitialised", "unwritten", "partly written"}:
            return False
        return not self._is_reported_key(name)

    def _is_reported_key(self, name: str) -> bool:
        return any(
            _same_key(name, key, self._prefix)
            for key in self._reported_keys("mismatched", "missing")
        )

    def _reported_keys(self, *kinds: str) -> Iterator[str]:
        for kind in kinds:
            for key in self.load_facts.signals["load"][f"{kind}_keys"]:
                # a mismatched key is the text of a tuple of name and both shapes
                yield key.split("'")[1] if key.startswith("('") else key

    @property
    def _prefix(self) -> str:
        return _base_prefix(self.load_facts.loaded.model)

    def _written_facts(self, name: str, state: State) -> Facts:
        """Return whether the tensor was written, by comparison with the second load."""
        try:
            require_plain(state.tensor)
        except NotHashable as reason:
            return _not_covered(str(reason))
        if self.second_states is None:
            return self._by_heap_pattern(state.tensor)
        if name not in self.second_states:
            return _not_covered("the second load has no such tensor")
        second_tensor = self.second_states[name].tensor
        if second_tensor.shape != state.tensor.shape or second_tensor.dtype != state.tensor.dtype:
            return _not_covered("the second load gives it another shape or dtype") | {
                "steady": False
            }
        return self._compare_loads(name, state.tensor, second_tensor)

    def _by_heap_pattern(self, tensor: torch.Tensor) -> Facts:
        if _holds_only_pattern(tensor, self.load_facts.run):
            return {"written": "none", "n_unwritten": tensor.numel(), "steady": None}
        return _not_covered(self.no_second_load)

    def _compare_loads(self, name: str, first: torch.Tensor, second: torch.Tensor) -> Facts:
        # not through numpy, because afterwards a tensor no longer shows which allocator it is from
        if same_bytes(first, second):
            return self._agreeing_loads(name, first, second)
        bits = heap.elements(first), heap.elements(second)
        differ = (bits[0] != bits[1]).any(1)
        unwritten = heap.elements_with_pattern(
            first, self.load_facts.run
        ) & heap.elements_with_poison(second)
        if bool((differ & ~unwritten).any()) and self._depends_on_memory_only(name, first):
            unwritten = unwritten | differ
        n_unwritten = int(unwritten.sum())
        extent = "none" if n_unwritten == first.numel() else "partly" if n_unwritten else "all"
        return {"written": extent, "n_unwritten": n_unwritten, "steady": False}

    def _agreeing_loads(self, name: str, first: torch.Tensor, second: torch.Tensor) -> Facts:
        if _holds_only_pattern(first, self.load_facts.run):
            # a table that was allocated once in this process and never written
            return {"written": "none", "n_unwritten": first.numel(), "steady": True}
        origin = self.weights.get(name, {}).get("origin")
        if origin != "loaded" and not second.untyped_storage().resizable():
            # torch cannot resize what numpy or mmap gave it; the first model's tensors were read
            # through numpy, after which they cannot be resized either
            reason = "its memory is not from torch: what numpy keeps is not always filled"
            return _not_covered(reason) | {"steady": True}
        return {"written": "all", "n_unwritten": 0, "steady": True}

    def _depends_on_memory_only(self, name: str, first: torch.Tensor) -> bool:
        """Return True if another seed changes nothing, so that the poison caused the difference."""
        reloaded_hash = self.load_facts.reloaded().get(name)
        return reloaded_hash is not None and reloaded_hash == tensor_hash(first)

    def _compared_with_fresh(self, name: str, state: State, names: list[str]) -> str:
        if name in self.buffers:
            return str(self.buffers[name]["fresh"])
        loaded = self.weights.get(name, {}).get("origin") == "loaded"
        if state.tensor.is_meta or (loaded and not self._all_missing(names)):
            return "not compared"
        try:
            return against(self.load_facts.twin, name, tensor_hash(state.tensor))
        except NotHashable:
            return "not compared"

    def _all_missing(self, names: list[str]) -> bool:
        missing = list(self._reported_keys("missing"))
        return all(any(_same_key(n, key, self._prefix) for key in missing) for n in names)

    def _is_loaded(self, name: str, names: list[str], facts: Facts) -> bool:
        """Return True if it is from the checkpoint; equal bytes of a missing key do not count."""
        if self.weights.get(name, {}).get("origin") != "loaded":
            return False
        return not (facts["fresh"] == "equal" and self._all_missing(names))

    def _source(self, name: str, state: State, facts: Facts, names: list[str]) -> Facts:
        if facts["n_unwritten"] and facts["n_unwritten"] == state.tensor.numel():
            return {"source": "unwritten"}
        if facts["n_unwritten"]:
            return {"source": "partly written"}
        if facts["steady"] is False:
            return {"source": "reinitialised"}
        if self._is_loaded(name, names, facts):
            return {"source": "loaded", "detail": _layout_text(self.weights[name], name)}
        if facts["fresh"] == "equal":
            return {"source": "derived"}
        twin = self.load_facts.twin
        if twin is None or (twin.is_whole_refused and facts["fresh"] == "not compared"):
            return {"source": "unexplained", "detail": "no fresh model could be made"}
        return {"source": "unexplained"}


def _not_covered(reason: str) -> Facts:
    return {"written": "not covered", "not_covered": reason, "n_unwritten": 0, "steady": None}


def _holds_only_pattern(tensor: torch.Tensor, run: str) -> bool:
    width = tensor.element_size()
    enough = width >= _MIN_PATTERN_WIDTH and tensor.numel() * width >= _MIN_PATTERN_BYTES
    return enough and heap.holds_pattern(tensor, run)


def _layout_text(facts: Facts, name: str) -> str:
    """Return how this tensor is made of checkpoint tensors; '' for an unchanged one of its name."""
    names = list(dict.fromkeys(piece["tensor"] for piece in facts["pieces"]))
    if not facts["layout"] and names == [name]:
        return ""
    text = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{facts['layout']} of {text}" if facts["layout"] else text


def _same_key(name: str, key: str, prefix: str) -> bool:
    """Return True if a reported key means the tensor, with or without the base model's prefix."""
    return name == key or (bool(prefix) and f"{prefix}.{key}" == name) or f"{prefix}.{name}" == key


def _are_numbers_of_codes(stored: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Return True if a quantizer may have computed the tensor from one byte per number, and from scales."""
    is_wider = tensor.is_floating_point() and tensor.element_size() > 1
    return is_wider and stored.element_size() == 1 and stored.dtype is not torch.bool


def _would_be_same(stored: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Return True if loading the checkpoint's tensor would change no byte, or only by rounding.

    A table that was saved in a smaller float than the model's is the same table. Shapes are
    ignored: a table that was ``[1, n]`` may be ``[n]`` now.
    """
    if same_bytes(stored.to(tensor.dtype), tensor):
        return True
    floats = stored.is_floating_point() and tensor.is_floating_point()
    narrower = stored.element_size() < tensor.element_size()
    return floats and narrower and same_bytes(stored, tensor.to(stored.dtype))
