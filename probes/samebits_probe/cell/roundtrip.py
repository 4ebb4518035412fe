"""Round trip of a model: saved and loaded again in the same release, then compared.

The model of the second load is saved, never the observed one, because saving changes a model's
config. It is loaded by its own class, so that remote code need not be saved with it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from samebits_probe.model import alignment, determinism, forks, outputs, savedfiles
from samebits_probe.model import load as model_load
from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.state import drop_tensors, everything, hashes
from samebits_probe.model.tensor import dtype_name, tensor_hash
from samebits_probe.process import progress
from samebits_probe.process.failure import in_words
from samebits_wire.folders import without_folders

Facts = dict[str, Any]
_MAX_MESSAGE = 400
SEED = 30
"""Seed of the load of the saved model: different from all others, so that random values differ."""


def round_trip(
    model: Any,
    original: Original,
    folder: Path,
    writer: savedfiles.Writer,
    inputs: Callable[[], Inputs | None],
    chance: set[str],
    unwritten: list[str],
    load_original: Callable[[], Any],
    too_large: str = "",
) -> Facts:
    """Return what is lost when ``model`` is saved to ``folder`` and loaded from there.

    ``chance`` names the tensors that are missing from the checkpoint or differ between two loads;
    they are compared only if they were saved. Logits are not compared if a tensor is ``unwritten``.
    The tensors of ``model`` are dropped, so that it and the restored model are not in memory at
    once. ``load_original`` loads the original once more like ``model``: a difference that appears
    there, too, was not caused by saving.

    Where saving gives the files and the config that were loaded, a load of them follows from the
    first one: same input, same code. Nothing is then written or loaded, and ``inferred`` is True.
    ``too_large`` is why nothing may be written; what does not follow is then not tried.
    """
    saved_state = StateBeforeSave(model, original.hashes)
    if ended := _save(model, original, folder, writer):
        return ended
    if too_large:
        return {"outcome": "not tried", "reason": too_large}
    prompt, reason = _prompt(inputs, unwritten)
    first_result = _forward_result(model, prompt)
    drop_tensors(model)
    model_load.trim_heap(model)
    try:
        saved = original.source.at(str(folder))
        restored, info = model_load.from_pretrained(type(model), saved, SEED, "load what was saved")
    except Exception as error:  # noqa: BLE001  so is a model that cannot be loaded again
        return {"outcome": "load failed", "reason": _error_text(error)}
    tensors = saved_state.lost_tensors(restored, info, chance)
    fields = saved_state.changed_fields(model_load.effective_config(restored.config))
    logits, reason = (
        _compare_logits(first_result, _forward_result(restored, prompt))
        if prompt
        else ("not compared", reason)
    )
    if logits == "differs" and prompt:
        logits, reason = _confirm_difference(first_result, load_original, prompt)
    same = not tensors and not fields and logits != "differs"
    return {
        "outcome": "same bits" if same else "differs",
        "tensors": tensors,
        "config": fields,
        "logits": logits,
        "reason": reason,
    }


def _save(model: Any, original: Original, folder: Path, writer: savedfiles.Writer) -> Facts | None:
    """Save the model; return the outcome if no load has to follow, None otherwise."""
    progress.tick("save", allowance=progress.moving(model_load.n_bytes(model)), moves=True)
    try:
        with writer.in_place():
            model.save_pretrained(folder)
        if writer.is_same() and original.has_config(model, folder):
            return _no_loss()
        writer.write_held()
    except Exception as error:  # noqa: BLE001  a model that cannot be saved is a result
        return {"outcome": "save failed", "reason": _error_text(error)}
    return None


class Original(NamedTuple):
    """What was loaded: the input of the load, and what is known of its result."""

    source: model_load.Source
    config: Any
    """The config as it was read."""
    hashes: dict[str, str]
    """Hashes by name of the model's tensors, as far as they are known."""
    checkpoint: Checkpoint | None
    """The files; None where nothing follows from equal files, because two loads gave different
    tensors."""

    def has_config(self, model: Any, folder: Path) -> bool:
        """Return True if the config in ``folder`` is read like the original's.

        The dtype that a save adds counts as equal, as every load is given one; so does the class that it writes.
        """
        config_class = type(model).config_class
        if config_class is not type(self.config):
            return False
        try:
            saved_fields = model_load.input_fields(config_class.from_pretrained(str(folder)))
        except Exception:  # noqa: BLE001  the load of what was saved will raise it, too
            return False
        fields = model_load.input_fields(self.config)
        if saved_fields.get("architectures") == [type(model).__name__]:
            fields["architectures"] = saved_fields["architectures"]
        for name in ("dtype", "torch_dtype"):
            if saved_fields.get(name) == self.source.dtype and fields.get(name) is None:
                fields[name] = self.source.dtype
        return fields == saved_fields


class StateBeforeSave:
    """Config and hashes of a model before it is saved, because saving changes its config.

    ``known`` holds hashes by name that need not be computed.
    """

    def __init__(self, model: Any, known: dict[str, str] | None = None) -> None:
        self.config = model_load.effective_config(model.config)
        self.written = {
            "architectures": [type(model).__name__],
            "dtype": dtype_name(model.dtype),
        }
        """What save_pretrained writes down of the model, whatever the original's config has."""
        states = everything(model)
        self.hashes = hashes(model, states, known)
        self.saved = set(model.state_dict(keep_vars=True))
        self.tied = {name for name, state in states.items() if state.tied}

    def lost_tensors(self, restored: torch.nn.Module, info: Facts, chance: set[str]) -> list[str]:
        """Return the tensors that were restored with different bytes or not from the file."""
        after = hashes(restored)
        missing = set(forks.loading_info(info)["missing_keys"]) - self.tied - chance
        return [
            name
            for name, digest in self.hashes.items()
            if name in missing
            or (after.get(name) != digest and (name in self.saved or name not in chance))
        ]

    def changed_fields(self, fields_after: Facts) -> list[str]:
        """Return ``field: value before → value after`` for every field whose value changed."""
        fields_before = self.config | {
            name: value for name, value in self.written.items() if fields_after.get(name) == value
        }
        return [
            f"{name}: {_shown_value(fields_before, name)} → {_shown_value(fields_after, name)}"
            for name in sorted({*fields_before, *fields_after})
            if (name in fields_before) != (name in fields_after)
            or fields_before.get(name) != fields_after.get(name)
        ]


def _shown_value(values: Facts, name: str) -> str:
    return without_folders(repr(values[name])) if name in values else "absent"


def _no_loss() -> Facts:
    """Return the facts of a round trip whose result follows."""
    no_comparison = {"tensors": [], "config": [], "logits": "not compared", "reason": ""}
    return {"outcome": "same bits", **no_comparison, "inferred": True}


def _prompt(inputs: Callable[[], Inputs | None], unwritten: list[str]) -> tuple[Inputs | None, str]:
    """Return the inputs of both models, or why there are none."""
    if unwritten:
        return None, f"{unwritten[0]} was never written, and holds poison here"
    prompt = inputs()
    return prompt, "" if prompt else "no prompt applies"


class ForwardResult(NamedTuple):
    """The hash of a model's output, or the reason why there is none."""

    digest: str
    reason: str


def _forward_result(model: Any, prompt: Inputs | None) -> ForwardResult:
    if prompt is None:
        return ForwardResult("", "")
    try:
        alignment.align(model)  # the length of a file's header moves its tensors
        if (output := _output(model, prompt.kwargs)) is None:
            return ForwardResult("", "the model returns no tensor")
        return ForwardResult(tensor_hash(output), "")
    except Exception as error:  # noqa: BLE001  the cell's forward records the failure, too
        return ForwardResult("", f"the forward raised {_error_text(error)}")


def _compare_logits(original: ForwardResult, restored: ForwardResult) -> tuple[str, str]:
    if reason := original.reason or restored.reason:
        return "not compared", reason
    return "same bits" if original.digest == restored.digest else "differs", ""


def _confirm_difference(
    original: ForwardResult, load_original: Callable[[], Any], prompt: Inputs
) -> tuple[str, str]:
    """Return the verdict on a difference: the original or its load may not be repeatable."""
    reloaded = load_original()
    results = [_forward_result(reloaded, prompt) for _ in range(2)]
    if results[0] != results[1]:
        return "not compared", determinism.NOT_REPEATED
    if results[0] != original:
        return "not compared", "a second load of the original also gives different logits"
    return "differs", ""


def _output(model: Any, kwargs: Facts) -> torch.Tensor | None:
    torch.manual_seed(SEED)
    with torch.no_grad(), progress.forward(kwargs, "forward"):
        result = model(**kwargs)
    return outputs.logits_of(result)


def _error_text(error: Exception) -> str:
    """Return an exception as text, shortened: some messages list every tensor of the model."""
    text = in_words(error)
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
