"""Judgement of a graft from the sets of pieces that were tried.

Every claim follows from runs, none from a heuristic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from samebits.compare.describe import short
from samebits.records.graft import DonorFile, Graft, GraftFile, GraftSuspect, Proof, Try

MAX_CHECKED = 4096
"""Maximum number of smaller sets to check before a set is called the smallest."""


def graft(donor: DonorFile, patient: GraftFile) -> Graft:
    """Return the graft that the tried sets show."""
    best = smallest(patient.tried, [suspect.name for suspect in patient.suspects])
    proof = proven(best, patient.tried, [suspect.name for suspect in patient.suspects])
    return Graft(
        prompt=patient.prompt,
        what=patient.what,
        headline=headline(best, proof, patient),
        proof=proof,
        smallest=best.suspects if best is not None else (),
        others=others(best, patient.tried),
        suspects=patient.suspects,
        untried=patient.untried,
        tried=patient.tried,
        spent=patient.spent,
        seconds=(donor.seconds, patient.seconds),
    )


def smallest(tried: Iterable[Try], order: Sequence[str]) -> Try | None:
    """Return the restoring set with the fewest suspects; of several, the first one in ``order``."""
    restoring = [run for run in tried if run.suspects and run.restores]
    place = {name: index for index, name in enumerate(order)}
    return min(
        restoring,
        key=lambda run: (len(run.suspects), sorted(place[name] for name in run.suspects)),
        default=None,
    )


def proven(best: Try | None, tried: Iterable[Try], order: Sequence[str]) -> Proof:
    """Return what the runs prove: that the set is the smallest, or that it needs every member."""
    if best is None:
        return "none"
    if len(best.suspects) == 1:
        return "alone"
    failing = {frozenset(run.suspects) for run in tried if not run.restores and not run.lost}
    chosen = frozenset(best.suspects)
    n_smaller = sum(comb(len(order), size) for size in range(1, len(chosen)))
    if n_smaller <= MAX_CHECKED and all(
        frozenset(smaller) in failing
        for size in range(1, len(chosen))
        for smaller in combinations(order, size)
    ):
        return "smallest"
    if all(chosen - {name} in failing for name in chosen):
        return "irreducible"
    return "none"


def others(best: Try | None, tried: Iterable[Try]) -> tuple[str, ...]:
    """Return the other suspects that restore on their own."""
    if best is None:
        return ()
    alone = [run.suspects for run in tried if len(run.suspects) == 1 and run.restores]
    return tuple(names[0] for names in alone if names != best.suspects)


def headline(best: Try | None, proof: Proof, patient: GraftFile) -> str:
    """Return the result in one line."""
    outputs = "logits of every step" if patient.what == "decode" else "layers and logits"
    where = f"the {patient.what} of prompt {patient.prompt}"
    if best is not None:
        restored = f"restores bit equality in {where} ({best.same} of {best.of}: {outputs})"
        if proof in {"alone", "smallest"}:
            return f"swapping only {_joined_names(best.suspects)} {restored}"
        words = f"swapping {_joined_names(best.suspects)} together {restored}"
        if proof == "irreducible":
            return f"{words}; it does not if any one of them is left out"
        return f"{words}; not every smaller set was tried"
    if not patient.suspects:
        words = f"nothing that can be swapped differs in {where}: the difference is in the code"
        return f"{words}, or in something that is not swapped"
    completed = [run for run in patient.tried if run.suspects and not run.error]
    if not completed:
        errors = [run.error for run in patient.tried if run.error]
        if not errors:
            return f"what differs in {where} was not swapped: time ran out before the first try"
        return f"what differs in {where} cannot be swapped: {errors[0]}"
    words = f"no set of {_suspects_in_words(patient.suspects)} restores bit equality in {where}"
    words += _progress(patient.tried, len(patient.suspects))
    if len(patient.tried) < 2 ** len(patient.suspects):
        words += "; not every set was tried"
    failed_alone = [r.suspects[0] for r in patient.tried if len(r.suspects) == 1 and r.error]
    if failed_alone:
        words += f"; {_joined_names(failed_alone)} could not be swapped"
    return (
        f"{words}: the rest of the difference is in the code of the release, or in something that "
        "could not be swapped"
    )


def _progress(tried: Sequence[Try], n_suspects: int) -> str:
    """Return how close the best set brings the logits, if the distances are known."""
    baseline = next((run for run in tried if not run.suspects), None)
    measured = [run for run in tried if run.suspects and run.max_abs is not None and not run.error]
    if baseline is None or not baseline.max_abs or not measured:
        return ""
    best = min(measured, key=lambda run: (run.max_abs or 0.0, len(run.suspects)))
    if best.max_abs is None or best.max_abs >= baseline.max_abs:
        all_are_known = len(measured) == sum(bool(run.suspects) for run in tried)
        return " or brings the logits closer" if all_are_known else ""
    if best.max_abs > baseline.max_abs / 2:
        return ""
    whole = len(best.suspects) == n_suspects > 1
    best_names = "all of them" if whole else _joined_names(best.suspects)
    distance, baseline_distance = short(best.max_abs), short(baseline.max_abs)
    return f"; with {best_names} the logits differ by {distance} instead of {baseline_distance}"


def _suspects_in_words(suspects: Sequence[GraftSuspect]) -> str:
    n = len(suspects)
    return f"the {n:,} candidate causes" if n > 1 else "the one candidate cause"


def _joined_names(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
