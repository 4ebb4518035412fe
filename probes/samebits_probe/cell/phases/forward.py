"""Phase ``forward``: inputs, the output of every layer, logits and the attention that ran."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import seed_generators
from samebits_probe.model import attention, layers
from samebits_probe.model.choice import DoesNotApply, NotFed
from samebits_probe.model.executed import Executed
from samebits_probe.model.refusal import refusals
from samebits_probe.model.tensor import dtype_name, tensor_hash
from samebits_probe.process import progress
from samebits_probe.process.failure import phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits_probe.cell.session import Session
    from samebits_probe.model.inputs import Inputs

HOOKS_CHANGE_LOGITS = (
    "a forward without hooks on the layers gives different logits than one with hooks: either "
    "watching changes the result, or every forward gives another one"
)
ONLY_LOGITS_COMPARED = "of a forward's outputs only the logits, or the first tensor, are compared"


def observe(session: Session) -> None:
    """Run every prompt that applies; in run a, once more with the attention watched."""
    facts = session.signals["forward"] = {}
    seed_generators(session.job["run"])
    dtypes: dict[str, int] = session.signals["load"]["activation_dtypes"]
    for name in session.job["model"]["prompts"]:
        phase_name = f"forward {name}"
        session.begin(phase_name)
        with session.recorded_failures(phase_name), phase(phase_name):
            try:
                inputs = session.inputs(name)
                run_prompt = watched_forward if session.is_short else forward
                facts[name] = run_prompt(session, name, inputs, dtypes)
            except NotFed as reason:
                session.skip(f"forward {name}", str(reason), why="inputs")
                continue
            except DoesNotApply as reason:
                session.skip(f"prompt {name}", str(reason))
                continue
            if session.is_run_a:
                _observe_attention(session, name, inputs, facts[name])


def forward(session: Session, name: str, inputs: Inputs, dtypes: dict[str, int]) -> dict[str, Any]:
    """Run a prompt with hooks on the layers and without; the logits are those without hooks.

    A hook can change the path: torch's TransformerEncoderLayer takes its fast path only without
    hooks. The observed layers are then not those that computed the logits.
    """
    watched, outputs = _watched(session, inputs)
    with progress.forward(inputs.kwargs, "plain", plain=True):
        result = session.loaded.model(**inputs.kwargs)
    logits = layers.logits_of(result)
    for unobserved in _other_tensors(result, logits):
        if all(skip["what"] != f"output {unobserved}" for skip in session.skips):
            session.skip(f"output {unobserved}", ONLY_LOGITS_COMPARED)
    if not _equal_bytes(watched, logits):
        session.skip(f"hidden_states {name}", HOOKS_CHANGE_LOGITS)
        outputs = []
    return _facts(session, inputs, logits, outputs, dtypes)


def watched_forward(
    session: Session, _name: str, inputs: Inputs, dtypes: dict[str, int]
) -> dict[str, Any]:
    """Run a prompt once, with hooks on the layers, as a short run does.

    Where watching changes the logits, they differ from run a's, and the full run follows.
    """
    return _facts(session, inputs, *_watched(session, inputs), dtypes)


def _watched(
    session: Session, inputs: Inputs
) -> tuple[torch.Tensor | None, list[layers.LayerOutput]]:
    model = session.loaded.model
    with (
        refusals(model.forward, inputs.kwargs),
        layers.recorded(model) as outputs,
        progress.forward(inputs.kwargs, "layers watched", times=2),
    ):
        return layers.logits_of(model(**inputs.kwargs)), outputs


def _facts(
    session: Session,
    inputs: Inputs,
    logits: torch.Tensor | None,
    outputs: list[layers.LayerOutput],
    dtypes: dict[str, int],
) -> dict[str, Any]:
    keeper = session.keeper
    for _, tensor in outputs:
        dtypes[dtype_name(tensor.dtype)] = dtypes.get(dtype_name(tensor.dtype), 0) + 1
    width = inputs.kwargs["input_ids"].shape[1] if inputs.real_rows else None
    return {
        "inputs": {key: keeper.ref(value) for key, value in inputs.kwargs.items()},
        "text": inputs.text,
        "real_rows": inputs.real_rows,
        "logits": None if logits is None else keeper.ref(logits),
        "logits_padded": logits is not None and _has_padded_axis(logits, width),
        "hidden_states": [
            {"name": name, "ref": keeper.ref(tensor), "padded": _has_padded_axis(tensor, width)}
            for name, tensor in outputs
        ],
    }


def _observe_attention(session: Session, name: str, inputs: Inputs, facts: dict[str, Any]) -> None:
    """Watch the same forward once more, and record whether watching changed its bits."""
    model, evidence = session.loaded.model, session.evidence
    signal = session.signals.setdefault("attention", _attention_facts(session))
    try:
        with (
            evidence.recording(name),
            attention.Watch(model, evidence.keep) as watch,
            _recorded_functions(session),
            progress.forward(inputs.kwargs, "attention watched", times=10),
        ):
            result = model(**inputs.kwargs)
    except Exception as error:  # noqa: BLE001  the instrument failed, not the model
        session.skip_broken_instrument(f"attention.kernel {name}", error)
        return
    signal["calls"][name] = watch.calls
    logits = layers.logits_of(result)
    if logits is None or facts["logits"] is None:
        return
    is_same = tensor_hash(logits) == facts["logits"]["hash"]
    unchanged = is_same and session.effect != "changed the bits"
    session.effect = "none" if unchanged else "changed the bits"


def _attention_facts(session: Session) -> dict[str, Any]:
    resolved = getattr(session.loaded.model.config, "_attn_implementation", None)
    return {
        "requested": session.source.attention,
        "resolved": resolved if isinstance(resolved, str) else None,
        "calls": {},
    }


@contextmanager
def _recorded_functions(session: Session) -> Iterator[None]:
    """Record the functions that the first prompt's forward executes."""
    signal = session.signals.get("code")
    if signal is None or "executed" in signal:
        yield
        return
    with Executed() as executed:
        yield
    with session.instrument("code: executed"):
        signal["executed"] = executed.functions()


def _other_tensors(result: Any, logits: torch.Tensor | None) -> list[str]:
    """Return the names of a forward's output tensors other than the compared one.

    An encoder's last hidden state is left out, as it is among the layers.
    """
    outputs = result.items() if hasattr(result, "items") else ()
    return [
        name
        for name, value in outputs
        if isinstance(value, torch.Tensor)
        and value is not logits
        and name not in {"loss", "encoder_last_hidden_state"}
    ]


def _equal_bytes(watched: torch.Tensor | None, plain: torch.Tensor | None) -> bool:
    """Return True if two forwards returned the same bytes, or neither returned a tensor."""
    if watched is None or plain is None:
        return watched is plain
    return tensor_hash(watched) == tensor_hash(plain)


def _has_padded_axis(tensor: torch.Tensor, width: int | None) -> bool:
    """Return True if dimension 1 is the padded token axis of ``width`` positions."""
    return width is not None and tensor.ndim >= 2 and tensor.shape[1] == width


PHASE = Phase("forward", 20, observe)
