"""Shards of a run: which cells each has, what it leaves, and whether all of them are there.

The cells of a run are put in the order of their stacks and cut into parts of equal size. So a machine
builds few stacks, and imports few. A shard only runs its cells and pushes their captures to a store. A
merge fetches them and does what needs several cells: it compares, explains and writes the report.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from samebits.base.digests import digest_of
from samebits.base.errors import SamebitsError
from samebits.matrix.plan import Plan
from samebits.matrix.spec import Matrix
from samebits.pipeline.order import Order
from samebits.records.ids import CellId
from samebits.records.shard import ShardRecord
from samebits.storage.sharing import Sharing
from samebits.text.numbers import plural
from samebits_wire import seal

FOLDER = "shards"
"""Folder beside the matrix for the results of shards without a store."""
_FILE = "shard.json"


class ShardsError(SamebitsError):
    """The shards of a run are incomplete or contradict each other."""


def part(plan: Plan, number: int, of: int) -> Plan:
    """Return the cells of one shard, in rows; ``number`` counts from 1."""
    return only(plan, set(cut(plan, of)[number - 1]))


def cut(plan: Plan, of: int) -> list[list[CellId]]:
    """Return the cells of every shard."""
    order = {stack: position for position, stack in enumerate(plan.stacks)}
    cells = sorted(plan.cells, key=lambda cell: order[cell.stack])  # stable: models in their order
    return [cells[len(cells) * n // of : len(cells) * (n + 1) // of] for n in range(of)]


def only(plan: Plan, cells: set[CellId]) -> Plan:
    """Return a plan without the other cells."""
    rows = [
        row.model_copy(update={"cells": tuple(cell for cell in row.cells if cell in cells)})
        for row in plan.rows
    ]
    used = {cell.stack for cell in cells}
    return Plan(
        rows=tuple(row for row in rows if row.cells),
        stacks=tuple(stack for stack in plan.stacks if stack in used),
    )


def run_of(matrix: Matrix, order: Order, probes: str) -> str:
    """Return the digest of what the shards of one run share.

    Packages that nobody listed follow from the files of models, and a shard only asks for its own.
    """
    asked = [order.selection.model_dump(mode="json"), order.level]
    facts = matrix.model_dump(mode="json", exclude={"path"})
    for model in facts["models"]:
        added = model.pop("added")
        model["packages"] = [name for name in model["packages"] if name not in added]
    return digest_of([facts, asked, probes, order.kernels])[:16]


def leave(record: ShardRecord, sharing: Sharing) -> bool:
    """Write the record of a shard that has ended; return False if the store does not take it."""
    content = {_FILE: seal.sealed(record.model_dump_json()).encode()}
    return sharing.write(_name(record.run, record.number, record.of), content)


def complete(run: str, sharing: Sharing, machine: str, command: str) -> int:
    """Return the number of shards of a run.

    ``command`` is what runs a shard, without its number.

    Raises:
        ShardsError: shards are missing, or their results cannot be compared with each other.

    """
    records = list(_records(run, sharing))
    if not records:
        raise ShardsError(
            "no shard of this matrix with these options has left a result there. Usually a folder is "
            "missing, matrix.yaml or samebits changed since the shards ran, or the merge has other "
            "options than the shards. Give samebits merge the same matrix.yaml, --models, --environments, "
            "--deep … as the shards."
        )
    of = max(records, key=lambda record: (_share(record.of, records), record.of)).of
    present = {record.number: record for record in records if record.of == of}
    _check_numbers(present, of, command)
    _check_machines(present, of, machine, command)
    _check_locks(present, of)
    return of


def _check_numbers(present: dict[int, ShardRecord], of: int, command: str) -> None:
    missing = [number for number in range(1, of + 1) if number not in present]
    if not missing:
        return
    names = ", ".join(f"{number}/{of}" for number in missing)
    ended = "it did not end" if len(missing) == 1 else "they did not end"
    commands = "\n".join(f"  {command} --shard {number}/{of}" for number in missing)
    raise ShardsError(
        f"{plural(len(missing), 'shard')} of {of} left no result: {names}. Usually {ended}, or the "
        f"folder was not copied here. Run again, which takes up what is finished:\n{commands}"
    )


def _check_machines(present: dict[int, ShardRecord], of: int, machine: str, command: str) -> None:
    foreign = {n: record for n, record in present.items() if record.machine != machine}
    if not foreign:
        return
    lines = "\n".join(f"  shard {n}/{of}: {r.cpu or 'unknown'}" for n, r in sorted(foreign.items()))
    raise ShardsError(
        "these shards ran on another kind of processor than this machine, with other kernels and other "
        f"bits, which are never compared with each other:\n{lines}\nRun all shards and the merge on one "
        f"kind of machine: {command} --shard I/{of}"
    )


def _check_locks(present: dict[int, ShardRecord], of: int) -> None:
    locks: dict[str, dict[str, int]] = {}
    for number, record in sorted(present.items()):
        for stack, digest in record.stacks.items():
            locks.setdefault(stack, {}).setdefault(digest, number)
    for stack, by_digest in locks.items():
        if len(by_digest) > 1:
            numbers = " and ".join(f"{n}/{of}" for n in by_digest.values())
            raise ShardsError(
                f"shards {numbers} ran environment {stack} with different packages: a package was released "
                "between their starts. Give the shards one --store, which keeps the first lock, or "
                "write exclude-newer in matrix.yaml, and run them again."
            )


def _share(of: int, records: Iterable[ShardRecord]) -> float:
    """Return the part of a run's shards that is there, if it was cut into that many."""
    return len({record.number for record in records if record.of == of}) / of


def _records(run: str, sharing: Sharing) -> Iterable[ShardRecord]:
    for name in sharing.below(f"shards/{run}/"):
        content = (sharing.read(name) or {}).get(_FILE, b"")
        try:
            yield ShardRecord.model_validate_json(seal.opened(content))
        except (seal.SealError, ValidationError):
            continue


def _name(run: str, number: int, of: int) -> str:
    return f"shards/{run}/{number}-of-{of}"
