"""A made model in place of a large one: the same class and kinds of layers, few and narrow.

What a release does with padding, a cache or an argument follows from its code, not from the weights.
Such a question can be put to a model that the same code makes of a smaller config, with seeded
weights. That model must prove to be of the same kind: the same sequence of kinds of layers, the same
dimensions of heads and windows, a checkpoint that this release loads completely, and logits that are
numbers. Without the proof there is none.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from samebits_probe.model import build, forks, layers, load, outputs, shrink
from samebits_probe.model.inputs import seeded_ids, text_config
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line
from samebits_wire import jobs

LIMIT = 64 << 20
"""Bytes of parameters above which a made model answers for a model.

At this size the relations take some ten seconds; their four hundred forwards grow with the size.
"""
MAX_BYTES = 64 << 20
"""Bytes in float32 up to which a model is made."""
SECONDS = 30.0
"""Seconds to make such a model and to ask it everything; ten were seen."""
_SHORTAGES = {errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EAGAIN}
_SEED, _GAIN = 1, 1.0
_PROMPT = 12
_FLAGS_LEFT_OUT = frozenset({"training"})
_KEPT_NUMBERS = (
    "attention_head_size",
    "chunk_size",
    "conv_kernel_size",
    "head_dim",
    "head_size",
    "key_value_proj_dim",
    "rotary_dim",
    "rotary_ndims",
    "scaling",
    "sliding_window",
    "ssm_state_size",
    "window_size",
)
"""Attributes of modules that the made model must have with the same values."""

Kind = frozenset[tuple[str, str, tuple[tuple[str, Any], ...]]]


class NoneMade(Exception):  # noqa: N818  that there is none is a result
    """No smaller model of the same kind can be made; the message is the reason."""


class Made(NamedTuple):
    """A made model, loaded as the cell loads its own."""

    model: Any
    folder: Path
    """Its checkpoint."""
    config: Any
    """As it was before the load."""
    head: str
    facts: dict[str, Any]
    """As samebits/records/made.py has it."""


def stands_in(model: Any, options: jobs.ObservedModel) -> bool:
    """Return True if a made model is to answer for ``model``: it is large, and not insisted on."""
    return load.n_bytes(model) > LIMIT and not insists(options)


def insists(options: jobs.ObservedModel) -> bool:
    """Return True if the model itself is to answer, whatever its size."""
    questions = (options.get("questions") or {}).values()
    return bool(options.get("large")) or any(question["large"] for question in questions)


@contextlib.contextmanager
def made(loaded: load.Loaded, source: load.Source) -> Iterator[Made]:
    """Make a small model of the kind of ``loaded``; its checkpoint exists while the body runs."""
    if getattr(loaded.config, "quantization_config", None) is not None:
        raise NoneMade("its weights are quantized, and no small weights can be made in that format")
    with tempfile.TemporaryDirectory(prefix="samebits-made-") as folder:
        yield _made_in(Path(folder), loaded, source)


def _made_in(folder: Path, loaded: load.Loaded, source: load.Source) -> Made:
    layers = {n: shrink.kept_layers(kinds) for n, kinds in _kinds_by_length(loaded.model).items()}
    if not layers:
        raise NoneMade("it has no list of layers to choose from")
    refusals = []
    for plan in shrink.plans(loaded.config.to_dict(), layers):
        result = _made_or_reason(plan, folder / plan.name, loaded, source)
        if isinstance(result, Made):
            return result
        refusals.append(f"{plan.name}: {result}")
    raise NoneMade("; ".join(refusals))


def _made_or_reason(
    plan: shrink.Plan, folder: Path, loaded: load.Loaded, source: load.Source
) -> Made | str:
    try:
        return _made_by(plan, folder, loaded, source)
    except NoneMade as reason:
        return str(reason)
    except Exception as error:  # a class may refuse a config in any way
        if _is_shortage(error):
            raise
        return in_one_line(error)


def _is_shortage(error: Exception) -> bool:
    """Return True for an error of the machine: another plan would make another model than the reference has."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno in _SHORTAGES)
        or any(words in str(error) for words in ("can't start new thread", "not enough memory"))
    )


def _made_by(plan: shrink.Plan, folder: Path, loaded: load.Loaded, source: load.Source) -> Made:
    model_class = type(loaded.model)
    _require_small(model_class, _config(loaded, plan))
    progress.tick("made model")
    torch.manual_seed(_SEED)
    config = _config(loaded, plan)
    arguments = source.constructor_arguments(model_class, config) | forks.in_float32()
    skeleton = model_class._from_config(config, **arguments).eval()
    _require_same_kind(loaded.model, skeleton)
    if _has_own_head(loaded.model) and not _has_own_head(skeleton):
        # a checkpoint may have a head of its own where the config class ties it, as Flan-T5's under 5.x
        head = skeleton.get_output_embeddings()
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
    folder.mkdir()
    build.save_seeded(skeleton, folder, _SEED, _GAIN)
    copied = source.at(str(folder))
    tried, info = load.from_pretrained(model_class, copied, seed=0, what="load the made model")
    keys = forks.loading_info(info)
    lost = [*keys["missing_keys"], *keys["mismatched_keys"]]
    if lost:
        raise NoneMade(f"this release does not load all that it saved: {', '.join(lost[:3])}")
    _require_same_kind(loaded.model, tried)
    _require_numbers(tried)
    # loaded anew, because a prompt may change a model's state
    model, _ = load.from_pretrained(model_class, copied, seed=0, what="load the made model")
    return Made(model, folder, copy.deepcopy(model.config), loaded.head, _facts(model))


def _has_own_head(model: Any) -> bool:
    """Return True if the output embeddings are a tensor apart from the input embeddings."""
    try:
        ends = model.get_input_embeddings(), model.get_output_embeddings()
    except (AttributeError, NotImplementedError):
        return False
    first, last = (getattr(end, "weight", None) for end in ends)
    return first is not None and last is not None and first is not last


def _config(loaded: load.Loaded, plan: shrink.Plan) -> Any:
    # the config classes edit nested dicts in place
    return type(loaded.config).from_dict(copy.deepcopy(plan.config))


def _require_small(model_class: Any, config: Any) -> None:
    with torch.device("meta"):
        size = 4 * sum(
            p.numel() for p in model_class._from_config(config, **forks.in_float32()).parameters()
        )
    if size > MAX_BYTES:
        raise NoneMade(f"it would still have {size / 2**20:.0f} MiB")


def _require_same_kind(model: Any, candidate: Any) -> None:
    before, after = _kinds(model), _kinds(candidate)
    if before.keys() != after.keys():
        raise NoneMade(
            f"it has other lists of layers: {', '.join(sorted(before.keys() ^ after.keys()))}"
        )
    for name, kinds in before.items():
        if list(dict.fromkeys(kinds)) != list(dict.fromkeys(after[name])):
            raise NoneMade(f"{name} would have other kinds of layers")
    if differing := _kept_numbers(model) ^ _kept_numbers(candidate):
        names = sorted({f"{name} of {owner}" for owner, name, _ in differing})
        raise NoneMade(f"it would not keep {', '.join(names[:3])}")


def _require_numbers(model: Any) -> None:
    config = model.config
    if getattr(model, "main_input_name", "") != "input_ids":
        return
    ids = torch.tensor([seeded_ids("made", _PROMPT, text_config(config))], device=model.device)
    inputs = {"input_ids": ids}
    if load.is_encoder_decoder(model):
        inputs["decoder_input_ids"] = ids
    with torch.no_grad():
        logits = outputs.logits_of(model(**inputs))
    if logits is None or not torch.isfinite(logits).all() or not logits.float().std() > 0:
        raise NoneMade("its logits are not finite, or all the same")


def _kinds(model: Any) -> dict[str, list[Kind]]:
    stacks: dict[str, list[Kind]] = {}
    for name, layer in layers.layers(model):
        stacks.setdefault(name.rpartition(".")[0], []).append(_kind(layer))
    return stacks


def _kinds_by_length(model: Any) -> dict[int, list[Any]]:
    """Return the kinds of all layers by the length of their list; lists of one length are joined."""
    joined: dict[int, list[Any]] = {}
    for kinds in _kinds(model).values():
        zipped = zip(joined[len(kinds)], kinds, strict=True) if len(kinds) in joined else None
        joined[len(kinds)] = kinds if zipped is None else list(zipped)
    return joined


def _kind(layer: torch.nn.Module) -> Kind:
    """Return what makes up a layer: its modules by place and class, with their switches."""
    return frozenset(
        (re.sub(r"\d+", "*", name), type(module).__name__, _switches(module))
        for name, module in layer.named_modules()
    )


def _switches(module: torch.nn.Module) -> tuple[tuple[str, Any], ...]:
    return tuple(
        sorted(
            (name, value)
            for name, value in vars(module).items()
            if not name.startswith("_")
            and name not in _FLAGS_LEFT_OUT
            and (isinstance(value, (bool, str)) or _is_kept(name, value))
        )
    )


def _is_kept(name: str, value: Any) -> bool:
    return name in _KEPT_NUMBERS and isinstance(value, (int, float))


def _kept_numbers(model: Any) -> set[tuple[str, str, float]]:
    return {
        (type(module).__name__, name, float(value))
        for module in model.modules()
        for name, value in vars(module).items()
        if _is_kept(name, value)
    }


def _facts(model: Any) -> dict[str, Any]:
    return {
        "n_layers": max(map(len, _kinds(model).values())),
        "hidden_size": shrink.hidden_size(text_config(model.config).to_dict()),
        "n_parameters": sum(p.numel() for p in model.parameters()),
    }
