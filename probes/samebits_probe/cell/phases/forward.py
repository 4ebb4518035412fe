"""Phase ``forward``: inputs, the output of every layer, all outputs and the attention that ran."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.selfcheck import SelfCheck
from samebits_probe.cell.session import Session, seed_generators
from samebits_probe.model import attention, heap, layers, outputs, unrun
from samebits_probe.model.choice import DoesNotApply, NotFed
from samebits_probe.model.executed import Executed
from samebits_probe.model.inputs import Inputs, tensors_of, token_width
from samebits_probe.model.leftover import Leftover
from samebits_probe.model.refusal import refusals
from samebits_probe.model.tensor import Keeper, NotHashable, Ref, dtype_name
from samebits_probe.process import progress
from samebits_probe.process.failure import phase

OUTPUTS = "outputs"
"""Signal of the tensors that a forward returns besides the logits."""
HOOKS_CHANGE_OUTPUTS = (
    "a forward without hooks on the layers gives different outputs than one with hooks: either "
    "watching changes the result, or every forward gives another one"
)


class _Layer(NamedTuple):
    """The output of a layer: a copy, or a reference where its values are not stored."""

    name: str
    dtype: str
    shape: torch.Size
    content: torch.Tensor | Ref

    def ref(self, keeper: Keeper) -> Ref:
        return self.content if isinstance(self.content, dict) else keeper.ref(self.content)


class _Outputs:
    """What a forward returned: its tensors by name, their hashes, and which of them are the logits.

    The hashes are computed at once, as the next forward may write to the same memory.
    """

    def __init__(self, result: Any) -> None:
        self.tensors = outputs.tensors(result)
        self.logits = outputs.logits_of(result)
        self.logits_name = outputs.name_of(result, self.logits)
        self.hashes = outputs.hashes(self.tensors)

    def copied(self) -> _Outputs:
        """Return this with copies of the tensors, to which no further forward writes."""
        copies = {path: tensor.detach().clone() for path, tensor in self.tensors.items()}
        self.tensors, self.logits = copies, copies.get(self.logits_name, self.logits)
        return self

    def without_tensors(self) -> _Outputs:
        """Return this with the hashes only, which frees the memory of the tensors."""
        self.tensors, self.logits = {}, None
        return self


class _Begun:
    """What a session had recorded when the phase began, and the model as it was then."""

    def __init__(self, session: Session) -> None:
        self._counts = len(session.skips), len(session.failures)
        self._dtypes = dict(session.signals["load"]["activation_dtypes"])
        self._leftover = session.untouched

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
    run anew: plainly, with hooks, and watched.
    """
    if session.is_run_a:
        session.untouched = Leftover(session.loaded.model)
        session.calls = unrun.Calls(session.loaded.model)
    check = _self_check(session)
    begun = None if check is None else _Begun(session)
    _observe_prompts(session, check)
    if check is not None and begun is not None and check.has_failed:
        begun.restore(session)
        _observe_prompts(session, None)
    _note_replaced(session)


def _note_replaced(session: Session) -> None:
    """Say of each buffer that the load did not write whether the forwards wrote it, as a table that is made when needed."""
    unwritten = {n: f for n, f in session.signals.get("buffers", {}).items() if f["unwritten"]}
    if not unwritten or not session.signals["forward"]:
        return
    buffers = dict(session.loaded.model.named_buffers())
    for name, facts in unwritten.items():
        buffer = buffers.get(name)
        facts["replaced"] = buffer is None or not heap.holds_pattern(buffer, session.job["run"])


def _self_check(session: Session) -> SelfCheck | None:
    """Return the check of forwards that stand for several; None if none may."""
    if not session.is_run_a or session.is_apart:
        return None
    check = SelfCheck(session.loaded.model)
    return None if check.is_off else check


def _observe_prompts(session: Session, check: SelfCheck | None) -> None:
    session.signals["forward"] = {}
    session.signals.get("named", {}).pop(OUTPUTS, None)
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
        result, layer_outputs = _hooked(session, inputs)
        _record(session, name, inputs, _Outputs(result), layer_outputs)
        return
    if check is None or check.is_off:
        _observe_apart(session, name, inputs)
    elif not _observe_together(session, name, inputs, check) and not check.has_failed:
        _observe_apart(session, name, inputs)
        check.is_off = True  # the instruments failed, not the model


def _observe_apart(session: Session, name: str, inputs: Inputs) -> None:
    """Run a prompt without hooks on the layers, with them, and in run a with the attention watched.

    The logits are those without hooks. A hook can change the path: torch's TransformerEncoderLayer
    takes its fast path only without. The observed layers are then not those of the logits. The plain
    forward comes first, as in :func:`_observe_together`: a model that keeps what it computed for a
    prompt, such as the embeddings of its text, runs fewer layers from the second forward on.
    """
    model = session.loaded.model
    with (
        refusals(model.forward, inputs.kwargs),
        progress.forward(inputs.kwargs, "plain", plain=True),
    ):
        plain = _Outputs(model(**inputs.kwargs)).copied()
    result, layer_outputs = _hooked(session, inputs)
    is_same = _Outputs(result).hashes == plain.hashes
    _record(session, name, inputs, plain, layer_outputs if is_same else [])
    if not is_same:
        session.skip(f"hidden_states {name}", HOOKS_CHANGE_OUTPUTS)
    if session.is_run_a:
        _observe_attention(session, name, inputs, plain)


def _hooked(session: Session, inputs: Inputs) -> tuple[Any, list[_Layer]]:
    """Run a prompt with hooks on the layers, and return its result and their outputs."""
    model = session.loaded.model
    with (
        refusals(model.forward, inputs.kwargs),
        _taken_layers(session) as layer_outputs,
        progress.forward(inputs.kwargs, "layers watched", times=2),
    ):
        return model(**inputs.kwargs), layer_outputs


def _record(
    session: Session, name: str, inputs: Inputs, result: _Outputs, layer_outputs: list[_Layer]
) -> None:
    session.signals["forward"][name] = _facts(session, inputs, result, layer_outputs)
    others = {path: tensor for path, tensor in result.tensors.items() if path != result.logits_name}
    if others:
        session.observe_tensors(OUTPUTS, others, name, result.hashes)


def _facts(
    session: Session, inputs: Inputs, result: _Outputs, layer_outputs: list[_Layer]
) -> dict[str, Any]:
    keeper = session.keeper
    dtypes: dict[str, int] = session.signals["load"]["activation_dtypes"]
    for layer in layer_outputs:
        dtypes[layer.dtype] = dtypes.get(layer.dtype, 0) + 1
    width = token_width(inputs.kwargs) if inputs.real_rows else None
    logits, digest = result.logits, result.hashes.get(result.logits_name, "")
    tensors = tensors_of(inputs.kwargs)
    first_names = {own_name: name for name, own_name in inputs.renamed.items()}
    constants = {key: value for key, value in inputs.kwargs.items() if key not in tensors}
    return {
        "inputs": {first_names.get(k, k): keeper.ref(value) for k, value in tensors.items()},
        **({"constants": constants} if inputs.is_set else {}),
        **({"optional": inputs.optional} if inputs.optional else {}),
        "text": inputs.text,
        "real_rows": inputs.real_rows,
        "logits": None if logits is None else keeper.ref(logits, digest=digest),
        "logits_name": result.logits_name,
        "logits_padded": logits is not None and _has_padded_axis(logits.shape, width),
        "hidden_states": [
            {
                "name": layer.name,
                "ref": layer.ref(keeper),
                "padded": _has_padded_axis(layer.shape, width),
            }
            for layer in layer_outputs
        ],
    }


@contextmanager
def _taken_layers(session: Session) -> Iterator[list[_Layer]]:
    """Take the output of each layer as it is computed: a hash if it is not stored, else a copy."""
    keeper, layer_outputs = session.keeper, list[_Layer]()

    def take(name: str, tensor: torch.Tensor) -> None:
        content: torch.Tensor | Ref | None = None
        if tensor.numel() * tensor.element_size() > keeper.limit:
            with suppress(NotHashable, OSError):  # raised again after the forward
                content = keeper.ref(tensor)
        if content is None:
            content = tensor.detach().clone()
        layer_outputs.append(_Layer(name, dtype_name(tensor.dtype), tensor.shape, content))

    with layers.passed_to(session.loaded.model, take):
        yield layer_outputs


class _Run(NamedTuple):
    result: _Outputs
    seconds: float


def _observe_together(session: Session, name: str, inputs: Inputs, check: SelfCheck) -> bool:
    """Run a prompt once with all instruments; plainly as well if that may give other logits.

    It may if no prompt of its kind was run plainly, if the inputs are the user's, or if the forward leaves something in the
    model. Returns False, with nothing recorded, if each is to be run by itself.
    """
    before = Leftover(session.loaded.model)
    # the values of what a user gives can choose another path, not only its kind
    share = None if inputs.is_set or check.leaves else check.passed(inputs.kwargs)
    signal = session.signals.get("evidence", {"skips": {}})
    reasons = dict(signal["skips"])
    try:
        plain = _plain(session, inputs) if share is None else None
        check.leaves |= plain is not None and before.has_changed()
        between = before if plain is None else Leftover(session.loaded.model)
        watched, layer_outputs, calls = _watched(session, name, inputs)
        if plain is None and before.has_changed():
            between = Leftover(session.loaded.model)
            plain = _plain(session, inputs)
    except Exception:  # noqa: BLE001  it is raised again if it is the model's
        before.restore()
        signal["skips"] = reasons
        return False
    if plain is not None:
        # what a second forward leaves, a third one may find
        hashes = watched.result.hashes
        if not hashes or hashes != plain.result.hashes or between.has_changed():
            check.fail()
            return False
        check.record(inputs.kwargs, min(1.0, plain.seconds / watched.seconds))
    else:
        progress.estimated(inputs.kwargs, (share or 1.0) * watched.seconds)
    session.signals["attention"]["calls"][name] = calls
    session.effect = "none"
    _record(session, name, inputs, watched.result, layer_outputs)
    return True


def _plain(session: Session, inputs: Inputs) -> _Run:
    started = time.perf_counter()
    with progress.forward(inputs.kwargs, "plain", plain=True):
        result = session.loaded.model(**inputs.kwargs)
    seconds = time.perf_counter() - started
    # hashed now, as the next forward may write to the same memory
    return _Run(_Outputs(result).without_tensors(), seconds)


def _watched(
    session: Session, name: str, inputs: Inputs
) -> tuple[_Run, list[_Layer], list[dict[str, Any]]]:
    """Run a prompt with all instruments, and return its layers and attention calls, too."""
    started = time.perf_counter()
    with (
        _taken_layers(session) as layer_outputs,
        _watched_attention(session, name) as calls,
        progress.forward(inputs.kwargs, "watched", times=10),
    ):
        result = session.loaded.model(**inputs.kwargs)
    seconds = time.perf_counter() - started
    return _Run(_Outputs(result), seconds), layer_outputs, calls


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


def _observe_attention(session: Session, name: str, inputs: Inputs, plain: _Outputs) -> None:
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
    watched = _Outputs(result)
    if not watched.hashes or not plain.hashes:
        return
    unchanged = watched.hashes == plain.hashes and session.effect != "changed the bits"
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


def _has_padded_axis(shape: torch.Size, width: int | None) -> bool:
    """Return True if dimension 1 is the padded token axis of ``width`` positions."""
    return width is not None and len(shape) >= 2 and shape[1] == width


PHASE = Phase("forward", 20, observe)
