"""What arguments of from_pretrained do that some releases take and others drop or refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import transformers

from samebits_probe.model import forks, load
from samebits_probe.model.tensor import dtype_name, same_bytes
from samebits_probe.questions.usage.methods import asked
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text
from samebits_wire.arguments import LOADED_IN

Facts = dict[str, Any]
Tensors = Mapping[str, torch.Tensor]
_TIES, _TUPLES = "tie_word_embeddings", "torchscript"
MAX_BYTES = 64 << 20
"""Bytes of parameters above which a model is not loaded again for each argument."""


def loads(subject: Subject) -> Facts:
    """Return call -> what a load with the argument gives, beside one without it; {} where it would take long.

    Each argument makes another model in one release from 4.48 to 5.24, and needs no package.
    """
    if subject.source is None or load.n_bytes(subject.model) > MAX_BYTES:
        return {}
    try:
        plain = _loaded(subject, {})
    except Exception as error:
        raise NoMeaning(f"a second load raises {error_text(error)}") from error
    before = _tensors(plain)
    # what a load draws is no work of an argument
    steady = {n: t for n, t in _tensors(subject.model).items() if _same(t, before.get(n))}
    return {
        f"from_pretrained({name}={value!r})": asked(partial(_given, subject, name, value, steady))
        for name, value in _arguments(plain).items()
    } | _in_bfloat16(subject)


def _arguments(plain: Any) -> Facts:
    ties = getattr(plain.config, _TIES, None)
    is_asked = isinstance(ties, bool) and _is_tied(plain) is ties
    return {_TUPLES: True} | ({_TIES: not ties} if is_asked else {})


def _loaded(subject: Subject, arguments: Facts) -> Any:
    assert subject.source is not None
    source = subject.source._replace(options=(*subject.source.options, *arguments.items()))
    with forks.default_dtype_kept():
        return load.from_pretrained(type(subject.model), source, 0, "load with an argument")[0]


def _given(subject: Subject, name: str, value: object, steady: Tensors) -> str:
    try:
        model = _loaded(subject, {name: value})
    except Exception as error:
        raise NoMeaning(error_text(error)) from error  # loud, and the same for each model
    after = _tensors(model)
    is_kept = all(_same(tensor, after.get(n)) for n, tensor in steady.items())
    words = ["the same tensors" if is_kept else "other tensors"]
    if name == _TIES:
        words.append("tied embeddings" if _is_tied(model) else "embeddings apart")
    if name == _TUPLES and (fed := subject.fed()):
        with torch.no_grad():
            output = model(**fed)
        words.append("forward returns a tuple" if isinstance(output, tuple) else "no tuple")
    return ", ".join(words)


def _in_bfloat16(subject: Subject) -> Facts:
    """Return the dtypes of a checkpoint of float32 that is loaded in bfloat16 by its name, as most users load one.

    Where the class refuses the name, it is loaded with the dtype itself.
    """
    assert subject.source is not None
    if subject.source.dtype != "float32":
        return {}
    try:
        model = _named(subject, "bfloat16")
    except Exception:  # noqa: BLE001  an own from_pretrained may take the dtype itself alone
        try:
            model = _named(subject, torch.bfloat16)
        except Exception as error:  # noqa: BLE001  a refusal is an answer
            return {LOADED_IN: {"refused": error_text(error)}}
    dtypes = sorted({dtype_name(parameter.dtype) for parameter in model.parameters()})
    stated = getattr(model.config, forks.dtype_keyword(), None)
    return {
        LOADED_IN: {"gave": f"parameters in {' and '.join(dtypes)}"},
        f"config.dtype of {LOADED_IN}": {"gave": f"config.dtype is {stated!r}"},
    }


def _named(subject: Subject, dtype: object) -> Any:
    assert subject.source is not None
    arguments = subject.source.model_arguments() | {forks.dtype_keyword(): dtype}
    with forks.default_dtype_kept():
        return _loader(subject.model, subject.source).from_pretrained(
            subject.source.where, **arguments
        )


def _loader(model: Any, source: load.Source) -> Any:
    """Return the class to load with: own code is loaded by an Auto class, which hands a dtype to the config, too."""
    auto_map = load.own_classes(model.config, source)
    if not auto_map or source.model_class is not None:
        return type(model)
    name = load.auto_class_of(auto_map, load.architectures(model.config, source))
    return getattr(transformers, name)


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())


def _same(first: torch.Tensor, second: torch.Tensor | None) -> bool:
    return second is not None and first.shape == second.shape and same_bytes(first, second)


def _is_tied(model: Any) -> bool | None:
    """Return whether both embeddings are one tensor; None where one of them is missing."""
    parts: list[Callable[[], Any]] = [model.get_input_embeddings, model.get_output_embeddings]
    try:
        weights = [getattr(part(), "weight", None) for part in parts]
    except Exception:  # noqa: BLE001  a class without embeddings raises
        return None
    return None if None in weights else weights[0] is weights[1]
