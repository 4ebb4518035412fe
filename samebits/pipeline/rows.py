"""The rows of a run: compared, explained, and with the findings of their cells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from samebits.base.digests import digest_of
from samebits.compare.facts import with_more
from samebits.compare.signals import wanted
from samebits.diagnose import verdict
from samebits.diagnose.bands import bands
from samebits.diagnose.deciding import with_deciding
from samebits.findings.case import Case
from samebits.grafts.questions import grafts_of
from samebits.ladder.verdicts import judge_by_ladder, unmeasured
from samebits.matrix.plan import PlannedRow, Selection, plan, reproduce, shown_path
from samebits.matrix.spec import Matrix
from samebits.pipeline import trim
from samebits.pipeline.answers import Answers, of_row
from samebits.pipeline.explaining import Explaining
from samebits.pipeline.scheduler import Scheduler, outcome
from samebits.pipeline.scope import Scope
from samebits.questions import questions, registry
from samebits.records.comparison import CellResult
from samebits.records.finding import Finding
from samebits.records.ids import CellId
from samebits.records.question import Answer
from samebits.storage.rows import KeptRow, RowCache
from samebits.storage.store import Store
from samebits.text.numbers import plural
from samebits.trace.question import causes_of

T = TypeVar("T")


async def compared(
    scheduler: Scheduler, runs: Mapping[CellId, verdict.Runs], row_cache: RowCache
) -> list[KeptRow]:
    """Compare all rows, with a second and a third look where one is needed.

    Cached rows are returned as they are.
    """
    scope, store = scheduler.scope, scheduler.scope.store
    new = [row for row in scope.plan.rows if row_cache.known(row) is None]
    results = await _results(scope, new, runs)
    missing = _missing_values(results, runs, store)
    rerun = await scheduler.look_again(missing)
    unavailable: set[CellId] = set()
    if missing:
        results = await _results(scope, new, runs)
        unavailable = set(_missing_values(results, runs, store))
        for cell in unavailable:
            scope.dependencies.mark_unrepeatable(
                f"{cell} has values that were not stored", str(cell)
            )
    is_deep = scope.order.level == "deep"
    results = await judge_by_ladder(results, runs, store, Explaining(scheduler).climb, deep=is_deep)
    results = [with_deciding(unmeasured(result, rerun, unavailable)) for result in results]
    for result in results:
        if result.unfinished is not None or any(
            r.status == "unfinished" for r in runs[result.cell]
        ):
            scope.dependencies.mark_unrepeatable(f"{result.cell} did not finish", str(result.cell))
    by_cell = {result.cell: result for result in results}
    return [row_cache.known(row) or _new_row(row, by_cell, runs, store) for row in scope.plan.rows]


async def explained(
    scheduler: Scheduler, runs: Mapping[CellId, verdict.Runs], rows: list[KeptRow]
) -> list[KeptRow]:
    """Add causes and grafts to cells that fail the run; with ``--causes``, to all that differ.

    A quick run adds none unless ``--causes`` asks for them.
    """
    scope, asking = scheduler.scope, Explaining(scheduler)
    results = [result for kept_row in rows for result in kept_row.results]
    chosen = _to_explain(scope, rows)
    traced = _by_cell(rows, lambda row: row.causes)
    causes = await causes_of(results, runs, asking.causes, chosen, traced)
    tried = _by_cell(rows, lambda row: row.grafts)
    grafts = await grafts_of(results, runs, scope.store, asking.grafts, chosen, tried)
    return [
        kept_row.model_copy(
            update={
                "causes": {c.stack: causes[c] for c in row.cells if c in causes},
                "grafts": {c.stack: grafts[c] for c in row.cells if c in grafts},
            }
        )
        for row, kept_row in zip(scope.plan.rows, rows, strict=True)
    ]


def _by_cell(rows: list[KeptRow], of: Callable[[KeptRow], Mapping[str, T]]) -> dict[CellId, T]:
    """Return what rows have by stack, by cell."""
    cells = ((row, result.cell) for row in rows for result in row.results)
    return {cell: of(row)[cell.stack] for row, cell in cells if cell.stack in of(row)}


def _to_explain(scope: Scope, rows: list[KeptRow]) -> set[CellId] | None:
    """Return the cells whose differences may be explained; None for all."""
    order, chosen = scope.order, None
    if not order.causes:
        results = [result for kept_row in rows for result in kept_row.results]
        chosen = set() if order.level == "quick" else _failing_cells(results, scope.matrix)
    if order.releases or order.scan:
        starts = _band_starts(rows)
        return starts if chosen is None else chosen & starts
    return chosen


def _band_starts(rows: list[KeptRow]) -> set[CellId]:
    """Return the first cell of every band: the later cells of a band have the same bits."""
    return {
        result.cell
        for kept_row in rows
        for result in kept_row.results
        if any(band.stacks[0] == result.cell.stack for band in kept_row.facts.bands)
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
    scope: Scope, rows: Collection[PlannedRow], runs: Mapping[CellId, verdict.Runs]
) -> list[CellResult]:
    results: list[CellResult] = []
    description = f"{plural(len(rows), 'row')}, byte for byte"
    with scope.phases("comparing", len(rows), description) as count_row:
        for row in rows:
            results += _results_of(scope, row, runs)
            count_row()
            await asyncio.sleep(0)  # lets a Ctrl-C through between two rows
    return results


def _results_of(
    scope: Scope, row: PlannedRow, runs: Mapping[CellId, verdict.Runs]
) -> Iterator[CellResult]:
    order, store = scope.order, scope.store
    releases = {spec.id: spec.transformers for spec in scope.matrix.stacks}
    reference = _choose_reference(row, runs)
    shared_failures = verdict.same_everywhere({cell: runs[cell] for cell in row.cells})
    for cell in row.cells:
        command = reproduce(
            cell,
            reference.stack if reference else None,
            order.program,
            None if order.checks else shown_path(order.matrix),
            order.level,
            releases,
        )
        reference_runs = runs[reference] if reference else None
        result = verdict.result(
            cell, runs[cell], reference_runs, store, everywhere=shared_failures, reproduce=command
        )
        yield _with_changes(result, runs)


def _with_changes(result: CellResult, runs: Mapping[CellId, verdict.Runs]) -> CellResult:
    """Return a compared result with the facts of questions that changed."""
    if result.reference is None or not result.signals:
        return result
    reference, candidate = runs[result.reference][0], runs[result.cell][0]
    changes = result.changes
    for question in questions():
        if question.changes is not None:
            changes = with_more(changes, question.changes(reference, candidate))
    return result.model_copy(update={"changes": changes})


def _new_row(
    row: PlannedRow,
    results: Mapping[CellId, CellResult],
    runs: Mapping[CellId, verdict.Runs],
    store: Store,
) -> KeptRow:
    """Return a compared row, without causes, grafts and findings."""
    reference = _choose_reference(row, runs)
    of_row = [results[cell] for cell in row.cells]
    return KeptRow(
        reference=reference.stack if reference else None,
        results=tuple(map(trim.result, of_row)),
        facts=trim.facts(
            {cell.stack: runs[cell][0] for cell in row.cells},
            bands(of_row, runs, store),
            reference.stack if reference else "",
        ),
        outcomes={cell.stack: outcome(runs[cell]) for cell in row.cells},
    )


def with_findings(
    scope: Scope,
    rows: list[KeptRow],
    runs: Mapping[CellId, verdict.Runs],
    answers: Answers,
    row_cache: RowCache,
) -> list[KeptRow]:
    """Return rows with the findings of their cells, and save them for the next run."""
    description = f"{plural(len(rows), 'row')} searched for known defects and judged"
    judged_rows = []
    with scope.phases("findings", len(rows), description) as count_row:
        for row, kept_row in zip(scope.plan.rows, rows, strict=True):
            row_answers = of_row(row, answers)
            judged_rows.append(_with_findings(row, kept_row, runs, row_answers, row_cache))
            count_row()
    return judged_rows


def _with_findings(
    row: PlannedRow,
    kept_row: KeptRow,
    runs: Mapping[CellId, verdict.Runs],
    answers: Mapping[str, Answer],
    row_cache: RowCache,
) -> KeptRow:
    """Return a row with the findings of its cells, and save it for the next run."""
    digest = digest_of({name: answer.facts() for name, answer in answers.items()})
    cached = row_cache.known(row)
    findings, causes, grafts = {}, kept_row.causes, kept_row.grafts
    if cached is not None and cached.asked == digest:
        cached_grafts = cached.grafts.items()
        if causes.items() <= cached.causes.items() and grafts.items() <= cached_grafts:
            return kept_row
        findings = cached.findings
    findings = findings or {r.cell.stack: _findings(r, runs, answers) for r in kept_row.results}
    update = {
        "findings": findings,
        "asked": digest,
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


def _findings(
    result: CellResult,
    runs: Mapping[CellId, verdict.Runs],
    answers: Mapping[str, Answer],
) -> tuple[Finding, ...]:
    """Return the findings of all rules about a cell."""
    compared = result.reference is not None and result.reference != result.cell
    case = Case(
        capture=runs[result.cell][0],
        reference=runs[result.reference][0] if compared and result.reference else None,
        signals=result.signals,
        steps=result.steps,
        ladder=result.ladder,
        answers=answers,
    )
    return registry.findings(case)
