"""One run of a cell: loads a model in this stack, runs all phases and writes the capture.

A job holds: cell, run (``a`` or ``b``), model (source, prompts, greedy), store (root, limit,
wanted hashes), slots (how many jobs share this machine), budget, the capture's path and ``short``. A short
run makes only the observations by which it can agree with run a. The capture is written whole or not at all, in the format of samebits/records/capture.py. An exception of the
model is part of the capture; only one before or in the load ends the cell.

The phases are the modules of samebits_probe/cell/phases/. They run in order of importance: first
the signals that verdicts depend on, then those that explain.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from samebits_probe.cell import code as remote_code
from samebits_probe.cell.capture import write_capture
from samebits_probe.cell.phase import Phase
from samebits_probe.cell.phases import PHASES
from samebits_probe.cell.session import Session, seed_generators
from samebits_probe.model import heap, load, quantized
from samebits_probe.process import devices, fork, progress, threads
from samebits_probe.process.calls import CALLS
from samebits_probe.process.devices import DeviceMissing
from samebits_probe.process.failure import PhaseFailed, Unknown, describe
from samebits_wire.jobs import CellJob

NO_DEVICE = "no device"


def run(job: CellJob) -> None:
    """Run one cell once and write its capture.

    Raises:
        DeviceLost: a kernel ended the context of the device. The capture is the one of the last phase
            that began, as after a crash.

    """
    try:
        _run(job)
    except DeviceMissing as missing:
        ended = {"phase": NO_DEVICE, "reason": str(missing)}
        write_capture(Path(job["capture"]), job, {"status": "unfinished", "unfinished": ended})
    except Exception as error:  # noqa: BLE001  a defect of the probe is reported like any failure
        traceback.print_exc()
        devices.require_alive(job["cell"]["variant"]["device"])
        failed = {"status": "failed", "failure": describe("probe", error)}
        write_capture(Path(job["capture"]), job, failed)


def _run(job: CellJob) -> None:
    devices.require(job["cell"]["variant"]["device"])
    threads.use(int(job["threads"]))
    heap_fill = heap.fill_unwritten(job["run"], job["cell"]["variant"]["device"])
    seed_generators(job["run"])
    outcome = observe(Session(job, heap_fill))
    write_capture(Path(job["capture"]), job, outcome | {"entered": CALLS.table()})


def observe(session: Session) -> dict[str, Any]:
    """Return the content of the capture, whether the model worked or not."""
    progress.begin("load")
    try:
        if load.has_no_model(session.source):
            return _without_model(session)
        load_model(session)
    except Unknown as reason:
        return session.outcome("absent", absent=str(reason))
    except PhaseFailed as failed:
        quantized.require_gpu(failed.__cause__)
        session.load_failure = failed.failure
        if failed.failure["phase"] == "load":  # the files have passed their checks
            _observe_all(session, [phase for phase in PHASES if phase.without_load])
        return session.outcome("failed", failure=failed.failure)
    first, *others = PHASES
    with session.timed(first.name), torch.set_grad_enabled(first.needs_grad):
        first.observe(session)
        devices.require_alive(session.source.device)
        fork_untouched(session)
    for phase in others:
        # a phase that controls gradients itself finds them as transformers does
        with session.timed(phase.name), torch.set_grad_enabled(phase.needs_grad):
            phase.observe(session)
            devices.require_alive(session.source.device)
    return session.outcome("complete")


def _without_model(session: Session) -> dict[str, Any]:
    """Return the content of the capture of a folder that holds a tokenizer or processors alone."""
    session.loaded = load.without_model(session.source)
    for signal in ("weights", "buffers", "inv_freq", "forward", "greedy"):
        session.skip(signal, "the folder holds no model")
    _observe_all(session, [phase for phase in PHASES if phase.without_model])
    return session.outcome("complete")


def _observe_all(session: Session, phases: Sequence[Phase]) -> None:
    for phase in phases:
        with session.timed(phase.name), torch.set_grad_enabled(phase.needs_grad):
            phase.observe(session)


def load_model(session: Session) -> None:
    """Load the model, and read its remote code even if the load fails: it may download the code."""
    if session.is_run_a:
        session.config_reads.start()
    try:
        with session.timed("load"):
            session.loaded = load.load(session.source)
    finally:
        if session.is_run_a:
            with session.instrument("code"), session.timed("code"):
                session.signals["code"] = remote_code.of_source(session.source)
    if session.loaded.tokenizer_failure is not None:
        session.failures.append(session.loaded.tokenizer_failure)
    session.settings.look("load")
    session.signals["load"] = session.loaded.facts
    session.signals["config"] = load.effective_config(session.loaded.model.config)


def fork_untouched(session: Session) -> None:
    """Fork the children of the phases that need the model as no prompt has changed it.

    Run b has only those that must agree in both runs.
    """
    functions = {
        phase: function
        for phase in PHASES
        if (session.is_run_a or phase.in_both_runs)
        and phase.untouched is not None
        and (function := phase.untouched(session)) is not None
    }
    if not functions and not session.is_run_a:
        return
    reason = fork.refusal(session.source.device)
    for phase, function in functions.items():
        if not reason:
            session.fork_model(phase.name, function)
        elif phase.without_fork is not None:
            phase.without_fork(session, reason)
        else:
            session.skip(phase.name, reason)
