"""Questions about generate(): a second call, a static cache and others, arguments, strategies of older releases."""

from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import torch

from samebits_probe.model import forks
from samebits_probe.model.decode import GREEDY
from samebits_probe.model.distance import distance, same_bytes
from samebits_probe.model.inputs import text_config
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text
from samebits_wire.arguments import OF_PADDED

Facts = dict[str, Any]
_STEPS = 4
_PROMPT_LENGTH, _N_PADS = 5, 2
_WINDOWS = ("sliding_window", "attention_chunk_size")
_LARGEST_WINDOW = 130
"""Windows up to here fill up while tokens are generated."""
STRATEGIES: dict[str, Facts] = {
    "penalty_alpha": {"penalty_alpha": 0.6, "top_k": 4},
    "num_beam_groups": {"num_beams": 2, "num_beam_groups": 2, "diversity_penalty": 0.5},
    "dola_layers": {"dola_layers": [0]},  # 'low' names none of two layers
    "force_words_ids": {"num_beams": 2, "force_words_ids": [[5]]},
}
"""Contrastive search, group beam search, DoLa and constrained beams, by the argument that asks for them."""
_SCORED: Facts = GREEDY | {
    "eos_token_id": None,
    "output_scores": True,
    "return_dict_in_generate": True,
}


class _Decoded(NamedTuple):
    """New tokens of a greedy generate(), and the scores that they were chosen from."""

    ids: torch.Tensor
    """[steps, rows]"""
    scores: torch.Tensor
    """[steps, rows, vocabulary]"""


def repeated(subject: Subject) -> Facts:
    """Return how far a generate() is from the same call before it, with another call in between.

    The call in between has a longer prompt and an argument that changes scores, so that what it
    leaves in the model, its caches or its generation config has an effect on the next one.
    """
    first = _decoded(subject)
    _generate(subject, "between", 2 * _PROMPT_LENGTH, repetition_penalty=5.0)
    return _against(first, subject)


def static(subject: Subject) -> Facts:
    """Return how far a generate() with a static cache is from one with the default cache."""
    length = _filling(subject)
    first = _decoded(subject, length)
    return _against(first, subject, length, cache_implementation="static")


def _filling(subject: Subject) -> int:
    """Return the length of a prompt behind which the smallest window of the model fills up, if it is no large one."""
    text = text_config(subject.model.config)
    values = [n for name in _WINDOWS for n in forks.values_of(text, name) if isinstance(n, int)]
    window = min((n for n in values if n > _PROMPT_LENGTH), default=0)
    positions = forks.value_of(text, "max_position_embeddings")
    has_room = not isinstance(positions, int) or window + _STEPS <= positions
    is_filled = 0 < window <= _LARGEST_WINDOW and has_room
    return max(window - _STEPS // 2, _PROMPT_LENGTH) if is_filled else _PROMPT_LENGTH


def flex(subject: Subject) -> Facts:
    """Return the same as :func:`static` with flex attention, which reads the sizes of a cache in ways of its own."""
    if not getattr(subject.model, "_supports_flex_attn", False):
        raise NoMeaning(f"{type(subject.model).__name__} has no flex attention")
    # compiling it takes a minute, and its masks and scores are the same without
    with mock.patch("torch.compile", _uncompiled):
        try:
            with forks.attention(subject.model, "flex_attention"):
                length = _filling(subject)
                first = _decoded(subject, length)
                forks.drop_cache(subject.model)  # an earlier static one would be used again
                return _against(first, subject, length, cache_implementation="static")
        except Exception as error:
            raise NoMeaning(f"flex attention raised {error_text(error)}") from error


def _uncompiled(function: Any = None, **_options: Any) -> Any:
    """Take the place of ``torch.compile``, as a call and as a decorator."""
    return function if function is not None else _uncompiled


def caches(subject: Subject) -> Facts:
    """Return the same as :func:`static` for each other kind of cache that fits the model, and for a row beside a padded one."""
    length, facts = _filling(subject), {}
    first = _decoded(subject, length)
    for name in forks.cache_implementations(subject.model):
        forks.drop_cache(subject.model)
        facts[name] = _against(first, subject, length, cache_implementation=name)
    forks.drop_cache(subject.model)
    return facts | _of_padded(subject, length)


def _of_padded(subject: Subject, length: int) -> Facts:
    """Return the result of a static cache for two rows; {} if greedy generate() or any static cache refuses them."""
    among = {"padded": True}
    try:
        first = _decoded(subject, length, **among)
    except Exception:  # noqa: BLE001  the relations of padding have its exception
        return {}
    second = _against(first, subject, length, cache_implementation="static", **among)
    forks.drop_cache(subject.model)
    if "refused" in second and "refused" in static(subject):
        return {}
    return {OF_PADDED: second}


def _decoded(subject: Subject, length: int = _PROMPT_LENGTH, **arguments: Any) -> _Decoded:
    # all is on the CPU, and a model may draw numbers in its forward
    torch.default_generator.manual_seed(0)
    output = _generate(subject, length=length, **_SCORED, **arguments)
    scores = torch.stack(output.scores)
    return _Decoded(output.sequences[:, -len(scores) :].T, scores)


def _against(
    first: _Decoded, subject: Subject, length: int = _PROMPT_LENGTH, **arguments: Any
) -> Facts:
    """Return distances of a generate() from the first one, as far as both had the same tokens."""
    try:
        second = _decoded(subject, length, **arguments)
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"refused": error_text(error)}
    n_both = min(len(first.ids), len(second.ids))
    n_same = int((first.ids[:n_both] == second.ids[:n_both]).all(1).long().cumprod(0).sum())
    n_compared = min(n_same + 1, n_both)  # the scores of the first other token are comparable
    return {
        "steps": [len(first.ids), len(second.ids)],
        "n_same": n_same,
        "apart": distance(first.scores[:n_compared], second.scores[:n_compared])["max_abs"],
        "of_steps": distance(first.scores[:1], first.scores[-1:])["max_abs"],
    }


def position_ids(subject: Subject) -> Facts:
    """Return what generate() does with position_ids: the position that each step gets.

    The passed positions are those that generate() computes itself if it gets none.
    """
    if not subject.accepts("position_ids"):
        raise NoMeaning("forward takes no position_ids")
    plain = _logits(subject)
    fed: list[int | None] = []

    def note(_module: Any, _args: Any, kwargs: Facts) -> None:
        positions = kwargs.get("position_ids")
        fed.append(int(positions.reshape(-1)[-1]) if isinstance(positions, torch.Tensor) else None)

    try:
        with subject.model.register_forward_pre_hook(note, with_kwargs=True):
            with_positions = _logits(subject, position_ids=torch.arange(_PROMPT_LENGTH)[None])
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"refused": error_text(error)}
    same = with_positions.shape == plain.shape and same_bytes(with_positions, plain)
    return {"prompt": _PROMPT_LENGTH, "fed": fed, "same_logits": same}


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
    try:
        _generate(subject, **arguments)
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return error_text(error)
    return ""


def _logits(subject: Subject, **arguments: Any) -> torch.Tensor:
    """Return the logits of every step of a greedy generate(), [steps, vocabulary]."""
    output = _generate(subject, output_logits=True, return_dict_in_generate=True, **arguments)
    return torch.cat(output.logits)


def _generate(
    subject: Subject,
    prompt: str = "generate",
    length: int = _PROMPT_LENGTH,
    *,
    padded: bool = False,
    **arguments: Any,
) -> Any:
    if not getattr(subject.model, "can_generate", lambda: False)():
        raise NoMeaning(f"{type(subject.model).__name__} does not generate")
    ids = subject.ids(prompt, length)
    mask = torch.ones_like(ids)
    if padded:
        ids, mask = torch.cat([ids, ids.flip(1)]), mask.repeat(2, 1)
        ids[1, :_N_PADS], mask[1, :_N_PADS] = 0, 0
    options = {"do_sample": False, "max_new_tokens": _STEPS, "pad_token_id": 0} | arguments
    return subject.model.generate(ids, attention_mask=mask, **options)
