"""What changed, since when, which side is right and what to do: a line for each, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from samebits.findings.rulebook import plain_title, text_with_code
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports.answer import Answer, answers, is_quiet, kind_of, only_rounding
from samebits.reports.beside import defects
from samebits.text.blocks import first_of, heading, link, page, table
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, clip, fill, join, prose
from samebits.text.names import page_path, spanned
from samebits.text.numbers import plural

MAX_NAMES = 12
MAX_OF_KIND = 6
"""Limit for the lines of one verdict, where there are more lines than a reader takes in."""
MAX_ALIKE = 3
"""Limit for the names of models about which a line says the same."""
MAX_TEXT = 240
_LOUD = ("silent", "crash")
"""Kinds of defects that change numbers or raise."""
_HEADERS = ["what changed", "since", "which side is right", "what to do"]


def the_worst(report: Report, most: int | None = None) -> Markdown:
    """Return the answers about models that differ beyond rounding, the ``most`` worst of them.

    A report of one model has all answers about it.
    """
    all_answers = answers(report)
    is_one = len(report.models) == 1
    differing = [answer for answer in all_answers if is_one or not is_quiet(answer)]
    groups = [*grouped(differing, _words).values()]
    shown = groups if most is None else _of_each_kind(groups, most)
    if not all_answers:
        return EMPTY
    n_more = len(differing) - sum(map(len, shown))
    more = fill("{}: {}.", plural(n_more, "more difference"), link("all verdicts", "verdicts.md"))
    return page(
        [
            heading(2, "What changed, the worst first"),
            table(["model", *_HEADERS], [[_models(group), *_line(group[0])] for group in shown]),
            more if n_more else EMPTY,
            EMPTY if is_one else _rounding(all_answers),
        ]
    )


def _words(answer: Answer) -> Hashable:
    """Return what is equal for models about which a reader reads the same."""
    return answer.is_known, answer.change, answer.since, answer.side.why, answer.do


def _models(group: list[Answer]) -> Markdown:
    names = dict.fromkeys(answer.model for answer in group)
    return first_of([link(name, page_path(name)) for name in names], MAX_ALIKE)


def _of_each_kind(groups: list[list[Answer]], most: int) -> list[list[Answer]]:
    """Return ``most`` groups in their order; many of one kind leave room for those of the others."""
    if len(groups) <= most:
        return groups
    counts: Counter[Verdict] = Counter()
    later: list[bool] = []
    for group in groups:
        kind = kind_of(group[0].cell)
        counts[kind] += 1
        later.append(counts[kind] > MAX_OF_KIND)
    places = sorted(range(len(groups)), key=later.__getitem__)[:most]
    return [groups[place] for place in sorted(places)]


def of_model(rows: Sequence[Row], report: Report) -> Markdown:
    """Return the answers about one model, by the releases that differ in the same way."""
    all_answers = answers(report.model_copy(update={"rows": tuple(rows)}))
    lines = [[_releases(answer, len(rows) > 1), *_line(answer)] for answer in all_answers]
    return page([table(["releases", *_HEADERS], lines), _beside(rows, report)])


def _beside(rows: Sequence[Row], report: Report) -> Markdown:
    """Return the defects that make wrong numbers or raise, and that no verdict shows: a training step, a save."""
    shown = defects(report, (cell for row in rows for cell in row.cells))
    texts = [defect.text for defect in shown if defect.text.kind in _LOUD]
    if not texts:
        return EMPTY
    named = join((text_with_code(plain_title(text)) for text in texts), "; ")
    return fill("Found beside the verdict, see below: {}.", named)


def _releases(answer: Answer, has_variants: bool) -> Markdown:
    stacks = spanned(answer.stacks)
    return fill("{} ({})", stacks, ", ".join(answer.variants)) if has_variants else prose(stacks)


def _line(answer: Answer) -> list[str]:
    return [
        prose(f"{'known: ' if answer.is_known else ''}{answer.change}", MAX_TEXT),
        answer.start,
        prose(clip(answer.side.why, MAX_TEXT)),
        text_with_code(clip(answer.do, MAX_TEXT)),
    ]


def _rounding(ranked: list[Answer]) -> Markdown:
    """Return the models that only round in some release, which need no action."""
    links = [link(name, page_path(name)) for name in only_rounding(ranked)]
    if not links:
        return EMPTY
    listed = first_of(links, MAX_NAMES)
    return fill("Only rounding, no action needed ({}): {}.", plural(len(links), "model"), listed)
