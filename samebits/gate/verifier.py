"""``samebits verify``: the project's environment against the bits in its lock.

First the bytes: where all are as recorded, nothing else runs. Where they are not, the recorded
packages are built as a stack and compute the same on this machine. This tells a
hardware difference from a behaviour change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from samebits.base.digests import digest_of
from samebits.base.errors import StackError
from samebits.compare.describe import some
from samebits.compare.pair import ended, reason
from samebits.compare.phases import failures
from samebits.diagnose.alone import CellState, alone
from samebits.gate import bench as benches
from samebits.gate.bench import Bench, Runs, Side, Subject
from samebits.gate.history import changed_files, restored
from samebits.gate.interpreter import (
    ROOTS,
    Installed,
    environment_of,
    has_labels,
    imported_packages,
    pins,
)
from samebits.gate.lockfile import machine_key
from samebits.gate.model import imported_modules, recorded_spec
from samebits.gate.observations import count, mismatches, unobserved
from samebits.gate.recorder import machine, recorded_files
from samebits.matrix.checkpoint import CheckpointError
from samebits.matrix.plan import command_line
from samebits.records.capture import Failure
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.lock import SHORT, Environment, LockFile, RecordedMachine, RecordedModel
from samebits.records.verification import Kept, Mismatch, PackageChange, Verified
from samebits_wire.folders import without_folders

REBUILT = "recorded"
"""Id of the stack that is built of the recorded packages."""

_OF_STATE = {
    Verdict.FAILED: Kept.FAILED,
    Verdict.ABSENT: Kept.ABSENT,
    Verdict.UNSTABLE: Kept.UNSTABLE,
}
_OF_RESULT = {
    Verdict.IDENTICAL: Kept.IDENTICAL,
    Verdict.ROUNDING: Kept.ROUNDING,
    Verdict.DIVERGED: Kept.DIVERGED,
    Verdict.FAILED: Kept.FAILED,
    Verdict.UNSTABLE: Kept.UNSTABLE,
    Verdict.NOT_FINISHED: Kept.NOT_FINISHED,
}

_AS_A_WHOLE = frozenset({Verdict.FAILED, Verdict.UNSTABLE, Verdict.NOT_FINISHED})

LEFT_OUT = "the recorded side was not computed again (--no-rebuild)"
NO_PACKAGE = "the record has packages from a folder of its machine, or from no public address"
NO_FILE = "the checkpoint has changed, and git's history does not have the recorded"
UNEXPLAINED = (
    "the recorded packages do not compute the recorded bits on this kind of machine: a package that the "
    "record does not list, or a build of one, has changed"
)
OTHER_SAMEBITS = "another version of samebits made the record: samebits record --update"
NOTHING_CHANGED = "packages, checkpoint and machine are the recorded ones, and the bits are not"
OTHER_NUMBERS = "the checkpoint's stored numbers have changed"


class _Current(NamedTuple):
    """One entry with its model in the project's environment, and what is known so far."""

    entry: RecordedModel
    subject: Subject
    runs: Runs
    state: CellState
    differing: list[Mismatch]
    files: dict[str, str]
    known: Verified
    """A result with the facts that do not depend on the rebuilt side."""


class _Recorded(NamedTuple):
    """The recorded side, computed on this machine."""

    side: Side
    subject: Subject
    runs: Runs


class Verifier:
    """Compares the entries of a lock with the project's environment."""

    def __init__(
        self,
        lock: LockFile,
        folder: Path,
        side: Side,
        installed: Installed,
        bench: Bench,
        *,
        rebuilds: bool = True,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._lock = lock
        self._folder = folder
        self._side = side
        self._installed = installed
        self._bench = bench
        self._rebuilds = rebuilds
        self._say = say
        self._rebuilt: dict[str, asyncio.Task[Side]] = {}
        self.machine: RecordedMachine | None = None

    async def verify(self, names: Sequence[str]) -> tuple[Verified, ...]:
        """Return the result of each of these entries."""
        self.machine = await machine(self._side, self._installed, self._bench)
        return tuple(await asyncio.gather(*map(self._verify, names)))

    async def _verify(self, name: str) -> Verified:
        started = time.monotonic()
        current = await self._observed(name)
        if isinstance(current, Verified):
            return current
        first = _without_rebuild(current)
        if first is not None:
            return first
        self._say(
            f"{name}: {current.known.n_differ} of {current.known.n_tensors} hashes are not the recorded "
            f"ones after {time.monotonic() - started:.0f} s"
        )
        recorded = await self._recorded(name, current)
        if isinstance(recorded, Verified):
            return recorded
        return await self._judged(current, recorded)

    async def _observed(self, name: str) -> _Current | Verified:
        """Return an entry observed in the project's environment, or the result if it is not there."""
        entry = self._lock.models[name]
        known = Verified(model=name, verdict=Kept.UNDECIDED, n_tensors=count(entry.signals))
        try:
            spec = recorded_spec(name, entry, self._folder)
        except CheckpointError as error:
            return _ended(known, Kept.NOT_THERE, str(error))
        subject = await self._side.with_inputs(self._bench.subject(spec))
        runs = await self._side.observe(subject)
        state = alone(runs, self._bench.store)
        differing = mismatches(entry.signals, state.capture) if state.capture is not None else []
        files = recorded_files(spec, subject, self._bench)
        recorded = self._lock.environments[entry.environment]
        assert self.machine is not None
        modules = imported_modules(spec)
        now = environment_of(self._installed, modules)
        packages = imported_packages(self._installed, modules)
        update = {
            "n_differ": len(differing),
            "first": differing[0] if differing else None,
            "packages": tuple(package_changes(recorded, now, self._installed)),
            "files": changed_files(entry.files, files) if entry.files else (),
            "other_machine": machine_key(self.machine) != entry.machine,
            "other_probes": self._bench.probes[:SHORT] != entry.probes,
            "command": _command(entry, recorded, now, packages),
            "raised": _raised_as_recorded(entry, state),
        }
        return _Current(
            entry, subject, runs, state, differing, files, known.model_copy(update=update)
        )

    async def _recorded(self, name: str, current: _Current) -> _Recorded | Verified:
        """Return the recorded side on this machine, or the result if it cannot be had."""
        known, entry = current.known, current.entry
        if not self._rebuilds:
            return _undecided(known, "left out", LEFT_OUT)
        recorded = self._lock.environments[entry.environment]
        subject = current.subject
        if known.files:
            root = self._bench.root
            folder = Path(subject.checkpoint.source)
            restored_folder, missing = await asyncio.to_thread(
                restored, folder, entry.files, current.files, root
            )
            if restored_folder is None:
                return _of_changed_files(known, missing)
            spec = subject.model.model_copy(update={"path": str(restored_folder)})
            inputs = subject.checkpoint.inputs
            checkpoint = self._bench.subject(spec).checkpoint
            checkpoint = checkpoint.model_copy(update={"inputs": inputs})
            subject = subject._replace(checkpoint=checkpoint)
        if not known.packages and not known.files:
            return _of_nothing_changed(known)
        if recorded.local and known.packages:
            return _undecided(known, "not possible", f"{NO_PACKAGE}: {some(recorded.local)}")
        try:
            side = await self._side_of(recorded, is_current=not known.packages)
        except StackError as error:
            return _undecided(known, "not possible", without_folders(str(error)))
        self._say(f"{name}: computed again with transformers {recorded.packages['transformers']}")
        runs = await side.observe(subject)
        return _Recorded(side, subject, runs)

    async def _side_of(self, environment: Environment, *, is_current: bool) -> Side:
        """Return the side of a recorded environment, made once for all entries."""
        key = digest_of([environment.model_dump(mode="json"), is_current])
        if key not in self._rebuilt:
            side = self._again() if is_current else self._build(environment, key)
            self._rebuilt[key] = asyncio.create_task(side)
        return await asyncio.shield(self._rebuilt[key])

    async def _again(self) -> Side:
        """Return the project's environment as another side, for files that have changed."""
        stack = self._side.stack.model_copy(update={"id": REBUILT})
        return await asyncio.to_thread(self._bench.current, stack, self._installed.python)

    async def _build(self, environment: Environment, key: str) -> Side:
        python = ".".join(environment.python.split(".")[:2])
        versions = ", ".join(f"{name} {environment.packages[name]}" for name in ROOTS)
        self._say(f"building the recorded environment: {versions}")
        stack_id = f"{REBUILT}-{key[:8]}"
        rebuild = self._bench.builder.rebuild
        try:
            stack = await asyncio.to_thread(rebuild, stack_id, pins(environment), python)
        except StackError:
            if not has_labels(environment):
                raise
            # a build such as +cu130 may be on an index that this machine does not use
            lock = pins(environment, labels=False)
            stack = await asyncio.to_thread(rebuild, stack_id, lock, python)
        return self._bench.rebuilt(stack)

    async def _judged(self, current: _Current, recorded: _Recorded) -> Verified:
        """Return the result of a comparison with the recorded side on this machine."""
        known, entry = current.known, current.entry
        state = alone(recorded.runs, self._bench.store)
        if state.verdict is not None or state.capture is None:
            reason_text = f"the recorded side {state.verdict} on this machine: {state.headline}"
            return _undecided(known, "not possible", reason_text)
        repeats = not mismatches(entry.signals, state.capture)
        if any(mismatch.signal == "inputs" for mismatch in current.differing):
            current, recorded = await self._with_recorded_inputs(current, recorded)
        result = await benches.compared(
            recorded, (self._side, current.subject, current.runs), self._bench.store
        )
        return _verdict(known, result, repeats=repeats)

    async def _with_recorded_inputs(
        self, current: _Current, recorded: _Recorded
    ) -> tuple[_Current, _Recorded]:
        """Return both sides with the inputs that the recorded one chooses, as all stacks of a run have."""
        subject = await recorded.side.with_inputs(recorded.subject)
        if subject.checkpoint.inputs == recorded.subject.checkpoint.inputs:
            return current, recorded
        fed = current.subject.checkpoint.model_copy(update={"inputs": subject.checkpoint.inputs})
        own = current.subject._replace(checkpoint=fed)
        runs = await asyncio.gather(recorded.side.observe(subject), self._side.observe(own))
        return (
            current._replace(subject=own, runs=runs[1]),
            recorded._replace(subject=subject, runs=runs[0]),
        )


def package_changes(
    recorded: Environment, current: Environment, installed: Installed
) -> list[PackageChange]:
    """Return the packages that are not the recorded ones, transformers and torch first."""
    versions = environment_versions(installed)
    changes = [
        PackageChange(name=name, recorded=version, current=versions.get(name))
        for name, version in recorded.packages.items()
        if versions.get(name) != version or recorded.sources.get(name) != current.sources.get(name)
    ]
    changes += [
        PackageChange(name=name, recorded=None, current=version)
        for name, version in current.packages.items()
        if name not in recorded.packages
    ]
    if recorded.python != current.python:
        changes.append(
            PackageChange(name="python", recorded=recorded.python, current=current.python)
        )
    return sorted(changes, key=_rank)


def environment_versions(installed: Installed) -> Mapping[str, str]:
    """Return the version of every installed package."""
    everything = environment_of(
        installed, [module for package in installed.packages for module in package.modules]
    )
    return everything.packages


def _rank(change: PackageChange) -> tuple[int, bool, str]:
    """Return the place of a package: the roots, then those that both sides have."""
    root = ROOTS.index(change.name) if change.name in ROOTS else len(ROOTS)
    return root, None in (change.recorded, change.current), change.name


def _command(
    entry: RecordedModel, recorded: Environment, now: Environment, packages: Sequence[str]
) -> str:
    """Return the command that compares both releases; '' if transformers is the same one."""
    releases = [environment.packages["transformers"] for environment in (recorded, now)]
    if releases[0] == releases[1]:
        return ""
    model = entry.path or f"{entry.hub}@{entry.revision}"
    words = ["check", model, "--from", releases[0], "--to", releases[1]]
    words += ["--trust-remote-code"] if entry.trust_remote_code else []
    # without a version: the one here may not fit the torch of the check's environments
    words += [word for package in packages for word in ("--package", package)]
    return command_line(["samebits"], words)


def _ended(known: Verified, verdict: Kept, reason_text: str, **more: Any) -> Verified:  # noqa: ANN401
    return known.model_copy(update={"verdict": verdict, "reason": reason_text, **more})


def _undecided(known: Verified, rebuild: str, reason_text: str) -> Verified:
    return _ended(known, Kept.UNDECIDED, reason_text, rebuild=rebuild)


def _without_rebuild(current: _Current) -> Verified | None:
    """Return the result that the project's environment alone decides; None if bits differ."""
    known, state = current.known, current.state
    if state.verdict is not None:
        verdict = _OF_STATE.get(state.verdict, Kept.FAILED)
        return _ended(known, verdict, without_folders(state.headline), failure=state.failure)
    assert state.capture is not None
    if (failure := _new_failure(current)) is not None:
        text = f"{failure.phase}: {failure.in_words}"
        return _ended(known, Kept.FAILED, without_folders(text), failure=failure)
    if current.differing:
        return None
    if state.unfinished is not None:
        return _ended(known, Kept.NOT_FINISHED, without_folders(ended(state.unfinished)))
    if missing := unobserved(current.entry.signals, state.capture):
        reasons = (reason(state.capture, signal) for signal in missing)
        why = next(filter(None, reasons), "")
        return _ended(
            known, Kept.NOT_OBSERVED, f"{some(missing)}: {why or 'no reason was recorded'}"
        )
    return _ended(known, Kept.IDENTICAL, "")


def _raised_as_recorded(entry: RecordedModel, state: CellState) -> dict[str, str]:
    raised = failures(state.capture) if state.capture is not None else ()
    return {f.phase: f.type for f in raised if entry.raised.get(f.phase) == f.type}


def _new_failure(current: _Current) -> Failure | None:
    """Return the first exception of a phase that did not raise in the record."""
    assert current.state.capture is not None
    raised = (f for f in failures(current.state.capture) if not f.may_be_the_machine)
    return next((f for f in raised if current.entry.raised.get(f.phase) != f.type), None)


def _of_changed_files(known: Verified, missing: tuple[str, ...]) -> Verified:
    """Return the result of a checkpoint whose recorded files are not to be had."""
    first = known.first
    if first is not None and first.signal == "weights" and first.kind == "differs":
        return _ended(known, Kept.DIVERGED, OTHER_NUMBERS, rebuild="not possible")
    return _undecided(known, "not possible", f"{NO_FILE} {some(missing)}")


def _of_nothing_changed(known: Verified) -> Verified:
    """Return the result of a model whose packages and files are the recorded ones."""
    if known.other_machine:
        return _ended(known, Kept.OTHER_MACHINE, "")
    reason_text = OTHER_SAMEBITS if known.other_probes else NOTHING_CHANGED
    return _undecided(known, "not needed", reason_text)


def _verdict(known: Verified, result: CellResult, *, repeats: bool) -> Verified:
    """Return the verdict that follows from both sides on this machine."""
    update: dict[str, Any] = {"rebuild": "done", "repeats": repeats, "figure": result.figure}
    judged = result.verdict if result.verdict in _AS_A_WHOLE else result.compared
    verdict = _OF_RESULT.get(judged, Kept.UNDECIDED)
    if verdict is not Kept.IDENTICAL:
        update["difference"] = without_folders(result.headline)
    if verdict is Kept.UNDECIDED:
        ladder = result.ladder
        return _ended(known, verdict, ladder.reason if ladder else result.headline, **update)
    if verdict is Kept.FAILED:
        return _ended(
            known, verdict, without_folders(result.headline), failure=result.failure, **update
        )
    if verdict is Kept.NOT_FINISHED:
        return _ended(known, verdict, result.open_reason or result.headline, **update)
    is_explained = repeats or known.other_machine
    if verdict in (Kept.IDENTICAL, Kept.ROUNDING) and not is_explained:
        text = OTHER_SAMEBITS if known.other_probes else UNEXPLAINED
        return _ended(known, Kept.UNDECIDED, text, **update)
    if verdict is Kept.IDENTICAL and not repeats:
        return _ended(known, Kept.OTHER_MACHINE, "", **update)
    return _ended(known, verdict, "", **update)
