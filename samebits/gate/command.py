"""The commands ``samebits record`` and ``samebits verify``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from samebits.base.checkpoint import is_checkpoint, own_code
from samebits.base.errors import SamebitsError, nearest, shown
from samebits.base.options import Option
from samebits.base.workfolder import WORK
from samebits.check.model import not_run, read_model
from samebits.check.options import option_values
from samebits.diagnose.exit_code import FAIL, INCOMPLETE, PASS
from samebits.gate.bench import Bench
from samebits.gate.interpreter import (
    Installed,
    environment_of,
    find_interpreter,
    read_interpreter,
    stack_of,
)
from samebits.gate.lockfile import (
    NAME,
    Change,
    LockError,
    read_lock,
    with_model,
    without_models,
    write_lock,
)
from samebits.gate.model import named_specs, recorded_spec, require_consent, with_own_names
from samebits.gate.recorder import Entry, record
from samebits.gate.verifier import Verifier
from samebits.matrix.checkpoint import CheckpointError, faults
from samebits.matrix.spec import ModelSpec
from samebits.records.lock import LockFile
from samebits.records.record import Record
from samebits.records.verification import VerificationFile, Verified
from samebits.stacks.build import Stack
from samebits.stacks.places import cache_folder
from samebits.terminal.gate import change_lines, verified_lines

_VARIANTS = ("dtypes", "attention", "devices")

RECORD_HELP = """\
Run models in the project's own environment and keep their bits, as hashes, in samebits.lock.

MODEL is a folder with config.json, or an id on the hub. Commit samebits.lock, and let samebits verify
compare every later environment with it. --update records again what the lock has (or the models named),
and shows what changes before it writes.

Exit codes: 0, it is written or there is nothing to change; 1, a model does not run or is not the same
twice; 2, a mistake on the command line or in the lock.
"""

VERIFY_HELP = """\
Run the models of samebits.lock in the project's own environment and compare their bits with the lock.

No environment is built as long as all bytes are as recorded. Where they are not, the recorded packages
are built as an environment and run on this machine: this tells a hardware difference from a behaviour
change.

Exit codes:
  0  everything is identical, rounding, or another machine's
  1  something changes behaviour, differs for an undecided reason, is unstable or fails
  2  a mistake on the command line or in the lock
  3  nothing fails, but something was not finished, not observed or is not there
"""


class UsageError(SamebitsError):
    """The command line names a model that the lock does not have, or has already."""


class Project(NamedTuple):
    """The lock, and the environment that is compared with it."""

    lock: Path
    python: Path
    installed: Installed
    root: Path


class _Place(Record):
    """Where the lock and the project are."""

    lock: Annotated[Path, Option("FILE", type=Path)] = Path(NAME)
    """Default: samebits.lock."""
    python: Annotated[Path | None, Option("PATH", type=Path)] = None
    """The project's interpreter, or the folder of its environment (default: the active environment, else
    .venv, else the Python that runs samebits)."""


class RecordOptions(_Place):
    """The options of ``samebits record``."""

    models: Annotated[tuple[str, ...], Option("MODEL", "")] = ()
    """A folder, or org/name@revision."""
    update: Annotated[bool, Option()] = False
    """Record the lock's models again (or those named), and remove those that are not there."""
    dry_run: Annotated[bool, Option()] = False
    """Show what would change, and write nothing."""
    yes: Annotated[bool, Option()] = False
    """Write without a question (default without a terminal)."""
    trust_remote_code: Annotated[bool | None, Option()] = None
    """Whether the code that comes with the model runs; the lock keeps the answer."""
    dtypes: Annotated[str, Option("NAMES")] = ""
    """Default: float32."""
    attention: Annotated[str, Option("NAMES")] = ""
    """Default: default."""
    devices: Annotated[str, Option("NAMES")] = ""
    """Default: cpu."""


class VerifyOptions(_Place):
    """The options of ``samebits verify``."""

    models: Annotated[tuple[str, ...], Option("NAME", "")] = ()
    """Entries of the lock (default: all)."""
    rebuild: Annotated[bool, Option(action=argparse.BooleanOptionalAction)] = True
    """--no-rebuild: where bits differ, do not compute the recorded side again; the kind of the difference
    then stays undecided."""
    trust_remote_code: Annotated[bool, Option()] = False
    """Run the code that samebits.lock lets run also where the lock lies in the folder of a model, which may
    have brought it."""
    format: Annotated[Literal["text", "json"], Option()] = "text"
    """Default: text."""


def own_first(options: type[_Place]) -> list[str]:
    """Return the fields of a command in the order of its help."""
    return sorted(options.model_fields, key=_Place.model_fields.__contains__)


def read_project(
    lock: Path,
    python: Path | None,
    environ: Mapping[str, str],
    checkpoints: Iterable[Path] = (),
    *,
    own: bool = False,
) -> Project:
    """Return the project of a lock; with ``own`` its interpreter is the running one.

    ``checkpoints`` are the folders of its models, of which nothing is run.

    Raises:
        InterpreterError: there is no interpreter with torch and transformers.

    """
    folder = lock.absolute().parent
    interpreter = (
        Path(sys.executable) if own else find_interpreter(python, folder, environ, checkpoints)
    )
    work = folder / WORK
    is_own = work.is_dir() and not is_checkpoint(folder)
    root = work if is_own else cache_folder(environ) / "gate"
    return Project(lock, interpreter, read_interpreter(interpreter), root)


async def run_record(
    options: RecordOptions,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    *,
    kernels: Mapping[str, str] | None = None,
) -> int:
    """Record models, show what changes, write the lock; return the exit code.

    Raises:
        SamebitsError: a mistake, or a model that cannot be recorded.

    """
    lock = read_lock(options.lock) if options.lock.exists() or options.update else LockFile()
    specs, removed = _to_record(options, lock)
    _require_whole_files(specs)
    checkpoints = [Path(spec.path) for spec in specs if spec.path]
    project = read_project(options.lock, options.python, environ, checkpoints)
    say(f"{project.python}: {_versions(project.installed)}")
    untrusted = {spec.name: spec.path for spec in specs if not spec.trust_remote_code}
    _say_what_is_not_run({name: Path(path) for name, path in untrusted.items() if path}, say)
    entries: list[Entry] = []
    if specs:
        async with _bench(project, environ, specs, kernels) as bench:
            side = bench.current(_stack(project), project.installed.python)
            entries = await record(specs, _folder(project), side, project.installed, bench)
    changes = [Change(name, lock.models[name], None) for name in sorted(removed)]
    changes += [Change(e.name, lock.models.get(e.name), e.model) for e in entries]
    for change in changes:
        for line in change_lines(*change):
            say(line)
    updated = without_models(lock, removed)
    for entry in entries:
        updated = with_model(updated, *entry)
    if all(change.before == change.after for change in changes):
        say(f"{options.lock} has nothing to change.")
        return PASS
    if options.dry_run:
        say(f"{options.lock} is left as it is (--dry-run).")
        return PASS
    if not options.yes and sys.stdin.isatty() and options.lock.exists():
        say(f"Write {options.lock}? [y/N]")
        if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
            say(f"{options.lock} is left as it is.")
            return PASS
    write_lock(options.lock, updated)
    say(f"{options.lock} is written: commit it.")
    return PASS


def _say_what_is_not_run(folders: Mapping[str, Path], say: Callable[[str], None]) -> None:
    """Say which code of models is not run for want of trust; ``folders`` has those of the models."""
    for name, folder in folders.items():
        if line := not_run(own_code(folder)):
            say(f"{name}: {line}")


def _to_record(options: RecordOptions, lock: LockFile) -> tuple[list[ModelSpec], set[str]]:
    """Return the models to record, and the entries to remove."""
    lists = {name: option_values(name, getattr(options, name)) for name in _VARIANTS}
    names, models = [], []
    for word in options.models:
        entries = matching(word, lock)
        names += entries if options.update else []
        if not options.update or not entries:
            models.append(read_model(word))
    specs = [
        spec
        for model in with_own_names(models, lock, options.lock.absolute().parent)
        for spec in named_specs(model, trusts_code=options.trust_remote_code, **lists)
    ]
    for spec in specs:
        name = f"{spec.name}/{spec.variants[0]}"
        if name in lock.models and not options.update:
            raise UsageError(
                f"{options.lock} has {name} already: samebits record --update {spec.name} shows what "
                "would change, and writes it"
            )
        if spec.hub is not None and spec.revision is None:
            raise UsageError(f"{spec.hub}: name a commit (org/name@commit), as a branch moves")
    removed = set()
    if options.update and not options.models:
        names = list(lock.models)
    require_consent(options.lock, lock, names, is_given=bool(options.trust_remote_code))
    for name in names:
        try:
            specs.append(recorded_spec(name, lock.models[name], options.lock.absolute().parent))
        except CheckpointError:
            removed.add(name)
    if not specs and not removed:
        msg = "name a model, such as ../checkpoint; or --update, which records the lock's again"
        raise UsageError(msg)
    return specs, removed


def _specs_there(lock: LockFile, names: Iterable[str], folder: Path) -> Iterator[ModelSpec]:
    """Yield the models of entries with a folder; what is not there has a verdict of its own."""
    for name in names:
        with suppress(CheckpointError):
            yield recorded_spec(name, lock.models[name], folder)


def _require_whole_files(specs: Iterable[ModelSpec]) -> None:
    """Raise CheckpointError for what the files of the models show before anything runs."""
    problems = [
        fault for spec in specs if spec.path is not None for fault in faults(Path(spec.path), spec)
    ]
    if problems:
        raise CheckpointError("\n".join(dict.fromkeys(problems)))


def matching(word: str, lock: LockFile) -> list[str]:
    """Return the entries that a word names: with its variant, by model, or by path or hub id."""
    normal = os.path.normpath(word)
    return [
        name
        for name, model in lock.models.items()
        if word in (name, name.partition("/")[0], model.hub, f"{model.hub}@{model.revision}")
        or (model.path is not None and normal == os.path.normpath(model.path))
    ]


async def run_verify(
    options: VerifyOptions,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    *,
    kernels: Mapping[str, str] | None = None,
) -> VerificationFile:
    """Compare the entries of a lock with the project's environment.

    Raises:
        SamebitsError: a mistake of the user.

    """
    started = time.monotonic()
    lock = read_lock(options.lock)
    names = _named_entries(options.models, lock, options.lock)
    is_given, installs = options.trust_remote_code, options.rebuild
    require_consent(options.lock, lock, names, is_given=is_given, installs=installs)
    folder = options.lock.absolute().parent
    folders = {name: folder / path for name in names if (path := lock.models[name].path)}
    _require_whole_files(_specs_there(lock, folders, folder))
    project = read_project(options.lock, options.python, environ, folders.values())
    say(f"{project.python}: {_versions(project.installed)}")
    trusted = {name for name in names if lock.models[name].trust_remote_code}
    _say_what_is_not_run({n: path for n, path in folders.items() if n not in trusted}, say)
    return await verify_entries(
        project,
        lock,
        names,
        environ,
        rebuilds=options.rebuild,
        say=say,
        kernels=kernels,
        at=started,
    )


async def verify_entries(
    project: Project,
    lock: LockFile,
    names: Sequence[str],
    environ: Mapping[str, str],
    *,
    rebuilds: bool,
    say: Callable[[str], None],
    kernels: Mapping[str, str] | None = None,
    at: float | None = None,
) -> VerificationFile:
    """Return the results of some entries in the environment of a project."""
    started = time.monotonic() if at is None else at
    needs_hub = any(lock.models[name].hub for name in names)
    async with Bench(project.root, environ, needs_hub=needs_hub, kernels=kernels, say=say) as bench:
        side = bench.current(_stack(project), project.installed.python)
        verifier = Verifier(
            lock, _folder(project), side, project.installed, bench, rebuilds=rebuilds, say=say
        )
        models = await verifier.verify(names)
        assert verifier.machine is not None
        return VerificationFile(
            lock=project.lock.name,
            environment=environment_of(project.installed),
            machine=verifier.machine,
            models=models,
            seconds=round(time.monotonic() - started, 1),
            exit_code=exit_code(models),
        )


def exit_code(models: Sequence[Verified]) -> int:
    """Return 0 if all bits are kept, 1 if some are not, 3 if that is not known of all."""
    if any(not model.verdict.passes and not model.verdict.is_open for model in models):
        return FAIL
    return INCOMPLETE if any(model.verdict.is_open for model in models) else PASS


def printed(file: VerificationFile, form: str) -> list[str]:
    """Return a verification as the lines to print."""
    if form == "json":
        return [file.model_dump_json(indent=1)]
    return verified_lines(file)


def _named_entries(words: Sequence[str], lock: LockFile, path: Path) -> list[str]:
    if not lock.models:
        raise LockError(f"{path} has no models: samebits record MODEL adds one")
    if not words:
        return list(lock.models)
    names: dict[str, None] = {}
    for word in words:
        entries = matching(word, lock)
        if not entries:
            names_of_models = [name.partition("/")[0] for name in lock.models]
            raise UsageError(f"{path} has no {shown(word)}: {nearest(word, names_of_models)}")
        names |= dict.fromkeys(entries)
    return list(names)


def _bench(
    project: Project,
    environ: Mapping[str, str],
    specs: Sequence[ModelSpec],
    kernels: Mapping[str, str] | None,
) -> Bench:
    needs_hub = any(spec.hub for spec in specs)
    return Bench(project.root, environ, needs_hub=needs_hub, kernels=kernels)


def _stack(project: Project) -> Stack:
    return stack_of(project.python, environment_of(project.installed))


def _folder(project: Project) -> Path:
    return project.lock.absolute().parent


def _versions(installed: Installed) -> str:
    packages = environment_of(installed).packages
    return ", ".join(f"{name} {packages[name]}" for name in ("transformers", "torch"))
