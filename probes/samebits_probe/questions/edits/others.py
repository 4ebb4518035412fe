"""Copies of a model, a new model that gets its tensors, other labels for its checkpoint, several files, another dtype."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from samebits_probe.model import forks, load
from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.inputs import in_dtype
from samebits_probe.model.tensor import tensor_hash
from samebits_probe.questions.edits.subject import (
    EDIT,
    MAX_NAMES,
    SAVING,
    Done,
    LeftOut,
    Subject,
    Tensors,
    parameters,
    state,
)

_LABELS = 3
"""Labels of the checkpoint's classifier, where it has none of its own."""
_MORE = 2
"""Labels more than the checkpoint has."""
_VARIANT, _SHARDS = "other", 3
"""The variant that is saved, and in how many files about."""


class Copies:
    """Copies of a model that no prompt has run: users copy it before they run it."""

    def __init__(self, model: Any) -> None:
        self.tensors = state(model)
        self.done = Done()
        self.model = self.done.step(EDIT, lambda: copy.deepcopy(model))


def copied(subject: Subject, first: Copies, plain: Tensors, done: Done) -> None:
    """Note what a copy of a model with all that it holds has otherwise."""
    done.raised, twin = first.done.raised, first.model
    if twin is None:
        return
    done.keeps("tensors", first.tensors, state(twin))
    if _n_tensors(subject.model) != _n_tensors(twin):
        done.broken["tie"] = f"{_n_tensors(subject.model)} tensors → {_n_tensors(twin)}"
    _compare(subject, twin, plain, done)


def _compare(subject: Subject, twin: Any, plain: Tensors, done: Done) -> None:
    answer = done.step("forward", lambda: subject.forward(twin))
    if answer is not None:
        done.computes("outputs", plain, answer)


def _n_tensors(model: Any) -> int:
    # one without elements may have the address of any other; parts of one storage, as of a split, are several
    return len({tensor.data_ptr() for tensor in model.parameters() if tensor.numel()})


def refilled(subject: Subject, first: Copies, plain: Tensors, done: Done) -> None:
    """Make a new model of the config, and give it the tensors of the first one."""
    model_class, config = type(subject.model), copy.deepcopy(subject.model.config)
    arguments = subject.source.constructor_arguments(model_class, config)
    arguments |= {forks.dtype_keyword(): subject.model.dtype}

    def made() -> Any:
        with forks.default_dtype_kept():
            return model_class._from_config(config, **arguments).eval()

    twin = done.step("a new model", made)
    if twin is None:
        return
    loaded = done.step(EDIT, lambda: twin.load_state_dict(first.tensors, strict=False))
    if loaded is None:
        return
    if names := [*loaded.missing_keys, *loaded.unexpected_keys]:
        done.broken["names"] = ", ".join(names[:MAX_NAMES])
        return
    _compare(subject, twin, plain, done)


def relabelled(subject: Subject, _first: Copies, _plain: Tensors, done: Done) -> None:
    """Load a checkpoint with another number of labels than its classifier has."""
    model_class, source, classifier = _classifier(subject)
    n_labels = int(classifier.config.num_labels) + _MORE
    options = (*source.options, ("num_labels", n_labels), ("ignore_mismatched_sizes", True))
    wanted = source._replace(options=options)
    pair = done.step(EDIT, lambda: load.from_pretrained(model_class, wanted, 0, "other labels"))
    if pair is None:
        return
    model, info = pair
    before, after = parameters(classifier), parameters(model)
    fit = {n: t for n, t in before.items() if n not in after or after[n].shape == t.shape}
    done.keeps("other parameters", fit, after)
    new = {n: t for n, t in after.items() if n not in fit}
    shapes = {name: " x ".join(map(str, tensor.shape)) for name, tensor in new.items()}
    done.facts = {
        "new parameters": ("", ", ".join(sorted(shapes.values()))),
        "mismatched_keys": ("", str(len(forks.loading_info(info)["mismatched_keys"]))),
        "num_labels": ("", str(model.config.num_labels)),
        "id2label": ("", str(len(model.config.id2label))),
    }
    if names := [n for n, t in new.items() if not bool(t.isfinite().all())]:
        done.broken["finite"] = ", ".join(names[:MAX_NAMES])
        return
    wide = {name: tensor.double() for name, tensor in new.items()}
    done.new = {
        shapes[name]: {"mean": float(t.mean()), "spread": float(t.std(unbiased=False))}
        for name, t in wide.items()
    }


def _classifier(subject: Subject) -> tuple[Any, load.Source, Any]:
    """Return a class with a classifier, its checkpoint, and the model in it."""
    model, source = subject.model, subject.source
    if "Classification" in type(model).__name__:
        return type(model), source, model
    mapping = transformers.AutoModelForSequenceClassification._model_mapping
    model_class = mapping.get(type(model.config), None)
    # the mapping goes by the name of the config's class, and code of a model's own may have the same name
    if getattr(model_class, "config_class", None) is not type(model.config):
        raise LeftOut("no classifier for its config")
    saved = subject.saved("classifier")
    labelled = source._replace(options=(*source.options, ("num_labels", _LABELS)))
    try:
        classifier, _ = load.from_pretrained(model_class, labelled, 0, "classifier")
        classifier.save_pretrained(saved.where)
    except Exception as error:  # another question loads other classes
        raise LeftOut("its classifier does not load or save") from error
    return model_class, saved, classifier


def on_disk(subject: Subject, _first: Copies, plain: Tensors, done: Done) -> None:
    """Load a model onto disk as a whole; the job of Trainer, which brings accelerate, asks the rest of PLACES."""
    if not _has_accelerate():
        raise LeftOut("the environment has no accelerate")
    placed(subject, PLACES[DISK], plain, done)


DISK = 'from_pretrained(device_map={"": "disk"})'
PLACES: Mapping[str, Mapping[str, Any]] = {
    "from_pretrained(device_map='auto')": {"device_map": "auto"},
    "from_pretrained(device_map='cpu')": {"device_map": "cpu"},
    DISK: {"device_map": {"": "disk"}},
    "from_pretrained(low_cpu_mem_usage=True)": {"low_cpu_mem_usage": True},
}
"""Call -> the arguments by which accelerate places a model."""


def placed(subject: Subject, arguments: Mapping[str, Any], plain: Tensors, done: Done) -> None:
    """Load a model to a place, run it, save it, and compare all with the plain model and the files of its save."""
    model_class, source = type(subject.model), subject.source
    folders = [subject.folder / name for name in ("plain", "placed", "offloaded")]
    try:
        subject.model.save_pretrained(folders[0])
    except Exception as error:  # the round trip has it
        raise LeftOut("a plain save raises") from error
    keywords = source.model_arguments() | {forks.dtype_keyword(): subject.model.dtype}
    keywords |= {**arguments, "offload_folder": str(folders[2])}
    model = done.step(EDIT, lambda: model_class.from_pretrained(source.where, **keywords).eval())
    if model is None:
        return
    if not any(tensor.is_meta for tensor in model.parameters()):
        done.keeps("tensors", state(subject.model), state(model))
    _compare(subject, model, plain, done)
    if done.step(SAVING[0], lambda: model.save_pretrained(folders[1]) or True) is None:
        return
    before, after = (_in_files(folder) for folder in folders[:2])
    done.keeps("saved tensors", before, after)
    # a tied tensor may stand there by each of its names
    contents = {*map(tensor_hash, before.values())}
    more = sorted(after.keys() - before.keys())
    if names := [name for name in more if tensor_hash(after[name]) not in contents]:
        done.broken["names"] = ", ".join(names[:MAX_NAMES])


OFFLOADED = "accelerate.cpu_offload(model)"


def offloaded(subject: Subject, plain: Tensors, done: Done) -> None:
    """Run a model whose modules have their tensors only while they run: what reads those of another one raises."""
    accelerate: Any = importlib.import_module("accelerate")  # only the job of Trainer has it
    twin = done.step(EDIT, lambda: accelerate.cpu_offload(copy.deepcopy(subject.model)))
    if twin is not None:
        _compare(subject, twin, plain, done)


def _has_accelerate() -> bool:
    return importlib.util.find_spec("accelerate") is not None


def _in_files(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in the files of a save."""
    from safetensors.torch import load_file  # noqa: PLC0415  only where accelerate is

    return {n: t for file in folder.glob("*.safetensors") for n, t in load_file(file).items()}


def sharded(subject: Subject, _first: Copies, _plain: Tensors, done: Done) -> None:
    """Save a variant of a model in several files, and load it again."""
    model, folder = subject.model, subject.folder / "shards"
    size = max(load.n_bytes(model) // _SHARDS, 1)
    save = lambda: model.save_pretrained(folder, max_shard_size=size, variant=_VARIANT) or True
    if done.step(SAVING[0], save) is None:
        return
    # how many files there are is the release's own affair, and the names of their kinds are not
    kinds = {re.sub(r"\d+", "N", path.name) for path in folder.glob("*.safetensors*")}
    done.facts["files"] = ("", ", ".join(sorted(kinds)))
    if names := _listed_otherwise(folder):
        done.broken["names"] = ", ".join(names[:MAX_NAMES])
    saved = subject.saved("shards")
    saved = saved._replace(options=(*saved.options, ("variant", _VARIANT)))
    pair = done.step(SAVING[1], lambda: load.from_pretrained(type(model), saved, 0, "shards"))
    if pair is not None:
        before, after = state(model), state(pair[0])
        done.keeps("saved tensors", {n: t for n, t in before.items() if n in after}, after)


def _listed_otherwise(folder: Path) -> list[str]:
    """Return the tensors that the index of several files does not list, or lists in another file than has them."""
    index = next(folder.glob("*.index*.json"), None)
    if index is None:
        return []
    listed: Mapping[str, str] = json.loads(index.read_text("utf-8"))["weight_map"]
    files = Checkpoint([*folder.glob("*.safetensors")])
    return sorted(n for n in {*listed, *files} if n not in files.names_in(listed.get(n, "")))


def cast(subject: Subject, _first: Copies, _plain: Tensors, done: Done) -> None:
    """Cast a model to bfloat16 and back; it is another one then."""
    model = subject.model
    if any(p.dtype != torch.float32 for p in model.parameters()):
        raise LeftOut("it is not in float32")
    if done.step(EDIT, lambda: model.to(torch.bfloat16)) is None:
        return
    named = (*model.named_parameters(), *model.named_buffers())
    wide = {
        name.rpartition(".")[2]: str(tensor.dtype).removeprefix("torch.")
        for name, tensor in named
        if tensor.is_floating_point() and tensor.dtype != torch.bfloat16
    }
    done.facts["not in bfloat16"] = ("", ", ".join(f"{n} {d}" for n, d in sorted(wide.items())))
    narrow = in_dtype(subject.kwargs, torch.bfloat16)
    done.step("forward in bfloat16", lambda: subject.forward(**narrow))
    done.step("float()", model.float)
    done.step("forward after float()", subject.forward)


EDITS: Mapping[str, Callable[[Subject, Copies, Tensors, Done], None]] = {
    "copy.deepcopy(model)": copied,
    "load_state_dict() of a new model": refilled,
    "from_pretrained(num_labels=…, ignore_mismatched_sizes=True)": relabelled,
    DISK: on_disk,
    "save_pretrained(max_shard_size=…, variant=…)": sharded,
    "model.to(torch.bfloat16)": cast,
}
"""In the order of asking: the last one changes the model."""
