"""ISSUE.md: text to paste into an issue, in the order of the transformers template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from samebits.base.finding_pages import finding_page
from samebits.records.capsule import CapsuleFile, Side
from samebits.records.comparison import CellResult, Metrics
from samebits.records.ids import Verdict
from samebits.records.trace import Cause
from samebits.reports.answer.side import Side as Judged
from samebits.reports.cell.cause import place, shown_cause
from samebits.text.blocks import bullets, details, fence, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.numbers import number, pair, rounded_ulp, share

_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

ZEROS = "zeros in place of its weights"
"""Wording for the weights that a stand-in of a large checkpoint lacks."""

_MAX_FRAMES = 3
"""Deepest frames of an exception that are listed, without those of torch."""

_KINDS = {
    Verdict.ROUNDING: "rounding: the difference goes away in float64",
    Verdict.DIVERGED: "not rounding: a behaviour change, or different numbers",
    Verdict.UNDECIDED: "undecided: float64 does not tell rounding from a behaviour change here",
}


class Issue(NamedTuple):
    """Everything that the text is made from."""

    file: CapsuleFile
    result: CellResult
    """Result for the case in the capsule."""
    run_result: CellResult
    """Result of the cell in the run; the same if the case was not shrunk."""
    metrics: Metrics | None
    source: str
    """Origin of the model, as the report words it."""
    is_built: bool
    """True if its weights are seeded random numbers."""
    scripts: dict[str, str]


def issue(facts: Issue) -> str:
    """Return the text of the issue, with all values from the run escaped."""
    blocks = [
        heading(1, _title(facts.file)),
        heading(3, "System Info"),
        _versions(facts.file),
        heading(3, "Reproduction"),
        _reproduction(facts),
        _results_table(facts),
        bullets(_difference_lines(facts)),
        *(details(name, fence(text, "python")) for name, text in facts.scripts.items()),
        heading(3, "Expected behavior"),
        _expected_behavior(facts),
    ]
    return f"{page(blocks)}\n"


def with_side(text: str, judged: Judged) -> str:
    """Return the text of an issue with which side is wrong, and who is hit; as it is where nothing says so.

    The findings of a run may change while the scripts of a capsule stay the same, so that these are not kept with them.
    """
    if not judged.wrong:
        return text
    hits = [fill("Hit if {}.", prose(hit)) for hit in map(_hit_if, judged.codes) if hit]
    if judged.concerns:
        hits.append(fill("It concerns {}.", prose(judged.concerns)))
    blocks = [
        heading(3, "Which side is wrong"),
        fill("{}.", prose(judged.why)),
        bullets(hits),
    ]
    return f"{text}\n{page(blocks)}\n"


def _hit_if(finding: str) -> str:
    return finding_page(finding).hit_if


def _title(file: CapsuleFile) -> Markdown:
    old, new = file.reference.transformers, file.candidate.transformers
    name, question = file.cell.model, file.question
    if file.contrast == "fails":
        return fill("{}: {} in {}, not in {}", name, file.candidate.sees.error, new, old)
    if file.contrast == "unstable":
        return fill("{}: {} computes with uninitialised memory, {} does not", name, new, old)
    where = {
        "forward": "different logits",
        "generate": f"generate() computes different logits at step {question.steps}",
        "parameter": "a parameter has different bytes after loading",
        "buffer": "a buffer has different bytes after loading",
    }[question.kind]
    return fill("{}: {} in {} than in {}", name, where, new, old)


def _versions(file: CapsuleFile) -> Markdown:
    sides = (file.reference, file.candidate)
    rows = [
        ("transformers", *(side.transformers for side in sides)),
        ("torch", *(side.torch for side in sides)),
        ("Python", *(side.python for side in sides)),
    ]
    versions = table(("", *(code(side.script) for side in sides)), rows)
    where = fill(
        "{}, CPU capability {}, {}. The header of each script pins all packages.",
        file.platform,
        file.cpu_capability,
        "one thread" if file.question.threads == 1 else f"{file.question.threads} threads",
    )
    return page([versions, where])


def _reproduction(facts: Issue) -> Markdown:
    file = facts.file
    scripts = (file.reference.script, file.candidate.script)
    location = EMPTY
    if file.checkpoint == "checkpoint":
        location = fill(" The model is in {} next to the scripts.", code("checkpoint/"))
    if ZEROS in file.shrunk:
        location = fill(
            " The model's files are in {} next to the scripts; each script writes zeros in place of the "
            "weights, because their values do not matter.",
            code("checkpoint/"),
        )
    model = fill(
        "Model: {} ({}), {}{}.",
        file.cell.model,
        f"seeded random weights, {facts.source}" if facts.is_built else facts.source,
        file.cell.variant,
        f". Shrunk to {', '.join(file.shrunk)}" if file.shrunk else "",
    )
    commands = fence("\n".join(f"uv run {name}" for name in scripts), "bash")
    instructions = fill(
        "Each script installs its own release and prints its result. It exits with 0 if the result "
        "is the one below.{} Both scripts were run this way before this text was written. Bits "
        "depend on the CPU's instructions and on the build of torch, so the hashes may differ on "
        "another machine.",
        location,
    )
    cpu = EMPTY
    if any("+cpu" in side.torch for side in (file.reference, file.candidate)):
        options = f"--index-strategy unsafe-best-match --extra-index-url {_CPU_INDEX}"
        cpu = fill(
            "It was measured with a CPU build of torch, which is not the build on PyPI. "
            "To install the CPU build: {}",
            code(f"uv run {options} {scripts[0]}", limit=300),
        )
    return page([model, commands, instructions, cpu])


def _results_table(facts: Issue) -> Markdown:
    sides = (facts.file.reference, facts.file.candidate)
    rows: list[tuple[str, ...]] = [(facts.file.question.what, *map(_seen_words, sides))]
    metrics = facts.metrics
    if metrics is not None and metrics.top and facts.file.contrast == "differs":
        largest = metrics.top[0]
        place = ", ".join(map(str, largest.index))
        rows.append((code(f"[{place}]"), *pair(largest.reference, largest.candidate)))
    return table(("", *(side.stack for side in sides)), rows)


def _seen_words(side: Side) -> Markdown:
    sees = side.sees
    if sees.error:
        return code(f"{sees.error}: {sees.message}" if sees.message else sees.error, limit=200)
    if sees.unstable or sees.ref is None:
        return Markdown("different bits for different content of uninitialised memory")
    shape = ", ".join(map(str, sees.ref.shape))
    return fill("{} {}", f"{sees.ref.dtype}[{shape}]", code(sees.sha256[:16]))


def _difference_lines(facts: Issue) -> Iterator[Markdown]:
    """Yield the known facts about the difference, one line each."""
    metrics, result = facts.metrics, facts.result
    if facts.file.contrast == "differs" and metrics is not None:
        yield fill(
            "{} of {} elements differ ({}), by at most {}",
            f"{metrics.n_differ:,}",
            f"{metrics.n:,}",
            share(metrics.n_differ, metrics.n),
            number(metrics.max_abs),
        )
    if result.deciding is not None:
        yield fill("What decides: {}", rounded_ulp(result.deciding.what))
    if result.first is not None:
        yield fill("First difference: {}", rounded_ulp(result.first.what))
    if result.judged in _KINDS and result.ladder is not None:
        reason = result.ladder.reason
        yield fill("Kind: {}. {}{}.", _KINDS[result.judged], reason[:1].upper(), reason[1:])
        if slope := _precision_line(result):
            yield slope
    if (cause := shown_cause(facts.run_result)) is not None:
        yield from _cause_lines(cause, shrunk=bool(facts.file.shrunk))
    if facts.run_result.failure is not None:
        frames = [f for f in facts.run_result.failure.frames if not f.file.startswith("torch/")]
        for frame in reversed(frames[-_MAX_FRAMES:]):
            place = code(f"{frame.file}:{frame.line}")
            yield fill("Raised in {} in {}: {}", place, code(frame.function), code(frame.code))
    if facts.file.contrast == "unstable":
        yield fill("Differs between two runs: {}", join(map(code, facts.run_result.unstable[:6])))
    if facts.run_result.expected:
        yield fill("What is known: {}", prose(" ".join(facts.run_result.expected), limit=2000))


def _precision_line(result: CellResult) -> Markdown:
    """Return how far the sides differ in float32 and in float64, at the worst step."""
    assert result.ladder is not None
    measured = [s for s in result.ladder.steps if s.float32 and s.float64 is not None]
    if not measured:
        return EMPTY
    step = max(measured, key=lambda s: s.ratio or 0.0)
    return fill(
        "{} of prompt {}: the sides differ by {} in float32 and by {} in float64",
        step.what,
        code(step.prompt),
        number(step.float32 or 0.0),
        number(step.float64 or 0.0),
    )


def _cause_lines(cause: Cause, *, shrunk: bool) -> Iterator[Markdown]:
    # as plain text it would lose the leading space
    scope = Markdown(" before shrinking") if shrunk else EMPTY
    difference = "the difference" if cause.decides else f"another difference, {place(cause)},"
    yield fill("Where {} starts{}, by a trace of both sides: {}", difference, scope, cause.headline)
    for side in (cause.reference, cause.candidate):
        if side is not None and side.source:
            yield fill("{}: {} in {}", side.stack, code(side.source), code(side.function))


def _expected_behavior(facts: Issue) -> Markdown:
    old = facts.file.reference.transformers
    if facts.file.contrast == "fails":
        return fill("It runs, as with transformers {}.", old)
    if facts.file.contrast == "unstable":
        return Markdown("The same bits in every run, whatever uninitialised memory holds.")
    if facts.result.judged is Verdict.ROUNDING:
        return fill(
            "The same function, up to rounding. This is the case: the result differs from {} by "
            "rounding only, which no release promises to avoid.",
            old,
        )
    return Markdown(
        "The same numbers in both releases, up to rounding. If the change is intended: a note on "
        "what changed, and which of the two is right."
    )
