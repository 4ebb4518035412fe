"""The report of a run: what is known of its stacks, models and cells, and how it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from samebits.base.checkpoint import own_code
from samebits.base.version import VERSION
from samebits.diagnose import verdict
from samebits.diagnose.bands import bands_in_words
from samebits.diagnose.exit_code import PASS, UNASKED
from samebits.findings import release
from samebits.grafts.questions import with_graft
from samebits.jobs.checkpoints import Checkpoint
from samebits.matrix.plan import PlannedRow, Selection, plan, shown_path
from samebits.matrix.spec import ModelSpec
from samebits.pipeline import early
from samebits.pipeline.answers import Answers, joined, of_row
from samebits.pipeline.scheduler import Scheduler
from samebits.questions import questions, registry
from samebits.records.comparison import CellResult
from samebits.records.ids import CellId, Verdict
from samebits.records.question import Answer
from samebits.records.report import (
    CheckpointReport,
    MachineReport,
    PackagesReport,
    Report,
    Row,
    StackReport,
)
from samebits.reports.beside import limits_beside
from samebits.stacks.environment import shown
from samebits.storage.rows import KeptRow
from samebits.trace.question import with_cause


def report_of(
    scheduler: Scheduler,
    rows: list[KeptRow],
    answers: Answers,
) -> Report:
    """Return the report of a run, without what is known at its end only."""
    scope, order, matrix = scheduler.scope, scheduler.scope.order, scheduler.scope.matrix
    complete = [
        result
        for row, kept_row in zip(scope.plan.rows, rows, strict=True)
        for result in _complete_results(kept_row, of_row(row, answers))
    ]
    results, expected = verdict.apply_expected(
        [release.of_the_model(result) for result in complete],
        matrix.expected,
        plan(matrix, Selection()).cells,
        matrix.reference,
    )
    findings = release.of_stacks(complete)
    stacks = tuple(
        _stack(id, scheduler).model_copy(update={"findings": findings.get(id, ())})
        for id in scope.plan.stacks
    )
    user_models = {
        m.name: m.trust_remote_code or m.has_own_code for m in matrix.models if m.build is None
    }
    code, reasons = verdict.exit_code(results, expected, stacks, user_models)
    by_cell = {result.cell: result for result in results}
    report = Report(
        samebits=VERSION,
        matrix=order.matrix.name,
        matrix_path="" if order.checks else shown_path(order.matrix),
        matrix_digest="",
        started="",
        seconds=0.0,
        command=order.command,
        level=order.level,
        reference=matrix.reference,
        stacks=stacks,
        packages=_packages(scheduler),
        checkpoints=_checkpoints(scheduler),
        rows=tuple(
            _row(row, scheduler, by_cell, kept_row, of_row(row, answers))
            for row, kept_row in zip(scope.plan.rows, rows, strict=True)
        ),
        rules=registry.texts(finding.code for result in complete for finding in result.findings),
        expected=expected,
        machine=_machine(scheduler),
        counts=_counts(results),
        exit_code=code,
        reasons=reasons,
    )
    return strictly(report, changes=order.strict, findings=order.strict_findings)


def strictly(report: Report, *, changes: bool, findings: bool) -> Report:
    """Return a report whose exit code also counts what a verdict does not.

    ``changes``: whether something within reach was left unasked. ``findings``: the findings beside the verdicts that
    one release alone has.
    """
    asked = [each.unasked for each in questions() if changes and each.unasked is not None]
    beside = limits_beside(report) if findings else ()
    reasons = (*filter(None, (unasked(report) for unasked in asked)), *beside)
    if report.exit_code != PASS or not reasons:
        return report
    return report.model_copy(update={"exit_code": UNASKED, "reasons": reasons})


def locks_of(scheduler: Scheduler, report: Report) -> dict[str, str | bytes]:
    """Return the locks of a run by their paths in the report's folder."""
    stacks = scheduler.stacks
    locks: dict[str, str | bytes] = {
        _lock_path(stack.id): stack.lock for stack in stacks.built.values()
    }
    return locks | {
        packages.lock: stacks.extended[packages.stack, packages.listed].lock
        for packages in report.packages
        if packages.lock is not None
    }


def _row(
    row: PlannedRow,
    scheduler: Scheduler,
    results: Mapping[CellId, CellResult],
    kept_row: KeptRow,
    answers: Mapping[str, Answer],
) -> Row:
    model = scheduler.scope.matrix.model(row.model)
    cells = tuple(results[cell] for cell in row.cells)
    facts = dict(kept_row.facts)
    if any(c.judged is not k.judged for c, k in zip(cells, kept_row.results, strict=True)):
        facts["bands"] = bands_in_words(cells)  # a folder without a model
    return Row(
        model=row.model,
        variant=str(row.variant),
        group=model.group,
        line=0 if scheduler.scope.order.checks else model.line,
        threads=scheduler.threads_of(row),
        reference=kept_row.reference,
        cells=cells,
        **facts | {"answers": joined(kept_row.facts.answers, answers)},
    )


def _complete_results(kept_row: KeptRow, answers: Mapping[str, Answer]) -> Iterator[CellResult]:
    """Yield the results of a row with their causes, grafts and findings, and what answers add to them."""
    for result in kept_row.results:
        cause, stack = kept_row.causes.get(result.cell.stack), result.cell.stack
        completed = registry.completed(result, joined(kept_row.facts.answers, answers))
        with_findings = registry.explained(completed, kept_row.findings)
        yield with_graft(with_cause(with_findings, cause), kept_row.grafts.get(stack))


def _stack(stack_id: str, scheduler: Scheduler) -> StackReport:
    spec = scheduler.scope.matrix.stack(stack_id)
    stack = scheduler.stacks.built.get(stack_id)
    if stack is None:
        failure = str(scheduler.stacks.failures[stack_id])
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


def _packages(scheduler: Scheduler) -> tuple[PackagesReport, ...]:
    planned, matrix = scheduler.scope.plan, scheduler.scope.matrix
    models: dict[tuple[str, ...], list[str]] = {}
    for name in planned.models:
        if listed := matrix.model(name).packages:
            models.setdefault(listed, []).append(name)
    return tuple(
        _packages_beside(stack, listed, matrix.model(names[0]).added, names, scheduler)
        for listed, names in models.items()
        for stack in planned.stacks
        if stack in scheduler.stacks.built
    )


def _packages_beside(
    stack_id: str,
    listed: tuple[str, ...],
    added: tuple[str, ...],
    models: list[str],
    scheduler: Scheduler,
) -> PackagesReport:
    report = PackagesReport(models=tuple(models), stack=stack_id, listed=listed, images=added)
    extended = scheduler.stacks.extended.get((stack_id, listed))
    if extended is None:
        failure = str(scheduler.stacks.not_extended[stack_id, listed])
        return report.model_copy(update={"failure": failure})
    lock = f"locks/{stack_id}/{models[0]}.txt"
    beside = extended.added
    update = {"packages": beside.packages, "replaced": beside.replaced, "lock": lock}
    return report.model_copy(update=update)


def _lock_path(stack_id: str) -> str:
    return f"locks/{stack_id}.txt"


def _checkpoints(scheduler: Scheduler) -> tuple[CheckpointReport, ...]:
    matrix, checkpoints = scheduler.scope.matrix, scheduler.checkpoints.known
    return tuple(
        CheckpointReport(
            model=name,
            source=checkpoints[name].shown_source,
            digest=checkpoints[name].digest,
            parameters=checkpoints[name].parameters,
            folder=checkpoints[name].shown_folder,
            not_run=_not_run(matrix.model(name), checkpoints[name]),
            steps=early.steps(matrix, matrix.model(name)),
        )
        for name in scheduler.scope.plan.models
        if name in checkpoints
    )


def _not_run(model: ModelSpec, checkpoint: Checkpoint) -> tuple[str, ...]:
    return () if model.trust_remote_code else own_code(Path(checkpoint.source)).files


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
        environment=shown(scheduler.stacks.environment),
    )


def _counts(results: tuple[CellResult, ...]) -> dict[Verdict, int]:
    counted = Counter(result.verdict for result in results)
    return {v: counted[v] for v in Verdict if counted[v]}
