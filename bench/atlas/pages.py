"""docs/atlas.md and the pages below docs/atlas/: one for each release, and one for each type that changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from bench.atlas import book
from bench.atlas.book import Change
from samebits.records.compat import CompatFile, CompatModel, CompatRange, Step
from samebits.text.blocks import bullets, heading, link, page, table
from samebits.text.markdown import Markdown, fill, join, prose
from samebits.text.numbers import count, plural

DOCS = Path(__file__).parents[2] / "docs"
INDEX = "atlas.md"

MARKS: dict[Step, str] = {
    "": "=",
    "rounding": "≈",
    "diverged": "**≠**",
    "undecided": "?",
    "fails": "**↯**",
    "fails otherwise": "**↯**",
    "unstable": "**~**",
    "works": "✓",
    "new": "new",
    "gone": "gone",
    "open": "·",
}
"""Step -> what a cell of the table shows."""
TITLES: dict[Step, str] = {
    "gone": "No longer there",
    "fails": "Raise",
    "fails otherwise": "Raise another exception",
    "unstable": "Give other numbers at every load",
    "diverged": "Change behaviour",
    "undecided": "Change bits, undecided whether by rounding",
    "works": "Work again",
    "open": "Not compared",
    "rounding": "Round differently",
    "new": "New",
}
"""Step -> the heading of a release's page, the worst first."""
_LISTED: tuple[Step, ...] = ("gone", "open", "rounding", "new")
"""Steps of which a page lists the types alone."""

_INTRO = """\
Written by `nox -s atlas`; do not edit. For each model type a tiny model was made from the defaults of its config class, saved once \
by the oldest release that knows it, and loaded in every release. Outputs were compared byte for byte, and in float64; where a release does \
more than round, it was compared once more, directly with the one before it. \
A type that changes nothing here can change with another config: `samebits check` your own model."""
_LEGEND = """\
A mark says what a release changes from the one before it: `=` nothing · `≈` rounding · `≠` behaviour · `?` bits, undecided whether \
by rounding · `↯` it raises · `~` every load gives other numbers · `✓` it works again · `new`, `gone` the type · `·` not compared. \
No mark: the release does not know the type."""


def render(atlas: CompatFile) -> dict[str, str]:
    """Return the text of each page by its path below docs/."""
    releases = [release.id for release in atlas.releases]
    changes: defaultdict[str, list[Change]] = defaultdict(list)
    for change in book.changes(atlas):
        changes[change.after.first].append(change)
    pages = {INDEX: _index(atlas, changes)}
    for before, release in pairwise(releases):
        pages[f"atlas/{release}.md"] = _release(before, release, changes[release])
    for model in filter(changes_more_than_rounding, atlas.models):
        pages[_page(model)] = _type(model)
    return {path: f"{text}\n" for path, text in pages.items()}


def write(atlas: CompatFile, docs: Path = DOCS) -> None:
    """Write the pages in place of all earlier ones."""
    pages = render(atlas)
    folder = docs / "atlas"
    folder.mkdir(exist_ok=True)
    for path in folder.glob("**/*.md"):
        path.unlink()
    for name, text in pages.items():
        path = docs / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8", newline="\n")


def changes_more_than_rounding(model: CompatModel) -> bool:
    """Return True if a release changes more of a model than rounding, or it raises."""
    quiet = ("", "rounding", "new", "open")
    return any(r.step not in quiet or r.state in ("raises", "unstable") for r in model.ranges)


def _index(atlas: CompatFile, changes: dict[str, list[Change]]) -> Markdown:
    releases = [release.id for release in atlas.releases]
    hit = [model for model in atlas.models if changes_more_than_rounding(model)]
    quiet = [model for model in atlas.models if not changes_more_than_rounding(model)]
    computing = [model.model for model in quiet if _computes(model)]
    unmade = [model.model for model in quiet if not _computes(model)]
    cells = sum(r.state != "absent" for m in atlas.models for r in _cells(m, releases))
    width = fill(
        "{} in {}: {} cells, torch {}, started {}. Not asked: training, save and load, tokenizers, processors, and every "
        "value of a config but the defaults.",
        plural(len(atlas.models), "type"),
        plural(len(releases), "release"),
        count(cells),
        atlas.releases[-1].torch or "",
        atlas.started[:10],
    )
    data = "[reports/atlas/compat.json.xz](../reports/atlas/compat.json.xz)"
    schema = "[schema](../samebits/schemas/compat.schema.json)"
    return page(
        [
            heading(1, "The atlas: model types by release"),
            Markdown(_INTRO),
            width,
            Markdown(f"Data: {data} ({schema}); `samebits matrix --format compat` writes it of models of your own."),
            heading(2, "What each release changes"),
            table(["release", *_COUNTED.values()], _counts(releases, changes)),
            heading(2, "Types that a release breaks or changes"),
            Markdown(_LEGEND),
            table(["type", *releases], [[link(m.model, _page(m)), *_marks(m, releases)] for m in hit]),
            heading(2, "Types that differ by rounding at most"),
            _names(computing),
            *([heading(2, "Types that were not compared"), _names(unmade)] if unmade else []),
        ]
    )  # fmt: skip


_COUNTED: dict[Step, str] = {
    "rounding": "≈ round",
    "diverged": "≠ change behaviour",
    "undecided": "? undecided",
    "fails": "↯ raise",
    "unstable": "~ unstable",
    "works": "✓ work again",
    "new": "new",
    "gone": "gone",
}


def _counts(releases: Sequence[str], changes: dict[str, list[Change]]) -> Iterable[list[str]]:
    for release in releases[1:]:
        counts = Counter(change.after.step for change in changes[release])
        counts["fails"] += counts["fails otherwise"]
        cells = [str(counts[step]) if counts[step] else "" for step in _COUNTED]
        yield [link(release, f"atlas/{release}.md"), *cells]


def _computes(model: CompatModel) -> bool:
    return any(each.state == "computes" for each in model.ranges)


def _names(names: Iterable[str]) -> Markdown:
    return Markdown(", ".join(f"`{name}`" for name in names))


def _cells(model: CompatModel, releases: Sequence[str]) -> Iterable[CompatRange]:
    """Yield the range of each release that a model was asked in."""
    places = {release: place for place, release in enumerate(releases)}
    for each in model.ranges:
        for _ in range(places[each.first], places[each.last] + 1):
            yield each


def _marks(model: CompatModel, releases: Sequence[str]) -> list[Markdown]:
    """Return the mark of each release."""
    marks: list[Markdown] = []
    earlier = None
    for each in _cells(model, releases):
        begins = each is not earlier
        earlier = each
        if each.state == "absent":
            mark = "gone" if begins and each.step == "gone" else ""
        elif begins and each.step:
            mark = MARKS[each.step]
        else:
            mark = {"computes": "=", "raises": "↯", "unstable": "~"}.get(each.state, "·")
        marks.append(Markdown(mark))
    return marks


def _release(before: str, release: str, changes: list[Change]) -> Markdown:
    """Return the page of a release: what it changes, for whom, and what to do."""
    upstream = f"https://github.com/huggingface/transformers/compare/v{before}...v{release}"
    blocks = [
        heading(1, f"transformers {release}: what changes from {before}"),
        Markdown(
            f"Part of [the atlas](../atlas.md). Every pair of releases: `samebits check type:NAME --from {before} --to "
            f"{release}`. [All changes of transformers between both]({upstream})."
        ),
    ]
    by_step: defaultdict[Step, list[Change]] = defaultdict(list)
    for change in changes:
        by_step[change.after.step].append(change)
    for step, title in TITLES.items():
        if of_step := by_step.get(step):
            names = join((_linked(change.model) for change in of_step), ", ")
            body = names if step in _LISTED else _changed(of_step)
            blocks += [heading(2, f"{title}: {plural(len(of_step), 'type')}"), body]
    if len(blocks) == 2:
        blocks.append(Markdown("Nothing changes in any type."))
    return page(blocks)


def _linked(model: CompatModel) -> Markdown:
    if changes_more_than_rounding(model):
        return link(model.model, f"types/{model.model}.md")
    return _names([model.model])


def _changed(changes: list[Change]) -> Markdown:
    header = ["type", "what changes", "where", "which side is right", "what to do", "findings"]
    rows = [[_linked(change.model), *_facts(change.after, "..")] for change in changes]
    return table(header, rows)


def _facts(after: CompatRange, docs: str) -> list[str]:
    """Return the cells about a step; ``docs`` leads to the folder docs/."""
    codes = join((link(code, f"{docs}/findings/{code}.md") for code in after.findings), ", ")
    return [*(prose(text) for text in (after.what, after.where, after.side, after.do)), codes]


def _type(model: CompatModel) -> Markdown:
    """Return the page of a type."""
    header = [
        "releases",
        "state",
        "bits",
        "what changes",
        "where",
        "which side is right",
        "what to do",
        "findings",
    ]
    rows = []
    for each in model.ranges:
        span = each.first if each.first == each.last else f"{each.first} to {each.last}"
        wrong = f"{each.state}, wrong" if each.wrong and each.state == "computes" else each.state
        what, *others = _facts(each, "../..")
        rows.append([span, wrong, each.bits, what or _ONLY.get(each.step, ""), *others])
    again = f"samebits check type:{model.model} --from RELEASE --to RELEASE"
    return page(
        [
            heading(1, model.model),
            Markdown("Part of [the atlas](../../atlas.md). Ranges with the same letter have the same bits."),
            table(header, rows),
            bullets([prose(f"Checkpoint: {model.source}."), Markdown(f"Ask more: `{again}`")]),
        ]
    )  # fmt: skip


_ONLY: dict[Step, str] = {
    "new": "the release is the first that knows the type",
    "gone": "the release no longer knows the type",
    "open": "one of both releases was not compared",
    "works": "it works again",
}


def _page(model: CompatModel) -> str:
    return f"atlas/types/{model.model}.md"
