"""The top of report.md: the result in plain words, and the summary table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from samebits.diagnose.everywhere import everywhere, is_everywhere
from samebits.records.comparison import CellResult
from samebits.records.ids import Level, Verdict
from samebits.records.report import Report, Row, StackReport
from samebits.reports.answer import faults, result, worst_first
from samebits.reports.sections.findings import named
from samebits.reports.sections.paged import has_page
from samebits.reports.stories import (
    Trouble,
    anchors,
    cell_in_short,
    holds,
    is_quiet,
    is_reference,
    places,
    row_name,
    since,
    stories,
    troubles,
    verdict_word,
)
from samebits.text.blocks import below, bullets, heading, link, page, slug, table, titled
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, brief, clip, code, fill, join, prose
from samebits.text.moments import moment
from samebits.text.names import page_path
from samebits.text.numbers import count, duration, plural

COUNTED = {
    Verdict.FAILED: ("failed", "failed"),
    Verdict.UNSTABLE: ("unstable", "unstable"),
    Verdict.DIVERGED: ("behaviour change", "behaviour changes"),
    Verdict.UNDECIDED: ("undecided", "undecided"),
    Verdict.NOT_FINISHED: ("not finished", "not finished"),
    Verdict.NOT_OBSERVED: ("not observed", "not observed"),
    Verdict.FIXED: ("known difference that is gone", "known differences that are gone"),
    Verdict.EXPECTED: ("known difference", "known differences"),
    Verdict.ROUNDING: ("rounding", "rounding"),
    Verdict.ABSENT: ("not supported", "not supported"),
}
"""Words for the cells that are neither reference nor identical, the worst first: for one, for several."""

KNOWN = "\N{DAGGER}"
"""Mark on the number of a known difference, which the matrix file lists."""

MAX_WHAT = 110
"""Limit in characters for the last column of *Needs attention*; terminals show the table, too."""

SHORTENINGS = (
    (
        re.compile(r" of prompt \S+ is computed by (.*)(?=, and its layer is )"),
        r": \1",
    ),
    (re.compile(r"(, and its layer)? is the first that differs(?=: )"), ""),
    (re.compile(r"(?<=: )[\d,]+ of [\d,]+ elements, (?=max abs)"), ""),
)
"""Words of samebits/diagnose/first.py that a narrow column leaves out; the block of the row has
them."""

MAX_COLUMNS = 8
"""Limit for the stacks up to which each has a column of the summary, named in the matrix or not."""

MAX_UNCOUNTED = 5
"""Limit for the lines of *Needs attention* that a reader takes in without a count."""

LEFT_OUT = Markdown("-")
"""A cell that the matrix file or the selection leaves out."""

NOT_BUILT = Markdown("not built")
"""A cell whose stack could not be built."""


def title(report: Report) -> Markdown:
    """Return the heading, which already gives the result of the run; of one model, with how far it holds."""
    is_one = len(report.models) == 1
    return heading(1, f"samebits: {report.matrix}: {result(report, with_limits=is_one)}")


def headline(report: Report) -> str:
    """Return how many comparisons there were, and how each of them ended."""
    cells = report.cells
    compared = [cell for cell in cells if not is_reference(cell)]
    n_same = sum(map(holds, compared))
    alone = {cell.cell for row in report.rows for cell in _reference_alone(row, report.reference)}
    shared = {cell.cell for failure in everywhere(cells) for cell in failure.cells} - alone
    aside = alone | shared
    counts: Counter[Verdict] = Counter(cell.verdict for cell in cells if cell.cell not in aside)
    parts = [
        f"{count(n_same)} identical",
        *_counted(counts),
        *_aside(len(alone), "in the reference alone"),
        *_aside(len({(cell.model, cell.variant) for cell in shared}), "in every release"),
        *_observed(cells),
    ]
    return f"{plural(len(compared), 'comparison')} ({_extent(report)}): {', '.join(parts)}."


def _reference_alone(row: Row, reference: str) -> tuple[CellResult, ...]:
    """Return the cell of the matrix's reference if it raises and no other cell fails, else ().

    The cells of such a row are compared with a release that runs the model, so that this one is a candidate in it.
    """
    raising = tuple(cell for cell in row.cells if cell.verdict is Verdict.FAILED)
    if len(raising) != 1 or raising[0].failure is None or is_everywhere(raising[0]):
        return ()
    is_of_reference = is_reference(raising[0]) or raising[0].cell.stack == reference
    ran = any(cell.verdict not in _NOT_RUN for cell in row.cells)
    return raising if is_of_reference and ran else ()


_NOT_RUN = (Verdict.FAILED, Verdict.NOT_FINISHED, Verdict.ABSENT)


def _aside(n: int, where: str) -> list[str]:
    return [f"{count(n)} {'raises' if n == 1 else 'raise'} {where}"] if n else []


def _observed(cells: list[CellResult]) -> Iterable[str]:
    """Yield what was compared of the cells that are not observed, if it is the same for all."""
    open_cells = [cell for cell in cells if cell.verdict == Verdict.NOT_OBSERVED]
    headlines = list(dict.fromkeys(cell.headline for cell in open_cells))
    if len(headlines) == 1:
        yield f"in the cells that are not observed: {headlines[0]}"


def _extent(report: Report) -> str:
    models = report.models
    broken = sum(stack.failure is not None for stack in report.stacks)
    unbuilt = f", {count(broken)} not built" if broken else ""
    releases = plural(len(report.stacks), "release")
    rows = f" in {plural(len(report.rows), 'variant')}" if len(report.rows) > len(models) else ""
    families = [
        f", {stack.id} is {stack.transformers}"
        for stack in report.stacks
        if stack.id.endswith(".x") and stack.transformers
    ]
    return f"{plural(len(models), 'model')}{rows}, {releases}{''.join(families)}{unbuilt}"


def _counted(counts: Counter[Verdict]) -> list[str]:
    counted = ((counts[verdict], words) for verdict, words in COUNTED.items())
    return [f"{count(n)} {words[n != 1]}" for n, words in counted if n]


def opening(report: Report) -> Markdown:
    """Return the reference, and when, how and how long the run was."""
    return page(
        [
            fill(
                "{} {} by {} in {}; exit code {}.",
                _reference(report),
                moment(report.started),
                code(report.command),
                duration(report.seconds),
                str(report.exit_code),
            ),
            _LEVELS[report.level],
        ]
    )


_LEVELS: dict[Level, Markdown] = {
    "quick": Markdown(
        "With `--quick`, these were not checked: consistency within a release, API use, image and text "
        "processors, saving and loading between releases, eager attention, a second load; and no cause "
        "was looked for without `--causes`."
    ),
    "default": EMPTY,
    "deep": Markdown("With `--deep`, every run was repeated in full."),
}


def _reference(report: Report) -> Markdown:
    if any(stack.id == report.reference for stack in report.stacks):
        return fill("Reference: {}.", code(report.reference))
    return fill(
        "The reference of the matrix, {}, is not in this run. The reference of each model is its oldest "
        "release.",
        code(report.reference),
    )


def attention_needed(report: Report) -> Markdown:
    """Return what makes the run fail, one line per story and verdict."""
    lines = [_trouble(trouble, report) for trouble in troubles(report)]
    if not lines:
        return EMPTY
    headers = ["row", "verdict", "since", "environments", "known as", "what"]
    title = heading(2, "Needs attention")
    return page([title, _counts(report), table(headers, lines)])


def reasons(report: Report) -> Markdown:
    """Return every reason why the exit code is not 0."""
    title = fill("Why the exit code is {}", str(report.exit_code))
    return below(heading(2, title), bullets(report.reasons))


def _counts(report: Report) -> Markdown:
    """Return how many rows fail, by defect and first stack; empty if a reader sees that anyway."""
    all_troubles = troubles(report)
    if len(all_troubles) <= MAX_UNCOUNTED:
        return EMPTY
    counts: Counter[tuple[str, str]] = Counter()
    for trouble in all_troubles:
        counts[_kind(trouble), trouble.shared.stacks[0]] += len(trouble.story.rows)
    stacks = [s.id for s in report.stacks if any(stack == s.id for _, stack in counts)]
    lines = [
        [kind, *(count(n) if (n := counts[kind, stack]) else "" for stack in stacks)]
        for kind in dict.fromkeys(kind for kind, _ in counts)
    ]
    headers = ["problem", *(f"since {stack}" for stack in stacks)]
    return page(
        [
            titled("Rows by problem and by the environment where it starts"),
            table(headers, lines, headers[1:]),
        ]
    )


def _kind(trouble: Trouble) -> str:
    """Return the verdict, and for a difference the signal that decides."""
    cell = trouble.shared.first
    if cell.decisive is None or cell.rest is not None:
        return cell.verdict
    how = "in" if cell.deciding else "first in"
    return f"{cell.verdict}, {how} {cell.decisive.signal}"


def _trouble(trouble: Trouble, report: Report) -> list[str]:
    story, shared = trouble
    cell = shared.first
    has_no_start = cell.verdict == Verdict.FIXED or is_everywhere(cell)
    return [
        link(story.name, f"{page_path(story.model)}{story.anchor}"),
        fill("**{}**", cell.verdict if is_everywhere(cell) else verdict_word(cell)),
        "" if has_no_start else since(story.rows[0], shared.stacks),
        places(shared),
        ", ".join(sorted(named(shared.cells, report))),
        _description(cell),
    ]


def _description(cell: CellResult) -> str:
    """Return the most important line about a cell, without words that the column makes clear."""
    text = " ".join(cell_in_short(cell).split())
    if cell.failure or cell.rest is not None:
        return clip(text, MAX_WHAT)
    for words, replacement in SHORTENINGS:
        text = words.sub(replacement, text)
    return brief(text, MAX_WHAT)


def contents(sections: list[Markdown]) -> Markdown:
    """Return a link to every section that begins with a heading."""
    titles = [
        section.partition("\n")[0].removeprefix("## ")
        for section in sections
        if section[:3] == "## "
    ]
    return join((link(title, f"#{slug(title)}") for title in titles), " · ")


def model_summary(rows: list[Row], report: Report) -> Markdown:
    """Return the verdict of every cell of one model, for its own page."""
    return page([legend(rows), _group(EMPTY, rows, report, anchors(rows))])


def summary(report: Report) -> Markdown:
    """Return the verdict of every cell, a table per group of models."""
    groups = grouped(report.rows, lambda row: row.group or "")
    ungrouped = groups.pop("", [])
    targets = _targets(report)
    tables = [_group(prose(name), rows, report, targets) for name, rows in groups.items()]
    if ungrouped:
        name = prose("Other models" if groups else "")
        tables.append(_group(name, ungrouped, report, targets))
    return page([heading(2, "Summary"), legend(report.rows), *tables])


class Lines(NamedTuple):
    """The verdicts of rows as the lines of a table; rows with equal verdicts share a line."""

    headers: list[str]
    rows: list[list[str]]


def summary_lines(report: Report) -> Lines:
    """Return the verdicts of all models that differ in one table, whatever their group, the worst first."""
    rows = worst_first(row for row in report.rows if not is_quiet(row))
    return Lines(_headers(report), list(_lines(rows, report, _targets(report))))


def identical_models(report: Report) -> list[str]:
    """Return the models that hold the same bits in every release that has them."""
    loud = {row.model for row in report.rows if not is_quiet(row)}
    return [name for name in dict.fromkeys(row.model for row in report.rows) if name not in loud]


def legend(rows: Iterable[Row]) -> Markdown:
    """Return what the mark of a known difference means; empty where there is none."""
    if not any(cell.verdict is Verdict.EXPECTED for row in rows for cell in row.cells):
        return EMPTY
    return fill(
        "{} marks a known difference: the matrix file lists it under {}, and it does not fail the run.",
        KNOWN,
        code("expected"),
    )


def _headers(report: Report) -> list[str]:
    names = [
        f"{stack.id} ({stack.transformers})"
        if stack.id.endswith(".x") and stack.transformers
        else stack.id
        for stack in _columns(report)
    ]
    return ["model · variant", *names]


def _columns(report: Report) -> tuple[StackReport, ...]:
    """Return the stacks that have a column; of many stacks, only those that the matrix names."""
    if len(report.stacks) <= MAX_COLUMNS:
        return report.stacks
    return tuple(stack for stack in report.stacks if not stack.between)


def _targets(report: Report) -> dict[str, str]:
    """Return row -> the link to its details on the page of its model; to all of it if no cell differs."""
    of_models = grouped(report.rows, lambda row: row.model)
    targets = {
        row_name(row): page_path(model)
        for model, rows in of_models.items()
        if has_page(rows, report)
        for row in rows
    }
    of_stories = {
        row_name(row): f"{page_path(row.model)}{story.anchor}"
        for story in stories(report.rows)
        for row in story.rows
    }
    return targets | of_stories


def _group(name: Markdown, rows: list[Row], report: Report, targets: Mapping[str, str]) -> Markdown:
    lines = table(_headers(report), _lines(rows, report, targets))
    return page([heading(3, name) if name else EMPTY, lines])


def _lines(rows: list[Row], report: Report, targets: Mapping[str, str]) -> Iterable[list[str]]:
    """Return the lines of the table; variants of one model and one story share equal lines."""
    stacks = _columns(report)
    keys = ((row.model, targets.get(row_name(row)), *_words(row, stacks, report)) for row in rows)
    for (_, target, *words), group in groupby(zip(keys, rows, strict=True), itemgetter(0)):
        line_rows = [row for _, row in group]
        variants = join(prose(row.variant) for row in line_rows)
        label = fill("{} · {}", line_rows[0].model, variants)
        yield [link(label, target) if target else label, *words]


def _words(row: Row, stacks: tuple[StackReport, ...], report: Report) -> list[str]:
    cells = {cell.cell.stack: cell for cell in row.cells}
    wrong = faults(row, report)
    return [_word(cells.get(stack.id), stack, wrong.get(stack.id, ())) for stack in stacks]


def _word(cell: CellResult | None, stack: StackReport, wrong: tuple[str, ...]) -> Markdown:
    """Return verdict and figure; a new difference is in bold, a known one has a mark."""
    if cell is None:
        return NOT_BUILT if stack.failure else LEFT_OUT
    codes = ", ".join(wrong)
    if wrong and cell.judged is Verdict.REFERENCE:
        return fill("**reference is wrong** ({})", codes)
    if cell.verdict is Verdict.EXPECTED:
        word, rest_note = Markdown(cell.judged), ""
    else:
        rest_note = verdict_word(cell).removeprefix(cell.verdict)
        word = Markdown(cell.verdict if cell.verdict.passes else f"**{cell.verdict}**")
    figure = "" if cell.verdict in (Verdict.REFERENCE, Verdict.IDENTICAL) else cell.figure
    parts = [fill("{}{}", word, rest_note), prose(figure, limit=40) if figure else EMPTY]
    parts += [fill("**is wrong** ({})", codes)] if wrong else []
    parts += [Markdown(KNOWN)] if cell.verdict is Verdict.EXPECTED else []
    return join(filter(None, parts), " ")
