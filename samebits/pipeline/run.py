"""From matrix.yaml to a report: observe, compare, look again where bits differ, judge, write."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from samebits.base.digests import digest_of, digest_of_file
from samebits.base.filestate import Ledger
from samebits.capsules.choosing import MOST, Scope, chosen
from samebits.compare.signals import wanted
from samebits.diagnose import verdict as diagnose_verdict
from samebits.diagnose.bands import bands
from samebits.findings import registry, release
from samebits.findings.case import Case
from samebits.grafts.questions import grafts_of, with_graft
from samebits.ladder.verdicts import third_look, unmeasured
from samebits.matrix import load, releases
from samebits.matrix.plan import Selection, plan, reproduce, shown_path
from samebits.pipeline import trim
from samebits.pipeline.scheduler import Laboratory, outcome
from samebits.records.capsule import Capsule, script_name
from samebits.records.ids import Verdict
from samebits.records.record import Record
from samebits.records.report import CheckpointReport, MachineReport, Report, Row, StackReport
from samebits.reports import owned
from samebits.stacks import costs
from samebits.stacks.build import StackBuilder
from samebits.stacks.costs import Finished
from samebits.stacks.environment import shown
from samebits.storage.rows import KeptRow, KeptRows
from samebits.storage.store import Store
from samebits.text.names import capsule_path
from samebits.text.numbers import duration, plural
from samebits.trace.question import causes_of, with_cause

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from samebits.matrix.plan import Plan, PlannedRow
    from samebits.matrix.spec import Matrix
    from samebits.records.comparison import CellResult
    from samebits.records.crossing import Crossing, CrossingsReport
    from samebits.records.finding import Finding
    from samebits.records.ids import CellId
    from samebits.terminal.progress import Phases, Progress

DEFAULT_MATRIX = Path("matrix.yaml")
WORK = ".samebits"
"""Folder beside matrix.yaml for stacks, checkpoints and captures; it can be removed any time."""


class Order(Record):
    """What the command line asks for."""

    matrix: Path = DEFAULT_MATRIX
    selection: Selection = Selection()
    fresh: bool = False
    """Do not use captures of earlier runs."""
    upgrade: bool = False
    """Resolve the stacks anew."""
    sweep: bool = False
    """Try the relations inside a cell at every length residue and every split."""
    releases: bool = False
    """Run every release between the stacks of the matrix, too."""
    causes: bool = False
    """Trace where it starts for rounding and expected differences, too."""
    capsules: Scope = "none"
    """Which differences are made to run alone."""
    reports: Path | None = None
    """Folder of the report, in which no file of the user is replaced; None: there is no report."""
    jobs: int | None = None
    """Cells that run at a time; None: one for each core."""
    kernels: dict[str, str] = Field(default_factory=dict)
    """Variables that make every probe run the kernels of another CPU; captures of several settings
    never meet. No option of the command line: a user compares releases on one machine."""
    command: str = ""
    """As the user typed it, for the report."""


async def run_matrix(
    order: Order,
    environ: Mapping[str, str],
    progress: Callable[[int], Progress],
    ledger: Ledger | None = None,
) -> tuple[Report, dict[str, str | bytes]]:
    """Run the matrix and return the report, with the locks and capsules by their path beside it.

    ``ledger`` is told every file that the report follows from.

    Raises:
        MatrixError: matrix.yaml has problems.
        SelectionError: the filters match nothing.
        ReportsError: the report would replace a file that samebits did not write.

    """
    clock, finished = time.monotonic(), None
    stamp = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    read = _digest_before_reading(order.matrix)
    matrix = load.load(order.matrix)
    root = order.matrix.resolve().parent / WORK
    ledger = ledger or Ledger()
    if order.releases:
        asking = progress(0)
        asking.note("asking which releases lie between the stacks")
        try:
            matrix = await _widened(matrix, root, environ, ledger, upgrade=order.upgrade)
        finally:
            asking.close()
    planned = plan(matrix, order.selection)
    if order.reports is not None:
        owned.check(order.reports, planned)
    store = Store(root)
    shown_progress = progress(len(planned.cells))
    shown_progress.note(_last_run(root))
    laboratory = Laboratory(
        root,
        matrix,
        planned,
        store,
        shown_progress,
        environ,
        fresh=order.fresh,
        upgrade=order.upgrade,
        sweep=order.sweep,
        slots=order.jobs,
        kernels=order.kernels,
        ledger=ledger,
    )
    try:
        kept = KeptRows(root, laboratory.ledger, shown_path(order.matrix))
        runs = await laboratory.observe(None if order.fresh else kept.find)
        crossings = await laboratory.cross()
        rows = await _compared(order, planned, laboratory, runs, store, kept)
        rows = await _explained(order, planned, matrix, laboratory, runs, rows, store)
        said = f"{plural(len(rows), 'row')} searched for known defects and judged"
        with laboratory.phases("findings", len(rows), said) as ended:
            found = []
            for row, about in zip(planned.rows, rows, strict=True):
                found.append(_settled(row, about, runs, crossings, kept))
                ended()
            report = _report(order, planned, matrix, laboratory, found, crossings)
        report, capsules = await _with_capsules(order, report, runs, laboratory)
        took = round(time.monotonic() - clock, 1)
        finished = Finished(started=stamp, seconds=took, cells=len(planned.cells))
    finally:
        await laboratory.close()
        laboratory.keep_costs(finished)
        shown_progress.close()
    locks: dict[str, str | bytes] = {
        _lock_path(stack.id): stack.lock for stack in laboratory.stacks.values()
    }
    told = {
        "started": stamp,
        "seconds": took,
        "spent": laboratory.spent,
        "matrix_digest": read,
    }
    return report.model_copy(update=told), locks | capsules


def _last_run(root: Path) -> str:
    """Return what is known of the last run in this folder of work."""
    earlier = costs.read(root)
    if earlier is None or earlier.last is None:
        return "no earlier run to estimate from"
    last = earlier.last
    day = last.started.partition("T")[0]
    return f"the last run took {duration(last.seconds)} for {plural(last.cells, 'cell')} ({day})"


async def _widened(
    matrix: Matrix, root: Path, environ: Mapping[str, str], ledger: Ledger, *, upgrade: bool
) -> Matrix:
    """Return the matrix with the releases between its stacks."""
    builder = StackBuilder(
        root, environ, exclude_newer=matrix.exclude_newer, upgrade=upgrade, ledger=ledger
    )
    try:
        return await asyncio.to_thread(releases.widened, matrix, builder)
    finally:
        builder.end()


async def _with_capsules(
    order: Order,
    report: Report,
    runs: Mapping[CellId, diagnose_verdict.Runs],
    laboratory: Laboratory,
) -> tuple[Report, dict[str, bytes]]:
    """Return the report with what it says of capsules, and their files by their path."""
    results = {cell.cell: cell for row in report.rows for cell in row.cells}
    picked = chosen(results.values(), order.capsules)
    made = await laboratory.capsules([results[cell] for cell in picked.cells], runs)
    told = dict.fromkeys(picked.left_out, Capsule(reason=_NOT_ASKED))
    files: dict[str, bytes] = {}
    for cell, found in made.items():
        reference = results[cell].reference
        if isinstance(found, str) or reference is None:
            told[cell] = Capsule(reason=str(found))
            continue
        path = capsule_path(cell.model, cell.stack)
        files |= {f"{path}/{name}": content for name, content in found.items()}
        scripts = (script_name(of.stack) for of in (reference, cell))
        told[cell] = Capsule(path=path, command=" && ".join(f"uv run {name}" for name in scripts))
    return _told(report, told), files


_NOT_ASKED = f"no more than {MOST} are made unasked; --repro makes them all"


def _told(report: Report, told: Mapping[CellId, Capsule]) -> Report:
    rows = (
        row.model_copy(
            update={
                "cells": tuple(
                    cell.model_copy(update={"capsule": told.get(cell.cell)}) for cell in row.cells
                )
            }
        )
        for row in report.rows
    )
    return report.model_copy(update={"rows": tuple(rows)}) if told else report


def _digest_before_reading(path: Path) -> str:
    """Return a file's digest; '' if it cannot be read, which its reader says better."""
    try:
        return digest_of_file(path)
    except OSError:
        return ""


async def _compared(
    order: Order,
    planned: Plan,
    laboratory: Laboratory,
    runs: Mapping[CellId, diagnose_verdict.Runs],
    store: Store,
    kept: KeptRows,
) -> list[KeptRow]:
    """Return what is known of every row after the third look; those that are kept as they are."""
    new = [row for row in planned.rows if kept.known(row) is None]
    results = await _results(order, new, runs, store, laboratory.phases)
    missing = _missing_values(results, runs, store)
    again = await laboratory.look_again(missing)
    gone: set[CellId] = set()
    if missing:
        results = await _results(order, new, runs, store, laboratory.phases)
        gone = set(_missing_values(results, runs, store))
        for cell in gone:
            laboratory.ledger.unsettle(f"{cell} has values that were not stored", str(cell))
    results = await third_look(results, runs, store, laboratory.climb)
    results = [unmeasured(found, again, gone) for found in results]
    for found in results:
        if found.unfinished is not None or any(r.status == "unfinished" for r in runs[found.cell]):
            laboratory.ledger.unsettle(f"{found.cell} did not finish", str(found.cell))
    by_cell = {result.cell: result for result in results}
    return [kept.known(row) or _new_row(row, by_cell, runs, store) for row in planned.rows]


async def _explained(
    order: Order,
    planned: Plan,
    matrix: Matrix,
    laboratory: Laboratory,
    runs: Mapping[CellId, diagnose_verdict.Runs],
    rows: list[KeptRow],
    store: Store,
) -> list[KeptRow]:
    """Return the rows with causes and grafts of those cells whose cause somebody will ask for."""
    results = [result for about in rows for result in about.results]
    traced = None if order.causes else _unexplained(results, matrix)
    if order.releases:
        begins = _begins(rows)
        traced = begins if traced is None else traced & begins
    known = {
        result.cell: about.causes[result.cell.stack]
        for about in rows
        for result in about.results
        if result.cell.stack in about.causes
    }
    found = await causes_of(results, runs, laboratory.causes, traced, known)
    swapped = {
        result.cell: about.grafts[result.cell.stack]
        for about in rows
        for result in about.results
        if result.cell.stack in about.grafts
    }
    grafts = await grafts_of(results, runs, store, laboratory.grafts, traced, swapped)
    return [
        about.model_copy(
            update={
                "causes": {c.stack: found[c] for c in row.cells if c in found},
                "grafts": {c.stack: grafts[c] for c in row.cells if c in grafts},
            }
        )
        for row, about in zip(planned.rows, rows, strict=True)
    ]


def _begins(rows: list[KeptRow]) -> set[CellId]:
    """Return the cells in which a row begins to be another: those behind them are the same."""
    return {
        result.cell
        for about in rows
        for result in about.results
        if any(band.stacks[0] == result.cell.stack for band in about.bands)
    }


def _unexplained(results: list[CellResult], matrix: Matrix) -> set[CellId]:
    """Return the cells that make the run fail: those whose cause somebody will ask for."""
    everything = plan(matrix, Selection()).cells
    judged, _ = diagnose_verdict.apply_expected(
        results, matrix.expected, everything, matrix.reference
    )
    return {result.cell for result in judged if not result.verdict.passes}


def _reference(row: PlannedRow, runs: Mapping[CellId, diagnose_verdict.Runs]) -> CellId | None:
    cells = {cell: runs[cell] for cell in row.cells}
    return diagnose_verdict.choose_reference(cells, row.reference)


def _missing_values(
    results: list[CellResult], runs: Mapping[CellId, diagnose_verdict.Runs], store: Store
) -> dict[CellId, set[str]]:
    """Return the hashes, by cell, whose values are needed and were not kept at first."""
    found: dict[CellId, set[str]] = {}
    for result in results:
        if result.reference is None or not result.signals:
            continue
        one, other = runs[result.reference][0], runs[result.cell][0]
        for of, hashes in wanted(one, other, result.signals, store):
            found.setdefault(of, set()).update(hashes)
    return found


async def _results(
    order: Order,
    rows: Collection[PlannedRow],
    runs: Mapping[CellId, diagnose_verdict.Runs],
    store: Store,
    phases: Phases,
) -> list[CellResult]:
    found: list[CellResult] = []
    with phases("comparing", len(rows), f"{plural(len(rows), 'row')}, byte for byte") as ended:
        for row in rows:
            found += _results_of(order, row, runs, store)
            ended()
            await asyncio.sleep(0)  # a Ctrl-C is heard between two rows
    return found


def _results_of(
    order: Order, row: PlannedRow, runs: Mapping[CellId, diagnose_verdict.Runs], store: Store
) -> Iterator[CellResult]:
    reference = _reference(row, runs)
    everywhere = diagnose_verdict.same_everywhere({cell: runs[cell] for cell in row.cells})
    for cell in row.cells:
        command = reproduce(
            cell,
            reference.stack if reference else None,
            shown_path(order.matrix),
            str(DEFAULT_MATRIX),
        )
        against = runs[reference] if reference else None
        yield diagnose_verdict.result(
            cell, runs[cell], against, store, everywhere=everywhere, reproduce=command
        )


def _report(
    order: Order,
    planned: Plan,
    matrix: Matrix,
    laboratory: Laboratory,
    rows: list[KeptRow],
    crossings: tuple[CrossingsReport, ...],
) -> Report:
    everything = plan(matrix, Selection()).cells
    named = [result for about in rows for result in _with_all(about)]
    found = map(release.of_the_model, named)
    results, expected = diagnose_verdict.apply_expected(
        list(found), matrix.expected, everything, matrix.reference
    )
    met = release.of_stacks(named)
    stacks = tuple(
        _stack(stack, matrix, laboratory).model_copy(update={"findings": met.get(stack, ())})
        for stack in planned.stacks
    )
    brought = {m.name: m.trust_remote_code for m in matrix.models if m.build is None}
    code, reasons = diagnose_verdict.exit_code(results, expected, stacks, brought)
    by_cell = {result.cell: result for result in results}
    return Report(
        samebits=_version(),
        matrix=order.matrix.name,
        matrix_digest="",
        started="",
        seconds=0.0,
        command=order.command,
        reference=matrix.reference,
        stacks=stacks,
        checkpoints=_checkpoints(planned, laboratory),
        rows=tuple(
            _row(row, matrix, by_cell, about) for row, about in zip(planned.rows, rows, strict=True)
        ),
        crossings=crossings,
        rules=registry.texts(found.code for result in named for found in result.findings),
        expected=expected,
        machine=_machine(laboratory),
        counts=_counts(results),
        exit_code=code,
        reasons=reasons,
    )


def _named(
    result: CellResult,
    runs: Mapping[CellId, diagnose_verdict.Runs],
    crossings: tuple[CrossingsReport, ...],
) -> tuple[Finding, ...]:
    """Return the findings of every rule that speaks of a cell."""
    compared = result.reference is not None and result.reference != result.cell
    case = Case(
        capture=runs[result.cell][0],
        reference=runs[result.reference][0] if compared and result.reference else None,
        signals=result.signals,
        steps=result.steps,
        crossings=_into(result.cell, crossings),
        ladder=result.ladder,
    )
    return registry.findings(case)


def _into(cell: CellId, crossings: tuple[CrossingsReport, ...]) -> tuple[Crossing, ...]:
    """Return what the cell's stack makes of its model as each stack saved it."""
    return tuple(
        crossing
        for found in crossings
        if (found.model, found.variant) == (cell.model, str(cell.variant))
        for crossing in found.crossings
        if crossing.loader == cell.stack
    )


def _row(
    row: PlannedRow,
    matrix: Matrix,
    results: Mapping[CellId, CellResult],
    about: KeptRow,
) -> Row:
    return Row(
        model=row.model,
        variant=str(row.variant),
        group=matrix.model(row.model).group,
        reference=about.reference,
        cells=tuple(results[cell] for cell in row.cells),
        bands=about.bands,
        attention=about.attention,
        calls=about.calls,
        invariants=about.invariants,
        integrity=about.integrity,
        tokenizers=about.tokenizers,
        usage=about.usage,
    )


def _new_row(
    row: PlannedRow,
    results: Mapping[CellId, CellResult],
    runs: Mapping[CellId, diagnose_verdict.Runs],
    store: Store,
) -> KeptRow:
    """Return what this run found of a row, before causes and findings."""
    reference = _reference(row, runs)
    signals = {cell.stack: runs[cell][0].signals for cell in row.cells}
    seen = {s: told.attention for s, told in signals.items() if told.attention}
    attention, calls = trim.attention(seen)
    return KeptRow(
        reference=reference.stack if reference else None,
        results=tuple(trim.result(results[cell]) for cell in row.cells),
        bands=bands([results[cell] for cell in row.cells], runs, store),
        outcomes={cell.stack: outcome(runs[cell]) for cell in row.cells},
        attention=attention,
        calls=calls,
        invariants={
            s: trim.relations(told.invariants) for s, told in signals.items() if told.invariants
        },
        integrity={s: trim.load(told.integrity) for s, told in signals.items() if told.integrity},
        tokenizers={s: told.tokenizer for s, told in signals.items() if told.tokenizer},
        usage={s: told.usage for s, told in signals.items() if told.usage},
    )


def _settled(
    row: PlannedRow,
    about: KeptRow,
    runs: Mapping[CellId, diagnose_verdict.Runs],
    crossings: tuple[CrossingsReport, ...],
    kept: KeptRows,
) -> KeptRow:
    """Return a row with the findings of its cells, kept for the next run."""
    into = {cell.stack: _into(cell, crossings) for cell in row.cells}
    crossed = digest_of({s: [c.model_dump(mode="json") for c in told] for s, told in into.items()})
    before = kept.known(row)
    told, causes, grafts = {}, about.causes, about.grafts
    if before is not None and before.crossings == crossed:
        known_before = before.grafts.items()
        if causes.items() <= before.causes.items() and grafts.items() <= known_before:
            return about
        told = before.findings
    told = told or {r.cell.stack: _named(r, runs, crossings) for r in about.results}
    more = {"findings": told, "crossings": crossed, "causes": causes, "grafts": grafts}
    if before is not None:
        more |= {"causes": before.causes | causes, "grafts": before.grafts | grafts}
    settled = kept.keep(row, about.model_copy(update=more))
    asked = {
        "causes": {s: settled.causes[s] for s in causes},
        "grafts": {s: settled.grafts[s] for s in grafts},
    }
    return settled.model_copy(update=asked)


def _with_all(about: KeptRow) -> Iterator[CellResult]:
    """Yield the results of a row with causes, grafts and findings."""
    for result in about.results:
        cause, stack = about.causes.get(result.cell.stack), result.cell.stack
        named = result.model_copy(update={"findings": about.findings.get(stack, ())})
        yield with_graft(with_cause(named, cause), about.grafts.get(stack))


def _stack(stack_id: str, matrix: Matrix, laboratory: Laboratory) -> StackReport:
    spec, stack = matrix.stack(stack_id), laboratory.stacks.get(stack_id)
    if stack is None:
        failure = laboratory.failures[stack_id]
        return StackReport(id=stack_id, between=spec.between, failure=failure)
    return StackReport(
        id=stack_id,
        between=spec.between,
        transformers=stack.transformers,
        torch=stack.packages.get("torch"),
        python=spec.python,
        packages=stack.packages,
        lock=_lock_path(stack_id),
        lock_digest=stack.lock_digest,
    )


def _lock_path(stack_id: str) -> str:
    return f"locks/{stack_id}.txt"


def _checkpoints(planned: Plan, laboratory: Laboratory) -> tuple[CheckpointReport, ...]:
    known = laboratory.checkpoints
    return tuple(
        CheckpointReport(
            model=name,
            source=known[name].said,
            digest=known[name].digest,
            parameters=known[name].parameters,
        )
        for name in planned.models
        if name in known
    )


def _machine(laboratory: Laboratory) -> MachineReport | None:
    facts = laboratory.machine
    if facts is None:
        return None
    return MachineReport(
        platform=facts["platform"],
        cpu=facts["cpu"],
        cpu_capability=facts["cpu_capability"],
        cores=facts["cores"],
        threads=facts["threads"],
        flags=facts["flags"],
        environment=shown(laboratory.environment),
    )


def _counts(results: tuple[CellResult, ...]) -> dict[Verdict, int]:
    counted = Counter(result.verdict for result in results)
    return {verdict: counted[verdict] for verdict in Verdict if counted[verdict]}


def _version() -> str:
    try:
        return version("samebits")
    except PackageNotFoundError:
        return "0.1.0 (checkout)"
