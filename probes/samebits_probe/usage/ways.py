"""generate() in the ways that people call it: its defaults, beams, sampling, penalties, stopping, drafts.

Each way is run once on the same prompt. The tokens that it feeds, the logits that the model returns
and the scores that it chooses from are recorded as hashes, step by step. So a reader can tell what
the model computes from what generate() does with it.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.model.decode import GREEDY
from samebits_probe.model.tensor import tensor_hash
from samebits_probe.usage.subject import NoMeaning, error_text

if TYPE_CHECKING:
    from samebits_probe.usage.subject import Subject

Facts = dict[str, Any]
PROMPT_LENGTH = 8
STEPS = 6
SEED = 0
DEFAULTS = "defaults"
_TOP = 5
"""Scores of a step that are recorded as numbers, to tell a rounding from another function."""
_SCORES = {"output_scores": True, "return_dict_in_generate": True}


def generation(subject: Subject) -> Facts:
    """Return what generate() gives in each way, and the generation config that it uses by default.

    Raises:
        NoMeaning: the class does not generate.

    """
    if not getattr(subject.model, "can_generate", lambda: False)():
        msg = f"{type(subject.model).__name__} does not generate"
        raise NoMeaning(msg)
    prompt = subject.ids("generation", PROMPT_LENGTH)
    # a text that repeats itself has something to look up
    prompt = torch.cat([prompt, prompt], dim=1)
    plain = _run(subject, prompt, GREEDY | {"eos_token_id": None})
    tokens = plain["tokens"][0] if plain["tokens"] else []
    ways = {"greedy": plain}
    for way, arguments in _ways(subject, tokens).items():
        ways[way] = _run(subject, prompt, arguments)
    return {"prompt": tensor_hash(prompt), "config": _config(subject), "ways": ways}


def _ways(subject: Subject, greedy: list[int]) -> dict[str, Facts]:
    """Return the arguments of each way; ``greedy`` are the tokens of the greedy one."""
    never = next(token for token in range(len(greedy) + 1) if token not in greedy)
    ways: dict[str, Facts] = {
        DEFAULTS: {},
        "sampling": {"do_sample": True, "num_beams": 1, "temperature": 0.8, "top_k": 8}
        | {"top_p": 0.9, "eos_token_id": None},
        "beams": {"do_sample": False, "num_beams": 3, "num_return_sequences": 2}
        | {"eos_token_id": None},
        "penalties": GREEDY
        | {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "eos_token_id": None},
        # 4.48 looks nothing up without an end token: this one never comes
        "prompt lookup": GREEDY | {"prompt_lookup_num_tokens": 2, "eos_token_id": never},
        "assistant": GREEDY | {"assistant_model": subject.model, "eos_token_id": None},
    }
    if len(greedy) > 1:
        ways["end token"] = GREEDY | {"eos_token_id": greedy[1]}
        ways["minimum"] = GREEDY | {"eos_token_id": greedy[1], "min_new_tokens": STEPS - 1}
        ways["beams that end"] = {
            "do_sample": False,
            "num_beams": 3,
            "eos_token_id": greedy[1],
            "length_penalty": 2.0,
            "early_stopping": True,
        }
    return ways


def _run(subject: Subject, prompt: torch.Tensor, arguments: Facts) -> Facts:
    """Return tokens and steps of one way, or its exception."""
    steps: list[Facts] = []
    hooks = _Steps(steps)
    handles = [
        subject.model.register_forward_pre_hook(hooks.before, with_kwargs=True),
        subject.model.register_forward_hook(hooks.after),
    ]
    torch.default_generator.manual_seed(SEED)
    draws = torch.default_generator.get_state()
    try:
        output = subject.model.generate(
            prompt.clone(),
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=STEPS,
            pad_token_id=0,
            **_SCORES,
            **arguments,
        )
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"tokens": [], "steps": [], "refused": error_text(error)}
    finally:
        for handle in handles:
            handle.remove()
    drew = tensor_hash(draws) != tensor_hash(torch.default_generator.get_state())
    scores = output.scores or ()
    if len(scores) == len(steps):  # drafts are checked several at once
        steps = [
            step | {"scores": tensor_hash(chosen), "top": _top(chosen)}
            for step, chosen in zip(steps, scores, strict=True)
        ]
    tokens = output.sequences[:, prompt.shape[1] :].tolist()
    values = getattr(output, "sequences_scores", None)
    facts = {"tokens": tokens, "steps": steps, "drew": drew}
    return facts if values is None else facts | {"values": values.tolist()}


def _top(scores: torch.Tensor) -> list[list[float]]:
    """Return index and value of the largest finite scores of all rows, flattened."""
    flat = scores.float().reshape(-1)
    values, indices = torch.topk(flat, min(_TOP, flat.numel()))
    pairs = zip(indices.tolist(), values.tolist(), strict=True)
    return [[index, value] for index, value in pairs if isfinite(value)]


class _Steps:
    """What each forward is fed and returns. The rows of the first one are copies of one row."""

    def __init__(self, steps: list[Facts]) -> None:
        self._steps = steps
        self._fed = ""

    def before(self, _module: Any, args: Any, kwargs: Facts) -> None:
        """Record the tokens that a forward is fed."""
        ids = kwargs.get("input_ids", args[0] if args else None)
        self._fed = "" if ids is None else tensor_hash(self._rows(ids))

    def after(self, _module: Any, _args: Any, output: Any) -> None:
        """Record the logits of the last position."""
        logits = getattr(output, "logits", None)
        digest = "" if logits is None else tensor_hash(self._rows(logits)[:, -1])
        self._steps.append({"fed": self._fed, "logits": digest})

    def _rows(self, values: torch.Tensor) -> torch.Tensor:
        return values[:1] if not self._steps else values


def _config(subject: Subject) -> Facts:
    """Return what generate() uses without arguments, as far as it is not None."""
    config = getattr(subject.model, "generation_config", None)
    try:
        prepared = subject.model._prepare_generation_config(None)  # as generate() does
        config = prepared[0] if isinstance(prepared, tuple) else prepared
    except Exception:  # noqa: BLE001, S110  then the fields as they were read
        pass
    fields = config.to_dict() if config is not None else {}
    left_out = ("transformers_version", "_from_model_config")
    return {
        name: value
        for name, value in fields.items()
        if value is not None
        and name not in left_out
        and isinstance(value, bool | int | float | str | list)
    }
