"""What a rule looks at: one cell, what it was compared with, and questions often asked of both."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samebits.compare.standing import Standing, standing
from samebits.records.usage import UsageSignal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from samebits.records.capture import Capture, Failure, Frame, WeightFacts
    from samebits.records.code import ClassFact, Idiom, ImportFact
    from samebits.records.comparison import SignalComparison
    from samebits.records.crossing import Crossing
    from samebits.records.finding import Step
    from samebits.records.ids import Signal
    from samebits.records.ladder import Ladder
    from samebits.records.provenance import Provenance
    from samebits.records.relations import Relation, RelationName


@dataclass(frozen=True)
class Case:
    """One cell as a rule sees it: run a, the reference's run a, and how they compare."""

    capture: Capture
    reference: Capture | None = None
    """None for the reference itself, and where there is none."""
    signals: tuple[SignalComparison, ...] = ()
    """Empty where nothing was compared."""
    steps: tuple[Step, ...] = ()
    """The hunt: what is ruled in and out."""
    crossings: tuple[Crossing, ...] = ()
    """What this stack makes of the model as other stacks saved it."""
    ladder: Ladder | None = None
    """What the precision ladder says of the difference; None where it was not asked."""

    @property
    def failure(self) -> Failure | None:
        """The exception of the cell: of its load, or of the first phase that raised."""
        return self.capture.raised

    @property
    def is_own_code(self) -> bool:
        """True if the checkpoint brings its own modelling code."""
        code = self.capture.signals.code
        return code is not None and bool(code.files)

    @property
    def imports(self) -> tuple[ImportFact, ...]:
        """What the model's own code imports from transformers."""
        code = self.capture.signals.code
        return code.imports if code is not None else ()

    @property
    def classes(self) -> tuple[ClassFact, ...]:
        """The classes of the model's own code."""
        code = self.capture.signals.code
        return code.classes if code is not None else ()

    @property
    def usage(self) -> UsageSignal:
        """What users do around the model; an empty signal if nothing of it was tried."""
        return self.capture.signals.usage or UsageSignal()

    def ruled_in(self, suspect: str) -> str:
        """Return what the hunt says of a suspect that it ruled in, else ''."""
        said = ("ruled in", suspect)
        return next((s.what for s in self.steps if (s.status, s.suspect) == said), "")

    def idioms(self, name: str) -> tuple[Idiom, ...]:
        """Return the lines of the model's own code that carry this idiom."""
        code = self.capture.signals.code
        return tuple(i for i in code.idioms if i.name == name) if code is not None else ()

    def raised(self, type_name: str, pattern: str) -> re.Match[str] | None:
        """Return the match of ``pattern`` in the cell's exception, if it is of that type."""
        failure = self.failure
        if failure is None or failure.type.rpartition(".")[2] not in type_name.split("|"):
            return None
        return re.search(pattern, failure.message)

    def frame(self, *, own: bool) -> Frame | None:
        """Return the deepest frame inside the model's own code, or inside the libraries."""
        frames = self.failure.frames if self.failure is not None else ()
        return next((f for f in reversed(frames) if f.own == own), None)

    def raised_at(self) -> str:
        """Return where in the model's code it was raised, or in which file of the library."""
        frame = self.frame(own=True) or self.frame(own=False)
        return self._place(frame) if frame is not None else "no line was recorded"

    def told(self) -> tuple[str, ...]:
        """Return the exception and the lines that raised it, as evidence."""
        failure = self.failure
        if failure is None:
            return ()
        lines = [
            f"{failure.type} in phase {failure.phase}: {failure.message.partition(chr(10))[0]}"
        ]
        for own, whose in ((True, "the model's"), (False, "the library's")):
            frame = self.frame(own=own)
            if frame is not None:
                place = self._place(frame)
                lines.append(f"{whose} {place}, in {frame.function}: {frame.code}")
        return tuple(lines)

    def _place(self, frame: Frame) -> str:
        """Return file and line; the model's own file as the checkpoint calls it.

        The folder that remote code is copied to has another name in every release.
        """
        code = self.capture.signals.code
        names = code.files if code is not None and frame.own else ()
        name = next((name for name in names if f"/{frame.file}".endswith(f"/{name}")), frame.file)
        return f"{name}:{frame.line}"

    def outcome(self, signal: Signal) -> str | None:
        """Return how a signal compares; None if it was not looked at."""
        return next((s.outcome for s in self.signals if s.signal == signal), None)

    def first(self) -> Signal | None:
        """Return the first signal that differs and makes a verdict."""
        explaining = ("load", "config", "attention.kernel")
        differing = (s.signal for s in self.signals if s.outcome == "differs")
        return next((signal for signal in differing if signal not in explaining), None)

    @property
    def is_rounding(self) -> bool:
        """True if the ladder shows that the difference goes away in float64."""
        return self.ladder is not None and self.ladder.kind == "rounding"

    @property
    def has_diverged(self) -> bool:
        """True if the ladder shows another function, other stored numbers or other inputs."""
        return self.ladder is not None and self.ladder.kind == "diverged"

    def tensors(self) -> Iterator[tuple[str, Provenance]]:
        """Yield every parameter and buffer with where it came from."""
        integrity = self.capture.signals.integrity
        yield from (integrity.tensors if integrity is not None else {}).items()

    def weights(self) -> Mapping[str, WeightFacts]:
        """Return every parameter and persistent buffer."""
        return weights_of(self.capture)

    def broken(self, *names: RelationName) -> Iterator[Relation]:
        """Yield the relations inside the cell that float64 shows to be broken."""
        return self.standing(Standing.STAYS, *names)

    def standing(self, wanted: Standing, *names: RelationName) -> Iterator[Relation]:
        """Yield the relations of these names that stand so inside the cell."""
        invariants = self.capture.signals.invariants
        dtype = self.capture.cell.variant.dtype
        for relation in invariants.relations if invariants is not None else ():
            if relation.relation in names and standing(relation, dtype) == wanted:
                yield relation


def weights_of(capture: Capture) -> Mapping[str, WeightFacts]:
    """Return every parameter and persistent buffer of a run; none if they were not observed."""
    weights = capture.signals.weights
    return weights.tensors if weights is not None else {}
