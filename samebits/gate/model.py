"""The models of a lock: as the command line names them, and as an entry has them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from samebits.base.checkpoint import folder_of_model, read_small
from samebits.base.errors import SamebitsError
from samebits.check import hub
from samebits.check.model import NamedModel, read_folder, read_model, with_digits
from samebits.check.text import Entry, matrix_text
from samebits.compare.describe import some
from samebits.matrix import load, yamltext
from samebits.matrix.checkpoint import CheckpointError
from samebits.matrix.levels import at_level
from samebits.matrix.spec import ModelSpec
from samebits.records.ids import Variant
from samebits.records.lock import LockFile, RecordedModel

_ANY_RELEASE = "5.x"
"""A matrix needs a stack; the one that is used is the project's own environment."""


class CodeError(SamebitsError):
    """The model has code of its own, and nobody has said whether it may run."""


class TwiceError(SamebitsError):
    """The command line names one model twice."""


def entry_name(model: ModelSpec) -> str:
    """Return the name of a model with one variant in a lock: ``tiny/float32-default``."""
    (variant,) = model.variants
    return f"{model.name}/{variant}"


def named_specs(
    model: NamedModel,
    *,
    trusts_code: bool | None,
    dtypes: tuple[str, ...] = (),
    attention: tuple[str, ...] = (),
    devices: tuple[str, ...] = (),
) -> list[ModelSpec]:
    """Return a model that the command line names, once for each variant.

    Raises:
        CodeError: the model has code of its own, and ``trusts_code`` does not say whether it may run.

    """
    if model.loads_code and trusts_code is None:
        raise CodeError(
            f"{model.typed}: the model comes with code of its own ({model.code.places}), which runs "
            "only if you say so: add --trust-remote-code. The lock keeps your answer, and verify follows "
            "it. With --no-trust-remote-code the class of transformers is used"
        )
    return _specs(
        Entry(model.name, _absolute(model), bool(trusts_code), dtypes, attention, devices)
    )


def with_own_names(
    models: Iterable[NamedModel], lock: LockFile, folder: Path
) -> Iterator[NamedModel]:
    """Yield models with a name of its own for each: one whose name another has gets digits of where it lies.

    ``folder`` is that of the lock, which keeps the names that its models have.

    Raises:
        TwiceError: two revisions of one model are named.

    """
    taken = {
        name.partition("/")[0]: _source(entry.hub, entry.path)
        for name, entry in lock.models.items()
        if entry.path is None or (folder / entry.path).exists()
    }
    inputs: dict[str, str] = {}
    for model in models:
        path = None if model.path is None else relative_path(Path(model.path), folder)
        source = _source(model.hub, path)
        if source in inputs:
            if inputs[source] != model.typed and model.hub is not None:
                msg = f"{inputs[source]} and {model.typed} are one model: name one revision of it"
                raise TwiceError(msg)
            continue
        inputs[source] = model.typed
        name = next((name for name, of in taken.items() if of == source), model.name)
        if taken.get(name, source) != source:
            name = with_digits(name, source)
        taken[name] = source
        yield model._replace(name=name)


def _source(hub: str | None, path: str | None) -> str:
    """Return what tells two models of one name apart: the id on the hub, or the path in the lock."""
    return hub or os.path.normpath(str(path))


def recorded_spec(name: str, entry: RecordedModel, folder: Path) -> ModelSpec:
    """Return the model of an entry of the lock in ``folder``.

    Raises:
        CheckpointError: it is not there.

    """
    if entry.path is not None:
        model = read_folder(Path(os.path.normpath(folder / entry.path)))
    else:
        commit = f"@{entry.revision}" if entry.revision else ""
        model = read_model(f"{entry.hub}{commit}", offline=True)
    variant = entry.variant
    lists = (variant.dtype,), (variant.attention,), (variant.device,)
    (spec,) = _specs(
        Entry(name.partition("/")[0], _absolute(model), entry.trust_remote_code, *lists)
    )
    return spec


def require_consent(
    path: Path, lock: LockFile, names: Iterable[str], *, is_given: bool, installs: bool = False
) -> None:
    """Raise CodeError if a lock that may have come with a model is all that lets code run.

    That is the code of the entries ``names``, and with ``installs`` packages from the addresses in
    the lock. ``is_given`` is True if the user has said so.
    """
    if is_given:
        return
    entries = {name: lock.models[name] for name in names}
    model = _model_around(path, [entry.path for entry in entries.values() if entry.path])
    if model is None:
        return
    trusted = [name for name, entry in entries.items() if entry.trust_remote_code]
    keys = lock.environments.keys() & {entry.environment for entry in entries.values()}
    addresses = {a for key in keys for a in lock.environments[key].sources.values()}
    sources = sorted(addresses) if installs else []
    parts = [f"the code of {some(trusted)} runs"] if trusted else []
    parts += [f"packages are installed from {some(sources)}"] if sources else []
    if parts:
        raise CodeError(
            f"{path} says that {' and '.join(parts)}. It lies in the folder of a model, {model}, so it may "
            "have come with the model, and nothing was run. Read what would run, then say so yourself: "
            "--trust-remote-code (in a test: samebits.check(…, trust_remote_code=True)). A lock in the "
            "folder of your project needs no such word (--lock)"
        )


def _model_around(path: Path, models: Iterable[str]) -> Path | None:
    """Return the folder of a model in which a lock lies, one of its own ``models`` or another."""
    folder = path.absolute().parent
    own = {os.path.realpath(folder / model) for model in models}
    for place in (Path(os.path.realpath(folder)), Path(os.path.realpath(path)).parent):
        own_around = (f for f in (place, *place.parents) if str(f) in own)
        if (model := folder_of_model(place) or next(own_around, None)) is not None:
            return model
    return None


def _absolute(model: NamedModel) -> NamedModel:
    return model if model.path is None else model._replace(path=str(Path(model.path).absolute()))


def _specs(entry: Entry) -> list[ModelSpec]:
    """Return the model of an entry as a quick run of a matrix has it, once for each variant."""
    text = matrix_text([entry], [_ANY_RELEASE], "samebits verify")
    matrix = at_level(load.parse(yamltext.parse(text.encode()), Path.cwd() / "lock"), "quick")
    (model,) = matrix.models
    return [one_variant(model, variant) for variant in model.variants]


def one_variant(model: ModelSpec, variant: Variant) -> ModelSpec:
    """Return a model with one of its variants."""
    return model.model_copy(
        update={
            "dtypes": (variant.dtype,),
            "attention": (variant.attention,),
            "devices": (variant.device,),
        }
    )


def relative_path(path: Path, folder: Path) -> str:
    """Return the path of a checkpoint as a lock in ``folder`` has it.

    Raises CheckpointError if there is no relative one.
    """
    try:
        return Path(os.path.relpath(path.absolute(), folder.absolute())).as_posix()
    except ValueError as error:  # another drive
        msg = f"{path} is on another drive than {folder}: put the lock on the same one (--lock)"
        raise CheckpointError(msg) from error


def imported_modules(model: ModelSpec) -> set[str]:
    """Return the top-level modules that a model's own code imports."""
    if not model.trust_remote_code:
        return set()
    folder = Path(model.path) if model.path else hub.code_folder(str(model.hub), model.revision)
    files = sorted(folder.rglob("*.py")) if folder is not None else []
    return {module for file in files for module in _imports(file)}


def _imports(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(read_small(file))
    except (OSError, SyntaxError, ValueError):
        return  # the model's load says so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]
