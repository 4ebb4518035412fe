"""The top of report.md: what happened, in plain words, and the summary table."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from samebits.reports.blocks import bullets, heading, link, page, slug, table
from samebits.reports.figures import count, duration, plural
from samebits.reports.outcomes import holds, is_quiet, row_name, since, troubles
from samebits.reports.text import EMPTY, Markdown, code, fill, join, prose
from samebits.words import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.comparison import CellResult
    from samebits.document import Report, Row, StackReport
    from samebits.reports.outcomes import Trouble

COUNTED = {
    Verdict.FIXED: (
        "of them no longer differs though {} expects it",
        "of them no longer differ though {} expects it",
    ),
    Verdict.EXPECTED: ("differs as {} expects", "differ as {} expects"),
    Verdict.ROUNDING: ("differs by rounding alone", "differ by rounding alone"),
    Verdict.ABSENT: ("is absent", "are absent"),
    Verdict.DIFFERS: ("is a new difference", "are new differences"),
    Verdict.DIVERGED: ("is a new divergence", "are new divergences"),
    Verdict.UNSTABLE: ("is unstable", "are unstable"),
    Verdict.FAILED: ("failed", "failed"),
}
"""What is said of the cells that are neither reference nor identical: of one, of several."""

TIMES = "\N{MULTIPLICATION SIGN}"

LEFT_OUT = Markdown("-")
"""A cell that the matrix file or the selection leaves out."""

NOT_BUILT = Markdown("not built")
"""A cell whose stack could not be built."""


def title(report: Report) -> Markdown:
    """Return the heading, which already answers whether the run passes."""
    answer = "passes" if report.exit_code == 0 else "does not pass"
    return heading(1, f"samebits: {report.matrix} {answer}")


def headline(report: Report) -> str:
    """Return the run in one sentence of plain words."""
    cells = [cell for row in report.rows for cell in row.cells]
    compared = [cell for cell in cells if cell.verdict != Verdict.REFERENCE]
    same = sum(map(holds, compared))
    hold = f"{count(same)} of {plural(len(compared), 'cell')} {'holds' if same == 1 else 'hold'}"
    counts = Counter(cell.verdict for cell in compared)
    parts = [f"{_extent(report)}: {hold} the same bits as the reference"]
    return "; ".join([*parts, *_counted(counts, report.matrix)]) + "."


def _extent(report: Report) -> str:
    models = {row.model for row in report.rows}
    broken = sum(stack.failure is not None for stack in report.stacks)
    unbuilt = f" ({count(broken)} not built)" if broken else ""
    stacks = f"{plural(len(report.stacks), 'stack')}{unbuilt}"
    variants = len(report.rows) / len(models) if models else 0
    every_model = all(
        len([row for row in report.rows if row.model == model]) == variants for model in models
    )
    if every_model:
        per_model = plural(int(variants), "variant")
        return f"{plural(len(models), 'model')} {TIMES} {per_model} {TIMES} {stacks}"
    return f"{plural(len(models), 'model')} in {plural(len(report.rows), 'row')} {TIMES} {stacks}"


def _counted(counts: Counter[Verdict], matrix: str) -> list[str]:
    said = ((counts[verdict], words) for verdict, words in COUNTED.items())
    return [f"{count(n)} {words[n != 1].format(matrix)}" for n, words in said if n]


def opening(report: Report) -> Markdown:
    """Return the headline, whether the run passes, and the reasons if it does not."""
    answer = (
        Markdown("**The run passes.**")
        if report.exit_code == 0
        else fill("**The run does not pass** (exit code {}):", str(report.exit_code))
    )
    return page(
        [
            prose(headline(report)),
            answer,
            bullets(report.reasons),
            fill(
                "Reference stack: {}. {} by {} in {}.",
                code(report.reference),
                report.started,
                code(report.command),
                duration(report.seconds),
            ),
        ]
    )


def attention_needed(report: Report) -> Markdown:
    """Return what makes the run fail, one line per row and verdict."""
    lines = [_trouble(trouble) for trouble in troubles(report)]
    if not lines:
        return EMPTY
    headers = ["row", "verdict", "since", "stacks", "what"]
    return page([heading(2, "Needs attention"), table(headers, lines)])


def _trouble(trouble: Trouble) -> list[str]:
    row, shared = trouble
    cell = shared.first
    return [
        row_link(row),
        Markdown(f"**{cell.verdict}**"),
        "" if cell.verdict == Verdict.FIXED else since(row, shared.stacks),
        ", ".join(shared.stacks),
        prose(_what(cell), limit=160),
    ]


def _what(cell: CellResult) -> str:
    """Return the most telling line about a cell."""
    if cell.failure:
        return f"{cell.failure.phase}: {cell.failure.type}: {cell.failure.message}"
    return cell.first.what if cell.first else cell.headline


def row_link(row: Row) -> Markdown:
    """Return the name of a row, linked to its section if it has one."""
    name = row_name(row)
    return prose(name) if is_quiet(row) else link(name, f"#{slug(name)}")


def summary(report: Report) -> Markdown:
    """Return the verdict of every cell, a table per group of models."""
    groups: dict[str, list[Row]] = {}
    for row in report.rows:
        groups.setdefault(row.group or "", []).append(row)
    ungrouped = groups.pop("", [])
    tables = [_group(prose(name), rows, report.stacks) for name, rows in groups.items()]
    if ungrouped:
        tables.append(_group(prose("Other models" if groups else ""), ungrouped, report.stacks))
    return page([heading(2, "Summary"), *tables])


def _group(name: Markdown, rows: list[Row], stacks: tuple[StackReport, ...]) -> Markdown:
    headers = ["model · variant", *(stack.id for stack in stacks)]
    return page([heading(3, name) if name else EMPTY, table(headers, _lines(rows, stacks))])


def _lines(rows: list[Row], stacks: tuple[StackReport, ...]) -> Iterable[list[str]]:
    """Return the lines of the table; quiet variants of one model with equal cells share one."""
    for _, same in groupby(rows, key=lambda row: _line_key(row, stacks)):
        first, *others = same
        variants = join(prose(row.variant) for row in (first, *others))
        label = fill("{} · {}", first.model, variants)
        yield [label if is_quiet(first) else _section_link(first, label), *_words(first, stacks)]


def _line_key(row: Row, stacks: tuple[StackReport, ...]) -> tuple[object, ...]:
    variant = "" if is_quiet(row) else row.variant
    return row.model, variant, *_words(row, stacks)


def _section_link(row: Row, label: Markdown) -> Markdown:
    return link(label, f"#{slug(row_name(row))}")


def _words(row: Row, stacks: tuple[StackReport, ...]) -> list[str]:
    cells = {cell.cell.stack: cell for cell in row.cells}
    return [_word(cells.get(stack.id), stack) for stack in stacks]


def _word(cell: CellResult | None, stack: StackReport) -> Markdown:
    """Return verdict and figure; a verdict that fails the run is set in bold."""
    if cell is None:
        return NOT_BUILT if stack.failure else LEFT_OUT
    word = cell.verdict if cell.verdict.passes else f"**{cell.verdict}**"
    figure = "" if cell.verdict in (Verdict.REFERENCE, Verdict.IDENTICAL) else cell.figure
    return fill("{} {}", Markdown(word), prose(figure, limit=40)) if figure else Markdown(word)
