"""The lines of ``samebits record`` and ``samebits verify``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from samebits.compare.describe import some
from samebits.records.lock import RecordedModel
from samebits.records.verification import Kept, Mismatch, PackageChange, VerificationFile, Verified
from samebits.text.markdown import clip, visible
from samebits.text.numbers import plural

WIDTH = 220
MAX_PACKAGES = 4
_KINDS = {
    "differs": "",
    "only recorded": " (only in the record)",
    "only here": " (not in the record)",
}
_SAYINGS = {
    Kept.ROUNDING: "different bytes of the same function: the difference goes away in float64",
    Kept.OTHER_MACHINE: "the recorded packages compute the same bits here; the recorded ones are "
    "another machine's",
    Kept.DIVERGED: "a behaviour change, or different stored numbers",
}


def verified_lines(file: VerificationFile) -> list[str]:
    """Return the lines of a verification: one block per model, then the result."""
    packages = file.environment.packages
    versions = ", ".join(f"{name} {packages[name]}" for name in ("transformers", "torch"))
    lines = [f"{file.lock} against {versions}, Python {file.environment.python}"]
    for model in file.models:
        lines += model_lines(model)
    return [*(visible(clip(line, WIDTH)) for line in lines), _result(file)]


def model_lines(model: Verified) -> Iterator[str]:
    """Yield a line with the verdict, and below it what differs, why, and what to do."""
    amount = f": {_hashes(model.n_tensors)}" if model.verdict is Kept.IDENTICAL else ""
    yield f"{model.model}: {_word(model)}{amount}"
    for line in _details(model):
        yield f"  {line}"


def _word(model: Verified) -> str:
    return "differs (undecided)" if model.verdict is Kept.UNDECIDED else str(model.verdict)


def _details(model: Verified) -> Iterator[str]:
    for phase, type_ in model.raised.items():
        yield f"{phase}: nothing was compared, as it raises {type_} as it did in the record"
    if model.verdict is Kept.IDENTICAL and model.first is None:
        if model.files:
            yield f"changed files of the checkpoint, which no recorded hash shows: {some(model.files)}"
        return
    if model.difference:
        yield f"differs: {' '.join(model.difference.split())}"
    if model.first is not None:
        more = f", one of {model.n_differ:,} of {model.n_tensors:,}" if model.n_differ > 1 else ""
        yield f"first recorded hash that differs: {mismatch_text(model.first)}{more}"
    if model.verdict in _SAYINGS:
        yield _SAYINGS[model.verdict]
    if model.reason:
        yield f"why: {' '.join(model.reason.split())}"
    frame = model.failure.place if model.failure is not None else None
    if frame is not None:
        yield f"at {frame.file}:{frame.line} in {frame.function}"
    if model.packages:
        yield f"packages: {packages_text(model.packages)}"
    if model.files:
        yield f"changed files of the checkpoint: {some(model.files)}"
    if model.other_machine and model.verdict is not Kept.OTHER_MACHINE:
        yield "the record is another machine's"
    if model.command and not model.verdict.passes:
        yield f"in full: {model.command}"


def mismatch_text(mismatch: Mismatch) -> str:
    """Return a recorded observation in words: its signal, prompt, layer and tensor."""
    return " ".join(filter(None, (mismatch.signal, mismatch.name))) + _KINDS[mismatch.kind]


def packages_text(changes: Sequence[PackageChange]) -> str:
    """Return the packages that are not the recorded ones."""
    words = [f"{c.name} {c.recorded or 'none'} → {c.current or 'none'}" for c in changes]
    n_more = len(words) - MAX_PACKAGES
    return ", ".join(words[:MAX_PACKAGES]) + (f" and {n_more} more" if n_more > 0 else "")


def _result(file: VerificationFile) -> str:
    counts = Counter(_word(model) for model in file.models)
    words = ", ".join(f"{n:,} {word}" for word, n in counts.items())
    end = {0: "The bits are kept.", 1: "The bits are not kept", 3: "Incomplete"}[file.exit_code]
    code = f" (exit code {file.exit_code})." if file.exit_code else ""
    return f"{plural(len(file.models), 'model')}: {words}. {end}{code}"


def change_lines(
    name: str, before: RecordedModel | None, after: RecordedModel | None
) -> Iterator[str]:
    """Yield what an update does to an entry of a lock."""
    if after is None:
        yield f"- {name}: removed, as its folder is not there"
        return
    n_after = sum(map(len, after.signals.values()))
    if before is None:
        yield f"+ {name}: {_hashes(n_after)} of {some(after.signals, most=9)}"
        yield from _raised(after)
        return
    changed = list(_changed_signals(before, after))
    if changed:
        yield f"~ {name}: {', '.join(changed)}"
        yield from _raised(after)
        return
    facts = (
        "environment",
        "machine",
        "probes",
        "files",
        "trust_remote_code",
        "path",
        "revision",
        "raised",
    )
    moved = [fact for fact in facts if getattr(before, fact) != getattr(after, fact)]
    if moved:
        yield f"~ {name}: the same {_hashes(n_after)}; other {some(moved)}"
    else:
        yield f"= {name}: the same {_hashes(n_after)}"


def _raised(model: RecordedModel) -> Iterator[str]:
    """Yield a line for each phase without hashes; it raises, which ``samebits verify`` compares."""
    for phase, type_ in model.raised.items():
        yield f"  {phase}: no hashes, as it raises {type_}; the lock keeps that it does"


def _changed_signals(before: RecordedModel, after: RecordedModel) -> Iterator[str]:
    for signal in dict.fromkeys((*before.signals, *after.signals)):
        old, new = before.signals.get(signal, {}), after.signals.get(signal, {})
        names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
        if names:
            yield f"{signal} {len(names):,} of {len({*old, *new}):,} (first {names[0]})"


def _hashes(n: int) -> str:
    return plural(n, "hash", "hashes")
