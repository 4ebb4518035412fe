"""samebits.lock: read, changed and written."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from samebits.base.digests import digest_of
from samebits.base.errors import SamebitsError
from samebits.records.lock import (
    FORMAT_VERSION,
    Environment,
    LockFile,
    RecordedMachine,
    RecordedModel,
    RecordedTensor,
)
from samebits_wire.atomic import replace

NAME = "samebits.lock"
TensorKey = tuple[str, str]
"""A test, and the name of a tensor in it."""
_KEY = 8


class LockError(SamebitsError):
    """A lock is missing or cannot be read."""


class Change(NamedTuple):
    """What an update does to one entry."""

    name: str
    before: RecordedModel | None
    after: RecordedModel | None


def read_lock(path: Path) -> LockFile:
    """Return the content of a lock.

    Raises:
        LockError: there is none, or it has another form.

    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        msg = f"{path} is not there: samebits record MODEL writes it, and it belongs in version control"
        raise LockError(msg) from error
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise LockError(msg) from error
    content = _content(path, text)
    version = content.get("format_version")
    if content.get("format") == "samebits-lock" and version != FORMAT_VERSION:
        raise LockError(
            f"{path} has format_version {version}, and this samebits reads {FORMAT_VERSION}: use the "
            "samebits that wrote it, or record again"
        )
    try:
        lock = LockFile.model_validate(content)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        msg = f"{path}: {where}: {problem['msg']}. Take it from version control, or record again"
        raise LockError(msg) from error
    for name, model in lock.models.items():
        if model.environment not in lock.environments:
            where = f"models.{name}.environment"
            msg = f"{path}: {where}: the lock has no environment {model.environment}, as after a merge. Take it from version control, or record again"
            raise LockError(msg)
    return lock


def _content(path: Path, text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        hint = "it has marks of a merge: keep one side, then samebits record --update"
        hint = hint if "<<<<<<<" in text else "take it from version control, or record again"
        msg = f"{path}:{error.lineno}:{error.colno}: this is not valid JSON: {hint}"
        raise LockError(msg) from error
    if not isinstance(content, dict):
        raise LockError(f"{path}:1:1: this is no lock of samebits: take it from version control")
    return content


def write_lock(path: Path, lock: LockFile) -> None:
    """Write a lock, with a line per hash for small differences in version control."""
    replace(path, lock_text(lock))


def lock_text(lock: LockFile) -> str:
    """Return the text of a lock; what no entry refers to is left out."""
    content = tidy(lock).model_dump(mode="json", exclude_defaults=True)
    head = {
        "format": lock.format,
        "format_version": lock.format_version,
        "hash_algorithm": lock.hash_algorithm,
    }
    return json.dumps(head | content, indent=1, ensure_ascii=False) + "\n"


def tidy(lock: LockFile) -> LockFile:
    """Return a lock in order, without environments and machines that nothing refers to."""
    environments = {model.environment for model in lock.models.values()}
    machines = {model.machine for model in lock.models.values()}
    machines |= {m for named in lock.tensors.values() for of in named.values() for m in of}
    update = {
        "environments": {k: v for k, v in sorted(lock.environments.items()) if k in environments},
        "machines": {k: v for k, v in sorted(lock.machines.items()) if k in machines},
        "models": dict(sorted(lock.models.items())),
        "tensors": {
            test: {name: dict(sorted(of.items())) for name, of in sorted(named.items())}
            for test, named in sorted(lock.tensors.items())
        },
    }
    return lock.model_copy(update=update)


def environment_key(environment: Environment) -> str:
    """Return the key of an environment."""
    return digest_of(environment.model_dump(mode="json"))[:_KEY]


def machine_key(machine: RecordedMachine) -> str:
    """Return the key of a machine, which follows from its fingerprint and its GPUs."""
    return digest_of([machine.fingerprint, *machine.gpus])[:_KEY]


def with_model(
    lock: LockFile,
    name: str,
    model: RecordedModel,
    environment: Environment,
    machine: RecordedMachine,
) -> LockFile:
    """Return a lock with one entry added or replaced."""
    return lock.model_copy(
        update={
            "models": lock.models | {name: model},
            "environments": lock.environments | {environment_key(environment): environment},
            "machines": lock.machines | {machine_key(machine): machine},
        }
    )


def with_tensors(
    lock: LockFile, tensors: Mapping[TensorKey, RecordedTensor], machine: RecordedMachine
) -> LockFile:
    """Return a lock with tensors of one machine added or replaced.

    A tensor of another dtype or shape, or of equal bytes, takes the place of other machines' as well.
    """
    key = machine_key(machine)
    merged = {test: dict(named) for test, named in lock.tensors.items()}
    for (test, name), tensor in tensors.items():
        of_others = {
            machine: recorded
            for machine, recorded in merged.get(test, {}).get(name, {}).items()
            if (recorded.dtype, recorded.shape) == (tensor.dtype, tensor.shape)
        }
        merged.setdefault(test, {})[name] = of_others | {key: tensor}
    machines = lock.machines | ({key: machine} if tensors else {})
    return lock.model_copy(update={"tensors": merged, "machines": machines})


def without_tensors(lock: LockFile, keys: Collection[TensorKey]) -> LockFile:
    """Return a lock without some of its tensors."""
    remaining = {
        test: {name: of for name, of in named.items() if (test, name) not in keys}
        for test, named in lock.tensors.items()
    }
    return lock.model_copy(
        update={"tensors": {t: named for t, named in remaining.items() if named}}
    )


def without_models(lock: LockFile, names: set[str]) -> LockFile:
    """Return a lock without some of its models."""
    models = {name: model for name, model in lock.models.items() if name not in names}
    return lock.model_copy(update={"models": models})
