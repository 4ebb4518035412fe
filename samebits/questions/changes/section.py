"""What reports say of changed code that did not run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from samebits.compare.describe import some
from samebits.questions.changes.records import CHANGES, Area, Step, Unrun, Why
from samebits.records.ids import Level, Verdict
from samebits.records.report import Report, Row
from samebits.text.blocks import below, bullets, codes, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, prose
from samebits.text.numbers import plural

TITLE = "Changed code that did not run"
SHOWN = 10
"""Definitions that a page lists for a step."""
NAMED = 3
"""Definitions that the first screen names."""
_RAN = frozenset(Verdict) - {Verdict.ABSENT, Verdict.NOT_FINISHED, Verdict.FAILED}
_NEAR = {
    "own": "the model's own file",
    "ran": "a file that ran in part",
    "imported": "an imported file",
}


class _Give(NamedTuple):
    """What makes code of an area run, where no question is switched off that runs it."""

    short: str
    """For the first screen."""
    how: str


_GIVE: dict[Area, _Give] = {
    "model": _Give(
        "give inputs or a config that need it",
        "give inputs that need it (`inputs:`, `--inputs FILE`), another `class:`, or a config that switches it on",
    ),
    "image": _Give("give images", "give images, videos or sounds (`inputs:`, `--inputs FILE`)"),
    "text": _Give("add a probe of texts", "add a probe that tokenizes such texts (`probes:`)"),
    "training": _Give("add a probe that trains", "add a probe that trains so (`probes:`)"),
    "saving": _Give("add a probe that saves", "add a probe that saves so (`probes:`)"),
    "generation": _Give(
        "other arguments of generate()",
        "add a probe with such arguments of generate() (`probes:`)",
    ),
    "attention": _Give(
        "name another attention", "name another implementation (`attention: [eager, sdpa, …]`)"
    ),
    "other": _Give("add a probe", "add a probe that calls it (`probes:`)"),
}
_CLASS = re.compile(r"(\w+(?:For[A-Z]\w*|Model))\.forward")
"""A forward of a class that users load."""
_WHY: dict[Why, str] = {
    "name": "nothing that the model reaches refers to them",
    "class": "they belong to classes that are no part of the model, such as other heads",
    "config": "only values that its config does not have lead to them",
    "family": "they belong to other models",
    "input": "the model has no tokenizer or no processor",
    "package": "they need a quantized checkpoint, other devices or another package",
    "framework": "they are of TensorFlow or Flax",
    "message": "they import, document, log, download or upload",
}


def of_run(report: Report) -> Markdown:
    """Return how much of each step ran, for all models; may be empty."""
    rows = [
        [
            code(row.model),
            _arrow(step),
            f"{step.changed:,}",
            f"{step.ran:,}",
            f"{step.unrun:,}",
            f"{sum(step.unreached.values()):,}",
        ]
        for row in report.rows
        for step in steps_of(row)
        if step.changed
    ]
    if not rows:
        return EMPTY
    intro = prose(
        "Functions, classes and constants of transformers that differ between two releases and that the "
        "model can reach by name. One ran if a line ran that differs: other branches of it, and other values, may "
        "not have. A difference in what did not run cannot show in a verdict."
    )
    header = ["model", "step", "changed", "ran", "did not run", "out of reach"]
    return page(
        [heading(2, TITLE), intro, table(header, rows, right=header[2:]), _most_models(report)]
    )


def _most_models(report: Report) -> Markdown:
    """Return the definitions that did not run in most models; empty for one model."""
    models: Counter[tuple[str, str, str]] = Counter()
    entries: dict[tuple[str, str, str], Unrun] = {}
    for row in report.rows:
        for step in steps_of(row):
            for entry in step.first:
                key = f"{step.reference} → {step.candidate}", entry.file, entry.name
                models[key] += 1
                entries.setdefault(key, entry)
    if len({row.model for row in report.rows if steps_of(row)}) < 2:
        return EMPTY
    rows = [
        [code(key[2]), _place(entries[key]), key[0], str(n), _to_run(entries[key], report.level)]
        for key, n in models.most_common(SHOWN)
    ]
    header = ["definition", "place", "step", "models", "to run it"]
    return page([prose("Those that concern most models:"), table(header, rows, right=["models"])])


def of_model(rows: list[Row], report: Report) -> Markdown:
    """Return the nearest definitions that did not run, for each step of a model; may be empty."""
    blocks = [block for row in rows for step in steps_of(row) for block in _of_step(step, report)]
    off = sorted({name for row in rows for name in off_of(row)})
    if off:
        blocks.append(fill("{}: {}", _left_out(report.level), codes(off)))
    return below(heading(2, TITLE), *blocks)


def has_unrun(rows: Iterable[Row]) -> bool:
    """Return True if the page of a model has definitions to list."""
    return any(step.unrun for step in _steps(rows))


def _left_out(level: Level) -> Markdown:
    where = "`--quick` or the matrix file" if level == "quick" else "The matrix file"
    return Markdown(f"{where} leaves out these questions")


def _of_step(step: Step, report: Report) -> Iterator[Markdown]:
    if step.unread:
        yield fill("Not read by the Python of samebits: {}", codes(step.unread))
    if not step.changed and not step.unreached:
        return
    yield fill(
        "{}: {} of {} that the model can reach did not run in any check.",
        _arrow(step),
        f"{step.unrun:,}",
        plural(step.changed, "changed definition"),
    )
    if step.few:
        yield fill("Of the changed definitions these ran: {}", codes(step.few))
    listed = step.first[:SHOWN]
    if listed:
        header = ["definition", "place", "where", "to run it"]
        yield table(header, [_line(entry, report.level) for entry in listed])
    if step.unrun > len(listed):
        yield prose(f"{plural(step.unrun - len(listed), 'more definition')} did not run.")
    if step.unreached:
        n = plural(sum(step.unreached.values()), "changed definition")
        yield prose(f"{n} of the files that it imports cannot run in this model:")
        yield bullets(prose(f"{count:,}: {_WHY[why]}") for why, count in step.unreached.items())


def _line(entry: Unrun, level: Level) -> list[Markdown]:
    near = _NEAR[entry.near]
    if entry.ran_elsewhere:
        near = f"{near}; it ran, but none of its lines that differ"
    if entry.aside:
        near = f"{near}; only a check that raised ran it"
    return [code(entry.name), _place(entry), prose(near), _to_run(entry, level)]


def _to_run(entry: Unrun, level: Level) -> Markdown:
    """Return what to give or to switch on, so that a definition runs."""
    name = _class(entry)
    give = f"load that class (`class: {name}`, `--class {name}`)" if name else _GIVE[entry.area].how
    return Markdown(_switches(entry, level) or give)


def _class(entry: Unrun) -> str:
    """Return the class whose forward it is, as `--class` takes it, if it never ran; '' for other definitions."""
    match = _CLASS.fullmatch(entry.name)
    return f"transformers:{match[1]}" if match and not entry.ran_elsewhere else ""


def _switches(entry: Unrun, level: Level) -> str:
    """Return which questions to switch on; '' if none is off that runs such code."""
    if not entry.off:
        return ""
    if level == "quick":
        return f"run without `--quick` ({', '.join(entry.off)})"
    return " or ".join(f"`{name}: true`" for name in entry.off)


def _arrow(step: Step) -> Markdown:
    return prose(f"{step.reference} → {step.candidate}")


def _place(entry: Unrun) -> Markdown:
    return code(f"{entry.file}:{entry.candidate_line}")


def limit(report: Report) -> str:
    """Return how far a result holds, for a headline; '' without changed code within reach."""
    changed, unrun = _counts(report)
    if not changed:
        return ""
    what = "changed function or class" if changed == 1 else "changed functions and classes"
    models = "the model" if len(report.models) == 1 else "a model"
    definitions = f"{changed:,} {what} of transformers that {models} can reach"
    if not unrun:
        named = sorted({name for row in report.rows for step in steps_of(row) for name in step.few})
        which = f" ({', '.join(named)})" if 0 < len(named) == changed else ""
        return f"all of {definitions} ran{which}, though perhaps not every branch"
    return f"{unrun:,} of {definitions} did not run"


def brief(report: Report) -> str:
    """Return the nearest of the changed code that did not run, for the first screen; '' without any."""
    # what no input reaches, such as PreTrainedModel.to, is of use to few; of what ran, other lines changed
    entries = sorted(nearest(report), key=lambda each: (each.ran_elsewhere, each.area == "other"))
    if not entries:
        return ""
    # functions of one name are in several files
    words = dict.fromkeys(f"{entry.name} ({_in_short(entry, report.level)})" for entry in entries)
    named = [*words][:NAMED]
    more = ", …" if _counts(report)[1] > len(named) else ""
    return f"Changed in transformers and run by no check, in brackets what runs it: {', '.join(named)}{more}"


def _in_short(entry: Unrun, level: Level) -> str:
    name = _class(entry)
    give = f"--class {name}" if name else _GIVE[entry.area].short
    return _switches(entry, level).replace("`", "") or give


def nearest(report: Report) -> list[Unrun]:
    """Return the first definitions of each step that did not run, the nearest to any model first."""
    ranked = [
        (list(_NEAR).index(entry.near), rank, entry)
        for step in _steps(report.rows)
        for rank, entry in enumerate(step.first)
    ]
    ranked.sort(key=itemgetter(0, 1))
    firsts: dict[tuple[str, str], Unrun] = {}
    for *_, entry in ranked:
        firsts.setdefault((entry.file, entry.name), entry)
    return list(firsts.values())


def unasked(report: Report) -> str:
    """Return that changed definitions did not run, or that nobody looked; '' if neither is so."""
    looked = {row.model for row in report.rows if steps_of(row)}
    ran = Counter(row.model for row in report.rows for cell in row.cells if cell.judged in _RAN)
    others = [model for model, cells in ran.items() if cells > 1 and model not in looked]
    parts = [
        limit(report) if _counts(report)[1] else "",
        f"no changed code was looked for in {some(others)}" if others else "",
    ]
    return "; ".join(filter(None, parts))


def _counts(report: Report) -> tuple[int, int]:
    """Return how many definitions of all steps changed within reach, and how many did not run."""
    steps = list(_steps(report.rows))
    return sum(step.changed for step in steps), sum(step.unrun for step in steps)


def _steps(rows: Iterable[Row]) -> Iterator[Step]:
    for row in rows:
        yield from steps_of(row)


def steps_of(row: Row) -> tuple[Step, ...]:
    """Return the steps of a row; none if they were not looked at."""
    answer = CHANGES.in_row(row.answers)
    return answer.steps if answer is not None else ()


def off_of(row: Row) -> tuple[str, ...]:
    """Return the questions that the model of a row was not asked."""
    answer = CHANGES.in_row(row.answers)
    return answer.off if answer is not None else ()
