"""ISSUE.md: a text that can be pasted into an issue, in the order that transformers asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.records.ids import Verdict
from samebits.text.blocks import bullets, details, fence, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.numbers import number, pair, rounded_ulp, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.capsule import CapsuleFile, Side
    from samebits.records.comparison import CellResult, Metrics
    from samebits.records.trace import Cause

_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

ZEROS = "zeros in place of its weights"
"""What is said to be left out of a stand-in for a large checkpoint."""

_FRAMES = 3
"""Deepest frames of an exception that are named, torch's own left out."""

_KINDS = {
    Verdict.ROUNDING: "rounding: the difference goes away in float64",
    Verdict.DIVERGED: "another function or other numbers, not rounding",
    Verdict.DIFFERS: "not known: float64 does not tell rounding from another function here",
}


class Issue(NamedTuple):
    """What the text is made from."""

    file: CapsuleFile
    told: CellResult
    """What is said of the case in the capsule."""
    whole: CellResult
    """What is said of the cell as the run saw it; the same if nothing was left out."""
    metrics: Metrics | None
    source: str
    """Where the model comes from, as the report says it."""
    scripts: dict[str, str]


def issue(of: Issue) -> str:
    """Return the text; whatever the run found is escaped."""
    blocks = [
        heading(1, _title(of.file)),
        heading(3, "System Info"),
        _versions(of.file),
        heading(3, "Reproduction"),
        _how(of),
        _result(of),
        bullets(_found(of)),
        *(details(name, fence(text, "python")) for name, text in of.scripts.items()),
        heading(3, "Expected behavior"),
        _expected(of),
    ]
    return f"{page(blocks)}\n"


def _title(file: CapsuleFile) -> Markdown:
    old, new = file.reference.transformers, file.candidate.transformers
    name, question = file.cell.model, file.question
    if file.contrast == "fails":
        return fill("{}: {} in {}, none in {}", name, file.candidate.sees.error, new, old)
    if file.contrast == "unstable":
        return fill("{}: {} computes with memory that nobody wrote, {} does not", name, new, old)
    where = {
        "forward": "other logits",
        "generate": f"generate() computes other logits at step {question.steps}",
        "parameter": "a parameter is loaded with other bytes",
        "buffer": "a buffer has other bytes after loading",
    }[question.kind]
    return fill("{}: {} in {} than in {}", name, where, new, old)


def _versions(file: CapsuleFile) -> Markdown:
    sides = (file.reference, file.candidate)
    rows = [
        ("transformers", *(side.transformers for side in sides)),
        ("torch", *(side.torch for side in sides)),
        ("Python", *(side.python for side in sides)),
    ]
    drawn = table(("", *(code(side.script) for side in sides)), rows)
    where = fill(
        "{}, CPU capability {}, one thread. Every script pins all packages in its header.",
        file.platform,
        file.cpu_capability,
    )
    return page([drawn, where])


def _how(of: Issue) -> Markdown:
    file = of.file
    scripts = (file.reference.script, file.candidate.script)
    beside = EMPTY
    if file.checkpoint == "checkpoint":
        beside = fill(" The model lies beside them in {}.", code("checkpoint/"))
    if ZEROS in file.shrunk:
        beside = fill(
            " The model's files lie beside them in {}; each script writes zeros in place of the "
            "weights, whose values play no part.",
            code("checkpoint/"),
        )
    model = fill(
        "Model: {} ({}), {}{}.", file.cell.model, _source(of), file.cell.variant, _shrunk(file)
    )
    commands = fence("\n".join(f"uv run {name}" for name in scripts), "bash")
    said = fill(
        "Each script installs its own release, says what it sees, and ends with 0 if that is what "
        "stands here.{} Both were run like this before the text was written. Bits depend on the "
        "CPU's instructions and on the build of torch: on another machine the hashes may be others.",
        beside,
    )
    cpu = EMPTY
    if any("+cpu" in side.torch for side in (file.reference, file.candidate)):
        options = f"--index-strategy unsafe-best-match --extra-index-url {_CPU_INDEX}"
        cpu = fill(
            "It was measured with a CPU build of torch; PyPI's is another build. "
            "To install the CPU build: {}",
            code(f"uv run {options} {scripts[0]}", limit=300),
        )
    return page([model, commands, said, cpu])


def _source(of: Issue) -> str:
    made = of.source.startswith("build ")
    return f"seeded random weights, {of.source}" if made else of.source


def _shrunk(file: CapsuleFile) -> str:
    return f". Shrunk to {', '.join(file.shrunk)}" if file.shrunk else ""


def _result(of: Issue) -> Markdown:
    sides = (of.file.reference, of.file.candidate)
    rows: list[tuple[str, ...]] = [(of.file.question.what, *map(_sees, sides))]
    metrics = of.metrics
    if metrics is not None and metrics.top and of.file.contrast == "differs":
        most = metrics.top[0]
        place = ", ".join(map(str, most.index))
        rows.append((code(f"[{place}]"), *pair(most.reference, most.candidate)))
    return table(("", *(side.stack for side in sides)), rows)


def _sees(side: Side) -> Markdown:
    sees = side.sees
    if sees.error:
        return code(f"{sees.error}: {sees.message}" if sees.message else sees.error, limit=200)
    if sees.unstable or sees.ref is None:
        return Markdown("other bits whenever unwritten memory holds something else")
    shape = ", ".join(map(str, sees.ref.shape))
    return fill("{} {}", f"{sees.ref.dtype}[{shape}]", code(sees.ref.hash[:16]))


def _found(of: Issue) -> Iterator[Markdown]:
    """Yield what is known of the difference, one line each."""
    metrics, told = of.metrics, of.told
    if of.file.contrast == "differs" and metrics is not None:
        yield fill(
            "{} of {} elements differ ({}), at most by {}",
            f"{metrics.n_differ:,}",
            f"{metrics.n:,}",
            share(metrics.n_differ, metrics.n),
            number(metrics.max_abs),
        )
    if told.first is not None:
        yield fill("Differs first: {}", rounded_ulp(told.first.what))
    if told.judged in _KINDS and told.ladder is not None:
        reason = told.ladder.reason
        yield fill("Kind: {}. {}{}.", _KINDS[told.judged], reason[:1].upper(), reason[1:])
        if said := _slope(told):
            yield said
    if of.whole.cause is not None:
        yield from _cause(of.whole.cause, shrunk=bool(of.file.shrunk))
    if of.whole.failure is not None:
        frames = [f for f in of.whole.failure.frames if not f.file.startswith("torch/")]
        for frame in reversed(frames[-_FRAMES:]):
            place = code(f"{frame.file}:{frame.line}")
            yield fill("Raised in {} in {}: {}", place, code(frame.function), code(frame.code))
    if of.file.contrast == "unstable":
        yield fill("Differs between two runs: {}", join(map(code, of.whole.unstable[:6])))
    if of.whole.expected:
        yield fill("What is known: {}", prose(" ".join(of.whole.expected), limit=2000))


def _slope(told: CellResult) -> Markdown:
    """Return how far the sides are apart in float32 and in float64, where they are worst."""
    assert told.ladder is not None
    measured = [s for s in told.ladder.steps if s.float32 and s.float64 is not None]
    if not measured:
        return EMPTY
    step = max(measured, key=lambda s: s.ratio or 0.0)
    return fill(
        "{} of prompt {}: apart by {} in float32 and by {} in float64",
        step.what,
        code(step.prompt),
        number(step.float32 or 0.0),
        number(step.float64 or 0.0),
    )


def _cause(cause: Cause, *, shrunk: bool) -> Iterator[Markdown]:
    told = cause.beyond or cause
    # as running text it would lose the space in front
    whole = Markdown(" before anything was left out") if shrunk else EMPTY
    yield fill("Where it starts{}, by a trace of both sides: {}", whole, told.headline)
    for side in (told.reference, told.candidate):
        if side is not None and side.source:
            yield fill("{}: {} in {}", side.stack, code(side.source), code(side.function))


def _expected(of: Issue) -> Markdown:
    old = of.file.reference.transformers
    if of.file.contrast == "fails":
        return fill("It runs, as with transformers {}.", old)
    if of.file.contrast == "unstable":
        return Markdown("The same bits in every run, whatever unwritten memory holds.")
    if of.told.judged is Verdict.ROUNDING:
        return fill(
            "The same maths, and it is: this differs from {} by rounding alone, which no release "
            "promises to avoid.",
            old,
        )
    return Markdown(
        "The same numbers in both releases, up to rounding; or a note on what changed, and which of "
        "the two is meant."
    )
