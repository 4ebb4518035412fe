"""Phase ``weights``: parameters, buffers and rotary frequencies, before a prompt may change them."""

from __future__ import annotations

from typing import Any

from samebits_probe.cell import integrity, rope
from samebits_probe.cell import weights as cell_weights
from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import fresh, heap, load
from samebits_probe.model.checkpoint import Checkpoint, NoCheckpoint
from samebits_probe.process.failure import phase


def observe(session: Session) -> None:
    """Observe the signals weights, buffers and inv_freq."""
    session.begin("weights")
    with session.recorded_failures("weights"):
        observe_weights(session)
    with session.recorded_failures("buffers", "inv_freq"):
        observe_buffers(session)
    with session.recorded_failures():
        _reduce_twin_to_hashes(session)


def observe_weights(session: Session) -> None:
    """Observe every parameter and persistent buffer, with its origin in the checkpoint."""
    if session.is_short:
        with phase("weights"):
            session.signals["weights"] = cell_weights.untraced(
                session.loaded.model,
                session.keeper,
                lambda name, reason: session.skip_tensor("weights", name, reason),
            )
        return
    with phase("trace weights"):
        try:
            checkpoint = Checkpoint.of(session.source)
        except NoCheckpoint as reason:
            checkpoint = None
            session.skip("weights: origin", str(reason))
        session.signals["weights"] = cell_weights.weights(
            session.loaded.model,
            checkpoint,
            Checkpoint.adapter_of(session.source),
            session.keeper,
            session.job["run"],
            lambda: session.twin,
            session.reloaded,
            lambda name, reason: session.skip_tensor("weights", name, reason),
        )


def observe_buffers(session: Session) -> None:
    """Observe every buffer, and which of them hold rotary frequencies."""
    model = session.loaded.model
    persistent = set(model.state_dict(keep_vars=True))
    with phase("buffers"):
        buffers: dict[str, Any] = {}
        for name, buffer in model.named_buffers():
            if buffer.is_meta or (ref := session.tensor_ref("buffers", name, buffer)) is None:
                continue
            buffers[name] = {
                "ref": ref,
                "persistent": name in persistent,
                "fresh": fresh.against(session.twin, name, ref["hash"]),
                "unwritten": heap.holds_pattern(buffer, session.job["run"]),
            }
        session.signals["buffers"] = buffers
        session.signals["inv_freq"] = rope.inv_freq(model, session.keeper, session.twin)
        if not session.signals["inv_freq"]:
            session.skip("inv_freq", "no buffer of the model holds rotary frequencies")


def _reduce_twin_to_hashes(session: Session) -> None:
    """Drop the fresh model, but keep the hashes of tensors that are compared later."""
    if session.twin is None:
        return
    names: Any = ()
    if session.is_run_a and {"weights", "buffers"} <= session.signals.keys():
        names = integrity.tensors_compared_with_fresh(session.loaded.model, session.signals)
    session.twin.keep_hashes_only(names)
    load.trim_heap(session.loaded.model)


PHASE = Phase("weights", 10, observe)
