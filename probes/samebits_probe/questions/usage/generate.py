"""Questions about generate(): position_ids, an assistant, strategies of older releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.model.distance import same_bytes
from samebits_probe.questions.usage.subject import NoMeaning, error_text

if TYPE_CHECKING:
    from samebits_probe.questions.usage.subject import Subject

Facts = dict[str, Any]
_STEPS = 4
_PROMPT_LENGTH = 5
STRATEGIES: dict[str, Facts] = {
    "penalty_alpha": {"penalty_alpha": 0.6, "top_k": 4},
    "num_beam_groups": {"num_beams": 2, "num_beam_groups": 2, "diversity_penalty": 0.5},
}
"""Contrastive search and group beam search, by the argument that asks for them."""


def position_ids(subject: Subject) -> Facts:
    """Return what generate() does with position_ids: the position that each step gets.

    The passed positions are those that generate() computes itself if it gets none.
    """
    if not subject.accepts("position_ids"):
        msg = "forward takes no position_ids"
        raise NoMeaning(msg)
    plain = _logits(subject)
    fed: list[int | None] = []
    hook = subject.model.register_forward_pre_hook(_position_hook(fed), with_kwargs=True)
    try:
        with_positions = _logits(subject, position_ids=torch.arange(_PROMPT_LENGTH)[None])
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"refused": error_text(error)}
    finally:
        hook.remove()
    same = with_positions.shape == plain.shape and same_bytes(with_positions, plain)
    return {"prompt": _PROMPT_LENGTH, "fed": fed, "same_logits": same}


def _position_hook(fed: list[int | None]) -> Any:
    """Return a hook that records the last position of forward's inputs."""

    def hook(_module: Any, _args: Any, kwargs: Facts) -> None:
        positions = kwargs.get("position_ids")
        fed.append(int(positions.reshape(-1)[-1]) if isinstance(positions, torch.Tensor) else None)

    return hook


def assisted(subject: Subject) -> Facts:
    """Return what assisted generation does with min_new_tokens; the assistant is the model itself.

    It is tried without the argument only if it fails with it. A minimum has no meaning without a
    token that ends the text, so token 0 does.
    """
    arguments = {"assistant_model": subject.model, "eos_token_id": 0}
    with_minimum = _exception_of(subject, min_new_tokens=2, **arguments)
    plain = _exception_of(subject, **arguments) if with_minimum else ""
    return {"min_new_tokens": with_minimum, "plain": plain}


def strategies(subject: Subject) -> Facts:
    """Return the exceptions of the strategies that left the library, by their arguments."""
    return {name: _exception_of(subject, **arguments) for name, arguments in STRATEGIES.items()}


def _exception_of(subject: Subject, **arguments: Any) -> str:
    """Return the exception of generate(), or ''."""
    try:
        _generate(subject, **arguments)
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return error_text(error)
    return ""


def _logits(subject: Subject, **arguments: Any) -> torch.Tensor:
    """Return the logits of every step of a greedy generate(), [steps, vocabulary]."""
    output = _generate(subject, output_logits=True, return_dict_in_generate=True, **arguments)
    return torch.cat(output.logits)


def _generate(subject: Subject, **arguments: Any) -> Any:
    """Return the output of a greedy generate().

    Raises:
        NoMeaning: the class does not generate.

    """
    if not getattr(subject.model, "can_generate", lambda: False)():
        msg = f"{type(subject.model).__name__} does not generate"
        raise NoMeaning(msg)
    ids = subject.ids("generate", _PROMPT_LENGTH)
    mask = torch.ones_like(ids)
    return subject.model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=_STEPS,
        do_sample=False,
        pad_token_id=0,
        **arguments,
    )
