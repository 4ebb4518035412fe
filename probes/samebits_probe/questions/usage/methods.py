"""What libraries call: methods of collators, adapters and tools that replace a part, and the class on no device."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from transformers import PretrainedConfig

from samebits_probe.model import forks
from samebits_probe.model.choice import TOKENS
from samebits_probe.model.distance import same_bytes
from samebits_probe.model.inputs import has_media, text_config
from samebits_probe.questions.usage import (
    cached,
    checked,
    codec,
    gathered,
    joined,
    modes,
    painted,
    paired,
    positions,
    returned,
    series,
    tables,
    voice,
)
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text

Facts = dict[str, Any]
_FROM_LABELS, _FROZEN = "prepare_decoder_input_ids_from_labels", "enable_input_require_grads"
_ON_META = 'made of its config under torch.device("meta")'
_STRETCHES = "interpolate_pos_encoding"
_PARTS = ("decoder", "input_embeddings", "output_embeddings")
_TOKEN_TIMES, _TIMES = "return_token_timestamps", "return_timestamps"
_SOUND = "input_features"
_OF_SOUNDS = (_SOUND, "attention_mask")
_SIX = {"max_new_tokens": 6, "min_new_tokens": 6}
"""How many tokens have times."""
_MODALITIES = (None, "image", "video", "audio")
_GET = "get_"
_CUT = 'The link is <a href="http:'
"""A text that ends within what tokenizers have one token for."""
_MIN_IDS = 2
_IGNORED = -100
_IMAGE = 4
"""Dimensions of a batch of images."""


def methods(subject: Subject) -> Facts:
    """Return call -> what came of it; the calls change the model."""
    return {name: asked(call) for name, call in _calls(subject)}


def asked(call: Callable[[], str]) -> Facts:
    """Return what a call gave, why it has no meaning, or its exception."""
    try:
        return {"gave": call()}
    except NoMeaning as reason:
        return {"left_out": str(reason)}
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"refused": error_text(error)}


def _calls(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    model = subject.model
    yield from _getters(model)
    yield from _timed(subject)
    yield from _healed(subject)
    yield from cached.calls(subject)
    yield from checked.calls(subject)
    yield from returned.calls(subject)
    yield from gathered.calls(subject)
    yield from joined.calls(subject)
    yield from positions.calls(subject)
    yield from tables.calls(model)
    yield from series.calls(model, subject.prompts)
    yield from codec.calls(model, subject.prompts)
    yield from voice.calls(model)
    yield from painted.calls(model)
    yield from paired.calls(subject)
    yield from _beside_ids(subject)
    if hasattr(model, _FROM_LABELS):
        yield f"{_FROM_LABELS}(labels=…)", partial(_from_labels, model)
    for part in _PARTS:
        if hasattr(model, f"get_{part}") and hasattr(model, f"set_{part}"):
            yield f"set_{part}(…)", partial(_set, model, part)
    setter = getattr(model, "set_encoder", None)
    if setter is not None and "modality" in inspect.signature(setter).parameters:
        for modality in _MODALITIES:
            name = f"set_encoder(…, modality={modality!r})"
            yield name, partial(_set, model, "encoder", modality=modality)
    yield from _stretched(subject)
    yield _ON_META, partial(_made_on_meta, model)
    if parts := _parts_of(model.config):
        names = ", ".join(f"{name}=…" for name in parts)
        yield (
            f"{type(model.config).__name__}({names})",
            partial(_made_of_parts, model.config, parts),
        )
    yield from modes.calls(subject)
    if hasattr(model, _FROZEN):
        name = f"forward of a frozen model after {_FROZEN}()"
        first = next(iter(subject.prompts), None)
        yield name, partial(_frozen, subject, first)
        for prompt in _of_other_kinds(subject, first):
            yield f"{name}, {prompt}", partial(_frozen, subject, prompt)


def _getters(model: Any) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the calls that return a part, of the model and of the base model that its head has.

    A decoder is asked of what generates alone: releases return anything for other models.
    """
    base, encodes = model.base_model, bool(getattr(model.config, "is_encoder_decoder", False))
    for owner, of in ((model, ""), *([(base, " of the base model")] if base is not model else [])):
        names = [
            *(["get_decoder"] if model.can_generate() else []),
            *(["get_encoder"] if encodes else []),
            "get_input_embeddings",
            *(["get_output_embeddings"] if owner is model else []),
        ]
        for name in names:
            if hasattr(owner, name):
                yield f"{name}(){of}", partial(_got, owner, name)


def _got(owner: Any, getter: str) -> str:
    """Return the class of a part, which has other names in other releases."""
    if (part := getattr(owner, getter)()) is None:
        return "None"
    return f"{type(part).__name__}, the model itself" if part is owner else type(part).__name__


def _timed(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield calls that ask for the time of each token, of a model that hears and knows its alignment heads."""
    config = getattr(subject.model, "generation_config", None)
    sound = next((fed for fed in subject.prompts.values() if _SOUND in fed), None)
    if sound is None or not getattr(config, "alignment_heads", None):
        return
    for names in ((_TOKEN_TIMES,), (_TOKEN_TIMES, _TIMES)):
        shown = ", ".join(f"{name}=True" for name in names)
        yield (
            f"generate({shown})",
            partial(_times, subject.model, sound, dict.fromkeys(names, True)),
        )


def _times(model: Any, sound: Facts, named: Facts) -> str:
    """Return the tokens and the times of each row."""
    fed = {name: value for name, value in sound.items() if name in _OF_SOUNDS}
    with torch.no_grad():
        output = model.generate(**fed, do_sample=False, **_SIX, **named)
    if (times := output.get("token_timestamps")) is None:
        raise NoMeaning("generate() returns no times")
    rows = [[round(float(time), 2) for time in row] for row in times]
    return f"{output['sequences'].tolist()} at {rows}"


def _healed(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield a call that makes the last token of a prompt anew, of a model whose tokenizer takes texts."""
    model, tokenizer = subject.model, subject.tokenizer
    if tokenizer is None or subject.refuses_text() or not model.can_generate():
        return
    yield "generate(token_healing=True)", partial(_heal, model, tokenizer)


def _heal(model: Any, tokenizer: Any) -> str:
    """Return the prompt's ids behind the healing; its last token is chosen by the model."""
    ids = tokenizer(_CUT, return_tensors="pt")["input_ids"]
    if ids.shape[1] < _MIN_IDS or int(ids.max()) >= text_config(model.config).vocab_size:
        raise NoMeaning("its tokenizer makes no prompt for the model")
    if tokenizer.pad_token_id is None:
        raise NoMeaning("its tokenizer has no pad token")
    given = {"attention_mask": torch.ones_like(ids), "token_healing": True, "tokenizer": tokenizer}
    with torch.no_grad():
        output = model.generate(ids, **given, do_sample=False, max_new_tokens=1)
    return str(output[0, :-1].tolist())


def _beside_ids(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield forwards of token ids with what a method of the model makes of them, as ``per_layer_inputs``."""
    if subject.refuses_text():
        return
    for owner in subject.model.modules():
        for name in inspect.signature(owner.forward).parameters:
            method = f"{_GET}{name}"
            takes = inspect.signature(getattr(owner, method, _takes_nothing)).parameters
            if next(iter(takes), None) == TOKENS:
                yield (
                    f"forward({TOKENS}, {name}={method}(…))",
                    partial(_given, subject, name, owner),
                )


def _takes_nothing() -> None:
    """Stand for a method that is missing."""


def _given(subject: Subject, name: str, owner: Any) -> str:
    """Return whether the logits are those of the ids alone."""
    method, ids = getattr(owner, f"{_GET}{name}"), subject.ids()
    with torch.no_grad():
        made = method(ids, *([None] * (len(inspect.signature(method).parameters) - 1)))
        logits = subject.model(ids, **{name: made}).logits
    return "the logits of the ids alone" if same_bytes(logits, subject.logits()) else "other logits"


def _from_labels(model: Any) -> str:
    # as DataCollatorForSeq2Seq calls it
    ids = model.prepare_decoder_input_ids_from_labels(labels=torch.tensor([[5, 6, 7, _IGNORED]]))
    return str(ids.tolist())


def _set(model: Any, part: str, **named: Any) -> str:
    """Put a copy of a part in its place, and say whether the getter returns it and the model has it."""
    module = getattr(model, f"get_{part}")(**named)
    if module is model or not any(module is own for own in model.modules()):
        raise NoMeaning("the model has no such part")
    try:
        twin = copy.deepcopy(module)
    except Exception as error:
        raise NoMeaning("the part cannot be copied") from error
    with _parts_kept(model):
        getattr(model, f"set_{part}")(twin, **named)
        is_there = any(twin is own for own in model.modules())
        return str(is_there and getattr(model, f"get_{part}")(**named) is twin)


@contextmanager
def _parts_kept(model: Any) -> Iterator[None]:
    """Give every module its parts back, as a setter may put one in the place of another, and later calls ask the model."""
    kept = [(own, dict(own._modules), dict(own._parameters)) for own in model.modules()]
    try:
        yield
    finally:
        for own, parts, parameters in kept:
            own._modules = parts
            own._parameters = parameters


def _stretched(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield a forward of larger images than those of the config, of a model that says that it takes them."""
    if not forks.accepts(subject.model, _STRETCHES):
        return
    seeing = (
        fed for fed in subject.prompts.values() if any(_is_image(*item) for item in fed.items())
    )
    if (fed := next(seeing, None)) is not None:
        yield (
            f"forward(…, {_STRETCHES}=True) of images of twice the size",
            partial(_larger, subject.model, fed),
        )


def _larger(model: Any, fed: Facts) -> str:
    """Return the shape of what comes first; its numbers are those of images that no check else knows."""
    larger = {
        name: torch.nn.functional.interpolate(value, scale_factor=2.0)
        if _is_image(name, value)
        else value
        for name, value in fed.items()
    }
    with torch.no_grad():
        output = model(**larger, **{_STRETCHES: True})
    name, value = next((n, v) for n, v in output.items() if torch.is_tensor(v))
    return f"{name} {[*value.shape]}"


def _is_image(name: str, value: Any) -> bool:
    is_tensor = torch.is_tensor(value) and value.is_floating_point()
    return is_tensor and value.dim() == _IMAGE and "mask" not in name


def _made_on_meta(model: Any) -> str:
    """Return where the parameters of a new model are, made as tools do that plan on which devices it will lie."""
    config = copy.deepcopy(model.config)
    with torch.device("meta"):
        made = type(model)(config)
    return f"parameters on {', '.join(sorted({value.device.type for value in made.parameters()}))}"


def _parts_of(config: Any) -> Facts:
    """Return the configs inside a config that its class takes by name, as copies."""
    takes = inspect.signature(type(config)).parameters
    return {
        name: copy.deepcopy(part)
        for name, part in vars(config).items()
        if isinstance(part, PretrainedConfig) and name in takes
    }


def _made_of_parts(config: Any, parts: Facts) -> str:
    """Return which of its parts a config has with other values than it was given."""
    try:
        made = type(config)(**parts)
    except (AttributeError, TypeError) as error:  # as CLIP's up to 4.57
        raise NoMeaning(f"its class takes parts as dicts alone: {error_text(error)}") from error
    others = [
        f"another {name}" if hasattr(made, name) else f"no {name}"
        for name in sorted(parts)
        if not _states(getattr(made, name, None), getattr(config, name))
    ]
    return ", ".join(others) or "its parts as they were given"


def _states(made: Any, part: Any) -> bool:
    """Return True if a config has all that another one states."""
    if type(made) is not type(part):
        return False
    has, stated = made.to_dict(), part.to_diff_dict()
    return all(has.get(name, value) == value for name, value in stated.items())


def _of_other_kinds(subject: Subject, first: str | None) -> Iterator[str]:
    """Yield a prompt of each other kind that has an image, a video or a sound."""
    kinds = {frozenset(subject.prompts[first])} if first is not None else set()
    for name, fed in subject.prompts.items():
        if has_media(fed) and frozenset(fed) not in kinds:
            kinds.add(frozenset(fed))
            yield name


def _frozen(subject: Subject, name: str | None) -> str:
    """Return whether gradients reach the output of a model that is trained by an adapter."""
    if name is None:
        raise NoMeaning("the cell has no prompt")
    model = subject.model
    model.requires_grad_(False)
    with suppress(AttributeError):  # an earlier call may have put its hook, and a second one stays
        model.disable_input_require_grads()
    model.enable_input_require_grads()
    model.train()
    with torch.enable_grad():
        output = model(**subject.prompts[name])
        tensors = [value for value in output.values() if torch.is_tensor(value)]
        reached = [tensor for tensor in tensors if tensor.requires_grad]
        for tensor in reached[:1]:
            tensor.sum().backward()
    return f"gradients reach it: {bool(reached)}"
