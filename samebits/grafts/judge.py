"""What do the sets that were tried show? Every claim follows from runs, none from a rule of thumb."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from samebits.compare.amounts import short
from samebits.records.graft import Graft, Proof

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from samebits.records.graft import DonorFile, GraftFile, GraftSuspect, Try

MOST_CHECKED = 4096
"""Smaller sets that are looked up to call a set the smallest."""


def graft(donor: DonorFile, patient: GraftFile) -> Graft:
    """Return what the tried sets show."""
    best = smallest(patient.tried, [suspect.name for suspect in patient.suspects])
    proof = proven(best, patient.tried, [suspect.name for suspect in patient.suspects])
    others = () if best is None else _others(best, patient.tried)
    return Graft(
        prompt=patient.prompt,
        what=patient.what,
        headline=headline(best, proof, patient),
        proof=proof,
        smallest=best.suspects if best is not None else (),
        others=others,
        suspects=patient.suspects,
        untried=patient.untried,
        tried=patient.tried,
        spent=patient.spent,
        seconds=(donor.seconds, patient.seconds),
    )


def smallest(tried: Iterable[Try], order: Sequence[str]) -> Try | None:
    """Return the set that restores with the fewest suspects; of several, the one nearest the root."""
    restoring = [run for run in tried if run.suspects and run.restores]
    place = {name: index for index, name in enumerate(order)}
    return min(
        restoring,
        key=lambda run: (len(run.suspects), sorted(place[name] for name in run.suspects)),
        default=None,
    )


def proven(best: Try | None, tried: Iterable[Try], order: Sequence[str]) -> Proof:
    """Return what the runs show of a set: that it is the smallest, or only that nothing in it is idle."""
    if best is None:
        return "none"
    if len(best.suspects) == 1:
        return "alone"
    failing = {frozenset(run.suspects) for run in tried if not run.restores and not run.lost}
    chosen = frozenset(best.suspects)
    n_smaller = sum(comb(len(order), size) for size in range(1, len(chosen)))
    if n_smaller <= MOST_CHECKED and all(
        frozenset(some) in failing
        for size in range(1, len(chosen))
        for some in combinations(order, size)
    ):
        return "smallest"
    if all(chosen - {name} in failing for name in chosen):
        return "irreducible"
    return "none"


def _others(best: Try, tried: Iterable[Try]) -> tuple[str, ...]:
    alone = [run.suspects for run in tried if len(run.suspects) == 1 and run.restores]
    return tuple(names[0] for names in alone if names != best.suspects)


def headline(best: Try | None, proof: Proof, patient: GraftFile) -> str:
    """Return the finding in one line."""
    outputs = "logits of every step" if patient.what == "decode" else "layers and logits"
    where = f"the {patient.what} of prompt {patient.prompt}"
    if best is not None:
        restored = f"restores bit equality in {where} ({best.same} of {best.of}: {outputs})"
        if proof in {"alone", "smallest"}:
            return f"swapping only {_listed(best.suspects)} {restored}"
        told = f"swapping {_listed(best.suspects)} together {restored}"
        if proof == "irreducible":
            return f"{told}, and without any one of them it does not"
        return f"{told}; whether all of them are needed was not tried to the end"
    if not patient.suspects:
        told = f"nothing that can be swapped differs in {where}: the difference is in the code"
        return f"{told}, or in what is not swapped"
    ran = [run for run in patient.tried if run.suspects and not run.error]
    if not ran:
        errors = [run.error for run in patient.tried if run.error]
        if not errors:
            return f"what differs in {where} was not swapped: time ran out before the first try"
        return f"what differs in {where} cannot be swapped: {errors[0]}"
    told = f"no set of {_kinds(patient.suspects)} restores bit equality in {where}"
    told += _progress(patient.tried, len(patient.suspects))
    if len(patient.tried) < 2 ** len(patient.suspects):
        told += "; not every set was tried"
    refused = [r.suspects[0] for r in patient.tried if len(r.suspects) == 1 and r.error]
    if refused:
        told += f"; {_listed(refused)} could not be put in"
    return f"{told}: what is left lies in the code of the release, or in what could not be swapped"


def _progress(tried: Sequence[Try], n_suspects: int) -> str:
    """Return how far the best set brings it, where that can be said in numbers."""
    plain = next((run for run in tried if not run.suspects), None)
    measured = [run for run in tried if run.suspects and run.max_abs is not None and not run.error]
    if plain is None or not plain.max_abs or not measured:
        return ""
    best = min(measured, key=lambda run: (run.max_abs or 0.0, len(run.suspects)))
    if best.max_abs is None or best.max_abs >= plain.max_abs:
        all_are_known = len(measured) == sum(bool(run.suspects) for run in tried)
        return " or brings the logits nearer" if all_are_known else ""
    if best.max_abs > plain.max_abs / 2:
        return ""
    whole = len(best.suspects) == n_suspects > 1
    names = "all of them" if whole else _listed(best.suspects)
    return f"; with {names} the logits are {short(best.max_abs)} apart instead of {short(plain.max_abs)}"


def _kinds(suspects: Sequence[GraftSuspect]) -> str:
    n = len(suspects)
    return f"the {n:,} suspects" if n > 1 else "the one suspect"


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
