"""Loading: loads that were not clean, each judged only from its own stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import get_args

from samebits.records.provenance import Provenance, RoundTrip, Source
from samebits.records.report import LoadReport, Report, Row
from samebits.text.blocks import bullets, codes, details, heading, link, page, slug, table, titled
from samebits.text.lists import joined
from samebits.text.markdown import EMPTY, Markdown, fill, join, prose
from samebits.text.names import numbered, page_path
from samebits.text.numbers import count, duration, part, plural

TITLE = "Loading"

SOURCE_WORDS: dict[Source, str] = {
    "unwritten": "never written",
    "partly written": "partly written",
    "reinitialised": "initialised at random",
    "unexplained": "of unknown origin",
}
"""Sources that no tensor should have after a load -> words for them, the worst first."""

SILENT = ", not reported as missing"
IGNORED = "differs from the checkpoint's tensor of that name"
ROUND_TRIP = "saved and loaded again"
DEFAULT_DTYPE = "dtype of a load without a dtype argument"
NOT_TRIED = "not tried"

MAX_LINES = 60
"""Limit for the lines of report.md about loads that are not clean; the models' pages have them
all."""

MAX_NAMES = 6
"""Limit for the models, tensors or fields that a line names."""

EVERY_NAME = 10_000


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a table, with the models, variants and stacks for which it holds."""

    cells: tuple[str, ...]
    models: tuple[str, ...]
    variants: tuple[str, ...]
    stacks: tuple[str, ...]


def loading(report: Report) -> Markdown:
    """Return the section; empty if no load was examined."""
    signals = [signal for row in report.rows for signal in row.integrity.values()]
    if not signals:
        return EMPTY
    all_lines = _unclean(report.rows)
    table_rows = [
        [line.cells[0], _models(line), ", ".join(line.variants), ", ".join(line.stacks), *rest]
        for line in all_lines[:MAX_LINES]
        for rest in [line.cells[1:]]
    ]
    rest = len(all_lines) - MAX_LINES
    return page(
        [
            heading(2, TITLE),
            _headline(report.rows, signals),
            _not_examined(report.rows),
            table(["what", "models", "variants", "environments", "which"], table_rows),
            fill("… and {} more on the models' pages.", count(rest)) if rest > 0 else EMPTY,
            _method(signals),
        ]
    )


def has_unclean_loads(rows: Iterable[Row]) -> bool:
    """Return True if a load of these rows is not clean."""
    return any(_is_unclean(signal) for row in rows for signal in row.integrity.values())


def loading_of(rows: list[Row]) -> Markdown:
    """Return the sources of one model's tensors, and the names of tensors with a wrong source."""
    if not any(row.integrity for row in rows):
        return EMPTY
    table_rows = [
        [line.cells[0], ", ".join(line.variants), ", ".join(line.stacks), *line.cells[1:]]
        for line in _unclean(rows)
    ]
    return page(
        [
            heading(2, TITLE),
            table(["what", "variants", "environments", "which"], table_rows),
            _counts(rows),
            _unusual_tensors(rows),
        ]
    )


def _headline(rows: Iterable[Row], signals: list[LoadReport]) -> Markdown:
    n_clean = sum(not _is_unclean(signal) for signal in signals)
    n_models = len({row.model for row in rows if row.integrity})
    n_tensors = sum(sum(signal.counts.values()) for signal in signals)
    extent = f"{plural(len(signals), 'load')} of {plural(n_models, 'model')}"
    share = part(n_clean, len(signals))
    if n_clean == len(signals):
        share = "all of them" if n_clean > 1 else "all of it"
    return fill(
        "Of {} with {}, {} {} clean. In a clean load every tensor is written, and comes from the "
        "checkpoint, a tie or the config. A second load, with another seed and over poisoned "
        "memory, gives the same bytes. After `save_pretrained` and a second load, bytes, config "
        "and logits are the same. A load without a dtype argument gives the checkpoint's dtype.",
        extent,
        plural(n_tensors, "tensor"),
        share,
        "is" if n_clean == 1 else "are",
    )


def _is_unclean(signal: LoadReport) -> bool:
    return any(True for _ in _remarks(signal))


def _not_examined(rows: Iterable[Row]) -> Markdown:
    """Return the loads whose check raised."""
    cells = [
        fill("{}: {}", str(cell.cell), skip.reason)
        for row in rows
        for cell in row.cells
        for skip in cell.skips
        if skip.what == "integrity" and skip.raised
    ]
    return fill("Not examined, as the check raised: {}.", join(cells, "; ")) if cells else EMPTY


def _unclean(rows: Iterable[Row]) -> list[Line]:
    all_lines = [
        Line(cells=cells, models=(row.model,), variants=(row.variant,), stacks=(stack,))
        for row in rows
        for stack, signal in row.integrity.items()
        for cells in _remarks(signal)
    ]
    return sorted(_joined(all_lines), key=_severity)


def _remarks(signal: LoadReport) -> Iterator[tuple[str, Markdown]]:
    """Yield what is not clean about one load, and the tensors or fields concerned."""
    for source, words in SOURCE_WORDS.items():
        names = [name for name, facts in signal.tensors.items() if facts.source == source]
        silent = [name for name in names if name in signal.silent]
        reported = [name for name in names if name not in signal.silent]
        for chosen, what in ((silent, f"{words}{SILENT}"), (reported, words)):
            if chosen:
                yield what, _tensor_names(chosen, signal)
    ignored = [n for n, f in signal.tensors.items() if f.ignored and f.source not in SOURCE_WORDS]
    if ignored:
        yield IGNORED, _tensor_names(ignored, signal)
    if signal.round_trip is not None:
        yield from _round_trip(signal.round_trip)
    if dtypes := _default_dtype(signal):
        yield DEFAULT_DTYPE, dtypes
    for what in ("second load", "load without a dtype"):  # a save is the round trip above
        if exception := signal.raised.get(what):
            yield f"a {what} raises", prose(exception, 200)


def _tensor_names(names: list[str], signal: LoadReport) -> Markdown:
    """Return the tensors, and how many elements of partly written ones were not written."""
    shown = codes(numbered(names), MAX_NAMES)
    all_facts = [signal.tensors[name] for name in names]
    n_unwritten = sum(facts.n_unwritten for facts in all_facts if facts.source == "partly written")
    return (
        fill("{}, {} not written", shown, plural(n_unwritten, "element")) if n_unwritten else shown
    )


def _round_trip(trip: RoundTrip) -> Iterator[tuple[str, Markdown]]:
    if trip.outcome == "same bits":
        return
    if trip.outcome == "not tried":
        yield NOT_TRIED, prose(trip.reason)
        return
    if trip.outcome != "differs":
        yield ROUND_TRIP, fill("{}: {}", trip.outcome, prose(trip.reason, 200))
        return
    tensors, fields = codes(numbered(trip.tensors), MAX_NAMES), codes(trip.config, MAX_NAMES)
    parts = [
        fill("tensors that differ or are missing: {}", tensors) if trip.tensors else EMPTY,
        fill("config {}", fields) if trip.config else EMPTY,
        Markdown("different logits") if trip.logits == "differs" else EMPTY,
    ]
    yield ROUND_TRIP, join((words for words in parts if words), "; ")


def _default_dtype(signal: LoadReport) -> Markdown:
    """Return the dtype of a load without a requested dtype, if it is not the checkpoint's."""
    stored = {name for name in signal.stored_dtypes if "float" in name}
    if signal.default_dtypes is None or set(signal.default_dtypes) == stored:
        return EMPTY
    default_text, stored_text = ", ".join(sorted(signal.default_dtypes)), ", ".join(sorted(stored))
    return fill("{}, but the checkpoint holds {}", default_text, stored_text or "no floats")


def _joined(lines: Iterable[Line]) -> list[Line]:
    return joined(lines, "stacks", "variants", "models")


def _severity(line: Line) -> tuple[int, bool]:
    order = [*SOURCE_WORDS.values(), IGNORED, ROUND_TRIP, DEFAULT_DTYPE, NOT_TRIED]
    words = line.cells[0].removesuffix(SILENT)
    place = order.index(words) if words in order else -1  # what a check raised comes first
    return place, words == line.cells[0]


def _models(line: Line) -> Markdown:
    links = [link(name, f"{page_path(name)}#{slug(TITLE)}") for name in line.models[:MAX_NAMES]]
    rest = len(line.models) - MAX_NAMES
    return join([*links, *([f"and {count(rest)} more"] if rest > 0 else [])])


def _method(signals: list[LoadReport]) -> Markdown:
    """Return the byte that filled the memory, what it does not cover, and the time it took."""
    poisons = Counter(signal.poison for signal in signals)
    uncovered = Counter(
        facts.not_covered
        for signal in signals
        for facts in signal.tensors.values()
        if facts.is_uncovered
    )
    longest = duration(max(signal.seconds for signal in signals))
    remarks = [
        *(fill("Poison in {}: {}.", plural(n, "load"), poison) for poison, n in poisons.items()),
        *(
            fill(
                "{} could not be checked for uninitialised memory: {}.", plural(n, "tensor"), reason
            )
            for reason, n in uncovered.items()
        ),
        fill("The checks of a cell took at most {}.", longest),
    ]
    return details("How loads were checked, and what the checks do not cover", bullets(remarks))


def _counts(rows: Iterable[Row]) -> Markdown:
    """Return how many tensors have which source, in every variant and stack."""
    lines = _joined(
        Line(cells=_numbers(signal), models=(), variants=(row.variant,), stacks=(stack,))
        for row in rows
        for stack, signal in row.integrity.items()
    )
    table_rows = [[", ".join(line.variants), ", ".join(line.stacks), *line.cells] for line in lines]
    headers = ["variants", "environments", "tensors", *get_args(Source), "not checked"]
    count_table = table(headers, table_rows, right=headers[2:])
    return page([titled("Where parameters and buffers come from"), count_table])


def _numbers(signal: LoadReport) -> tuple[str, ...]:
    counts = signal.counts
    uncovered = sum(facts.is_uncovered for facts in signal.tensors.values())
    sources = [counts.get(source, 0) for source in get_args(Source)]
    figures = [sum(counts.values()), *sources, uncovered]
    return tuple(count(n) if n else "" for n in figures)


def _unusual_tensors(rows: Iterable[Row]) -> Markdown:
    """Return every tensor that is not loaded, tied or derived, or perhaps not written."""
    names: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for row in rows:
        for stack, signal in row.integrity.items():
            for name, facts in signal.tensors.items():
                if not facts.is_plain:
                    cells = _facts(facts, silent=name in signal.silent)
                    names.setdefault((row.variant, stack, cells), []).append(name)
    lines = _joined(
        Line(
            cells=(*cells, codes(numbered(tensor_names), EVERY_NAME)),
            models=(),
            variants=(variant,),
            stacks=(stack,),
        )
        for (variant, stack, cells), tensor_names in names.items()
    )
    if not lines:
        return EMPTY
    headers = [
        "variants",
        "environments",
        "kind",
        "source",
        "uninitialised elements",
        "second load",
    ]
    headers += ["fresh model", "reported as missing", "note", "tensors"]
    table_rows = [[", ".join(line.variants), ", ".join(line.stacks), *line.cells] for line in lines]
    title = titled("Tensors that are not loaded, tied or derived, or that could not be checked")
    return page([title, table(headers, table_rows, right=headers[4:5])])


def _facts(facts: Provenance, *, silent: bool) -> tuple[str, ...]:
    steady = {True: "the same bytes", False: "different bytes", None: "not compared"}[facts.steady]
    notes = [facts.detail, facts.not_covered, IGNORED if facts.ignored else ""]
    return (
        facts.kind,
        facts.source,
        count(facts.n_unwritten) if facts.n_unwritten else "",
        steady,
        facts.fresh,
        "no" if silent else "",
        "; ".join(note for note in notes if note),
    )
