"""Phase ``forward``: inputs, the output of every layer, logits and the attention that ran."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.selfcheck import SelfCheck
from samebits_probe.cell.session import seed_generators
from samebits_probe.model import attention, layers
from samebits_probe.model.choice import DoesNotApply, NotFed
from samebits_probe.model.executed import Executed
from samebits_probe.model.inputs import tensors_of, token_width
from samebits_probe.model.leftover import Leftover
from samebits_probe.model.refusal import refusals
from samebits_probe.model.tensor import NotHashable, Ref, dtype_name, tensor_hash
from samebits_probe.process import progress
from samebits_probe.process.failure import phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits_probe.cell.session import Session
    from samebits_probe.model.inputs import Inputs
    from samebits_probe.model.tensor import Keeper

HOOKS_CHANGE_LOGITS = (
    "a forward without hooks on the layers gives different logits than one with hooks: either "
    "watching changes the result, or every forward gives another one"
)
ONLY_LOGITS_COMPARED = "of a forward's outputs only the logits, or the first tensor, are compared"


class _Layer(NamedTuple):
    """The output of a layer: a copy, or a reference where its values are not stored."""

    name: str
    dtype: str
    shape: torch.Size
    content: torch.Tensor | Ref

    def ref(self, keeper: Keeper) -> Ref:
        return self.content if isinstance(self.content, dict) else keeper.ref(self.content)


class _Begun:
    """What a session had recorded when the phase began, and the model as it was then."""

    def __init__(self, session: Session) -> None:
        self._counts = len(session.skips), len(session.failures)
        self._dtypes = dict(session.signals["load"]["activation_dtypes"])
        self._leftover = Leftover(session.loaded.model)

    def restore(self, session: Session) -> None:
        """Forget everything that the phase has recorded, and what its forwards left."""
        n_skips, n_failures = self._counts
        del session.skips[n_skips:], session.failures[n_failures:]
        session.signals["load"]["activation_dtypes"] = dict(self._dtypes)
        session.effect = "not checked"
        session.__dict__.pop("evidence", None)  # a cached property
        for name in ("evidence", "attention"):
            session.signals.pop(name, None)
        session.signals.get("code", {}).pop("executed", None)
        self._leftover.restore()


def observe(session: Session) -> None:
    """Run every prompt that applies; in run a with the attention watched.

    One forward of run a stands for the plain, the hooked and the watched one, as long as plain
    forwards of the same kind of inputs give the same logits. Where one does not, all prompts are
    run anew: with hooks, plainly, and watched.
    """
    check = _self_check(session)
    begun = None if check is None else _Begun(session)
    _observe_prompts(session, check)
    if check is not None and begun is not None and check.has_failed:
        begun.restore(session)
        _observe_prompts(session, None)


def _self_check(session: Session) -> SelfCheck | None:
    """Return the check of forwards that stand for several; None if none may."""
    if not session.is_run_a or session.is_apart:
        return None
    check = SelfCheck(session.loaded.model)
    return None if check.is_off else check


def _observe_prompts(session: Session, check: SelfCheck | None) -> None:
    session.signals["forward"] = {}
    seed_generators(session.job["run"])
    for name in session.job["model"]["prompts"]:
        phase_name = f"forward {name}"
        session.begin(phase_name)
        with session.recorded_failures(phase_name), phase(phase_name):
            try:
                _observe_prompt(session, name, session.inputs(name), check)
            except NotFed as reason:
                session.skip(f"forward {name}", str(reason), why="inputs", paste=reason.paste)
            except DoesNotApply as reason:
                session.skip(f"prompt {name}", str(reason))
        if check is not None and check.has_failed:
            return


def _observe_prompt(session: Session, name: str, inputs: Inputs, check: SelfCheck | None) -> None:
    if session.is_short:
        # where watching changes the logits, they differ from run a's, and the full run follows
        result, outputs = _hooked(session, inputs)
        _record(session, name, inputs, result, outputs)
        return
    if check is None or check.is_off:
        _observe_apart(session, name, inputs)
    elif not _observe_together(session, name, inputs, check) and not check.has_failed:
        _observe_apart(session, name, inputs)
        check.is_off = True  # the instruments failed, not the model


def _observe_apart(session: Session, name: str, inputs: Inputs) -> None:
    """Run a prompt with hooks on the layers, without, and in run a with the attention watched.

    The logits are those without hooks. A hook can change the path: torch's TransformerEncoderLayer
    takes its fast path only without. The observed layers are then not those of the logits.
    """
    hooked, outputs = _hooked(session, inputs)
    # hashed now, as the next forward may write to the same memory
    digest = _digest(hooked)
    with progress.forward(inputs.kwargs, "plain", plain=True):
        result = session.loaded.model(**inputs.kwargs)
    is_same = digest == _digest(result)
    _record(session, name, inputs, result, outputs if is_same else [])
    if not is_same:
        session.skip(f"hidden_states {name}", HOOKS_CHANGE_LOGITS)
    if session.is_run_a:
        _observe_attention(session, name, inputs)


def _hooked(session: Session, inputs: Inputs) -> tuple[Any, list[_Layer]]:
    """Run a prompt with hooks on the layers, and return its result and their outputs."""
    model = session.loaded.model
    with (
        refusals(model.forward, inputs.kwargs),
        _taken_layers(session) as outputs,
        progress.forward(inputs.kwargs, "layers watched", times=2),
    ):
        return model(**inputs.kwargs), outputs


def _record(
    session: Session, name: str, inputs: Inputs, result: Any, outputs: list[_Layer]
) -> None:
    """Record what a prompt's forward was fed and what it returned."""
    logits = layers.logits_of(result)
    # a short run only agrees or not
    for unobserved in [] if session.is_short else _other_tensors(result, logits):
        if all(skip["what"] != f"output {unobserved}" for skip in session.skips):
            session.skip(f"output {unobserved}", ONLY_LOGITS_COMPARED)
    session.signals["forward"][name] = _facts(session, inputs, logits, outputs)


def _facts(
    session: Session, inputs: Inputs, logits: torch.Tensor | None, outputs: list[_Layer]
) -> dict[str, Any]:
    keeper = session.keeper
    dtypes: dict[str, int] = session.signals["load"]["activation_dtypes"]
    for layer in outputs:
        dtypes[layer.dtype] = dtypes.get(layer.dtype, 0) + 1
    width = token_width(inputs.kwargs) if inputs.real_rows else None
    tensors = tensors_of(inputs.kwargs)
    constants = {key: value for key, value in inputs.kwargs.items() if key not in tensors}
    return {
        "inputs": {key: keeper.ref(value) for key, value in tensors.items()},
        **({"constants": constants} if inputs.is_set else {}),
        "text": inputs.text,
        "real_rows": inputs.real_rows,
        "logits": None if logits is None else keeper.ref(logits),
        "logits_padded": logits is not None and _has_padded_axis(logits.shape, width),
        "hidden_states": [
            {
                "name": layer.name,
                "ref": layer.ref(keeper),
                "padded": _has_padded_axis(layer.shape, width),
            }
            for layer in outputs
        ],
    }


@contextmanager
def _taken_layers(session: Session) -> Iterator[list[_Layer]]:
    """Take the output of each layer as it is computed: a hash if it is not stored, else a copy."""
    keeper, outputs = session.keeper, list[_Layer]()

    def take(name: str, tensor: torch.Tensor) -> None:
        content: torch.Tensor | Ref | None = None
        if tensor.numel() * tensor.element_size() > keeper.limit:
            with suppress(NotHashable, OSError):  # raised again after the forward
                content = keeper.ref(tensor)
        if content is None:
            content = tensor.detach().clone()
        outputs.append(_Layer(name, dtype_name(tensor.dtype), tensor.shape, content))

    with layers.passed_to(session.loaded.model, take):
        yield outputs


class _Run(NamedTuple):
    """One forward: its result, the hash of its logits and its seconds."""

    result: Any
    digest: str | None
    seconds: float


def _observe_together(session: Session, name: str, inputs: Inputs, check: SelfCheck) -> bool:
    """Run a prompt once with all instruments; plainly as well if that may give other logits.

    It may if no prompt of its kind was run plainly, if the inputs are the user's, or if the forward leaves something in the
    model. Returns False, with nothing recorded, if each is to be run by itself.
    """
    before = Leftover(session.loaded.model)
    # the values of what a user gives can choose another path, not only its kind
    share = None if inputs.is_set else check.passed(inputs.kwargs)
    signal = session.signals.get("evidence", {"skips": {}})
    reasons = dict(signal["skips"])
    try:
        plain = _plain(session, inputs) if share is None else None
        between = before if plain is None else Leftover(session.loaded.model)
        watched, outputs, calls = _watched(session, name, inputs)
        if plain is None and before.has_changed():
            between = Leftover(session.loaded.model)
            plain = _plain(session, inputs)
    except Exception:  # noqa: BLE001  it is raised again if it is the model's
        before.restore()
        signal["skips"] = reasons
        return False
    if plain is not None:
        # what a second forward leaves, a third one may find
        if watched.digest is None or watched.digest != plain.digest or between.has_changed():
            check.fail()
            return False
        check.record(inputs.kwargs, min(1.0, plain.seconds / watched.seconds))
    else:
        progress.estimated(inputs.kwargs, (share or 1.0) * watched.seconds)
    session.signals["attention"]["calls"][name] = calls
    session.effect = "none"
    _record(session, name, inputs, watched.result, outputs)
    return True


def _plain(session: Session, inputs: Inputs) -> _Run:
    """Run a prompt without any instrument."""
    started = time.perf_counter()
    with progress.forward(inputs.kwargs, "plain", plain=True):
        result = session.loaded.model(**inputs.kwargs)
    seconds = time.perf_counter() - started
    # hashed now, as the next forward may write to the same memory
    return _Run(None, _digest(result), seconds)


def _watched(
    session: Session, name: str, inputs: Inputs
) -> tuple[_Run, list[_Layer], list[dict[str, Any]]]:
    """Run a prompt with all instruments, and return its layers and attention calls, too."""
    started = time.perf_counter()
    with (
        _taken_layers(session) as outputs,
        _watched_attention(session, name) as calls,
        progress.forward(inputs.kwargs, "watched", times=10),
    ):
        result = session.loaded.model(**inputs.kwargs)
    seconds = time.perf_counter() - started
    return _Run(result, _digest(result), seconds), outputs, calls


@contextmanager
def _watched_attention(session: Session, name: str) -> Iterator[list[dict[str, Any]]]:
    """Watch attention, evidence and executed functions of one forward; yields attention calls."""
    model, evidence = session.loaded.model, session.evidence
    session.signals.setdefault("attention", _attention_facts(session))
    with (
        evidence.recording(name),
        attention.Watch(model, evidence.keep) as watch,
        _recorded_functions(session),
    ):
        yield watch.calls


def _digest(result: Any) -> str | None:
    logits = layers.logits_of(result)
    return None if logits is None else tensor_hash(logits)


def _observe_attention(session: Session, name: str, inputs: Inputs) -> None:
    """Watch the same forward once more, and record whether watching changed its bits."""
    try:
        with (
            _watched_attention(session, name) as calls,
            progress.forward(inputs.kwargs, "attention watched", times=10),
        ):
            result = session.loaded.model(**inputs.kwargs)
    except Exception as error:  # noqa: BLE001  the instrument failed, not the model
        session.skip_broken_instrument(f"attention.kernel {name}", error)
        return
    session.signals["attention"]["calls"][name] = calls
    digest, plain = _digest(result), session.signals["forward"][name]["logits"]
    if digest is None or plain is None:
        return
    unchanged = digest == plain["hash"] and session.effect != "changed the bits"
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


def _has_padded_axis(shape: torch.Size, width: int | None) -> bool:
    """Return True if dimension 1 is the padded token axis of ``width`` positions."""
    return width is not None and len(shape) >= 2 and shape[1] == width


PHASE = Phase("forward", 20, observe)
