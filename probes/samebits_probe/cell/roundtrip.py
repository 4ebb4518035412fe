"""What comes back of a model that is saved and loaded again in the same release.

Saved is the model of the second load, never the one that is observed: saving writes into a
model's config. It is loaded by its own class, so that remote code need not be saved with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model import forks, layers, places, steady
from samebits_probe.model import load as model_load
from samebits_probe.model.state import drop_tensors, everything, hashes
from samebits_probe.model.tensor import dtype_name, tensor_hash
from samebits_probe.process import progress
from samebits_probe.process.failure import without_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from samebits_probe.model.inputs import Inputs

Facts = dict[str, Any]
_MAX_MESSAGE = 400
SEED = 30
"""Of the load of what was saved: another than any before, so that chance shows."""


def round_trip(
    model: Any,
    source: model_load.Source,
    folder: Path,
    inputs: Callable[[], Inputs | None],
    chance: set[str],
    unwritten: list[str],
    load_original: Callable[[], Any],
) -> Facts:
    """Return what is lost when ``model`` is saved to ``folder`` and loaded from there.

    ``chance`` names the tensors that the checkpoint or two loads leave open: of these only what
    was saved is compared. Logits are not compared where any tensor is ``unwritten``. What ``model``
    holds is gone afterwards, so that it and what was saved need not be held at once. ``load`` loads
    the original once more as ``model`` was: what differs there, too, saving has not lost.
    """
    before = StateBeforeSave(model)
    size = model_load.n_bytes(model)
    progress.tick("save", allowance=progress.moving(size), moves=True)
    try:
        model.save_pretrained(folder)
    except Exception as error:  # noqa: BLE001  a model that cannot be saved is a fact
        return {"outcome": "save failed", "reason": _error_text(error)}
    prompt, reason = _prompt(inputs, unwritten)
    original = _forward_result(model, prompt)
    drop_tensors(model)
    model_load.trim_heap(model)
    try:
        saved = source._replace(where=str(folder), revision=None)
        restored, info = model_load.from_pretrained(type(model), saved, SEED, "load what was saved")
    except Exception as error:  # noqa: BLE001  a model that cannot be loaded again is one, too
        return {"outcome": "load failed", "reason": _error_text(error)}
    tensors = before.lost(restored, info, chance)
    fields = before.changed(model_load.effective_config(restored.config))
    logits, reason = (
        _compare_logits(original, _forward_result(restored, prompt))
        if prompt
        else ("not compared", reason)
    )
    if logits == "differs" and prompt:
        logits, reason = _confirm_difference(original, load_original, prompt)
    same = not tensors and not fields and logits != "differs"
    return {
        "outcome": "same bits" if same else "differs",
        "tensors": tensors,
        "config": fields,
        "logits": logits,
        "reason": reason,
    }


class StateBeforeSave:
    """What a model holds before it is saved, which changes its config."""

    def __init__(self, model: Any) -> None:
        self.config = model_load.effective_config(model.config)
        self.dtype = dtype_name(model.dtype)
        self.hashes = hashes(model)
        self.saved = set(model.state_dict(keep_vars=True))
        self.tied = {name for name, state in everything(model).items() if state.tied}

    def lost(self, restored: torch.nn.Module, info: Facts, chance: set[str]) -> list[str]:
        """Return the tensors that did not come back with the same bytes, or not from the file."""
        after = hashes(restored)
        missing = set(forks.loading_info(info)["missing_keys"]) - self.tied - chance
        return [
            name
            for name, digest in self.hashes.items()
            if name in missing
            or (after.get(name) != digest and (name in self.saved or name not in chance))
        ]

    def changed(self, after: Facts) -> list[str]:
        """Return ``field: value before → value after`` of every field with another value."""
        before = dict(self.config)
        if after.get("dtype") == self.dtype:
            # what is saved says what it holds, whatever was said of the file before it
            before["dtype"] = self.dtype
        return [
            f"{name}: {_shown_value(before, name)} → {_shown_value(after, name)}"
            for name in sorted({*before, *after})
            if (name in before) != (name in after) or before.get(name) != after.get(name)
        ]


def _shown_value(values: Facts, name: str) -> str:
    return without_folders(repr(values[name])) if name in values else "absent"


def _prompt(inputs: Callable[[], Inputs | None], unwritten: list[str]) -> tuple[Inputs | None, str]:
    """Return what both models are fed, or why nothing is."""
    if unwritten:
        return None, f"{unwritten[0]} was never written, and is poison here"
    prompt = inputs()
    return prompt, "" if prompt else "no prompt applies"


class ForwardResult(NamedTuple):
    """The hash of what a model computed; without one, why."""

    digest: str
    reason: str


def _forward_result(model: Any, prompt: Inputs | None) -> ForwardResult:
    if prompt is None:
        return ForwardResult("", "")
    try:
        places.align(model)  # a file places its tensors as its header is long
        output = _output(model, prompt.kwargs)
        if output is None:
            return ForwardResult("", "the model returns no tensor")
        return ForwardResult(tensor_hash(output), "")
    except Exception as error:  # noqa: BLE001  the cell's own forward says so, too
        return ForwardResult("", f"the forward raised {_error_text(error)}")


def _compare_logits(original: ForwardResult, restored: ForwardResult) -> tuple[str, str]:
    """Return whether both compute the same, or why that was not looked at."""
    if reason := original.reason or restored.reason:
        return "not compared", reason
    return "same bits" if original.digest == restored.digest else "differs", ""


def _confirm_difference(
    original: ForwardResult, load_original: Callable[[], Any], prompt: Inputs
) -> tuple[str, str]:
    """Return what a difference is worth: the original may not repeat itself, or its load."""
    reloaded = load_original()
    results = [_forward_result(reloaded, prompt) for _ in range(2)]
    if results[0] != results[1]:
        return "not compared", steady.NOT_REPEATED
    if results[0] != original:
        return "not compared", "the original, loaded once more, gives other logits, too"
    return "differs", ""


def _output(model: Any, kwargs: Facts) -> torch.Tensor | None:
    torch.manual_seed(SEED)
    with torch.no_grad(), progress.forward(kwargs, "forward"):
        result = model(**kwargs)
    return layers.logits_of(result)


def _error_text(error: Exception) -> str:
    """Return an exception in short: some list every tensor of the model."""
    text = without_folders(f"{type(error).__name__}: {error}")
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
