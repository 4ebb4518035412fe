"""What stops a run before any environment is built: mistakes that the files and the index show.

A run of these would end minutes later, with a sentence that accuses a model or a release.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from samebits.base.checkpoint import ADAPTER, json_of, own_code
from samebits.base.errors import SamebitsError, StackError, shown
from samebits.matrix import checkpoint, known
from samebits.matrix.plan import plan
from samebits.matrix.spec import Matrix, ModelSpec, StackSpec
from samebits.matrix.values import is_source
from samebits.pipeline.order import Order
from samebits.stacks import source
from samebits_wire.vocabularies import has_no_model

_ALWAYS_THERE = frozenset({"transformers", "torch"})
_ACCELERATE = "accelerate"
_QUANTISED = {
    "aqlm": ("aqlm", _ACCELERATE),
    "auto-round": ("auto-round",),
    "awq": ("gptqmodel", _ACCELERATE),
    "bitnet": (_ACCELERATE,),
    "bitsandbytes": ("bitsandbytes", _ACCELERATE),
    "compressed-tensors": ("compressed-tensors",),
    "eetq": (_ACCELERATE,),
    "fbgemm_fp8": (_ACCELERATE,),
    "fp8": (_ACCELERATE,),
    "gptq": ("optimum", "gptqmodel"),
    "higgs": ("flute-kernel", _ACCELERATE),
    "hqq": ("hqq",),
    "quanto": ("optimum-quanto", _ACCELERATE),
    "quark": ("amd-quark",),
    "spqr": ("spqr-quant", _ACCELERATE),
    "torchao": ("torchao",),
    "vptq": ("vptq", _ACCELERATE),
}
"""quant_method -> packages without which every release refuses to load such a model: what
validate_environment of its quantizer raises for. Older releases want autoawq and auto-gptq in place of
gptqmodel."""
_HEADS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ForMaskedLM")
"""Ends of the names of classes that give logits of tokens."""


class EarlyError(SamebitsError):
    """Files or releases that the run needs are not there or are damaged."""


class Releases(Protocol):
    """What can be asked of releases of transformers that the table of known ones may not have."""

    def newest_release(self, spec: StackSpec, family: str) -> str | None:
        """Return the newest that a stack's index has of a family such as 5.x; None without an answer."""

    def may_know(self, spec: StackSpec, name: str) -> bool:
        """Return False if a stack's release surely has no model_type and no class of this name."""


def refuse(matrix: Matrix, order: Order, releases: Releases) -> None:
    """Raise EarlyError for what every cell, or a whole stack, would fail of."""
    planned = plan(matrix, order.selection)
    stacks = [matrix.stack(id) for id in planned.stacks]
    problems = [p for stack in stacks for p in _bad_release(stack, order, releases)]
    for name in planned.models:
        model = matrix.model(name)
        where = "" if order.checks else f"{matrix.path}:{model.line}: {name}: "
        faults = [*_file_faults(matrix, model), *_missing_code(model, stacks, order)]
        if not faults and not problems:
            faults = [*_unknown(matrix, model, stacks, order, releases)]
        problems += [f"{where}{fault}" for fault in faults]
    if problems:
        raise EarlyError("\n".join(problems))


def _folder(matrix: Matrix, model: ModelSpec) -> Path | None:
    return None if model.path is None else Path(matrix.path).parent / model.path


def steps(matrix: Matrix, model: ModelSpec) -> tuple[str, ...]:
    """Return what a model's folder adds to the model that transformers loads."""
    folder = _folder(matrix, model)
    return () if folder is None else tuple(checkpoint.further_steps(folder))


def _file_faults(matrix: Matrix, model: ModelSpec) -> Iterator[str]:
    folder = _folder(matrix, model)
    if folder is not None:
        yield from checkpoint.faults(folder, model)


def _bad_release(stack: StackSpec, order: Order, releases: Releases) -> Iterator[str]:
    """Yield why there is no such release; nothing where only the index could tell and is silent."""
    text = stack.transformers
    if is_source(text):
        try:
            source.read(text)
        except StackError as error:
            yield f"environment {stack.id}: {error}"
        return
    if known.of_family(text) or releases.newest_release(stack, text) is not None:
        return
    minor = ".".join(text.split(".")[:2])
    family = known.of_family(minor)
    if family:
        hint = (
            f"{family[0]} to {family[-1]} exist" if len(family) > 1 else f"only {family[0]} exists"
        )
    else:
        latest = releases.newest_release(stack, "")
        if latest is None:
            return
        hint = f"the newest is {latest}"
    place = f"transformers {text}" if order.checks else f"environment {stack.id}"
    yield f"{place}: there is no release {text} of transformers; {hint}"


def _missing_code(model: ModelSpec, stacks: list[StackSpec], order: Order) -> Iterator[str]:
    """Yield a module that nothing can bring, as no package is named."""
    if model.packages or any(stack.packages or stack.commit for stack in stacks):
        return
    named = [*model.imports, *([model.model_class] if model.model_class else [])]
    roots = {module.partition(":")[0].partition(".")[0] for module in named} - _ALWAYS_THERE
    for root in sorted(roots):
        how = "add --package" if order.checks else "write packages: [NAME]"
        yield (
            f"no environment has the module {shown(root)}, as the package that brings it is not "
            f"named: {how}{' and its name on the package index' if order.checks else ''}"
        )


def _unknown(
    matrix: Matrix,
    model: ModelSpec,
    stacks: list[StackSpec],
    order: Order,
    releases: Releases,
) -> Iterator[str]:
    """Yield why no stack can load a model, as far as its config shows."""
    folder = _folder(matrix, model)
    if folder is None or model.patch or has_no_model(folder):
        return
    path = folder / "config.json"
    config = checkpoint.read_config(path)
    if not model.packages and not any(stack.packages for stack in stacks):
        yield from _needs_packages(config, folder, order)
    yield from _other_base(folder)
    if checkpoint.brings_class(config, model) or "pretrained_cfg" in config:
        return
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    model_type = config["model_type"]
    if model_type not in known.types():
        unknown = str(model_type)
        what = f"model_type {shown(unknown)}{known.near(unknown, known.types())}"
    elif isinstance(name, str) and name not in known.classes():
        unknown, hint = name, _of_type(name, str(model_type), order)
        what = f"a model class {shown(name)}, which architectures names{hint}"
    else:
        return
    # only a release newer than the table can know it
    newer = (stack for stack in stacks if not _is_covered(stack, releases))
    if not any(releases.may_know(stack, unknown) for stack in newer):
        if config.get("auto_map") and not model.trust_remote_code:
            yield _untrusted(path, shown(unknown), order)
            return
        how = (
            "--package NAME --import MODULE (or --class MODULE:NAME)"
            if order.checks
            else "packages: [NAME] and import: [MODULE] (or class: MODULE:NAME)"
        )
        separator = " If" if what.endswith("?") else ". If"
        yield (
            f"{path}: no release of transformers knows {what}{separator} a package brings it, name "
            f"the package and the module that registers it: {how}"
        )


def _untrusted(path: Path, unknown: str, order: Order) -> str:
    """Return how code that comes with a model may run, as no release has a class for it."""
    how = "add --trust-remote-code" if order.checks else "write trust_remote_code: true"
    return (
        f"{path}: no release of transformers knows {unknown}, and the model's own code may not run: "
        f"{own_code(path.parent).places}. Read it (samebits lint {path.parent} names what breaks), then {how}"
    )


def _of_type(name: str, model_type: str, order: Order) -> str:
    """Return what the class can be called today: old checkpoints have names such as T5WithLMHeadModel."""
    of_type = [
        class_name for class_name in known.classes() if known.type_of([class_name]) == model_type
    ]
    if not of_type:
        return known.near(name, known.classes())
    whole = [
        class_name for class_name in of_type if "For" in class_name or class_name.endswith("Model")
    ]
    if hint := known.near(name, whole):
        return hint
    heads = [class_name for class_name in whole if class_name.endswith(_HEADS)]
    how = "--class" if order.checks else "class:"
    return f". Name the class of today, such as {how} transformers:{heads[0]}" if heads else ""


def _is_covered(stack: StackSpec, releases: Releases) -> bool:
    text = stack.transformers
    is_exact = text.count(".") == 2 and not text.endswith("x")
    version = text if is_exact else releases.newest_release(stack, text)
    return known.is_covered(version or text.replace("x", "0"))


def _other_base(folder: Path) -> Iterator[str]:
    """Yield that an adapter beside a model names another folder, whose files no cache key contains."""
    values = json_of(folder / ADAPTER)
    named = values.get("base_model_name_or_path") if isinstance(values, dict) else None
    base = Path(named) if isinstance(named, str) and named else folder
    if base.is_dir() and base.resolve() != folder.resolve():
        yield (
            f"{folder / ADAPTER}: base_model_name_or_path is another folder, {shown(str(base))}. "
            f"4.57 loads the weights from there, and 5.24 those of {folder}: name {folder} in its place"
        )


def _needs_packages(config: dict[str, object], folder: Path, order: Order) -> Iterator[str]:
    settings = config.get("quantization_config")
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    if isinstance(settings, dict) and (
        settings.get("load_in_4bit") or settings.get("load_in_8bit")
    ):
        method = "bitsandbytes"
    elif method == "bitsandbytes":
        return  # left over: transformers takes it for no method that it knows, and loads plain weights
    packages = _QUANTISED.get(str(method))
    if packages is None:
        return
    how = (
        " ".join(f"--package {package}" for package in packages)
        if order.checks
        else f"packages: [{', '.join(packages)}]"
    )
    what = f"its weights are quantised with {method}, which"
    if checkpoint.holds_plain_floats(folder):
        what = (
            f"its config.json says that the weights are quantised with {method}, and its files hold plain floats "
            "alone: remove quantization_config if they were dequantised. Quantised weights"
        )
    yield (
        f"{what} transformers loads only beside "
        f"{' and '.join(packages)}, and no environment has {'it' if len(packages) == 1 else 'them'}: "
        f"add {how}. Some methods also need a GPU (--devices cuda)"
    )
