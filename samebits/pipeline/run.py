"""Runs: of a whole matrix, from matrix.yaml to the report; of one shard; of shards on a cluster."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from samebits.base.digests import digest_of_file
from samebits.base.filestate import Dependencies
from samebits.base.version import VERSION
from samebits.matrix.plan import command_line, matrix_words, shown_path
from samebits.matrix.spec import Matrix
from samebits.pipeline import cluster, resources, shards
from samebits.pipeline.answers import asked
from samebits.pipeline.capsules import with_capsules
from samebits.pipeline.opening import opened, planned
from samebits.pipeline.order import Order
from samebits.pipeline.reporting import locks_of, report_of
from samebits.pipeline.rows import compared, explained, with_findings
from samebits.pipeline.scheduler import outcome
from samebits.pipeline.scope import Scope
from samebits.records.report import Report
from samebits.records.shard import ShardRecord
from samebits.storage.objects import check_address
from samebits.storage.rows import RowCache
from samebits.terminal.progress import Progress


async def run_matrix(
    order: Order,
    environ: Mapping[str, str],
    progress: Callable[[int], Progress],
    dependencies: Dependencies | None = None,
    matrix: Matrix | None = None,
    notes: tuple[str, ...] = (),
) -> tuple[Report, dict[str, str | bytes]]:
    """Run the matrix and return the report, and the files of its locks and capsules by path.

    Paths are relative to the report's folder. ``dependencies`` records every file the run depends on.
    ``matrix`` takes the place of the file that the order names. ``notes`` are for the report.

    Raises:
        MatrixError: matrix.yaml has problems.
        EarlyError: files of a model are damaged, or a release does not exist.
        SelectionError: the filters match nothing.
        StoreAddressError: there is no such store.
        ReportsError: the report would replace a file that samebits did not write.

    """
    start, started = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    started = started.replace("+00:00", "Z")
    matrix_digest = _digest_or_empty(order.matrix)
    async with opened(order, environ, progress, dependencies, matrix) as scheduler:
        scope = scheduler.scope
        _check_shards(scope)
        rows_of = _row_cache(scope)
        runs = await scheduler.observe(None if order.fresh else rows_of.find)
        rows = await compared(scheduler, runs, rows_of)
        rows = await explained(scheduler, runs, rows)
        results = [result for row in rows for result in row.results]
        answers = await asked(scheduler, results, runs)
        rows = with_findings(scope, rows, runs, answers, rows_of)
        report = report_of(scheduler, rows, answers)
        report, capsules = await with_capsules(scheduler, report, runs)
        seconds = round(time.monotonic() - start, 1)
        scheduler.finished = True
    update = {
        "started": started,
        "seconds": seconds,
        "spent": scheduler.spent,
        "matrix_digest": matrix_digest,
        "notes": (*notes, *scheduler.notes),
    }
    return report.model_copy(update=update), locks_of(scheduler, report) | capsules


def _check_shards(scope: Scope) -> None:
    """Raise ShardsError unless all shards that a merge needs are there."""
    if scope.order.merged is not None:
        run = shards.run_of(scope.matrix, scope.order, scope.probes)
        command = _command_with_options(scope.order)
        shards.complete(run, scope.sharing, scope.fingerprint, command)


def _row_cache(scope: Scope) -> RowCache:
    command = command_line(scope.order.program, [shown_path(scope.order.matrix)])
    return RowCache(scope.root, scope.dependencies, command, scope.order.level)


async def run_shard(
    order: Order, environ: Mapping[str, str], progress: Callable[[int], Progress]
) -> tuple[ShardRecord, tuple[str, ...]]:
    """Run the cells of one shard and leave them in its store.

    Return what it left, and what went wrong with the store.

    Raises:
        MatrixError, SelectionError, StoreAddressError: as :func:`run_matrix`.

    """
    assert order.shard is not None
    number, of = order.shard
    async with opened(order, environ, progress) as scheduler:
        scope, sharing = scheduler.scope, scheduler.scope.sharing
        runs = await scheduler.observe() if scope.plan.cells else {}
        facts = scheduler.machine or {}
        stacks = scheduler.stacks.built
        record = ShardRecord(
            run=shards.run_of(scope.matrix, order, scope.probes),
            number=number,
            of=of,
            samebits=VERSION,
            machine=scope.fingerprint,
            cpu=str(facts.get("cpu", "")),
            stacks={id: stack.lock_digest for id, stack in stacks.items()},
            cells={str(cell): outcome(pair)[0] for cell, pair in runs.items()},
        )
        if not shards.leave(record, sharing):
            msg = f"shard {number}/{of} could not write to its store: " + "; ".join(
                sharing.problems or ("it did not answer",)
            )
            raise shards.ShardsError(msg)
    return record, sharing.problems


async def run_on_cluster(
    order: Order, environ: Mapping[str, str], progress: Callable[[int], Progress]
) -> tuple[Order, tuple[str, ...]]:
    """Run the cells on a Ray cluster; return the order of the run that takes them, and notes.

    Raises:
        MatrixError, SelectionError: as :func:`run_matrix`.
        ClusterError: there is no such cluster, or it would have no store.

    """
    assert order.on is not None
    matrix, whole = await planned(order, environ, progress, Dependencies(), asks_hub=False)
    if order.store is None and order.on != cluster.LOCAL:
        raise cluster.ClusterError(
            "a cluster needs a store that all of its workers see: add --store, such as s3://bucket"
        )
    store = order.store or str(order.work_folder / "cluster")
    check_address(store)
    of, jobs = cluster.n_tasks(whole), order.jobs or 1
    words = ["matrix", "--matrix", str(order.matrix.absolute()), *_asked(order)]
    words += ["--store", store, "--jobs", str(jobs)]
    tasks = [
        cluster.Task(
            [*words, "--shard", f"{number}/{of}"],
            resources.of_cells(matrix, cells, jobs),
        )
        for number, cells in enumerate(shards.cut(whole, of), 1)
    ]
    shown_progress = progress(0)
    try:
        failures = await asyncio.to_thread(
            cluster.run, order.on, tasks, order.matrix.resolve().parent, shown_progress.note
        )
    finally:
        shown_progress.close()
    return order.model_copy(update={"store": store}), tuple(failures)


def merge_command(order: Order, store: str) -> str:
    """Return the command that merges the shards of a run, with the options of this one."""
    words = [*matrix_words(shown_path(order.matrix)), *_filters(order), *order.repeated_words()]
    places = ["--store", store] if order.store else []
    merge = command_line(["samebits", "merge"], [*places, *words])
    if order.store:
        return merge
    # the shell expands the star, so it has no quotes; --releases would take a folder that follows it
    return merge.replace("merge", f"merge {shlex.quote(str(Path(store).parent))}/*", 1)


def _asked(order: Order) -> list[str]:
    """Return the options that decide which cells run, and how."""
    fresh = ["--fresh"] if order.fresh else []
    return [*_filters(order), *fresh, *order.repeated_words()]


def _filters(order: Order) -> list[str]:
    filters = {name: ",".join(patterns) for name, patterns in order.selection if patterns}
    return [word for name, text in filters.items() for word in (f"--{name}", text)]


def _digest_or_empty(path: Path) -> str:
    """Return a file's digest; '' if it cannot be read.

    The loader of matrix.yaml then raises an error with a better message.
    """
    try:
        return digest_of_file(path)
    except OSError:
        return ""


def _command_with_options(order: Order) -> str:
    """Return the command of a run such that an option can be written behind it."""
    words = shlex.split(order.command)
    needs_separator = order.program[0] == "nox" and "--" not in words
    return shlex.join([*words, "--"] if needs_separator else words)
