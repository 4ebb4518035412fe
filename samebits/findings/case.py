"""The input of a rule: one cell and its comparison, with the queries that several rules use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from samebits.compare.phases import exception_key, failures
from samebits.compare.raised import only_here
from samebits.records.capture import Capture, Failure, Frame, WeightFacts
from samebits.records.code import ClassFact, Idiom, ImportFact
from samebits.records.comparison import SignalComparison
from samebits.records.finding import Step
from samebits.records.ids import Signal
from samebits.records.ladder import Ladder
from samebits.records.made import MadeModel
from samebits.records.provenance import Provenance
from samebits.records.question import Answer


@dataclass(frozen=True, eq=False)
class Case:
    """One cell for the rules: run a, run a of the reference, and their comparison.

    It is a key of its own, so that what several rules ask of a cell is computed once.
    """

    capture: Capture
    reference: Capture | None = None
    """None for the reference itself, and for a cell without a reference."""
    signals: tuple[SignalComparison, ...] = ()
    """Empty if the cell was not compared."""
    steps: tuple[Step, ...] = ()
    """Steps of the hunt: which suspects are ruled in or out."""
    ladder: Ladder | None = None
    """Result of the precision ladder for the difference; None if it did not run."""
    answers: Mapping[str, Answer] = field(default_factory=dict)
    """What questions that ran jobs of their own say of the row."""
    exception: Failure | None = None
    """The exception that rules are asked about; None for the first one."""
    raises: str = ""
    """The stack, if that exception is one of a check beside the verdict, which the reference answers."""

    @property
    def failure(self) -> Failure | None:
        """The exception of the cell: from the load, or from the first phase that raised."""
        return self.exception or self.capture.raised

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames of that exception, the innermost last; () without one."""
        return self.failure.frames if self.failure is not None else ()

    @cached_property
    def each_exception(self) -> tuple[Case, ...]:
        """The case for each exception of the cell that is unlike the others, itself first.

        generate() raises what a forward does, and no rule about decoding is to explain that. What checks beside the
        verdict raise comes last.
        """
        cases = [self]
        keys = {exception_key(failure)[1:] for failure in (self.failure,) if failure is not None}
        beside = only_here(self.reference, self.capture) if self.reference is not None else ()
        own = ((failure, "") for failure in failures(self.capture))
        for failure, raises in (*own, *((each, self.capture.cell.stack) for each in beside)):
            if exception_key(failure)[1:] not in keys:
                keys.add(exception_key(failure)[1:])
                cases.append(replace(self, exception=failure, raises=raises))
        return tuple(cases)

    def sides(self) -> Iterator[tuple[Capture, Capture, bool]]:
        """Yield each side, the other one, and whether it is the reference; nothing without a reference."""
        if self.reference is not None:
            yield self.capture, self.reference, False
            yield self.reference, self.capture, True

    @property
    def imports(self) -> tuple[ImportFact, ...]:
        """Imports from transformers in the model's own code."""
        code = self.capture.signals.code
        return code.imports if code is not None else ()

    @property
    def classes(self) -> tuple[ClassFact, ...]:
        """The classes of the model's own code."""
        code = self.capture.signals.code
        return code.classes if code is not None else ()

    def ruled_in(self, suspect: str) -> str:
        """Return the hunt's description of a suspect that it ruled in, else ''."""
        wanted = ("ruled in", suspect)
        return next((s.what for s in self.steps if (s.status, s.suspect) == wanted), "")

    def idioms(self, name: str) -> tuple[Idiom, ...]:
        """Return the lines of the model's own code that match this idiom."""
        code = self.capture.signals.code
        return tuple(i for i in code.idioms if i.name == name) if code is not None else ()

    def raised(self, type_name: str, pattern: str) -> re.Match[str] | None:
        """Return the match of ``pattern`` in the cell's exception; None if its type is another one.

        ``type_name`` is one name or several, as in ``A|B``.
        """
        failure = self.failure
        if failure is None or failure.type.rpartition(".")[2] not in type_name.split("|"):
            return None
        return re.search(pattern, failure.message)

    def frame(self, *, own: bool) -> Frame | None:
        """Return the deepest frame in the model's own code, or in the libraries."""
        return next((f for f in reversed(self.frames) if f.own == own), None)

    def raised_at(self) -> str:
        """Return the line that raised: in the model's own code, else in the library."""
        frame = self.frame(own=True) or self.frame(own=False)
        return self.place(frame) if frame is not None else "no line was recorded"

    def exception_lines(self) -> tuple[str, ...]:
        """Return the exception and the lines that raised it, as lines of evidence."""
        failure = self.failure
        if failure is None:
            return ()
        lines = [f"{failure.type} in phase {failure.phase}: {failure.first_line}"]
        for own, owner in ((True, "the model's"), (False, "the library's")):
            frame = self.frame(own=own)
            if frame is not None:
                place = self.place(frame)
                lines.append(f"{owner} {place}, in {frame.function}: {frame.code}")
        return tuple(lines)

    def place(self, frame: Frame) -> str:
        """Return file and line. A file of the model has its name in the checkpoint.

        The folder that remote code is copied to has a different name in every release.
        """
        code = self.capture.signals.code
        names = code.files if code is not None and frame.own else ()
        name = next((name for name in names if f"/{frame.file}".endswith(f"/{name}")), frame.file)
        return f"{name}:{frame.line}"

    def outcome(self, signal: Signal) -> str | None:
        """Return the outcome of a signal's comparison; None if it was not compared."""
        return next((s.outcome for s in self.signals if s.signal == signal), None)

    def moves(self, signal: Signal) -> bool:
        """Return True if a signal differs, and the ladder does not show that all of it is rounding."""
        if self.outcome(signal) != "differs":
            return False
        steps = self.ladder.steps if self.ladder is not None else ()
        kinds = {step.kind for step in steps if step.signal == signal}
        return not kinds or bool(kinds - {"same", "rounding"})

    def first(self) -> Signal | None:
        """Return the first signal that differs and counts for the verdict."""
        not_judged = ("load", "config", "attention.kernel")
        differing = (s.signal for s in self.signals if s.outcome == "differs")
        return next((signal for signal in differing if signal not in not_judged), None)

    @property
    def is_rounding(self) -> bool:
        """True if the ladder shows that the difference disappears in float64."""
        return self.ladder is not None and self.ladder.kind == "rounding"

    @property
    def has_diverged(self) -> bool:
        """True if the ladder shows a different function, different weights or different inputs."""
        return self.ladder is not None and self.ladder.kind == "diverged"

    def tensors(self) -> Iterator[tuple[str, Provenance]]:
        """Yield the name and the provenance of every parameter and buffer."""
        yield from tensors_of(self.capture).items()

    def weights(self) -> Mapping[str, WeightFacts]:
        """Return all parameters and persistent buffers by name."""
        return self.capture.signals.tensors


def tensors_of(capture: Capture) -> Mapping[str, Provenance]:
    """Return the provenance of every parameter and buffer by name; {} if it was not observed."""
    integrity = capture.signals.integrity
    return {} if integrity is None else integrity.tensors


def seen_with(made: MadeModel | None) -> tuple[str, ...]:
    """Return the line of evidence that a made model answered for a large one; none for None."""
    return () if made is None else (f"seen with {made.in_words}",)
