"""Modules that no prompt ran, so that the verdict says nothing about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from samebits.records.capture import UnrunModule
from samebits.records.ids import Level
from samebits.records.report import Report, Row
from samebits.text.blocks import below, bullets, heading, page
from samebits.text.lists import group_equal, grouped
from samebits.text.markdown import Markdown, fill
from samebits.text.numbers import count, first_of, plural

TITLE, PROMPTS = "Not run by any prompt", "What the prompts hold"
INTRO = (
    "No prompt called these modules, and no operation read their parameters. Their weights were "
    "compared, what they compute was not. `inputs:` in matrix.yaml, or `samebits check --inputs FILE`, "
    "gives a model what runs them."
)
EXPERTS = "others of the list ran; so it is with experts that no token was sent to"
TEXT_ALONE = (
    "Most relations, uses and training steps got text alone. Forward and decoding were also fed {}."
)
NO_VIDEO = "No video was fed."
_MEDIA = {"image": "an image", "video": "a video", "audio": "a sound"}
"""Names of the prompts with an image, a video or a sound -> what they hold."""
MAX_NAMES = 4
MAX_MODELS = 6
"""Limits for what a line names."""


def unrun_of(rows: Sequence[Row], level: Level) -> Markdown:
    """Return the section of a model's page; empty if every module ran."""
    sentences = [
        fill("{}, {}: {}.", row.variant, ", ".join(stacks), in_words(modules, len(modules)))
        for row in rows
        for stacks, modules in group_equal(row.unrun)
    ]
    media = Markdown(media_of(rows, level))
    if not sentences:
        return below(heading(2, PROMPTS), media)
    return page([heading(2, TITLE), Markdown(INTRO), bullets(sentences), media])


def unrun_line(report: Report) -> str:
    """Return the modules that no prompt ran, by model; '' if there are none."""
    words: dict[str, list[str]] = {}
    for row in report.rows:
        for stacks, modules in group_equal(row.unrun):
            where = "" if len(stacks) >= len(row.attention) else f" ({', '.join(stacks)})"
            words.setdefault(row.model, []).append(f"{in_words(modules)}{where}")
    is_single = len(report.models) == 1
    texts = [
        "; ".join(dict.fromkeys(of_model))
        if is_single
        else f"{model}: {'; '.join(dict.fromkeys(of_model))}"
        for model, of_model in words.items()
    ]
    return f"{TITLE}: {'; '.join(first_of(texts, MAX_MODELS, 'model'))}" if texts else ""


def media_line(report: Report) -> str:
    """Return which observations had no image, sound or video, by model; '' where all models take text alone."""
    words: dict[str, list[str]] = {}
    models = grouped(report.rows, lambda row: row.model)
    for model, rows in models.items():
        if sentence := media_of(rows, report.level):
            words.setdefault(sentence, []).append(model)
    is_single = len(models) == 1
    return " ".join(
        sentence if is_single else f"{', '.join(names[:MAX_MODELS])}: {sentence}"
        for sentence, names in words.items()
    )


def media_of(rows: Iterable[Row], level: Level) -> str:
    """Return which observations of one model had no image, sound or video; '' where it takes text alone.

    A quick run has none but those that had.
    """
    cells = [cell for row in rows for cell in row.cells]
    prompts = {
        item.subject.prompt for cell in cells for signal in cell.signals for item in signal.items
    }
    fed = [what for prompt, what in _MEDIA.items() if prompt in prompts]
    # a release that refuses a video says so itself
    is_unfed = "video" not in prompts and any(
        skip.what == "forward video" for cell in cells for skip in cell.skips
    )
    sentences = [TEXT_ALONE.format(" or ".join(fed))] if fed and level != "quick" else []
    return " ".join([*sentences, *([NO_VIDEO] if is_unfed else [])])


def in_words(modules: Sequence[UnrunModule], most: int = MAX_NAMES) -> str:
    """Return the names of modules, those of one list together."""
    lists: dict[str, list[str]] = {}
    names = []
    for module in modules:
        parent, _, index = module.name.rpartition(".")
        if module.one_of_several:
            lists.setdefault(parent, []).append(index)
        else:
            names.append(f"{module.name} ({plural(module.parameters, 'parameter')})")
    names += [
        f"{plural(len(indices), 'module')} of {name} ({', '.join(indices[:most])}"
        f"{', …' if len(indices) > most else ''}: {EXPERTS})"
        for name, indices in lists.items()
    ]
    rest = len(names) - most
    more = [f"{count(rest)} more"] if rest > 0 else []
    return ", ".join([*names[:most], *more])
