"""What generate() makes of logits that are the same in every release, and its defaults.

Each way of generating runs once over the same prompt. The logits of the model are replaced
(usage/table.py), so what differs between two releases is generate() itself: its defaults, beams,
processors, criteria to stop, drafts.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any
from unittest import mock

import torch
from transformers import GenerationMixin, StoppingCriteria, StoppingCriteriaList

from samebits_probe.model.decode import GREEDY
from samebits_probe.model.inputs import text_config
from samebits_probe.model.tensor import tensor_hash
from samebits_probe.questions.usage.processors import processors
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text
from samebits_probe.questions.usage.table import Table, logits_row

Facts = dict[str, Any]
PROMPT_LENGTH = 8
STEPS = 6
SEED = 0
_N_ENDS = 6
_N_STOP = 2 * PROMPT_LENGTH + STEPS // 2
"""Tokens of a row, prompt included, behind which the criterion of a user's own stops."""
_LOOKUP = "prompt lookup"
_ENDLESS_LOOKUP = "prompt lookup without an end"
_DRAFTS = frozenset({_LOOKUP, _ENDLESS_LOOKUP, "assistant"})
"""Ways of which one forward checks several tokens."""


class _Stop(StoppingCriteria):  # type: ignore[misc]
    """A criterion of a user's own: it stops every row behind some tokens."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __call__(self, ids: torch.Tensor, _scores: Any, **_kwargs: Any) -> torch.Tensor:
        """Return whether each row is to stop."""
        return torch.full((ids.shape[0],), ids.shape[1] >= self._length)


def generation(subject: Subject) -> Facts:
    """Return what generate() gives in each way, its defaults, and its logits processors' scores."""
    model = subject.model
    main_input = getattr(model, "main_input_name", "input_ids")
    can_generate = getattr(model, "can_generate", lambda: False)()
    # 4.48 says that a masked model can generate if it prepares inputs for that
    if not can_generate or subject.head == "masked-lm" or main_input != "input_ids":
        raise NoMeaning(f"{type(model).__name__} does not generate from token ids")
    prompt = subject.ids("generation", PROMPT_LENGTH)
    # a text that repeats itself has something to look up
    prompt = torch.cat([prompt, prompt], dim=1)
    part = _generating(model, prompt)
    config = _config(part)  # first: assisted decoding writes into the model's own
    try:
        ways = _all_ways(subject, part, prompt)
    except NoMeaning:
        if part is model:
            raise
        ways = {}  # a part that is fed embeddings has no table
    return {
        "prompt": tensor_hash(prompt),
        "config": config,
        "ways": ways,
        "processors": processors(),
    }


def _generating(model: Any, prompt: torch.Tensor) -> Any:
    """Return the model, or its part whose ``generate()`` the model's own one calls, as that of BLIP-2 does."""
    if type(model).generate is GenerationMixin.generate:
        return model
    prepare, makers = GenerationMixin._prepare_generation_config, list[Any]()

    def noted(maker: Any, *args: Any, **kwargs: Any) -> Any:
        makers.append(maker)
        return prepare(maker, *args, **kwargs)

    parts = [part for part in model.modules() if getattr(part, "generation_config", None)]
    settings = [copy.deepcopy(part.generation_config) for part in parts]
    mask = torch.ones_like(prompt)
    patched = mock.patch.object(GenerationMixin, prepare.__name__, noted)
    with patched, suppress(Exception):  # the ways say what it raises
        model.generate(prompt.clone(), attention_mask=mask, max_new_tokens=1, pad_token_id=0)
    for part, config in zip(parts, settings, strict=True):
        part.generation_config = config
    return makers[0] if makers else model


def _all_ways(subject: Subject, part: Any, prompt: torch.Tensor) -> Facts:
    ways = {"greedy": _run(subject, part, "greedy", prompt, GREEDY | {"eos_token_id": None})}
    tokens = ways["greedy"]["tokens"][0] if ways["greedy"]["tokens"] else []
    for way, arguments in _ways(subject, tokens).items():
        ways[way] = _run(subject, part, way, prompt, arguments)
    return ways


def _ways(subject: Subject, greedy: list[int]) -> dict[str, Facts]:
    """Return the arguments of each way; ``greedy`` are the tokens of the greedy one."""
    never = next(token for token in range(len(greedy) + 1) if token not in greedy)
    beams: Facts = {"do_sample": False, "num_beams": 3}
    ways: dict[str, Facts] = {
        "defaults": {},
        "sampling": {"do_sample": True, "num_beams": 1, "temperature": 0.5, "top_k": 8}
        | {"top_p": 0.875, "eos_token_id": None},
        "beams": beams | {"num_return_sequences": 2, "eos_token_id": None},
        "penalties": GREEDY
        | {"repetition_penalty": 2.0, "no_repeat_ngram_size": 2, "eos_token_id": None},
        "stopping criteria": GREEDY
        | {"stopping_criteria": StoppingCriteriaList([_Stop(_N_STOP)]), "eos_token_id": None},
        # 4.48 looks nothing up without an end token: this one never comes
        _LOOKUP: GREEDY | {"prompt_lookup_num_tokens": 2, "eos_token_id": never},
        # 4.57 to 5.12 raise where it finds something
        _ENDLESS_LOOKUP: GREEDY | {"prompt_lookup_num_tokens": 2, "eos_token_id": None},
    }
    if not getattr(subject.model.config, "is_encoder_decoder", False):
        ways["assistant"] = GREEDY | {"assistant_model": subject.model, "eos_token_id": None}
    if len(greedy) > 1:
        end: Facts = {"eos_token_id": greedy[1]}
        ways["end token"] = GREEDY | end
        ways["minimum"] = GREEDY | end | {"min_new_tokens": STEPS - 1}
        # several tokens that likely come second end a beam, in no order of worth
        end = {"eos_token_id": _likely(subject, greedy[0])}
        ends = beams | end | {"num_beams": 2, "length_penalty": 2.0}
        ways["beams that end"] = ends
        ways["beams that end early"] = ends | {"early_stopping": True}
        ways["beams that never end early"] = ends | {"early_stopping": "never"}
    return ways


def _likely(subject: Subject, token: int) -> list[int]:
    """Return the tokens with the largest logits in the second step, in the order of their ids."""
    row = logits_row(token, 1, text_config(subject.model.config).vocab_size)
    return sorted(torch.topk(row, _N_ENDS).indices.tolist())


def _run(subject: Subject, part: Any, way: str, prompt: torch.Tensor, arguments: Facts) -> Facts:
    table = Table(by_step=way not in _DRAFTS)
    end = arguments.get("eos_token_id")
    config = copy.deepcopy(part.generation_config)
    facts: Facts = {"end": end, "tokens": []}
    torch.default_generator.manual_seed(SEED)
    before = torch.default_generator.get_state()
    try:
        with part.register_forward_hook(table, with_kwargs=True):
            output = subject.model.generate(
                prompt.clone(),
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=STEPS,
                pad_token_id=0,
                output_scores=True,
                return_dict_in_generate=True,
                **arguments,
            )
    except NoMeaning:
        raise
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return facts | {"refused": error_text(error)}
    finally:
        part.generation_config = config
    drew = tensor_hash(before) != tensor_hash(torch.default_generator.get_state())
    values = getattr(output, "sequences_scores", None)
    facts |= {"tokens": output.sequences.tolist(), "fed": table.fed, "drew": drew}
    if values is not None:
        return facts | {"values": values.tolist()}
    if way in _DRAFTS:
        return facts
    return facts | {"scores": [tensor_hash(scores + 0.0) for scores in output.scores or ()]}


def _config(part: Any) -> Facts:
    """Return what generate() uses without arguments, as far as it is not None."""
    config = getattr(part, "generation_config", None)
    try:
        prepared = part._prepare_generation_config(None)  # as generate() does
        config = prepared[0] if isinstance(prepared, tuple) else prepared
    except Exception:  # noqa: BLE001, S110  then the fields as they were read
        pass
    return {
        name: value
        for name, value in (config.to_dict() if config is not None else {}).items()
        if isinstance(value, bool | int | float | str | list)
        and name not in ("transformers_version", "_from_model_config")
    }
