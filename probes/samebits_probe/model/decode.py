"""Decoding with generate(): what runs for the first token after the prefill, and forced ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from samebits_probe.model import attention
from samebits_probe.model.executed import Executed
from samebits_probe.model.inputs import Inputs
from samebits_probe.process import progress

GREEDY = {"do_sample": False, "num_beams": 1}
"""Arguments of generate() for greedy decoding, whatever the model's generation config is."""
GREEDY_LOGITS = GREEDY | {
    "output_scores": True,
    "output_logits": True,
    "return_dict_in_generate": True,
}
"""Arguments of a cell's greedy decode, and of everything that repeats it."""
TOKENS = 2
"""The first token comes from the prompt's forward, the second from the first through the cache."""


def first_token(model: torch.nn.Module, prompts: dict[str, Inputs]) -> dict[str, dict[str, Any]]:
    """Return what ran for the first token after the prefill in generate(), by prompt.

    generate() may leave a state in the model, so other observations must come before.
    """
    facts = {}
    for name, inputs in prompts.items():
        with progress.forwards(TOKENS, inputs.kwargs, name, times=10):
            token, _ = two_tokens(model, inputs)
        facts[name] = token.facts()
    return facts


def two_tokens(model: Any, inputs: Inputs, *, any_cache: bool = True) -> tuple[WatchedToken, Any]:
    """Return the watched first token after the prefill, and generate()'s output."""
    kwargs = {k: v for k, v in inputs.kwargs.items() if k != "decoder_input_ids"}
    with watched_token(model, any_cache=any_cache) as token:
        output = model.generate(**kwargs, max_new_tokens=TOKENS, **GREEDY_LOGITS)
    return token, output


class WatchedToken:
    """Instruments of the first token after the prefill, in one generate()."""

    def __init__(self, model: torch.nn.Module, *, any_cache: bool) -> None:
        self.is_refused = False
        """True if the cache has a fixed size and is not to be watched: it follows from the number
        of tokens or an earlier prompt's, and with it the shapes of keys and masks."""
        self._model = model
        self._any_cache = any_cache
        self._watch = attention.Watch(model)
        self._forwards: list[Executed] = []
        self._running = ExitStack()

    def before_forward(self, _module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        """Begin to record the functions of a forward, and to watch attention in the second."""
        if self.is_refused or len(self._forwards) >= TOKENS:
            return
        if not self._any_cache and any(map(_has_fixed_size, kwargs.values())):
            self.is_refused = True
            return
        if len(self._forwards) == TOKENS - 1:  # the prompt's own forward need not be watched
            self._running.enter_context(self._watch)
            self._watch.enter_running(self._model)
        self._forwards.append(self._running.enter_context(Executed()))

    def after_forward(self, *_: Any) -> None:
        """End what :meth:`before_forward` began."""
        self._running.close()

    def facts(self) -> dict[str, Any]:
        """Return the attention calls of the token, and the functions that ran for it alone."""
        if len(self._forwards) < TOKENS:
            return {"attention": [], "functions": []}
        prompt, token = (executed.names() for executed in self._forwards)
        return {
            "attention": self._watch.calls,
            "functions": [name for name in token if name not in prompt],
        }


@contextmanager
def watched_token(model: torch.nn.Module, *, any_cache: bool = True) -> Iterator[WatchedToken]:
    """Watch the first token after the prefill of one generate(), and no later one.

    Unless ``any_cache``, nothing is watched where the cache has a fixed size.
    """
    token = WatchedToken(model, any_cache=any_cache)
    # hooks, as generate() reads forward's signature
    with (
        model.register_forward_pre_hook(token.before_forward, with_kwargs=True),
        model.register_forward_hook(token.after_forward, always_call=True),
        token._running,
    ):
        yield token


def _has_fixed_size(value: Any) -> bool:
    """Return True for a cache that is made for a number of tokens."""
    parts = [value, *(getattr(value, f"{p}_attention_cache", None) for p in ("self", "cross"))]
    layers = [layer for part in parts for layer in _listed(getattr(part, "layers", None))]
    return any(getattr(part, "max_cache_len", None) is not None for part in (*parts, *layers))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def stopping(steps: int) -> Any:
    """Return the stopping criteria that end generate() after ``steps`` steps."""
    import transformers  # noqa: PLC0415  only some jobs generate

    class Ended(transformers.StoppingCriteria):  # type: ignore[misc]
        n_done = 0

        def __call__(self, input_ids: torch.Tensor, *_scores: Any, **_kwargs: Any) -> torch.Tensor:
            self.n_done += 1
            return torch.full((input_ids.shape[0],), self.n_done >= steps, device=input_ids.device)

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
