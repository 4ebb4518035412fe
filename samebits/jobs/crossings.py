"""What becomes of each model that one stack saves and another one loads: run, or kept.

Each stack saves a model once, under the digest of all that the files follow from, and each stack
loads the original and every folder in one job. What a loader found is kept under the digest of
what it loaded, so a second run with nothing changed starts no process.

A kept folder is never changed or removed while a run may load it: folders that no later run may
use (of an unpinned checkpoint, or of ``--fresh``) have names of their own and go with their run,
and others go when no run has used them for a week.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from samebits.base.digests import digest_of, digest_of_file
from samebits.base.filestate import Ledger
from samebits.jobs.common import THREADS, digest_of_inputs, inputs_of
from samebits.records.capture import Failure
from samebits.records.crossing import Crossing, CrossingsFile, CrossingsReport, SavedModel
from samebits.records.record import read_record
from samebits.stacks.process import tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.plan import Plan, PlannedRow
    from samebits.matrix.spec import Matrix, ModelSpec
    from samebits.records.ids import Variant
    from samebits.stacks.build import Stack
    from samebits.stacks.process import Ended, StackProcess
    from samebits.storage.store import Store

SIZE_LIMIT = 1 << 30
"""Bytes of a model up to which it is saved: each stack's copy stays on disk."""
UNUSED = 7 * 86_400
"""Seconds after which a folder that no run has used is removed; no run lasts that long."""


class Subject(NamedTuple):
    """What crosses: one model in one variant."""

    model: ModelSpec
    variant: Variant
    checkpoint: Checkpoint


class Party(NamedTuple):
    """A stack that takes part, and its process."""

    stack: Stack
    process: StackProcess


class Saved(NamedTuple):
    """Where a stack left a model, and what it said of it."""

    folder: Path
    said: SavedModel
    digest: str
    """Of ``saved.json``, which names every file by its hash."""


def rows_to_cross(matrix: Matrix, plan: Plan) -> tuple[PlannedRow, ...]:
    """Return the first row on cpu of every model that is to cross between two stacks or more."""
    first: dict[str, PlannedRow] = {}
    for row in plan.rows:
        if row.variant.device == "cpu" and matrix.model(row.model).crossings:
            first.setdefault(row.model, row)
    return tuple(row for row in first.values() if len(row.cells) > 1)


class Crosser:
    """Saves and loads models, and reads what came of it."""

    def __init__(
        self,
        root: Path,
        store: Store,
        probes: str,
        machine: str,
        *,
        fresh: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger or Ledger()
        self._root = root
        self._store = store
        self._probes = probes
        self._machine = machine
        self._fresh = fresh
        self._own: list[Path] = []

    async def cross(self, subject: Subject, parties: Sequence[Party]) -> CrossingsReport:
        """Let every party save the model, and every party load each of these."""
        saved = await self._saved(subject, parties)
        if not all(self._kept(subject, party, _ready(saved)) for party in parties):
            # they are about to be loaded: what is not what its stack saved is saved anew
            checks = (asyncio.to_thread(_remove_unless_whole, found) for found in saved.values())
            if not all(await asyncio.gather(*checks)):
                saved = await self._saved(subject, parties)
        loaded = await asyncio.gather(*(self._load(subject, party, saved) for party in parties))
        return CrossingsReport(
            model=subject.model.name,
            variant=str(subject.variant),
            crossings=tuple(found[saver] for saver in saved for found in loaded),
        )

    def close(self) -> None:
        """Remove what no later run may use, and what no run has used for long."""
        oldest = time.time() - UNUSED
        saved = (self._root / "saved").glob("s*")
        unused = [path for path in saved if _is_older(path, oldest)]
        for path in (*self._own, *unused):
            remove(path)

    async def _saved(self, subject: Subject, parties: Sequence[Party]) -> dict[str, Saved]:
        """Return what each party saved, by its stack."""
        kept = await asyncio.gather(*(self._save(subject, party) for party in parties))
        return {party.stack.id: found for party, found in zip(parties, kept, strict=True)}

    async def _save(self, subject: Subject, party: Party) -> Saved:
        folder = self._saved_folder(subject, party.stack)
        self._ledger.file(folder / "saved.json")
        if (kept := _read_saved(folder)) is not None:
            os.utime(folder)
            return kept
        # what is there is torn, or failed for want of memory or disk: no loader uses it
        shutil.rmtree(folder, ignore_errors=True)
        log = folder.with_name(f"{folder.name}.log")
        more = {"kind": "save", "out": str(folder), "limit": SIZE_LIMIT, "log": str(log)}
        ended = await party.process.run(self._job(subject, party.stack, more))
        self._ledger.file(folder / "saved.json")
        if _read_saved(folder) is None:
            self._ledger.unsettle(f"{subject.model.name} was not saved by {party.stack.id}")
        found = _read_saved(folder, even_if_transient=True)
        return found or _nothing_saved(subject, party.stack, folder, _lost(ended, log))

    def _saved_folder(self, subject: Subject, stack: Stack) -> Path:
        key = self._facts(subject, stack)
        if self._is_kept(subject):
            return self._root / "saved" / f"s{digest_of(key)[:23]}"
        folder = self._root / "saved" / f"s{uuid.uuid4().hex[:23]}"
        self._own += [folder, folder.with_name(f"{folder.name}.log")]
        return folder

    async def _load(
        self, subject: Subject, party: Party, saved: Mapping[str, Saved]
    ) -> dict[str, Crossing]:
        """Return what the party makes of what each saver left, by saver."""
        loader = party.stack.id
        ready = _ready(saved)
        found = {saver: _not_saved(left.said, loader) for saver, left in saved.items()}
        if ready:
            found |= await self._loaded(subject, party, ready)
        return found

    async def _loaded(
        self, subject: Subject, party: Party, ready: Mapping[str, Saved]
    ) -> dict[str, Crossing]:
        path = self._result(subject, party.stack, ready)
        self._ledger.file(path)
        if (kept := self._kept(subject, party, ready)) is not None:
            return {crossing.saver: crossing for crossing in kept.crossings}
        found = await self._compare(subject, party, ready, path)
        told = {
            saver: crossing.model_copy(update={"restored": ready[saver].said.restored})
            for saver, crossing in found.items()
        }
        if subject.checkpoint.pinned and all(map(_is_answer, told.values())):
            file = CrossingsFile(
                model=subject.model.name,
                variant=str(subject.variant),
                stack=party.stack.id,
                crossings=tuple(told.values()),
            )
            self._store.write_json(path, file.model_dump_json(indent=1))
            self._ledger.file(path)
        else:
            self._ledger.unsettle(f"{subject.model.name} crosses to {party.stack.id} anew")
        return told

    def _kept(
        self, subject: Subject, party: Party, ready: Mapping[str, Saved]
    ) -> CrossingsFile | None:
        """Return what an earlier run found; of no saver there is nothing to find."""
        if not ready or not self._is_kept(subject):
            return None
        return read_record(self._result(subject, party.stack, ready), CrossingsFile)

    async def _compare(
        self, subject: Subject, party: Party, ready: Mapping[str, Saved], path: Path
    ) -> dict[str, Crossing]:
        """Run the comparison; after a crash the folders behind the one that crashed run again."""
        found: dict[str, Crossing] = {}
        left = list(ready)
        while left:
            folders = {saver: str(ready[saver].folder) for saver in left}
            told, ended = await self._run(subject, party, folders, path)
            if told is None:
                return found | _no_original(left, party.stack.id, ended)
            found |= {crossing.saver: crossing for crossing in told.crossings}
            left = [saver for saver in left if saver not in found]
            if left:
                lost = left.pop(0)
                found[lost] = _crashed(lost, party.stack.id, ended, path.with_suffix(".log"))
        return {saver: found[saver] for saver in ready}

    async def _run(
        self, subject: Subject, party: Party, folders: Mapping[str, str], path: Path
    ) -> tuple[CrossingsFile | None, Ended]:
        """Run one job and return what it left."""
        own = path.with_name(f"{path.stem}-{uuid.uuid4().hex[:12]}.json")
        more = {
            "kind": "load",
            "savers": dict(folders),
            "result": str(own),
            "log": str(path.with_suffix(".log")),
        }
        ended = await party.process.run(self._job(subject, party.stack, more))
        told = read_record(own, CrossingsFile)
        own.unlink(missing_ok=True)
        return told, ended

    def _result(self, subject: Subject, stack: Stack, ready: Mapping[str, Saved]) -> Path:
        facts = self._facts(subject, stack)
        facts["inputs"] = digest_of_inputs(subject.checkpoint)
        key = digest_of(facts | {"savers": {id: found.digest for id, found in ready.items()}})
        folder = self._root / "crossings" / subject.model.name / str(subject.variant) / stack.id
        return folder / f"{key[:16]}.json"

    def _facts(self, subject: Subject, stack: Stack) -> dict[str, Any]:
        """Return what the bits of a save or a load follow from."""
        checkpoint = subject.checkpoint
        return {
            "model": subject.model.name,
            "variant": str(subject.variant),
            "stack": [stack.id, stack.lock_digest],
            "checkpoint": [checkpoint.source, checkpoint.revision, checkpoint.digest],
            "trust_remote_code": subject.model.trust_remote_code,
            "limit": SIZE_LIMIT,
            "probes": self._probes,
            "machine": self._machine,
            "threads": THREADS,
        }

    def _job(self, subject: Subject, stack: Stack, more: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "name": subject.model.name,
            "variant_name": str(subject.variant),
            "stack": stack.id,
            "threads": THREADS,
            "timeout": subject.model.timeout,
            "variant": subject.variant.model_dump(mode="json"),
            "model": {
                "source": subject.checkpoint.source,
                "revision": subject.checkpoint.revision,
                "trust_remote_code": subject.model.trust_remote_code,
                "inputs": inputs_of(subject.checkpoint),
            },
            **more,
        }

    def _is_kept(self, subject: Subject) -> bool:
        return subject.checkpoint.pinned and not self._fresh


def remove(path: Path) -> None:
    """Remove a file or a folder, as far as that is possible."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    path.unlink(missing_ok=True)


def _is_older(path: Path, than: float) -> bool:
    try:
        return path.stat().st_mtime < than
    except OSError:  # another run has just removed it
        return False


def _read_saved(folder: Path, *, even_if_transient: bool = False) -> Saved | None:
    path = folder / "saved.json"
    said = read_record(path, SavedModel)
    if said is None:
        return None
    if said.failure and said.failure.may_be_the_machine and not even_if_transient:
        return None
    return Saved(folder, said, digest_of_file(path))


def _ready(saved: Mapping[str, Saved]) -> dict[str, Saved]:
    """Return what there is to be loaded."""
    return {saver: found for saver, found in saved.items() if found.said.outcome == "saved"}


def _remove_unless_whole(saved: Saved) -> bool:
    """Return True if every file is what was saved; remove the folder if one is not."""
    try:
        whole = all(digest_of_file(saved.folder / n) == h for n, h in saved.said.files.items())
    except OSError:
        whole = False
    if not whole:
        shutil.rmtree(saved.folder, ignore_errors=True)
    return whole


def _nothing_saved(subject: Subject, stack: Stack, folder: Path, failure: Failure) -> Saved:
    """Return what is said of a save whose process ended before it said anything."""
    said = SavedModel(
        model=subject.model.name,
        variant=str(subject.variant),
        stack=stack.id,
        outcome="failed",
        failure=failure,
    )
    return Saved(folder, said, "")


def _not_saved(said: SavedModel, loader: str) -> Crossing:
    """Return what every loader says of a model that its saver did not leave."""
    outcomes = {"failed": "save failed", "skipped": "not tried"}
    reason = said.reason
    if said.outcome == "not loaded" and said.failure is not None:
        kind, first = said.failure.type, said.failure.message.partition("\n")[0]
        reason = f"{said.stack} cannot load the original: {kind}: {first}"
    return Crossing.model_validate(
        {
            "saver": said.stack,
            "loader": loader,
            "outcome": outcomes.get(said.outcome, "absent"),
            "failure": said.failure if said.outcome == "failed" else None,
            "reason": reason,
        }
    )


def _no_original(savers: Iterable[str], loader: str, ended: Ended) -> dict[str, Crossing]:
    why = ended.reason or "it ended without a word"
    reason = f"{loader} left nothing of the original: {why}"
    return {
        saver: Crossing(saver=saver, loader=loader, outcome="not tried", reason=reason)
        for saver in savers
    }


def _crashed(saver: str, loader: str, ended: Ended, log: Path) -> Crossing:
    failure = _lost(ended, log)
    return Crossing(saver=saver, loader=loader, outcome="load failed", failure=failure)


def _lost(ended: Ended, log: Path) -> Failure:
    message = ended.reason or "it left nothing"
    return Failure(phase="process", type="no result", message=message, traceback=tail(log))


def _is_answer(crossing: Crossing) -> bool:
    """Return True if the same loads again would say the same."""
    if crossing.outcome == "not tried":
        return False
    return crossing.failure is None or not crossing.failure.may_be_the_machine
