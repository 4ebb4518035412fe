"""Phase ``device``: what exists only on a GPU, for the cells that are on one."""

from __future__ import annotations

import torch

from samebits_probe.cell import on_device
from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session

_FORWARDS = 2 * len(on_device.PROBES) + 1
_LOADS = 3
_COPIES = 2.0
"""Models beside the loaded one while another is loaded: 4.x makes it twice."""


def observe(session: Session) -> None:
    """Try every probe of a device; only in run a of a cell that is not on the CPU."""
    if not session.is_run_a or session.source.device == "cpu":
        return
    session.begin("device")
    with session.instrument("device"):
        subject = of_session(session, _capability(session.source.device))
        no_time = session.no_time(_FORWARDS, _LOADS * session.seconds["load"])
        if session.leaves_out("device", no_time):
            return
        if subject is None:
            session.skip("device", "no prompt without padding was run")
        else:
            session.signals["device"] = on_device.observe(subject, session.keeper)


def of_session(session: Session, capability: tuple[int, int] | None) -> on_device.Subject | None:
    """Return the model with its first prompt without padding; None without such a prompt.

    A fused attention may refuse a mask, and without padding there is none.
    """
    forwards = session.signals.get("forward") or {}
    name = next((name for name, facts in forwards.items() if not facts["real_rows"]), None)
    if name is None:
        return None
    kwargs = session.inputs(name).kwargs
    no_room = session.too_large() or session.no_room(_COPIES)
    return on_device.Subject(session.loaded, session.source, name, kwargs, capability, no_room)


def _capability(device: str) -> tuple[int, int] | None:
    """Return the compute capability of a chip of NVIDIA; None for any other device."""
    if not device.startswith("cuda") or torch.version.cuda is None:
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return major, minor


PHASE = Phase("device", 95, observe)
