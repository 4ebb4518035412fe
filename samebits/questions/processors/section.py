"""Processors of the models: where the releases differ, and all details of one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from samebits.questions.differing import (
    NOT_OBSERVED,
    differing_lines,
    fact_lines,
    first_lines,
    line_of,
    once_for_models,
)
from samebits.questions.processors.records import (
    ASIDE,
    PROCESSORS,
    PartComparison,
    ProcessorPart,
    ProcessorsOfRow,
)
from samebits.records.report import Report, Row, StackReport
from samebits.text.blocks import codes, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.numbers import number, plural

TITLE = "Processors"
MAX_MODELS = 6
"""Limit for the models that a line names."""
_MAX_DIFFERENCES = 40
"""Differences that the page of a model shows."""
_SAME = "The processors return the same bytes in all releases."
_NOTHING = (
    "Nothing was compared: every call raises in all releases, or the processors do not load. The pages of "
    "the models have the exceptions."
)
_PILLOW = (
    "With torchvision, which most users of images have, releases of 5.x compute different pixels, and nothing "
    "here shows them"
)
_BOTH_RAISE = "not observed, as both releases raise"
_WORDS = {
    "other function": "behaviour change",
    "rounding": "rounding",
    "undecided": "not decided",
    "other form": "different keys, shapes or dtypes",
    "raised": "one side raises",
    "no effect": "an option has no effect on one side",
    "identical": "the same",
}


def processors(report: Report) -> Markdown:
    """Return what differs between releases, models with equal lines joined; may be empty."""
    models = PROCESSORS.by_model(report.rows)
    if not models:
        return EMPTY
    stacks = [stack.id for stack in report.stacks]
    rows = once_for_models(
        {model: differing_lines(_lines(answer, stacks)) for model, answer in models.items()}
    )
    parts = [
        part
        for answer in models.values()
        for compared in answer.compared.values()
        for part in compared.parts
    ]
    n_compared = sum(part.n_compared for part in parts)
    intro = fill(
        "{} with a processor of images, videos or sounds. It got the same seeded inputs in every "
        "release. It does not affect the verdict.",
        plural(len(models), "model"),
    )
    comparison = (
        table(["", *stacks, "models"], rows) if rows else prose(_SAME if n_compared else _NOTHING)
    )
    return page([heading(2, TITLE), intro, _libraries(models, report), comparison])


def _libraries(models: Iterable[str], report: Report) -> Markdown:
    """Return what computes images, which decides their pixels."""
    used: dict[str, list[str]] = {}
    for model in models:
        for stack in report.stacks:
            used.setdefault(_library(model, stack, report), []).append(model)
    used.pop("", None)
    lines = [
        fill(
            "Images: {}{}.",
            text,
            "" if len(used) == 1 else fill(" ({})", codes(dict.fromkeys(users), MAX_MODELS)),
        )
        for text, users in used.items()
    ]
    return join(lines, " ")


def _library(model: str, stack: StackReport, report: Report) -> str:
    """Return the library for images beside a stack; '' if there is none."""
    own = (p.packages for p in report.packages if p.stack == stack.id and model in p.models)
    packages = {
        name: version for source in (stack.packages, *own) for name, version in source.items()
    }
    if "torchvision" in packages:
        return f"torchvision {packages['torchvision']} is installed, as for most users"
    if "pillow" in packages:
        return f"Pillow {packages['pillow']} alone. {_PILLOW}"
    return ""


def processors_of(rows: list[Row], report: Report) -> Markdown:
    """Return all observations of one model's processors, for its own page."""
    model, answer = next(iter(PROCESSORS.by_model(rows).items()), ("", None))
    if answer is None:
        return EMPTY
    stacks = [stack.id for stack in report.stacks if stack.id in answer.stacks]
    lines = [line_of(name, answers) for name, *answers in _lines(answer, stacks)]
    libraries = _libraries([model], report)
    return page([heading(2, TITLE), libraries, table(["", *stacks], lines), _differences(answer)])


def processors_differ(rows: Iterable[Row]) -> bool:
    """Return True if two releases differ in a processor."""
    return any(
        differing_lines(_lines(answer, list(answer.stacks)))
        for answer in PROCESSORS.by_model(rows).values()
    )


def _lines(answer: ProcessorsOfRow, stacks: list[str]) -> list[list[str]]:
    return fact_lines({stack: _facts(answer, stack) for stack in answer.stacks}, stacks)


def _facts(answer: ProcessorsOfRow, stack: str) -> dict[str, str]:
    facts: dict[str, str] = {}
    for name, part in answer.stacks[stack].parts.items():
        if part.role in (*ASIDE, "options"):
            continue  # the same object
        facts[f"{name}: class"] = _class(part)
        if part.backend:
            facts[f"{name}: backend"] = part.backend
        for setting in _changed_settings(answer, name):
            facts[f"{name}: {setting}"] = part.settings.get(setting, NOT_OBSERVED)
    report = answer.compared.get(stack)
    reference = _reference(answer)
    if report is not None:
        for compared in report.parts:
            facts[f"{compared.part}: outputs"] = _outputs(compared, reference)
            if compared.n_both_raise:
                facts[f"{compared.part}: {_BOTH_RAISE}"] = plural(compared.n_both_raise, "input")
    elif stack == reference:
        ran = {p.part for other in answer.compared.values() for p in other.parts if p.n_compared}
        names = (name for name in answer.stacks[stack].parts if name in ran)
        facts |= {f"{name}: outputs": f"same as in {reference}" for name in names}
    return facts


def _reference(answer: ProcessorsOfRow) -> str:
    """Return the stack that the others are compared with; '' if none is."""
    return next((report.reference for report in answer.compared.values()), "")


def _class(part: ProcessorPart) -> str:
    if part.class_name:
        return part.class_name
    return f"raises {part.raised}" if part.raised else f"absent: {part.absent}"


def _changed_settings(answer: ProcessorsOfRow, name: str) -> list[str]:
    """Return the settings of a part that differ in any stack."""
    changed = (
        setting
        for report in answer.compared.values()
        for part in report.parts
        if part.part == name
        for setting, _, _ in part.settings
    )
    return list(dict.fromkeys(changed))


def _outputs(part: PartComparison, reference: str) -> str:
    """Return how many inputs differ, by the kind of the difference."""
    if not part.n_compared:
        return NOT_OBSERVED
    cases = {(difference.outcome, difference.case) for difference in part.differences}
    if not cases:
        return f"same as in {reference}"
    counts = Counter(outcome for outcome, _ in cases)
    words = (f"{_WORDS[outcome]}: {n}" for outcome, n in sorted(counts.items()))
    return f"{'; '.join(words)} of {part.n_compared}"


def _differences(answer: ProcessorsOfRow) -> Markdown:
    """Return the differences of each stack, case by case."""
    lines = [
        [
            prose(stack),
            prose(f"{difference.part}: {difference.case}"),
            code(difference.output) if difference.output else prose(NOT_OBSERVED),
            prose(_WORDS[difference.outcome]),
            prose(difference.step or difference.reason or NOT_OBSERVED),
            _size(difference.size),
            _size(difference.promoted_size),
            code(difference.reference),
            code(difference.candidate),
        ]
        for stack, report in answer.compared.items()
        for part in report.parts
        for difference in part.differences
    ]
    if not lines:
        return EMPTY
    headers = [
        "environment",
        "input",
        "output",
        "differs by",
        "first step",
        "RMS",
        "RMS in float64",
    ]
    headers += [_reference(answer), "this environment"]
    return first_lines(headers, lines, _MAX_DIFFERENCES)


def _size(size: float | None) -> Markdown:
    return prose(NOT_OBSERVED if size is None else number(size))
