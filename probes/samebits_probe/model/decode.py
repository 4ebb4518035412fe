"""Decoding with generate(): what runs for the first token after the prefill, and forced ids."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.model import attention
from samebits_probe.model.executed import Executed
from samebits_probe.process import progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from samebits_probe.model.inputs import Inputs

GREEDY = {"do_sample": False, "num_beams": 1}
"""Arguments of generate() for greedy decoding, whatever the model's generation config is."""
GREEDY_LOGITS = GREEDY | {
    "output_scores": True,
    "output_logits": True,
    "return_dict_in_generate": True,
}
"""Arguments of a cell's greedy decode, and of everything that repeats it."""
_TOKENS = 2
"""The first token comes from the prompt's forward, the second from the first through the cache."""


def first_token(model: torch.nn.Module, prompts: dict[str, Inputs]) -> dict[str, dict[str, Any]]:
    """Return what ran for the first token after the prefill in generate(), by prompt.

    generate() may leave a state in the model, so other observations must come before.
    """
    facts = {}
    for name, inputs in prompts.items():
        with progress.forwards(_TOKENS, inputs.kwargs, name, times=10):
            facts[name] = _watched(model, inputs)
    return facts


def _watched(model: Any, inputs: Inputs) -> dict[str, Any]:
    watch = attention.Watch(model)
    forwards: list[Executed] = []
    kwargs = {k: v for k, v in inputs.kwargs.items() if k != "decoder_input_ids"}
    with ExitStack() as stack:

        def before_forward(*_: Any) -> None:
            if len(forwards) == _TOKENS - 1:  # the prompt's own forward need not be watched
                stack.enter_context(watch)
                watch.enter_running(model)
            forwards.append(Executed().__enter__())

        def after_forward(*_: Any) -> None:
            forwards[-1].__exit__()

        # hooks, as generate() reads forward's signature
        for hook in (
            model.register_forward_pre_hook(before_forward),
            model.register_forward_hook(after_forward, always_call=True),
        ):
            stack.callback(hook.remove)
        model.generate(**kwargs, max_new_tokens=_TOKENS, **GREEDY)
    if len(forwards) < _TOKENS:
        return {"attention": [], "functions": []}
    prompt, token = (executed.names() for executed in forwards[:_TOKENS])
    return {
        "attention": watch.calls,
        "functions": [name for name in token if name not in prompt],
    }


def stopping(steps: int) -> Any:
    """Return the stopping criteria that end generate() after ``steps`` steps."""
    import transformers  # noqa: PLC0415  only some jobs generate

    class Ended(transformers.StoppingCriteria):  # type: ignore[misc]
        n_done = 0

        def __call__(self, input_ids: torch.Tensor, *_scores: Any, **_kwargs: Any) -> torch.Tensor:
            self.n_done += 1
            n_rows = input_ids.shape[0]
            return torch.full((n_rows,), self.n_done >= steps, device=input_ids.device)

    return transformers.StoppingCriteriaList([Ended()])


def forcing(ids: list[list[int]], begin: Callable[[int], None] = lambda _: None) -> Any:
    """Return the logits processors that make generate() choose ``ids``, row by row.

    ``begin`` is called with the number of the next step.
    """
    import transformers  # noqa: PLC0415  only some jobs generate

    class Forced(transformers.LogitsProcessor):  # type: ignore[misc]
        step = 0

        def __call__(self, _input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
            forced = torch.full_like(scores, float("-inf"))
            for row, tokens in enumerate(ids):
                # a row that has ended is padded by generate() itself
                forced[row, tokens[min(self.step, len(tokens) - 1)]] = 0.0
            self.step += 1
            begin(self.step)
            return forced

    return transformers.LogitsProcessorList([Forced()])
