"""What a user passes to generate(): position_ids, an assistant, strategies of older releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.model.distance import same_bytes
from samebits_probe.usage.subject import NoMeaning, said

if TYPE_CHECKING:
    from samebits_probe.usage.subject import Subject

Facts = dict[str, Any]
_STEPS = 4
_PROMPT = 5
STRATEGIES: dict[str, Facts] = {
    "penalty_alpha": {"penalty_alpha": 0.6, "top_k": 4},
    "num_beam_groups": {"num_beams": 2, "num_beam_groups": 2, "diversity_penalty": 0.5},
}
"""Contrastive search and group beam search, by the argument that asks for them."""


def position_ids(subject: Subject) -> Facts:
    """Return what becomes of position_ids handed to generate(): which ones each step is fed.

    They are the ones that it counts by itself where it is handed none.
    """
    if not subject.accepts("position_ids"):
        msg = "forward takes no position_ids"
        raise NoMeaning(msg)
    plain = _logits(subject)
    fed: list[int | None] = []
    hook = subject.model.register_forward_pre_hook(_note(fed), with_kwargs=True)
    try:
        given = _logits(subject, position_ids=torch.arange(_PROMPT)[None])
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"refused": said(error)}
    finally:
        hook.remove()
    same = given.shape == plain.shape and same_bytes(given, plain)
    return {"prompt": _PROMPT, "fed": fed, "same_logits": same}


def _note(fed: list[int | None]) -> Any:
    """Return a hook that notes the last position of what forward is fed."""

    def hook(_module: Any, _args: Any, kwargs: Facts) -> None:
        given = kwargs.get("position_ids")
        fed.append(int(given.reshape(-1)[-1]) if isinstance(given, torch.Tensor) else None)

    return hook


def assisted(subject: Subject) -> Facts:
    """Return what assisted generation does with min_new_tokens; the assistant is the model itself.

    Without the argument it is tried only where it fails with it. A minimum has no meaning where no
    token ends the text, so one does.
    """
    given = {"assistant_model": subject.model, "eos_token_id": 0}
    with_least = _outcome(subject, min_new_tokens=2, **given)
    plain = _outcome(subject, **given) if with_least else ""
    return {"min_new_tokens": with_least, "plain": plain}


def strategies(subject: Subject) -> Facts:
    """Return what becomes of the strategies that left the library, by their arguments."""
    return {name: _outcome(subject, **given) for name, given in STRATEGIES.items()}


def _outcome(subject: Subject, **given: Any) -> str:
    """Return the exception of generate(), or ''."""
    try:
        _generated(subject, **given)
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return said(error)
    return ""


def _logits(subject: Subject, **given: Any) -> torch.Tensor:
    """Return the logits of every step of a greedy generate(), [steps, vocabulary]."""
    output = _generated(subject, output_logits=True, return_dict_in_generate=True, **given)
    return torch.cat(output.logits)


def _generated(subject: Subject, **given: Any) -> Any:
    """Return what a greedy generate() returns.

    Raises:
        NoMeaning: the class does not generate.

    """
    if not getattr(subject.model, "can_generate", lambda: False)():
        msg = f"{type(subject.model).__name__} does not generate"
        raise NoMeaning(msg)
    ids = subject.ids("generate", _PROMPT)
    mask = torch.ones_like(ids)
    return subject.model.generate(
        ids, attention_mask=mask, max_new_tokens=_STEPS, do_sample=False, pad_token_id=0, **given
    )
