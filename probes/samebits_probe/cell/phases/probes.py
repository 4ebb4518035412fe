"""Phase ``probes``: functions of the user's, each in a child with the model as it was loaded.

They run in both runs, a short one included: one that gives other results in run b does not repeat
itself. Each has a child of its own, so that none changes what another or samebits itself observes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from samebits_probe.cell.phase import InFork, Phase
from samebits_probe.cell.session import Session, seed_generators
from samebits_probe.model import probing
from samebits_probe.process import fork, progress
from samebits_wire.jobs import ProbeFile

Attempt = Callable[[ProbeFile, str, Callable[[], dict[str, Any]]], dict[str, Any]]

NAME = "probes"


def observe(session: Session) -> None:
    """Run the probes in the forked child."""
    if NAME not in session.model_forks:
        return
    session.begin(_phase(ordered(session)[0]))
    if (facts := session.run_in_fork(NAME, str(session.seconds_left))) is not None:
        session.signals[NAME] = facts


def untouched(session: Session) -> InFork | None:
    """Return what runs the probes; None if there are none."""
    if not ordered(session):
        return None
    return lambda _, argument: answers(session, session.loaded.model, float(argument), _in_child)


def without_fork(session: Session, reason: str) -> None:
    """Leave the probes to the end of the run, when they cannot disturb anything but each other."""
    session.probes_at_the_end = True
    session.skip("probes: each in a process of its own", reason)


def ordered(session: Session) -> list[ProbeFile]:
    """Return the files of probes, those that count first."""
    return sorted(session.job["model"].get("probes") or [], key=lambda file: not file["verdict"])


def answers(session: Session, model: Any, seconds: float, attempt: Attempt) -> dict[str, Any]:
    """Return what the probes of every file return, as the capture has it.

    Probes that only inform are left out after ``seconds``.
    """
    end = time.perf_counter() + seconds
    arguments = probing.ProbeArguments(
        session.loaded, session.source, model, lambda: _inputs(session)
    )
    return {
        file["name"]: {
            "verdict": file["verdict"],
            "answers": dict(_of_file(session, file, arguments, end, attempt)),
        }
        for file in ordered(session)
    }


def _of_file(
    session: Session,
    file: ProbeFile,
    arguments: probing.ProbeArguments,
    end: float,
    attempt: Attempt,
) -> Iterator[tuple[str, dict[str, Any]]]:
    for function in file["functions"]:
        started = time.perf_counter()
        if not file["verdict"] and started > end:
            budget = "the budget of the run is used: raise budget: in matrix.yaml to have it"
            yield function, {"left_out": budget}
            continue
        progress.begin(_phase(file))
        probing.begin(file, function, arguments)

        def run(function: str = function) -> dict[str, Any]:
            seed_generators(session.job["run"])
            return probing.answer(file, function, arguments, session.keeper)

        answer = attempt(file, function, run)
        yield function, answer | {"seconds": round(time.perf_counter() - started, 4)}


def _phase(file: ProbeFile) -> str:
    """Return the phase's name: a run that ends in a probe that counts did not finish."""
    return f"probe {file['name']}" if file["verdict"] else NAME


def _in_child(file: ProbeFile, function: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = fork.run_in_fork(run)
    except fork.NoAnswer as reason:
        failure = probing.failure_of(file, function, reason)
        return {"failure": failure | {"type": type(reason).__name__}}
    return answer


def _inputs(session: Session) -> dict[str, dict[str, Any]]:
    """Return prompt -> arguments of forward, in tensors of their own."""
    return {name: dict(inputs.kwargs) for name, inputs in session.prompts().items()}


PHASE = Phase(NAME, 45, observe, untouched, without_fork, in_both_runs=True)
