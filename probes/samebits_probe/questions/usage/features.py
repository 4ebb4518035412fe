"""What methods beside forward return for inputs alone, such as ``get_text_features`` of dual encoders and ``encode`` of codecs.

Where forward takes such features in place of the inputs (``text_embeds`` of Sam3Model), it is called both ways.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch

from samebits_probe.model.choice import DoesNotApply
from samebits_probe.model.inputs import values
from samebits_probe.model.tensor import tensor_hash
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text

Facts = dict[str, Any]
_METHOD = re.compile(
    r"get_(?!input_|output_|position_)\w+_(features|embeds|embeddings|tokens)|encode|image_embedder|image_guided_detection"
)
_STEM = re.compile(r"get_(\w+)_(?:features|embeds|embeddings)")
_GIVEN = ("features", "embeds", "embeddings")
_QUERY = "query_"
_VALUES = (
    "pixel_values",
    f"{_QUERY}pixel_values",
    "pixel_values_videos",
    "input_features",
    "input_values",
)


def features(subject: Subject) -> Facts:
    """Return method -> what it returns for seeded inputs, or those of a prompt; nothing for a class without such methods."""
    names = [name for name in dir(type(subject.model)) if _METHOD.fullmatch(name)]
    answers = {name: _called(subject, getattr(subject.model, name)) for name in names}
    return answers | {
        f"forward({argument}={name}())": _given(subject, name, argument)
        for name in names
        if (argument := _argument(subject, name))
    }


def _argument(subject: Subject, name: str) -> str:
    """Return the argument of forward that takes what a method returns; '' if there is none, or another method has its name."""
    stem = _STEM.fullmatch(name)
    words = [f"{stem[1]}_{kind}" for kind in _GIVEN] if stem else []
    own = [
        word for word in words if name == f"get_{word}" or not hasattr(subject.model, f"get_{word}")
    ]
    return next((word for word in own if subject.accepts(word)), "")


def _given(subject: Subject, name: str, argument: str) -> Facts:
    """Return how far forward's outputs are from those of the inputs themselves, when it is given their features."""
    method = getattr(subject.model, name)
    taken = inspect.signature(method).parameters
    prompt = next((fed for fed in subject.prompts.values() if _source(taken, fed)), None)
    if prompt is None:
        return {"left_out": "no prompt has what the method takes"}
    source = _source(taken, prompt)
    try:
        plain = _outputs(subject, prompt)
        features = method(**{n: value for n, value in prompt.items() if n in taken})
    except Exception as error:  # noqa: BLE001  it is an answer of its own
        return {"left_out": f"without them: {error_text(error)}"}
    given = {n: value for n, value in prompt.items() if n != source}
    value = _as_annotated(features, inspect.signature(subject.model.forward).parameters[argument])
    try:
        with_features = _outputs(subject, given | {argument: value})
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"raises": error_text(error)}
    return {"returned": argument, "distance": _distance(plain, with_features)}


def _source(taken: Mapping[str, Any], prompt: Facts) -> str:
    """Return the input of a prompt of which a method makes its features."""
    return next((name for name in taken if name in ("input_ids", *_VALUES) and name in prompt), "")


def _as_annotated(features: Any, parameter: inspect.Parameter) -> Any:
    """Return features as an argument's annotation asks for them: a tensor of an output with others, else all of it."""
    pooled = getattr(features, "pooler_output", None)
    return pooled if pooled is not None and "Tensor" in str(parameter.annotation) else features


def _outputs(subject: Subject, kwargs: Facts) -> dict[str, torch.Tensor]:
    output = subject.model(**kwargs)
    return {name: value for name, value in output.items() if torch.is_tensor(value)}


def _distance(plain: dict[str, torch.Tensor], with_features: dict[str, torch.Tensor]) -> float:
    """Return the largest distance of two outputs of one name, relative to the largest value; 1 for another shape."""
    worst = 0.0
    for name in plain.keys() & with_features.keys():
        first, second = (side[name].double().nan_to_num() for side in (plain, with_features))
        if first.shape != second.shape:
            return 1.0
        scale = float(first.abs().max()) if first.numel() else 0.0
        worst = max(worst, float((first - second).abs().max()) / scale if scale else 0.0)
    return worst


def _called(subject: Subject, method: Any) -> Facts:
    try:
        output = method(**_inputs(subject, method))
    except (NoMeaning, DoesNotApply) as reason:
        return {"left_out": str(reason)}
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"refused": error_text(error)}
    tensor = _tensor(output)
    facts: Facts = {"returned": type(output).__name__}
    if tensor is not None:
        # releases give the features of an image with and without a dimension for the images
        flat = tensor.reshape(-1, tensor.shape[-1]) if tensor.ndim > 1 else tensor
        facts |= {"shape": list(flat.shape), "digest": tensor_hash(flat)}
    return facts


def _inputs(subject: Subject, method: Any) -> Facts:
    """Return the inputs that a method cannot do without."""
    parameters = inspect.signature(method).parameters.values()
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    first = next((p.name for p in parameters if p.name in ("input_ids", *_VALUES)), None)
    queries = [p.name for p in parameters if p.name.startswith(_QUERY)]
    names = dict.fromkeys([*needed, *([first] if first else []), *queries])
    if first in _VALUES and _has_image_token(subject.model.config):
        prompt = next((fed for fed in subject.prompts.values() if {*names} <= fed.keys()), None)
        if prompt is None:
            raise NoMeaning(f"no prompt has {', '.join(names)}")
        return {p.name: prompt[p.name] for p in parameters if p.name in prompt}
    inputs = {}
    for name in names:
        if name == "input_ids":
            inputs[name] = subject.ids()
        elif name in _VALUES:
            kind = name.removeprefix(_QUERY)
            of = "usage" if kind == name else "usage, a query"
            inputs[name] = values(of, kind, subject.model.config).to(subject.model.dtype)
        else:
            raise NoMeaning(f"it needs {name}")
    if not inputs:
        raise NoMeaning("it names no input")
    return inputs


def _has_image_token(config: Any) -> bool:
    """Return True if images stand in the texts of a model: its methods take more than pixels."""
    names = ("image_token_id", "image_token_index", "video_token_id", "audio_token_id")
    return any(getattr(config, name, None) is not None for name in names)


def _tensor(output: Any) -> torch.Tensor | None:
    """Return the features: a tensor as it is, the pooled one of an output, else all of it in a row; of a list the first."""
    for value in (output, getattr(output, "pooler_output", None)):
        first = value[0] if isinstance(value, (list, tuple)) and value else value
        if torch.is_tensor(first):
            return first
    tensors = filter(torch.is_tensor, output.values() if isinstance(output, dict) else ())
    # float64 holds the numbers of every dtype that an output has
    flat = [tensor.double().reshape(-1) for tensor in tensors]
    return torch.cat(flat) if flat else None
