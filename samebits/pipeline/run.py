"""One run of the matrix, from matrix.yaml to the report.

The steps: run the cells, compare them with their references, run cells again where values or
precision are missing, explain the differences, apply matrix.yaml's expectations, write.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from samebits.base.digests import digest_of, digest_of_file, machine_fingerprint
from samebits.base.filestate import Dependencies
from samebits.base.redaction import Redaction
from samebits.capsules.choosing import MAX_CAPSULES, chosen
from samebits.compare.processing import reports_of
from samebits.compare.signals import wanted
from samebits.compare.texts import texts_of
from samebits.diagnose import verdict
from samebits.diagnose.bands import bands
from samebits.findings import registry, release
from samebits.findings.case import Case
from samebits.grafts.questions import grafts_of, with_graft
from samebits.ladder.verdicts import judge_by_ladder, unmeasured
from samebits.matrix import load, releases
from samebits.matrix.levels import at_level
from samebits.matrix.plan import Selection, command_line, plan, reproduce, shown_path
from samebits.pipeline import cluster, resources, shards, trim
from samebits.pipeline.scheduler import Scheduler, outcome
from samebits.pipeline.training import trained
from samebits.records.capsule import Capsule, script_name
from samebits.records.ids import Verdict
from samebits.records.report import (
    CheckpointReport,
    MachineReport,
    PackagesReport,
    Report,
    Row,
    StackReport,
)
from samebits.records.shard import ShardRecord
from samebits.reports import owned
from samebits.stacks import costs
from samebits.stacks.build import StackBuilder, probes_digest
from samebits.stacks.costs import Finished
from samebits.stacks.environment import shown
from samebits.stacks.places import stacks_folder
from samebits.stacks.probes import PROBES
from samebits.storage.objects import opened
from samebits.storage.rows import KeptRow, RowCache
from samebits.storage.shared import SharedStore
from samebits.storage.sharing import Sharing
from samebits.storage.store import Store
from samebits.text.names import capsule_path
from samebits.text.numbers import duration, plural
from samebits.trace.question import causes_of, with_cause

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from samebits.matrix.plan import Plan, PlannedRow
    from samebits.matrix.spec import Matrix
    from samebits.pipeline.order import Order
    from samebits.pipeline.training import Trained
    from samebits.records.comparison import CellResult
    from samebits.records.crossing import Crossing, CrossingsReport
    from samebits.records.finding import Finding
    from samebits.records.ids import CellId
    from samebits.storage.objects import Objects
    from samebits.terminal.progress import Phases, Progress


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
        SelectionError: the filters match nothing.
        StoreAddressError: there is no such store.
        ReportsError: the report would replace a file that samebits did not write.

    """
    start, finished = time.monotonic(), None
    started = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    matrix_digest = _digest_or_empty(order.matrix)
    matrix = at_level(matrix or load.load(order.matrix), order.level)
    root = order.work_folder
    dependencies = dependencies or Dependencies()
    _depend_on_probes(matrix, dependencies)
    if order.releases or order.scan:
        release_progress = progress(0)
        release_progress.note(_question(order))
        try:
            matrix = await _with_releases(matrix, order, environ, dependencies)
        finally:
            release_progress.close()
    planned = plan(matrix, order.selection)
    if order.reports is not None:
        owned.check(order.reports, planned, order.formats)
    stores = _opened_stores(order)
    probes = probes_digest(PROBES)
    store = Store(root)
    shown_progress = progress(len(planned.cells))
    sharing = _sharing(order, stores, root, environ, shown_progress.note)
    if sharing is not None:
        store.fetch = sharing.fetch_tensor
    if sharing is not None and order.merged is not None:
        try:
            run = shards.run_of(matrix, order, probes)
            machine = machine_fingerprint(order.kernels)
            shards.complete(run, sharing, machine, _command_with_options(order))
        except shards.ShardsError:
            shown_progress.close()
            raise
    shown_progress.note(_last_run(root))
    scheduler = Scheduler(
        root,
        matrix,
        planned,
        store,
        shown_progress,
        environ,
        order,
        dependencies=dependencies,
        sharing=sharing,
    )
    try:
        command = command_line(order.program, [shown_path(order.matrix)])
        row_cache = RowCache(root, scheduler.dependencies, command, order.level)
        runs = await scheduler.observe(None if order.fresh else row_cache.find)
        crossings = await scheduler.cross()
        rows = await _compare(order, planned, scheduler, runs, store, row_cache)
        rows = await _explain(order, planned, matrix, scheduler, runs, rows, store)
        results = (result for kept_row in rows for result in kept_row.results)
        training = await trained(matrix, planned, scheduler, results, store)
        description = f"{plural(len(rows), 'row')} searched for known defects and judged"
        with scheduler.phases("findings", len(rows), description) as count_row:
            judged_rows = []
            for row, kept_row in zip(planned.rows, rows, strict=True):
                judged_rows.append(
                    _with_findings(row, kept_row, runs, crossings, training, row_cache)
                )
                count_row()
            report = _report(order, planned, matrix, scheduler, judged_rows, crossings, training)
        report, capsules = await _make_capsules(order, report, runs, scheduler)
        seconds = round(time.monotonic() - start, 1)
        finished = Finished(started=started, seconds=seconds, cells=len(planned.cells))
    finally:
        await scheduler.close()
        scheduler.keep_costs(finished)
        shown_progress.close()
    locks: dict[str, str | bytes] = {
        _lock_path(stack.id): stack.lock for stack in scheduler.stacks.values()
    }
    locks |= {
        packages.lock: scheduler.extended[packages.stack, packages.listed].lock
        for packages in report.packages
        if packages.lock is not None
    }
    update = {
        "started": started,
        "seconds": seconds,
        "spent": scheduler.spent,
        "matrix_digest": matrix_digest,
        "notes": (*notes, *(sharing.problems if sharing is not None else ())),
    }
    return report.model_copy(update=update), locks | capsules


async def run_shard(
    order: Order,
    environ: Mapping[str, str],
    progress: Callable[[int], Progress],
    dependencies: Dependencies | None = None,
) -> tuple[ShardRecord, tuple[str, ...]]:
    """Run the cells of one shard and leave them in its store.

    Return what it left, and what went wrong with the store.

    Raises:
        MatrixError, SelectionError, StoreAddressError: as :func:`run_matrix`.

    """
    assert order.shard is not None
    number, of = order.shard
    matrix = at_level(load.load(order.matrix), order.level)
    root, dependencies = order.work_folder, dependencies or Dependencies()
    if order.releases:
        matrix = await _with_releases(matrix, order, environ, dependencies)
    whole = plan(matrix, order.selection)
    planned = shards.part(whole, number, of)
    stores = _opened_stores(order)
    shown_progress = progress(len(planned.cells))
    sharing = _sharing(order, stores, root, environ, shown_progress.note)
    assert sharing is not None
    store = Store(root)
    store.fetch = sharing.fetch_tensor
    scheduler = Scheduler(
        root,
        matrix,
        planned,
        store,
        shown_progress,
        environ,
        order,
        dependencies=dependencies,
        sharing=sharing,
        whole=whole,
    )
    try:
        runs = await scheduler.observe() if planned.cells else {}
        facts = scheduler.machine or {}
        record = ShardRecord(
            run=shards.run_of(matrix, order, probes_digest(PROBES)),
            number=number,
            of=of,
            samebits=_samebits_version(),
            machine=machine_fingerprint(order.kernels),
            cpu=str(facts.get("cpu", "")),
            stacks={id: stack.lock_digest for id, stack in scheduler.stacks.items()},
            cells={str(cell): outcome(pair)[0] for cell, pair in runs.items()},
        )
        if not shards.leave(record, sharing):
            msg = f"shard {number}/{of} could not write to its store: " + "; ".join(
                sharing.problems or ("it did not answer",)
            )
            raise shards.ShardsError(msg)
    finally:
        await scheduler.close()
        scheduler.keep_costs(None)
        shown_progress.close()
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
    matrix = at_level(load.load(order.matrix), order.level)
    if order.releases:
        matrix = await _with_releases(matrix, order, environ, Dependencies())
    planned = plan(matrix, order.selection)
    if order.store is None and order.on != cluster.LOCAL:
        msg = (
            "a cluster needs a store that all of its workers see: add --store, such as s3://bucket"
        )
        raise cluster.ClusterError(msg)
    store = order.store or str(order.work_folder / "cluster")
    of, jobs = cluster.n_tasks(planned), order.jobs or 1
    words = ["matrix", "--matrix", str(order.matrix.absolute()), *_asked(order)]
    words += ["--store", store, "--jobs", str(jobs)]
    tasks = [
        cluster.Task(
            [*words, "--shard", f"{number}/{of}"],
            resources.of_cells(matrix, shards.part(planned, number, of).cells, jobs),
        )
        for number in range(1, of + 1)
    ]
    shown_progress = progress(0)
    try:
        failures = await asyncio.to_thread(
            cluster.run, order.on, tasks, order.matrix.resolve().parent, shown_progress.note
        )
    finally:
        shown_progress.close()
    return order.model_copy(update={"store": store}), tuple(failures)


def _asked(order: Order) -> list[str]:
    """Return the options that decide which cells run, and how."""
    filters = {name: ",".join(patterns) for name, patterns in order.selection if patterns}
    words = [word for name, text in filters.items() for word in (f"--{name}", text)]
    words += ["--fresh"] if order.fresh else []
    return [*words, *order.repeated_words()]


def shard_store(order: Order) -> str:
    """Return the store of a shard: that of the command, else a folder beside the matrix."""
    assert order.shard is not None
    number, of = order.shard
    return order.store or str(order.matrix.parent / shards.FOLDER / f"{number}-of-{of}")


def _opened_stores(order: Order) -> dict[str, Objects]:
    """Return the stores of a run by their addresses, the one to write to first."""
    own = shard_store(order) if order.shard is not None else order.store
    addresses = [*filter(None, (own,)), *(order.merged or ())]
    return {address: opened(address) for address in addresses}


def _sharing(
    order: Order,
    stores: Mapping[str, Objects],
    root: Path,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> Sharing | None:
    """Return the shared stores of a run; None without one."""
    redaction = Redaction(environ)
    shared = [
        SharedStore(redaction.text(address), objects, say=say)
        for address, objects in stores.items()
    ]
    if not shared:
        return None
    writes = order.shard is not None or order.store is not None
    return Sharing(root, shared, shared[0] if writes else None, environ)


def _last_run(root: Path) -> str:
    """Return a line about the last run in this work folder."""
    recorded = costs.read(root)
    if recorded is None or recorded.last is None:
        return "no earlier run to estimate from"
    last = recorded.last
    day = last.started.partition("T")[0]
    return f"the last run took {duration(last.seconds)} for {plural(last.cells, 'cell')} ({day})"


async def _with_releases(
    matrix: Matrix, order: Order, environ: Mapping[str, str], dependencies: Dependencies
) -> Matrix:
    """Return the matrix with the releases between its stacks, or with those of the scanned package."""
    root = order.work_folder
    builder = StackBuilder(
        root,
        environ,
        exclude_newer=matrix.exclude_newer,
        upgrade=order.upgrade,
        dependencies=dependencies,
        stacks=stacks_folder(root, environ),
        max_age=order.lock_age,
    )
    try:
        if order.scan:
            return await asyncio.to_thread(releases.scanned, matrix, order.scan, builder)
        patches = order.releases == "all"
        return await asyncio.to_thread(releases.widened, matrix, builder, patches=patches)
    finally:
        builder.end()


def _question(order: Order) -> str:
    if order.scan:
        return f"asking which releases of {order.scan} fit"
    return "asking which releases lie between the stacks"


async def _make_capsules(
    order: Order,
    report: Report,
    runs: Mapping[CellId, verdict.Runs],
    scheduler: Scheduler,
) -> tuple[Report, dict[str, bytes]]:
    """Return the report with its capsules, and the files of the capsules by path."""
    results = {cell.cell: cell for row in report.rows for cell in row.cells}
    choice = chosen(results.values(), order.capsules)
    made_capsules = await scheduler.capsules([results[cell] for cell in choice.cells], runs)
    capsules = dict.fromkeys(choice.left_out, Capsule(reason=_OVER_LIMIT))
    files: dict[str, bytes] = {}
    for cell, made in made_capsules.items():
        reference = results[cell].reference
        if isinstance(made, str) or reference is None:
            capsules[cell] = Capsule(reason=str(made))
            continue
        path = capsule_path(cell.model, cell.stack)
        files |= {f"{path}/{name}": content for name, content in made.items()}
        scripts = (script_name(side.stack) for side in (reference, cell))
        capsules[cell] = Capsule(
            path=path, command=" && ".join(f"uv run {name}" for name in scripts)
        )
    return _add_capsules(report, capsules), files


_OVER_LIMIT = f"only {MAX_CAPSULES} are made by default; --repro makes all of them"


def _add_capsules(report: Report, capsules: Mapping[CellId, Capsule]) -> Report:
    rows = (
        row.model_copy(
            update={
                "cells": tuple(
                    cell.model_copy(update={"capsule": capsules.get(cell.cell)})
                    for cell in row.cells
                )
            }
        )
        for row in report.rows
    )
    return report.model_copy(update={"rows": tuple(rows)}) if capsules else report


def _depend_on_probes(matrix: Matrix, dependencies: Dependencies) -> None:
    """Record the files of the user's probes, which the matrix holds as they were read."""
    for model in matrix.models:
        for probe, file in zip(model.probes, model.probe_files, strict=True):
            path = Path(matrix.path).parent / probe.path
            dependencies.file(path)
            if _text_or_empty(path) != file.source:
                dependencies.mark_unrepeatable(f"{probe.path} was changed during the run")


def _text_or_empty(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _digest_or_empty(path: Path) -> str:
    """Return a file's digest; '' if it cannot be read.

    The loader of matrix.yaml then raises an error with a better message.
    """
    try:
        return digest_of_file(path)
    except OSError:
        return ""


async def _compare(
    order: Order,
    planned: Plan,
    scheduler: Scheduler,
    runs: Mapping[CellId, verdict.Runs],
    store: Store,
    row_cache: RowCache,
) -> list[KeptRow]:
    """Compare all rows, with a second and a third look where one is needed.

    Cached rows are returned as they are.
    """
    new = [row for row in planned.rows if row_cache.known(row) is None]
    results = await _results(order, new, runs, store, scheduler.phases)
    missing = _missing_values(results, runs, store)
    rerun = await scheduler.look_again(missing)
    unavailable: set[CellId] = set()
    if missing:
        results = await _results(order, new, runs, store, scheduler.phases)
        unavailable = set(_missing_values(results, runs, store))
        for cell in unavailable:
            scheduler.dependencies.mark_unrepeatable(
                f"{cell} has values that were not stored", str(cell)
            )
    is_deep = order.level == "deep"
    results = await judge_by_ladder(results, runs, store, scheduler.climb, deep=is_deep)
    results = [unmeasured(result, rerun, unavailable) for result in results]
    for result in results:
        if result.unfinished is not None or any(
            r.status == "unfinished" for r in runs[result.cell]
        ):
            scheduler.dependencies.mark_unrepeatable(
                f"{result.cell} did not finish", str(result.cell)
            )
    by_cell = {result.cell: result for result in results}
    return [row_cache.known(row) or _new_row(row, by_cell, runs, store) for row in planned.rows]


async def _explain(
    order: Order,
    planned: Plan,
    matrix: Matrix,
    scheduler: Scheduler,
    runs: Mapping[CellId, verdict.Runs],
    rows: list[KeptRow],
    store: Store,
) -> list[KeptRow]:
    """Add causes and grafts to cells that fail the run; with ``--causes``, to all that differ.

    A quick run adds none unless ``--causes`` asks for them.
    """
    results = [result for kept_row in rows for result in kept_row.results]
    explained = None if order.causes else _failing_cells(results, matrix)
    if explained is not None and order.level == "quick":
        explained = set()
    if order.releases or order.scan:
        starts = _band_starts(rows)
        explained = starts if explained is None else explained & starts
    known_causes = {
        result.cell: kept_row.causes[result.cell.stack]
        for kept_row in rows
        for result in kept_row.results
        if result.cell.stack in kept_row.causes
    }
    causes = await causes_of(results, runs, scheduler.causes, explained, known_causes)
    known_grafts = {
        result.cell: kept_row.grafts[result.cell.stack]
        for kept_row in rows
        for result in kept_row.results
        if result.cell.stack in kept_row.grafts
    }
    grafts = await grafts_of(results, runs, store, scheduler.grafts, explained, known_grafts)
    return [
        kept_row.model_copy(
            update={
                "causes": {c.stack: causes[c] for c in row.cells if c in causes},
                "grafts": {c.stack: grafts[c] for c in row.cells if c in grafts},
            }
        )
        for row, kept_row in zip(planned.rows, rows, strict=True)
    ]


def _band_starts(rows: list[KeptRow]) -> set[CellId]:
    """Return the first cell of every band: the later cells of a band have the same bits."""
    return {
        result.cell
        for kept_row in rows
        for result in kept_row.results
        if any(band.stacks[0] == result.cell.stack for band in kept_row.bands)
    }


def _failing_cells(results: list[CellResult], matrix: Matrix) -> set[CellId]:
    """Return the cells that make the run fail, which are the ones worth explaining."""
    all_cells = plan(matrix, Selection()).cells
    judged_results, _ = verdict.apply_expected(
        results, matrix.expected, all_cells, matrix.reference
    )
    return {result.cell for result in judged_results if not result.verdict.passes}


def _choose_reference(row: PlannedRow, runs: Mapping[CellId, verdict.Runs]) -> CellId | None:
    row_runs = {cell: runs[cell] for cell in row.cells}
    return verdict.choose_reference(row_runs, row.reference)


def _missing_values(
    results: list[CellResult], runs: Mapping[CellId, verdict.Runs], store: Store
) -> dict[CellId, set[str]]:
    """Return, by cell, the hashes of tensors whose values are needed and are not stored."""
    missing: dict[CellId, set[str]] = {}
    for result in results:
        if result.reference is None or not result.signals:
            continue
        reference, candidate = runs[result.reference][0], runs[result.cell][0]
        compared = (*result.signals, *result.informing)
        for cell, hashes in wanted(reference, candidate, compared, store):
            missing.setdefault(cell, set()).update(hashes)
    return missing


async def _results(
    order: Order,
    rows: Collection[PlannedRow],
    runs: Mapping[CellId, verdict.Runs],
    store: Store,
    phases: Phases,
) -> list[CellResult]:
    results: list[CellResult] = []
    with phases("comparing", len(rows), f"{plural(len(rows), 'row')}, byte for byte") as count_row:
        for row in rows:
            results += _results_of(order, row, runs, store)
            count_row()
            await asyncio.sleep(0)  # lets a Ctrl-C through between two rows
    return results


def _results_of(
    order: Order, row: PlannedRow, runs: Mapping[CellId, verdict.Runs], store: Store
) -> Iterator[CellResult]:
    reference = _choose_reference(row, runs)
    shared_failures = verdict.same_everywhere({cell: runs[cell] for cell in row.cells})
    for cell in row.cells:
        command = reproduce(
            cell,
            reference.stack if reference else None,
            order.program,
            None if order.checks else shown_path(order.matrix),
            order.level,
        )
        reference_runs = runs[reference] if reference else None
        yield verdict.result(
            cell, runs[cell], reference_runs, store, everywhere=shared_failures, reproduce=command
        )


def _report(
    order: Order,
    planned: Plan,
    matrix: Matrix,
    scheduler: Scheduler,
    rows: list[KeptRow],
    crossings: tuple[CrossingsReport, ...],
    training: Trained,
) -> Report:
    all_cells = plan(matrix, Selection()).cells
    complete = [result for kept_row in rows for result in _complete_results(kept_row)]
    judged = map(release.of_the_model, complete)
    results, expected = verdict.apply_expected(
        list(judged), matrix.expected, all_cells, matrix.reference
    )
    stack_findings = release.of_stacks(complete)
    stacks = tuple(
        _stack(stack, matrix, scheduler).model_copy(
            update={"findings": stack_findings.get(stack, ())}
        )
        for stack in planned.stacks
    )
    user_models = {
        m.name: m.trust_remote_code or m.has_own_code for m in matrix.models if m.build is None
    }
    code, reasons = verdict.exit_code(results, expected, stacks, user_models)
    by_cell = {result.cell: result for result in results}
    return Report(
        samebits=_samebits_version(),
        matrix=order.matrix.name,
        matrix_path="" if order.checks else shown_path(order.matrix),
        matrix_digest="",
        started="",
        seconds=0.0,
        command=order.command,
        level=order.level,
        reference=matrix.reference,
        stacks=stacks,
        packages=_packages(planned, matrix, scheduler),
        checkpoints=_checkpoints(planned, scheduler),
        rows=tuple(
            _row(
                row,
                matrix,
                by_cell,
                kept_row,
                scheduler.threads_of(row),
                training,
                has_file=not order.checks,
            )
            for row, kept_row in zip(planned.rows, rows, strict=True)
        ),
        crossings=crossings,
        rules=registry.texts(finding.code for result in complete for finding in result.findings),
        expected=expected,
        machine=_machine(scheduler),
        counts=_counts(results),
        exit_code=code,
        reasons=reasons,
    )


def _findings(
    result: CellResult,
    runs: Mapping[CellId, verdict.Runs],
    crossings: tuple[CrossingsReport, ...],
    training: Trained,
) -> tuple[Finding, ...]:
    """Return the findings of all rules about a cell."""
    compared = result.reference is not None and result.reference != result.cell
    case = Case(
        capture=runs[result.cell][0],
        reference=runs[result.reference][0] if compared and result.reference else None,
        signals=result.signals,
        steps=result.steps,
        crossings=_crossings_into(result.cell, crossings),
        ladder=result.ladder,
        training=training.get(result.cell),
    )
    return registry.findings(case)


def _crossings_into(cell: CellId, crossings: tuple[CrossingsReport, ...]) -> tuple[Crossing, ...]:
    """Return the crossings in which the cell's stack loads the model that another stack saved."""
    return tuple(
        crossing
        for report in crossings
        if (report.model, report.variant) == (cell.model, str(cell.variant))
        for crossing in report.crossings
        if crossing.loader == cell.stack
    )


def _row(
    row: PlannedRow,
    matrix: Matrix,
    results: Mapping[CellId, CellResult],
    kept_row: KeptRow,
    threads: int,
    training: Trained,
    *,
    has_file: bool,
) -> Row:
    return Row(
        model=row.model,
        variant=str(row.variant),
        group=matrix.model(row.model).group,
        line=matrix.model(row.model).line if has_file else 0,
        threads=threads,
        reference=kept_row.reference,
        cells=tuple(results[cell] for cell in row.cells),
        bands=kept_row.bands,
        attention=kept_row.attention,
        calls=kept_row.calls,
        relations=kept_row.relations,
        state=kept_row.state,
        integrity=kept_row.integrity,
        tokenizers=kept_row.tokenizers,
        texts=kept_row.texts,
        processors=kept_row.processors,
        processed=kept_row.processed,
        usage=kept_row.usage,
        settings=kept_row.settings,
        device=kept_row.device,
        training={cell.stack: training[cell] for cell in row.cells if cell in training},
    )


def _new_row(
    row: PlannedRow,
    results: Mapping[CellId, CellResult],
    runs: Mapping[CellId, verdict.Runs],
    store: Store,
) -> KeptRow:
    """Return a compared row, without causes, grafts and findings."""
    reference = _choose_reference(row, runs)
    signals = {cell.stack: runs[cell][0].signals for cell in row.cells}
    attention_signals = {
        stack: of_stack.attention for stack, of_stack in signals.items() if of_stack.attention
    }
    attention, calls = trim.attention(attention_signals)
    tokenizers = {s: of_stack.tokenizer for s, of_stack in signals.items() if of_stack.tokenizer}
    processors = {s: of_stack.processors for s, of_stack in signals.items() if of_stack.processors}
    return KeptRow(
        reference=reference.stack if reference else None,
        results=tuple(trim.result(results[cell]) for cell in row.cells),
        bands=bands([results[cell] for cell in row.cells], runs, store),
        outcomes={cell.stack: outcome(runs[cell]) for cell in row.cells},
        attention=attention,
        calls=calls,
        relations={
            stack: trim.relations(of_stack.relations)
            for stack, of_stack in signals.items()
            if of_stack.relations
        },
        state={
            stack: trim.state(of_stack.state)
            for stack, of_stack in signals.items()
            if of_stack.state and of_stack.state.is_left
        },
        integrity={
            stack: trim.load(of_stack.integrity)
            for stack, of_stack in signals.items()
            if of_stack.integrity
        },
        tokenizers={stack: trim.tokenizer(signal) for stack, signal in tokenizers.items()},
        texts=texts_of(tokenizers, reference.stack if reference else ""),
        processors={stack: trim.processors(signal) for stack, signal in processors.items()},
        processed=reports_of(processors, reference.stack if reference else ""),
        usage={stack: of_stack.usage for stack, of_stack in signals.items() if of_stack.usage},
        settings={
            stack: of_stack.settings.changes
            for stack, of_stack in signals.items()
            if of_stack.settings and of_stack.settings.changes
        },
        device={stack: of_stack.device for stack, of_stack in signals.items() if of_stack.device},
    )


def _with_findings(
    row: PlannedRow,
    kept_row: KeptRow,
    runs: Mapping[CellId, verdict.Runs],
    crossings: tuple[CrossingsReport, ...],
    training: Trained,
    row_cache: RowCache,
) -> KeptRow:
    """Return a row with the findings of its cells, and save it for the next run."""
    crossings_into = {cell.stack: _crossings_into(cell, crossings) for cell in row.cells}
    crossings_digest = digest_of(
        {
            stack: [crossing.model_dump(mode="json") for crossing in loaded]
            for stack, loaded in crossings_into.items()
        }
        | {
            f"training {cell.stack}": training[cell].model_dump(mode="json", exclude={"seconds"})
            for cell in row.cells
            if cell in training
        }
    )
    cached = row_cache.known(row)
    findings, causes, grafts = {}, kept_row.causes, kept_row.grafts
    if cached is not None and cached.crossings == crossings_digest:
        cached_grafts = cached.grafts.items()
        if causes.items() <= cached.causes.items() and grafts.items() <= cached_grafts:
            return kept_row
        findings = cached.findings
    findings = findings or {
        r.cell.stack: _findings(r, runs, crossings, training) for r in kept_row.results
    }
    update = {
        "findings": findings,
        "crossings": crossings_digest,
        "causes": causes,
        "grafts": grafts,
    }
    if cached is not None:
        update |= {"causes": cached.causes | causes, "grafts": cached.grafts | grafts}
    saved = row_cache.keep(row, kept_row.model_copy(update=update))
    of_this_run = {
        "causes": {stack: saved.causes[stack] for stack in causes},
        "grafts": {stack: saved.grafts[stack] for stack in grafts},
    }
    return saved.model_copy(update=of_this_run)


def _complete_results(kept_row: KeptRow) -> Iterator[CellResult]:
    """Yield the results of a row with their causes, grafts and findings."""
    for result in kept_row.results:
        cause, stack = kept_row.causes.get(result.cell.stack), result.cell.stack
        with_findings = result.model_copy(update={"findings": kept_row.findings.get(stack, ())})
        yield with_graft(with_cause(with_findings, cause), kept_row.grafts.get(stack))


def _command_with_options(order: Order) -> str:
    """Return the command of a run such that an option can be written behind it."""
    words = shlex.split(order.command)
    needs_separator = order.program[0] == "nox" and "--" not in words
    return shlex.join([*words, "--"] if needs_separator else words)


def _stack(stack_id: str, matrix: Matrix, scheduler: Scheduler) -> StackReport:
    spec, stack = matrix.stack(stack_id), scheduler.stacks.get(stack_id)
    if stack is None:
        failure = scheduler.failures[stack_id]
        return StackReport(id=stack_id, between=spec.between, failure=failure)
    return StackReport(
        id=stack_id,
        between=spec.between,
        transformers=stack.transformers,
        torch=stack.packages.get("torch"),
        system_torch=stack.system is not None,
        python=spec.python if stack.system is None else stack.system.version,
        packages=stack.packages,
        lock=_lock_path(stack_id),
        lock_digest=stack.lock_digest,
    )


def _packages(planned: Plan, matrix: Matrix, scheduler: Scheduler) -> tuple[PackagesReport, ...]:
    models: dict[tuple[str, ...], list[str]] = {}
    for name in planned.models:
        if listed := matrix.model(name).packages:
            models.setdefault(listed, []).append(name)
    return tuple(
        _packages_beside(stack, listed, names, scheduler)
        for listed, names in models.items()
        for stack in planned.stacks
        if stack in scheduler.stacks
    )


def _packages_beside(
    stack_id: str, listed: tuple[str, ...], models: list[str], scheduler: Scheduler
) -> PackagesReport:
    report = PackagesReport(models=tuple(models), stack=stack_id, listed=listed)
    extended = scheduler.extended.get((stack_id, listed))
    if extended is None:
        failure = str(scheduler.not_extended[stack_id, listed])
        return report.model_copy(update={"failure": failure})
    lock = f"locks/{stack_id}/{models[0]}.txt"
    return report.model_copy(update={"packages": extended.added.packages, "lock": lock})


def _lock_path(stack_id: str) -> str:
    return f"locks/{stack_id}.txt"


def _checkpoints(planned: Plan, scheduler: Scheduler) -> tuple[CheckpointReport, ...]:
    checkpoints = scheduler.checkpoints
    return tuple(
        CheckpointReport(
            model=name,
            source=checkpoints[name].said,
            digest=checkpoints[name].digest,
            parameters=checkpoints[name].parameters,
            folder=checkpoints[name].shown_folder,
        )
        for name in planned.models
        if name in checkpoints
    )


def _machine(scheduler: Scheduler) -> MachineReport | None:
    facts = scheduler.machine
    if facts is None:
        return None
    return MachineReport(
        platform=facts["platform"],
        cpu=facts["cpu"],
        cpu_capability=facts["cpu_capability"],
        cores=facts["cores"],
        threads=facts["threads"],
        flags=facts["flags"],
        environment=shown(scheduler.environment),
    )


def _counts(results: tuple[CellResult, ...]) -> dict[Verdict, int]:
    counted = Counter(result.verdict for result in results)
    return {v: counted[v] for v in Verdict if counted[v]}


def _samebits_version() -> str:
    try:
        return version("samebits")
    except PackageNotFoundError:
        return "0.1.0 (checkout)"
