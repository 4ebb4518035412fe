"""Loading: which loads did not do what they say, each seen from its own stack alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

from samebits.records.provenance import Source
from samebits.text.blocks import bullets, codes, details, heading, link, page, slug, table, titled
from samebits.text.markdown import EMPTY, Markdown, fill, join, prose
from samebits.text.names import numbered, page_path
from samebits.text.numbers import count, duration, part, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.records.provenance import Provenance, RoundTrip
    from samebits.records.report import LoadReport, Report, Row

TITLE = "Loading"

SAID: dict[Source, str] = {
    "unwritten": "never written",
    "partly written": "written in part",
    "reinitialised": "drawn by chance",
    "unexplained": "of unknown origin",
}
"""What is said of tensors from the sources that no load should have, the worst first."""

SILENT = ", and loading named no key"
IGNORED = "not what the checkpoint has by that name"
ROUND_TRIP = "saved and loaded again"
DEFAULT_DTYPE = "dtype of a load that asks for none"
NOT_TRIED = "not tried"

MOST_LINES = 60
"""Lines of report.md about loads that are not clean; the models' pages have them all."""

MOST_NAMES = 6
"""Models, tensors or fields that a line names."""

EVERY_NAME = 10_000


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a table, and everywhere where just that is true."""

    cells: tuple[str, ...]
    models: tuple[str, ...]
    variants: tuple[str, ...]
    stacks: tuple[str, ...]


def loading(report: Report) -> Markdown:
    """Return the section; nothing if no load was looked into."""
    signals = [signal for row in report.rows for signal in row.integrity.values()]
    if not signals:
        return EMPTY
    found = _unclean(report.rows)
    shown = [
        [line.cells[0], _models(line), ", ".join(line.variants), ", ".join(line.stacks), *rest]
        for line in found[:MOST_LINES]
        for rest in [line.cells[1:]]
    ]
    rest = len(found) - MOST_LINES
    return page(
        [
            heading(2, TITLE),
            _headline(report.rows, signals),
            table(["what", "models", "variants", "stacks", "which"], shown),
            fill("… and {} more on the models' pages.", count(rest)) if rest > 0 else EMPTY,
            _how(signals),
        ]
    )


def has_loading_to_tell(rows: Iterable[Row]) -> bool:
    """Return True if a load of these rows is not clean."""
    return any(_is_unclean(signal) for row in rows for signal in row.integrity.values())


def loading_of(rows: list[Row]) -> Markdown:
    """Return where the tensors of one model come from, and by name those that should not."""
    if not any(row.integrity for row in rows):
        return EMPTY
    shown = [
        [line.cells[0], ", ".join(line.variants), ", ".join(line.stacks), *line.cells[1:]]
        for line in _unclean(rows)
    ]
    return page(
        [
            heading(2, TITLE),
            table(["what", "variants", "stacks", "which"], shown),
            _counts(rows),
            _odd_tensors(rows),
        ]
    )


def _headline(rows: Iterable[Row], signals: list[LoadReport]) -> Markdown:
    clean = sum(not _is_unclean(signal) for signal in signals)
    models = len({row.model for row in rows if row.integrity})
    tensors = sum(sum(signal.counts.values()) for signal in signals)
    extent = f"{plural(len(signals), 'load')} of {plural(models, 'model')}"
    share = part(clean, len(signals))
    if clean == len(signals):
        share = "all of them" if clean > 1 else "all of it"
    return fill(
        "Of {} with {}, {} {} clean: every tensor was written and comes from the checkpoint, a "
        "tie or the config; a second load, under another seed and over poisoned memory, gives "
        "the same bytes; what is saved loads again with the same bytes, config and logits; and "
        "a load that asks for no dtype gives the checkpoint's.",
        extent,
        plural(tensors, "tensor"),
        share,
        "is" if clean == 1 else "are",
    )


def _is_unclean(signal: LoadReport) -> bool:
    return any(True for _ in _remarks(signal))


def _unclean(rows: Iterable[Row]) -> list[Line]:
    found = [
        Line(cells=cells, models=(row.model,), variants=(row.variant,), stacks=(stack,))
        for row in rows
        for stack, signal in row.integrity.items()
        for cells in _remarks(signal)
    ]
    return sorted(_folded(found), key=_gravity)


def _remarks(signal: LoadReport) -> Iterator[tuple[str, Markdown]]:
    """Yield what is not clean about one load, and which of its parts that is."""
    for source, words in SAID.items():
        names = [name for name, facts in signal.tensors.items() if facts.source == source]
        silent = [name for name in names if name in signal.silent]
        told = [name for name in names if name not in signal.silent]
        for chosen, what in ((silent, f"{words}{SILENT}"), (told, words)):
            if chosen:
                yield what, _some(chosen, signal)
    ignored = [n for n, f in signal.tensors.items() if f.ignored and f.source not in SAID]
    if ignored:
        yield IGNORED, _some(ignored, signal)
    if signal.round_trip is not None:
        yield from _round_trip(signal.round_trip)
    if said := _default_dtype(signal):
        yield DEFAULT_DTYPE, said


def _some(names: list[str], signal: LoadReport) -> Markdown:
    """Return the tensors, and how much of them nobody wrote where that is a part."""
    shown = codes(numbered(names), MOST_NAMES)
    found = [signal.tensors[name] for name in names]
    left = sum(facts.n_unwritten for facts in found if facts.source == "partly written")
    return fill("{}, {} not", shown, plural(left, "element")) if left else shown


def _round_trip(trip: RoundTrip) -> Iterator[tuple[str, Markdown]]:
    if trip.outcome == "same bits":
        return
    if trip.outcome == "not tried":
        yield NOT_TRIED, prose(trip.reason)
        return
    if trip.outcome != "differs":
        yield ROUND_TRIP, fill("{}: {}", trip.outcome, prose(trip.reason, 200))
        return
    tensors, fields = codes(numbered(trip.tensors), MOST_NAMES), codes(trip.config, MOST_NAMES)
    said = [
        fill("other bytes, or none, in {}", tensors) if trip.tensors else EMPTY,
        fill("config {}", fields) if trip.config else EMPTY,
        Markdown("other logits") if trip.logits == "differs" else EMPTY,
    ]
    yield ROUND_TRIP, join((words for words in said if words), "; ")


def _default_dtype(signal: LoadReport) -> Markdown:
    """Return the dtype of a load that asks for none, if it is not the checkpoint's."""
    stored = {name for name in signal.stored_dtypes if "float" in name}
    if signal.default_dtypes is None or set(signal.default_dtypes) == stored:
        return EMPTY
    found, held = ", ".join(sorted(signal.default_dtypes)), ", ".join(sorted(stored))
    return fill("{}, where the checkpoint holds {}", found, held or "no floats")


def _folded(found: Iterable[Line]) -> list[Line]:
    """Return the lines with those joined that say the same of other stacks, variants, models."""
    for field in ("stacks", "variants", "models"):
        groups: dict[Line, dict[str, None]] = {}
        for one in found:
            rest = replace(one, **{field: ()})
            groups.setdefault(rest, {}).update(dict.fromkeys(getattr(one, field)))
        found = [replace(rest, **{field: tuple(names)}) for rest, names in groups.items()]
    return list(found)


def _gravity(line: Line) -> tuple[int, bool]:
    order = [*SAID.values(), IGNORED, ROUND_TRIP, DEFAULT_DTYPE, NOT_TRIED]
    words = line.cells[0].removesuffix(SILENT)
    return order.index(words), words == line.cells[0]


def _models(line: Line) -> Markdown:
    links = [link(name, f"{page_path(name)}#{slug(TITLE)}") for name in line.models[:MOST_NAMES]]
    rest = len(line.models) - MOST_NAMES
    return join([*links, *([f"and {count(rest)} more"] if rest > 0 else [])])


def _how(signals: list[LoadReport]) -> Markdown:
    """Return what memory was filled with, what that does not cover, and what it took."""
    poisons = Counter(signal.poison for signal in signals)
    uncovered = Counter(
        facts.not_covered
        for signal in signals
        for facts in signal.tensors.values()
        if facts.is_uncovered
    )
    took = duration(max(signal.seconds for signal in signals))
    said = [
        *(fill("Poison in {}: {}.", plural(n, "load"), how) for how, n in poisons.items()),
        *(
            fill("Whether it was written is not known of {}: {}.", plural(n, "tensor"), why)
            for why, n in uncovered.items()
        ),
        fill("It took a cell at most {}.", took),
    ]
    return details("How loads were looked into, and what that does not cover", bullets(said))


def _counts(rows: Iterable[Row]) -> Markdown:
    """Return how many tensors come from where, in every variant and stack."""
    found = _folded(
        Line(cells=_numbers(signal), models=(), variants=(row.variant,), stacks=(stack,))
        for row in rows
        for stack, signal in row.integrity.items()
    )
    lines = [[", ".join(f.variants), ", ".join(f.stacks), *f.cells] for f in found]
    headers = ["variants", "stacks", "tensors", *get_args(Source), "perhaps not written"]
    drawn = table(headers, lines, right=headers[2:])
    return page([titled("Where parameters and buffers come from"), drawn])


def _numbers(signal: LoadReport) -> tuple[str, ...]:
    counts = signal.counts
    uncovered = sum(facts.is_uncovered for facts in signal.tensors.values())
    sources = [counts.get(source, 0) for source in get_args(Source)]
    figures = [sum(counts.values()), *sources, uncovered]
    return tuple(count(n) if n else "" for n in figures)


def _odd_tensors(rows: Iterable[Row]) -> Markdown:
    """Return every tensor that is not loaded, tied or derived, or not known to be written."""
    names: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for row in rows:
        for stack, signal in row.integrity.items():
            for name, facts in signal.tensors.items():
                if not facts.is_plain:
                    cells = _facts(facts, silent=name in signal.silent)
                    names.setdefault((row.variant, stack, cells), []).append(name)
    found = _folded(
        Line(
            cells=(*cells, codes(numbered(same), EVERY_NAME)),
            models=(),
            variants=(variant,),
            stacks=(stack,),
        )
        for (variant, stack, cells), same in names.items()
    )
    if not found:
        return EMPTY
    headers = ["variants", "stacks", "kind", "source", "elements nobody wrote", "second load"]
    headers += ["fresh model", "named by loading", "note", "tensors"]
    lines = [[", ".join(f.variants), ", ".join(f.stacks), *f.cells] for f in found]
    title = titled("Tensors that are not loaded, tied or derived, or perhaps not written")
    return page([title, table(headers, lines, right=headers[4:5])])


def _facts(facts: Provenance, *, silent: bool) -> tuple[str, ...]:
    steady = {True: "the same bytes", False: "other bytes", None: "not compared"}[facts.steady]
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
