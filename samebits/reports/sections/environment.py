"""What the cells ran on: stacks and their packages, checkpoints, the machine."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable
from itertools import repeat

from samebits.compare.describe import some
from samebits.records.report import (
    CheckpointReport,
    MachineReport,
    PackagesReport,
    Report,
    StackReport,
)
from samebits.text.blocks import (
    below,
    bullets,
    details,
    fence,
    folded,
    heading,
    link,
    page,
    table,
    titled,
)
from samebits.text.markdown import EMPTY, Markdown, code, fill, prose
from samebits.text.names import page_path
from samebits.text.numbers import count, plural

MAX_MODELS = 3
"""Models whose code is named in one line."""
NOT_INSTALLED = Markdown("-")


def stacks(report: Report) -> Markdown:
    """Return the resolved versions of every stack, and the packages that differ between stacks."""
    headers = ["environment", "transformers", "torch", "python", "packages", "lock"]
    built = [stack for stack in report.stacks if not stack.failure]
    return page(
        [
            heading(2, "Environments"),
            table(headers, map(_stack, report.stacks), right=("packages",)),
            *(_failure(stack) for stack in report.stacks if stack.failure),
            _packages(built),
            _model_packages(report),
        ]
    )


def _stack(stack: StackReport) -> list[str]:
    return [
        stack.id,
        stack.transformers or _failed(stack),
        f"{stack.torch} (of the machine)" if stack.system_torch else stack.torch or "",
        stack.python or "",
        count(len(stack.packages)) if stack.packages else "",
        _lock(stack),
    ]


def _failed(stack: StackReport) -> Markdown:
    return Markdown("**could not be built**") if stack.failure else EMPTY


def _lock(stack: StackReport) -> Markdown:
    digest = code(stack.lock_digest[:12]) if stack.lock_digest else EMPTY
    if stack.lock is None:
        return digest
    return fill("{} {}", link("lock", stack.lock), digest) if digest else link("lock", stack.lock)


def _failure(stack: StackReport) -> Markdown:
    title = fill("**Environment {} could not be built:**", stack.id)
    return page([title, fence(stack.failure or "")])


def _packages(built: list[StackReport]) -> Markdown:
    names = sorted({name for stack in built for name in stack.packages})
    if not names:
        return EMPTY
    differing = [name for name in names if len({_version(stack, name) for stack in built}) > 1]
    all_packages = f"All {plural(len(names), 'package')}"
    return page(
        [
            page([titled("Packages that differ between environments"), _versions(built, differing)])
            if differing
            else prose("Every package has the same version in every environment."),
            details(all_packages, _versions(built, names)),
        ]
    )


def _model_packages(report: Report) -> Markdown:
    """Return what was installed for models, beside the stacks."""
    if not report.packages:
        return EMPTY
    listed = "packages as listed, or added as files need them"
    headers = [
        "models",
        "environment",
        listed,
        "installed beside the environment",
        "in place of",
        "lock",
    ]
    rows = [
        [
            ", ".join(entry.models),
            entry.stack,
            ", ".join(entry.listed),
            _installed(entry),
            _replaced(entry),
            link("lock", entry.lock) if entry.lock else EMPTY,
        ]
        for entry in report.packages
    ]
    title = titled("Packages of models, which other models' environments do not have")
    failed = [entry for entry in report.packages if entry.failure]
    return page(
        [
            page([title, table(headers, rows)]),
            *map(
                _differing, dict.fromkeys(entry.models for entry in report.packages), repeat(report)
            ),
            *map(_not_installed, failed),
        ]
    )


def _differing(models: tuple[str, ...], report: Report) -> Markdown:
    """Return which of the packages that the stacks lack, or have another one of, differ."""
    entries = [e for e in report.packages if e.models == models and not e.failure]
    names = sorted({name for entry in entries for name in entry.packages})
    stacks = {stack.id: stack.packages for stack in report.stacks}
    versions = {
        name: [{**stacks.get(e.stack, {}), **e.packages}.get(name, "none") for e in entries]
        for name in names
    }
    differing = {name: row for name, row in versions.items() if len(set(row)) > 1}
    title = titled(f"Packages of {', '.join(models)} that differ between environments")
    headers = ["package", *(entry.stack for entry in entries)]
    return below(title, table(headers, ([name, *row] for name, row in differing.items())))


def _replaced(entry: PackagesReport) -> str:
    """Return which versions of the stack others stand in for."""
    return ", ".join(f"{name} {version}" for name, version in entry.replaced.items())


def _installed(entry: PackagesReport) -> str:
    if entry.failure:
        return "not installed"
    return ", ".join(f"{name} {version}" for name, version in entry.packages.items()) or "nothing"


def _not_installed(entry: PackagesReport) -> Markdown:
    listed, models = ", ".join(entry.listed), ", ".join(entry.models)
    title = fill("**{} for {} on {}:**", listed, models, entry.stack)
    # an installer's reason is one long line, of which a fence would show the ends
    lines = (entry.failure or "").splitlines()
    wrapped = [part for line in lines for part in textwrap.wrap(line, 110) or [""]]
    return page([title, fence("\n".join(wrapped))])


def _versions(built: list[StackReport], names: list[str]) -> Markdown:
    headers = ["package", *(stack.id for stack in built)]
    return table(headers, ([name, *(_version(stack, name) for stack in built)] for name in names))


def _version(stack: StackReport, name: str) -> str:
    return stack.packages.get(name, NOT_INSTALLED)


def checkpoints(report: Report, page_paths: Collection[str]) -> Markdown:
    """Return what the cells of each model loaded, with links to the pages in ``page_paths``."""
    if not report.checkpoints:
        return EMPTY
    summary = plural(len(report.checkpoints), "checkpoint")
    return page(
        [
            heading(2, "Checkpoints"),
            bullets(map(prose, steps_lines(report))),
            folded(summary, _checkpoints(report.checkpoints, page_paths)),
        ]
    )


def steps_lines(report: Report) -> list[str]:
    """Return a line for each model of which only a part is what transformers loads."""
    return [
        f"Not compared: {', '.join(checkpoint.steps)} of {checkpoint.model}, whose folder is of "
        "sentence-transformers. The bits are those of its Transformer; a probe of your own can compare "
        "the rest (probes: in matrix.yaml)"
        for checkpoint in report.checkpoints
        if checkpoint.steps
    ]


def checkpoints_of(model: str, report: Report) -> Markdown:
    """Return what the cells of one model loaded, for its own page."""
    return _checkpoints(
        [checkpoint for checkpoint in report.checkpoints if checkpoint.model == model]
    )


def code_line(report: Report) -> str:
    """Return which code of models was not run for want of trust; '' if there is none."""
    names = [f"{c.model} ({', '.join(c.not_run)})" for c in report.checkpoints if c.not_run]
    if not names:
        return ""
    return f"Not run without trust_remote_code: code of {some(names, MAX_MODELS)}"


def _checkpoints(entries: Iterable[CheckpointReport], page_paths: Collection[str] = ()) -> Markdown:
    entries = list(entries)
    has_code = any(checkpoint.not_run for checkpoint in entries)
    headers = ["model", "source", "parameters", "digest", *(["code that was not run"] * has_code)]
    return table(
        headers,
        (_checkpoint(checkpoint, page_paths)[: len(headers)] for checkpoint in entries),
        right=("parameters",),
    )


def _checkpoint(checkpoint: CheckpointReport, page_paths: Collection[str]) -> list[str]:
    path = page_path(checkpoint.model)
    return [
        link(checkpoint.model, path) if path in page_paths else checkpoint.model,
        checkpoint.source,
        "" if checkpoint.parameters is None else count(checkpoint.parameters),
        code(checkpoint.digest[:12]) if checkpoint.digest else EMPTY,
        prose(", ".join(checkpoint.not_run)),
    ]


def machine(report: Report) -> Markdown:
    """Return where the cells ran, and with which flags and variables."""
    if report.machine is None:
        return EMPTY
    facts = _facts(report.machine, _threads(report))
    rows = [[name, code(value)] for name, value in facts]
    return page([heading(2, "Machine"), table(["fact", "value"], rows), _variables(report.machine)])


def _threads(report: Report) -> str:
    """Return the threads per cell, with the models that have another number."""
    assert report.machine is not None
    usual = report.machine.threads
    others: dict[int, dict[str, None]] = {}
    for row in report.rows:
        if row.threads != usual:
            others.setdefault(row.threads, {})[row.model] = None
    parts = [f"{count(n)} for {', '.join(models)}" for n, models in sorted(others.items())]
    return "; ".join([count(usual), *parts])


def _facts(machine_report: MachineReport, threads: str) -> list[tuple[str, str]]:
    return [
        ("platform", machine_report.platform),
        ("CPU", machine_report.cpu),
        ("CPU capability (ATen)", machine_report.cpu_capability),
        ("cores", count(machine_report.cores)),
        ("threads per cell", threads),
        *machine_report.flags.items(),
    ]


def _variables(machine_report: MachineReport) -> Markdown:
    if not machine_report.environment:
        return EMPTY
    rows = [[code(name), code(value)] for name, value in sorted(machine_report.environment.items())]
    name = plural(len(rows), "environment variable")
    return details(name, table(["variable", "value"], rows))
