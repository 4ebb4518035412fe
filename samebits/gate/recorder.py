"""``samebits record``: observe models in the project's environment, as entries of a lock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from samebits.base.errors import SamebitsError
from samebits.compare.phases import failures
from samebits.diagnose.alone import alone
from samebits.gate.bench import Bench, Side, Subject
from samebits.gate.history import files_of
from samebits.gate.interpreter import Installed, environment_of, machine_of
from samebits.gate.lockfile import environment_key, machine_key
from samebits.gate.model import entry_name, imported_modules, relative_path
from samebits.gate.observations import hashes
from samebits.matrix.spec import ModelSpec
from samebits.records.capture import Capture
from samebits.records.lock import SHORT, Environment, RecordedMachine, RecordedModel


class RecordError(SamebitsError):
    """A model cannot be recorded, as its bits are not the same twice or it does not run."""

    exit_code = 1


class Entry(NamedTuple):
    """A new entry of a lock."""

    name: str
    model: RecordedModel
    environment: Environment
    machine: RecordedMachine


async def record(
    specs: Sequence[ModelSpec], folder: Path, side: Side, installed: Installed, bench: Bench
) -> list[Entry]:
    """Return an entry for each model, for the lock in ``folder``.

    Raises:
        RecordError: at least one of them cannot be recorded; the message names all.

    """
    ends = await asyncio.gather(
        *(_entry(spec, folder, side, installed, bench) for spec in specs), return_exceptions=True
    )
    unexpected = [
        e for e in ends if isinstance(e, BaseException) and not isinstance(e, RecordError)
    ]
    if unexpected:
        raise unexpected[0]
    faults = [str(end) for end in ends if isinstance(end, RecordError)]
    if faults:
        raise RecordError("\n".join(faults))
    return [end for end in ends if isinstance(end, Entry)]


async def _entry(
    spec: ModelSpec, folder: Path, side: Side, installed: Installed, bench: Bench
) -> Entry:
    name = entry_name(spec)
    subject = await side.with_inputs(bench.subject(spec))
    runs = await side.observe(subject)
    state = alone(runs, bench.store)
    if state.verdict is not None or state.capture is None:
        raise RecordError(f"{name} was not recorded: {state.verdict}: {state.headline}")
    if state.unfinished is not None:
        raise RecordError(f"{name} was not recorded: it did not finish: {state.unfinished.reason}")
    environment = environment_of(installed, imported_modules(spec))
    computed_by = await machine(side, installed, bench)
    model = RecordedModel(
        path=relative_path(Path(spec.path), folder) if spec.path else None,
        hub=spec.hub,
        revision=spec.revision,
        trust_remote_code=spec.trust_remote_code,
        variant=spec.variants[0],
        environment=environment_key(environment),
        machine=machine_key(computed_by),
        probes=bench.probes[:SHORT],
        files=recorded_files(spec, subject, bench),
        raised=raised(state.capture),
        signals=hashes(state.capture),
    )
    return Entry(name, model, environment, computed_by)


async def machine(side: Side, installed: Installed, bench: Bench) -> RecordedMachine:
    """Return the machine as a lock has it. Raises RecordError if the interpreter does not start."""
    facts = await side.process.facts()
    if facts is None:
        raise RecordError(
            f"{side.stack.python} could not import torch and transformers; its log is in "
            f"{bench.root / 'logs'}"
        )
    described = machine_of(facts, installed)
    return RecordedMachine(fingerprint=bench.fingerprint[:SHORT], **described)


def recorded_files(spec: ModelSpec, subject: Subject, bench: Bench) -> dict[str, str]:
    """Return the files of a local checkpoint with their hashes; {} for one on the hub."""
    if spec.path is None:
        return {}
    return files_of(Path(subject.checkpoint.source), bench.root / "file-hashes.json")


def raised(capture: Capture) -> dict[str, str]:
    """Return the phases that raised, with the types of their exceptions."""
    return {failure.phase: failure.type for failure in failures(capture)}
