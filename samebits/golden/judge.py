"""The rules that say why a test's values differ between two environments.

They take what runs of the test left, and what a run of samebits says of the model's call. Nothing is accused on less
than both: the call gives the test's own bits in both environments, and the difference remains in float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from samebits.compare.pair import TensorSource
from samebits.compare.standing import judged as judged_in_float64
from samebits.golden.records import Called, Change, Compared, Judged, Kind, Watched
from samebits.golden.running import Runs
from samebits.ladder.rule import CLEAR

_MAX_NAMED = 3


class Asked(NamedTuple):
    """What a run of samebits says of a call."""

    changes: tuple[Change, ...]
    """One package after the other, from the reference to the candidate."""
    reproduced: tuple[bool, bool]
    """Whether the call gives the bits of the test, in both environments."""
    commits: tuple[str, ...] = ()


class Pair(NamedTuple):
    """A comparison in both environments; with one environment both are the same."""

    runs: tuple[Runs, Runs]
    sides: tuple[Compared, Compared]
    nth: int
    """How many comparisons of this line came before it."""

    @property
    def golden(self) -> int | None:
        """Which of the two values is constant, the one that no call returned if both are; None if none is."""
        reference, candidate = self.sides
        constant = [i for i in (1, 0) if reference.values[i].hash == candidate.values[i].hash]
        unread = [i for i in constant if reference.calls[i] is None and candidate.calls[i] is None]
        return next(iter((*unread, *constant)), None)

    @property
    def actual(self) -> int:
        """The other value."""
        return 0 if self.golden is None else 1 - self.golden

    @property
    def moves(self) -> bool:
        """True if the actual values differ between the environments."""
        reference, candidate = self.sides
        return reference.values[self.actual].hash != candidate.values[self.actual].hash

    def calls(self, side: int) -> list[Called]:
        """Return the calls that may have led to the values: the one that returned them, else all before."""
        run, compared = self.runs[side].first, self.sides[side]
        source = compared.calls[self.actual]
        if source is not None:
            return [call for call in run.called if call.number == source[0]]
        return [c for c in run.called if c.test == compared.test and c.number < compared.before]


def pairs(reference: Runs, candidate: Runs) -> Iterator[Pair]:
    """Yield the comparisons that both environments reached."""
    others = dict(_numbered(candidate.first))
    for key, compared in _numbered(reference.first):
        if key in others:
            yield Pair((reference, candidate), (compared, others[key]), key[-1])


def _numbered(run: Watched) -> Iterator[tuple[tuple[str, str, int, int], Compared]]:
    counts: Counter[tuple[str, str, int]] = Counter()
    for compared in run.compared:
        place = compared.test, compared.file, compared.line
        yield (*place, counts[place]), compared
        counts[place] += 1


def to_ask(pair: Pair) -> list[tuple[Called, Called]]:
    """Return the calls that samebits is to run in both environments, as each of them made it."""
    if settled(pair) is not None:
        return []
    return [calls for calls in _zip(pair.calls(0), pair.calls(1)) if not calls[0].unable]


def settled(pair: Pair) -> tuple[Kind, str] | None:
    """Return what is known without another run: kind and reason."""
    for side, name in enumerate(("reference", "candidate")):
        again = dict(_numbered(pair.runs[side].again))
        own = pair.sides[side]
        same = again.get((own.test, own.file, own.line, pair.nth))
        if same is None or [v.hash for v in same.values] != [v.hash for v in own.values]:
            return "not repeatable", (
                f"a second run of the test in the {name} gives other values: seed its random numbers"
            )
    if pair.golden is None:
        return "not golden", "both values are computed, so there are no expected values to judge"
    if not pair.moves:
        return "same", ""
    first, second = pair.calls(0), pair.calls(1)
    if len(first) != len(second) or any(
        a.model_class != b.model_class for a, b in _zip(first, second)
    ):
        return "undecided", "the test makes other calls of models in the two environments"
    return _other_given(first, second)


def _zip(first: Sequence[Called], second: Sequence[Called]) -> list[tuple[Called, Called]]:
    return list(zip(first, second, strict=False))


def _other_given(first: Sequence[Called], second: Sequence[Called]) -> tuple[Kind, str] | None:
    for a, b in _zip(first, second):
        names = [
            name
            for name in sorted({*a.inputs, *b.inputs, *a.constants, *b.constants})
            if _hash(a, name) != _hash(b, name)
        ]
        if names:
            text = ", ".join(names[:_MAX_NAMED])
            return "other inputs", (
                f"the test gives {_name(a)} other values for {text}: what prepares them (a tokenizer, a processor, "
                "random numbers) changed, and not the model"
            )
        if a.made != b.made or (not a.made and a.source != b.source):
            return (
                "other weights",
                f"the test makes or loads another {_name(a)} in the two environments",
            )
        if a.made and a.state != b.state:
            return "other weights", (
                f"the {_name(a)} that the test makes, or changes, has other weights before the call: they are drawn, "
                "initialised or changed in another way"
            )
        if a.dtype != b.dtype:
            return (
                "other weights",
                f"{_name(a)} is {a.dtype} in the reference and {b.dtype} in the candidate",
            )
    return None


def _hash(call: Called, name: str) -> object:
    return call.inputs[name].hash if name in call.inputs else call.constants.get(name)


def _name(call: Called) -> str:
    return call.model_class.rpartition(":")[2] or "the model"


def judgement(pair: Pair, asked: Sequence[Asked], values: TensorSource) -> Judged:
    """Return why the values of a pair differ; ``asked`` are the answers for its calls, in order."""
    numbers = _Numbers(pair, values)
    early = settled(pair)
    kind, reason = early if early is not None else _decided(pair, asked, numbers)
    holds = [each.holds for each in pair.sides]
    if kind == "same":
        reason = (
            _elsewhere(numbers) if not all(holds) else "the environments compute the same values"
        )
    elif kind == "rounding" and not any(holds):
        reason = "; ".join(filter(None, (reason, _elsewhere(numbers))))
    side = pair.sides[0]
    changes = tuple(change for answer in asked for change in answer.changes)
    return Judged(
        test=side.test,
        file=side.file,
        line=side.line,
        code=side.code,
        kind=kind,
        reason=reason,
        holds=tuple(holds),
        distances=numbers.distances,
        exact=numbers.exact,
        moved=numbers.moved,
        allowed=numbers.allowed,
        changes=changes,
        commits=tuple(dict.fromkeys(c for answer in asked for c in answer.commits)),
        new=numbers.new if kind == "rounding" and numbers.may_replace and not holds[1] else "",
    )


def _decided(pair: Pair, asked: Sequence[Asked], numbers: _Numbers) -> tuple[Kind, str]:
    calls = pair.calls(0)
    if not calls:
        return _by_float64(numbers, "no forward of a model comes before the comparison")
    if unable := [call.unable for call in calls if call.unable]:
        return _by_float64(numbers, unable[0])
    if pair.runs[0].first.left_out and pair.sides[0].calls[pair.actual] is None:
        return _by_float64(numbers, "the test makes more calls than are recorded")
    if not all(all(answer.reproduced) for answer in asked) or not asked:
        more = ", as it is in training mode there" if any(c.training for c in calls) else ""
        return _by_float64(
            numbers, f"outside of the test the model's call gives other bits than in it{more}"
        )
    verdicts = {change.verdict for answer in asked for change in answer.changes}
    if verdicts <= {"identical", "reference"}:
        if numbers.judged == "rounding":
            return (
                "rounding",
                "the model returns the same bits; what the test computes from them rounds differently",
            )
        return (
            "after the model",
            "the model returns the same bits: the test, or a library, computes something else from them",
        )
    diverged = [c for answer in asked for c in answer.changes if c.verdict == "diverged"]
    if diverged and all(change.package == "torch" and change.constant for change in diverged):
        # torch may only round the table otherwise, and float64 would start from the same rounded numbers
        return (
            "undecided",
            f"what the model keeps has other bits under another torch: {diverged[0].constant}",
        )
    return _by_both(verdicts - {"identical", "reference"}, numbers)


def _by_both(verdicts: set[str], numbers: _Numbers) -> tuple[Kind, str]:
    """Return the kind that the model's verdicts and the test's own values in float64 agree on."""
    if verdicts == {"rounding"}:
        if numbers.judged == "diverged":
            return (
                "undecided",
                "the model only rounds, and the test's values differ in float64 as much as before",
            )
        return "rounding", ""
    if "diverged" in verdicts:
        if numbers.judged == "rounding":
            return "undecided", "the model diverges, and yet these values agree in float64"
        return "behaviour change", ""
    return "undecided", f"the verdict on the model's call is {', '.join(sorted(verdicts))}"


def _by_float64(numbers: _Numbers, why: str) -> tuple[Kind, str]:
    """Return rounding if the test's own values agree in float64, which nothing else can do."""
    if numbers.judged == "rounding":
        return (
            "rounding",
            f"the test's values agree in float64; from which operation is not known: {why}",
        )
    return "undecided", why


class _Numbers:
    """The values of a pair as numbers."""

    def __init__(self, pair: Pair, values: TensorSource) -> None:
        self._pair, self._values = pair, values
        golden, actual = pair.golden, pair.actual
        self.expected = self._read(pair.sides[0].values[1 if golden is None else golden])
        self.actual = [self._read(side.values[actual]) for side in pair.sides]
        self._in_float64 = [self._exact(side) for side in (0, 1)]

    def _read(self, ref: Any) -> NDArray[np.float64] | None:  # noqa: ANN401  a TensorRef
        if not self._values.has(ref):
            return None
        return np.asarray(self._values.tensor(ref)).astype(np.float64)

    def _exact(self, side: int) -> NDArray[np.float64] | None:
        run, own = self._pair.runs[side].exact, self._pair.sides[side]
        key = own.test, own.file, own.line, self._pair.nth
        same = dict(_numbered(run)).get(key) if run is not None else None
        ref = None if same is None else same.values[self._pair.actual]
        # a test that casts its values has lost what float64 shows
        return self._read(ref) if ref is not None and ref.dtype == "float64" else None

    @property
    def distances(self) -> tuple[float, ...]:
        """Largest distance of actual from expected in both environments."""
        return tuple(_far(actual, self.expected) for actual in self.actual)

    @property
    def moved(self) -> float:
        """Largest distance between the actual values."""
        return _far(*self.actual)

    @property
    def allowed(self) -> float:
        """The tolerance where it is smallest."""
        side = self._pair.sides[1]
        if self.expected is None or not self.expected.size:
            return side.atol
        return float(side.atol + side.rtol * np.abs(self.expected).min())

    @property
    def exact(self) -> tuple[float, ...]:
        """Distances from the values in float64: of the expected ones, then of the actual ones of both."""
        reference, candidate = self._in_float64
        if reference is None or candidate is None:
            return ()
        return (
            _far(self.expected, candidate),
            _far(self.actual[0], reference),
            _far(self.actual[1], candidate),
        )

    @property
    def is_near(self) -> bool:
        """True if the expected values are as near to those in float64 as rounding leaves them."""
        if not self.exact:
            return False
        return self.exact[0] <= CLEAR * max(self.exact[1:]) + self.quantum

    @property
    def may_replace(self) -> bool:
        """True if the old expected values were right in the reference, but for rounding."""
        return self._pair.sides[0].holds or self.is_near

    @property
    def judged(self) -> str:
        """How the difference of the actual values stands in float64; '' if that is not known."""
        reference, candidate = self._in_float64
        if reference is None or candidate is None or not self.moved:
            return ""
        return judged_in_float64(self.moved, _far(reference, candidate))

    @property
    def quantum(self) -> float:
        """Half a unit of the last decimal with which the expected values were written."""
        return 0.5 * 10.0 ** -_decimals(self.expected)

    @property
    def new(self) -> str:
        """The candidate's values as the test writes the old ones."""
        actual = self.actual[1]
        if actual is None or actual.size > 1024:
            return ""
        tolerance = self._pair.sides[1].atol or 1e-4
        decimals = max(_decimals(self.expected), int(np.ceil(-np.log10(tolerance))))
        return f"torch.tensor({_written(actual.tolist(), decimals)})"


def _far(first: NDArray[np.float64] | None, second: NDArray[np.float64] | None) -> float:
    if first is None or second is None:
        return float("nan")
    try:
        with np.errstate(all="ignore"):
            return float(np.abs(first - second).max(initial=0.0))
    except ValueError:  # shapes that do not fit
        return float("inf")


def _decimals(values: NDArray[np.float64] | None) -> int:
    """Return with how many decimals numbers were written, 4 at least; 9 if they were computed."""
    if values is None:
        return 4
    exact = np.float32(values)
    return next((n for n in range(4, 9) if (np.float32(np.round(values, n)) == exact).all()), 9)


def _written(value: Any, decimals: int) -> str:  # noqa: ANN401  lists of lists of numbers
    if isinstance(value, list):
        return f"[{', '.join(_written(part, decimals) for part in value)}]"
    return f"{value:.{decimals}f}"


def _elsewhere(numbers: _Numbers) -> str:
    """Return what expected values that no environment gives are, by their distance from float64."""
    text = "neither environment gives the expected values, so they were recorded elsewhere"
    if not numbers.exact:
        return text
    expected, own = numbers.exact[0], max(numbers.exact[1:])
    if numbers.is_near:
        return f"{text}: as near to the exact values as rounding leaves them, by another machine or torch"
    return (
        f"{text}: they are {expected:.1e} from the exact values, and those of this machine {own:.1e}. Another "
        "function, a smaller dtype or coarser kernels (as TF32) computed them"
    )


def worst(judged: Iterable[Judged]) -> list[Judged]:
    """Return comparisons, those that need most attention first."""
    order = (
        "behaviour change",
        "other inputs",
        "other weights",
        "after the model",
        "undecided",
        "not repeatable",
        "not golden",
        "rounding",
        "same",
    )
    return sorted(judged, key=lambda each: order.index(each.kind))
