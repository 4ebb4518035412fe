"""How is the first token behind the cache computed: which attention and which functions run?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import probe_attention
import probe_executed
from probe_apart import NoAnswer, apart, refusal

if TYPE_CHECKING:
    import torch

    from probe_inputs import Inputs

_TOKENS = 2
"""The first token comes from the prompt's forward, the second from the first through the cache."""


def first_token(
    model: torch.nn.Module, prompts: dict[str, Inputs], limit: float
) -> dict[str, dict[str, Any]]:
    """Return what ran for the first decoded token, by prompt, as generate() decodes it.

    In a child process, as generate() may leave a state in the model.

    Raises:
        NoAnswer: no child can be made, or it gave no answer.

    """
    device = next(model.parameters()).device
    if reason := refusal(str(device)):
        raise NoAnswer(reason)
    found = apart(lambda: {name: _watched(model, made) for name, made in prompts.items()}, limit)
    assert isinstance(found, dict)
    return found


def _watched(model: Any, inputs: Inputs) -> dict[str, Any]:
    begun: list[int] = []
    ran: list[list[str]] = []
    executed = probe_executed.Executed()

    def begin(*_: Any) -> None:
        nonlocal executed
        begun.append(len(watch.calls))
        executed = probe_executed.Executed().__enter__()

    def end(*_: Any) -> None:
        executed.__exit__()
        ran.append(executed.names())

    kwargs = {k: v for k, v in inputs.kwargs.items() if k != "decoder_input_ids"}
    # hooks, as generate() reads forward's signature
    model.register_forward_pre_hook(begin)
    model.register_forward_hook(end)
    with probe_attention.Watch(model) as watch:
        model.generate(**kwargs, max_new_tokens=_TOKENS, do_sample=False, num_beams=1)
    if len(ran) < _TOKENS:
        return {"attention": [], "functions": []}
    prompt, token = ran[:_TOKENS]
    return {
        "attention": watch.calls[begun[1] :],
        "functions": [name for name in token if name not in prompt],
    }
