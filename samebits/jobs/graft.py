"""Runs donor and patient of a pair; what they leave is kept like captures."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

from samebits.base.digests import digest_of
from samebits.base.filestate import Ledger
from samebits.grafts import judge
from samebits.jobs.common import common_job, follows_from
from samebits.records.graft import DonorFile, GraftFile
from samebits.records.record import read_record
from samebits.records.tensor import TensorRef
from samebits.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from samebits.grafts.questions import Ask, Asked
    from samebits.jobs.trace import Party, Subject
    from samebits.records.graft import Graft

Left = TypeVar("Left", DonorFile, GraftFile)

VALUES_LIMIT = 64 << 20
"""Bytes up to which a tensor is kept to be put in elsewhere."""
BUDGET = 48
"""Sets that are run at most for the first prompt of a cell."""
BUDGET_ELSEWHERE = 24
"""The same for a prompt that what restored the first does not restore."""
SECONDS = 120.0
"""After which no further set is begun."""
MOST_QUESTIONS = 6
"""Prompts and decodes of one cell that are asked."""
NOTHING_RESTORES = "what differs elsewhere was not tried, as nothing restores this"
NO_RESULT = "a process left no result"


class Grafter:
    """Runs donors, once for all that ask them the same, and patients."""

    def __init__(
        self,
        root: Path,
        probes: str,
        machine: str,
        *,
        fresh: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger or Ledger()
        self._root = root
        self._store = Store(root)
        self._probes = probes
        self._machine = machine
        self._fresh = fresh
        self._running: dict[Path, asyncio.Task[DonorFile | None]] = {}

    async def graft(
        self, subject: Subject, reference: Party, candidate: Party, asked: Asked
    ) -> Graft | str:
        """Return what swapping pieces of the reference into the candidate shows, or why nothing."""
        found: list[Graft] = []
        reasons: dict[str, None] = {}
        for ask in asked.asks[:MOST_QUESTIONS]:
            if found and not found[0].smallest:
                reasons[NOTHING_RESTORES] = None
                break
            hint = found[0].smallest if found else ()
            told = await self._ask(subject, reference, candidate, ask, hint)
            if isinstance(told, str):
                reasons[told] = None
            else:
                found.append(told)
        if not found:
            return "; ".join(reasons)
        if len(asked.asks) > MOST_QUESTIONS:
            reasons[f"{len(asked.asks) - MOST_QUESTIONS:,} more prompts were not tried"] = None
        return found[0].model_copy(update={"more": tuple(found[1:]), "unasked": tuple(reasons)})

    async def _ask(
        self,
        subject: Subject,
        reference: Party,
        candidate: Party,
        ask: Ask,
        hint: tuple[str, ...],
    ) -> Graft | str:
        path = self._path(subject, reference, self._of_donor(ask))
        donor = await self._donor(subject, reference, ask, path)
        if donor is None or (reason := _useless(donor)):
            return NO_RESULT if donor is None else reason
        patient = await self._patient(subject, candidate, ask, hint, path)
        if patient is None or (reason := _useless(patient)):
            return NO_RESULT if patient is None else reason
        return judge.graft(donor, patient)

    async def _donor(
        self, subject: Subject, party: Party, ask: Ask, path: Path
    ) -> DonorFile | None:
        if path not in self._running:
            made = self._made(subject, party, self._of_donor(ask), path, DonorFile)
            self._running[path] = asyncio.create_task(made)
        return await asyncio.shield(self._running[path])

    async def _patient(
        self, subject: Subject, party: Party, ask: Ask, hint: tuple[str, ...], donor: Path
    ) -> GraftFile | None:
        asked = ask.model_dump(mode="json", exclude={"donor_expected"})
        asked |= {"role": "patient", "donor": str(donor), "hint": list(hint)}
        asked |= {"budget": BUDGET_ELSEWHERE if hint else BUDGET, "seconds": SECONDS}
        path = self._path(subject, party, asked | {"donor": donor.stem})
        return await self._made(subject, party, asked, path, GraftFile)

    def _of_donor(self, ask: Ask) -> dict[str, Any]:
        return {
            "role": "donor",
            "prompt": ask.prompt,
            "what": ask.what,
            "forced": {row: list(ids) for row, ids in ask.forced.items()},
            "expected": list(ask.donor_expected),
            "weights": [there for there, _ in ask.weights],
        }

    async def _made(
        self, subject: Subject, party: Party, asked: dict[str, Any], path: Path, kind: type[Left]
    ) -> Left | None:
        self._ledger.file(path)
        kept = None if self._fresh or not subject.checkpoint.pinned else read_record(path, kind)
        sound = kept is not None and not (kept.failure and kept.failure.may_be_the_machine)
        if kept is not None and sound and self._store.keeps(_values(kept.model_dump())):
            return kept
        # another run may be at the same: what each leaves has a name of its own at first
        own = path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}.json")
        await party.process.run(self._job(subject, party, asked, own))
        made = read_record(own, kind)
        for left, name in ((own, path), (own.with_suffix(".log"), path.with_suffix(".log"))):
            with contextlib.suppress(OSError):
                left.replace(name)
        self._ledger.file(path)
        if made is None or (made.failure and made.failure.may_be_the_machine):
            reason = f"{party.cell} left nothing of a graft, or failed as a machine may"
            self._ledger.unsettle(reason, str(party.cell))
        return made

    def _path(self, subject: Subject, party: Party, asked: dict[str, Any]) -> Path:
        cell = party.cell
        key = digest_of(
            {
                **follows_from(cell, subject.model, subject.checkpoint, party.stack),
                "asked": asked,
                "probes": self._probes,
                "machine": self._machine,
            }
        )
        folder = self._root / "grafts" / cell.model / str(cell.variant) / cell.stack
        return folder / f"{key[:16]}.json"

    def _job(
        self, subject: Subject, party: Party, asked: dict[str, Any], path: Path
    ) -> dict[str, Any]:
        return {
            **common_job("graft", party.cell, subject.model, subject.checkpoint),
            "log": str(path.with_suffix(".log")),
            "store": {"root": str(self._root), "limit": VALUES_LIMIT},
            "graft": {**asked, "result": str(path)},
        }


def _values(told: Any) -> Iterator[TensorRef]:  # noqa: ANN401  any JSON
    """Return every tensor that was left to be given, wherever it stands."""
    if isinstance(told, dict):
        if told.get("stored") is True and {"hash", "dtype", "shape"} <= told.keys():
            yield TensorRef.model_validate(
                {n: told[n] for n in TensorRef.model_fields if n in told}
            )
        told = told.values()
    elif not isinstance(told, (list, tuple)):
        return
    for value in told:
        yield from _values(value)


def _useless(left: DonorFile | GraftFile) -> str:
    """Return why nothing can be made of what was left; '' if something can."""
    if left.failure is not None:
        first = left.failure.message.partition("\n")[0]
        return f"{left.cell}: {left.failure.type}: {first}"
    return f"{left.cell}: {left.mismatch}" if left.mismatch else ""
