"""Arguments of generate(): what each of them changes, one at a time, within one or two tokens.

An argument is given where it must have an effect, such as the token that is chosen without it as a forbidden
one. What is compared are the scores behind all processors, the shape and the fields: tokens that are drawn
are not, so that chance has no say.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import torch
import transformers

from samebits_probe.model import forks
from samebits_probe.model.choice import DECODER, MASK, TOKENS
from samebits_probe.model.inputs import text_config
from samebits_probe.questions.arguments.arguments import (
    OTHER,
    ROUTERS,
    Facts,
    added_fields,
    effect_of,
    given,
    numbers_of,
    raised,
)
from samebits_probe.questions.arguments.digits import reader_of_digits
from samebits_wire.arguments import MORE_THAN_TEXT, OF_ANOTHER_TOKENIZER, STREAMS

_FULL: Facts = {"return_dict_in_generate": True, "output_scores": True, "pad_token_id": 0}
_GREEDY: Facts = {"do_sample": False, "max_new_tokens": 1}
_TWO: Facts = {"do_sample": False, "max_new_tokens": 2}
_THREE: Facts = {"do_sample": False, "max_new_tokens": 3}
_DRAFTED: Facts = {**_TWO, "output_scores": False}
_BEAMS: Facts = {"num_beams": 2, **_TWO}
_SAMPLED: Facts = {"do_sample": True, "top_k": 0, "max_new_tokens": 1}
_BY_CHANCE: Facts = {"do_sample": True, "max_new_tokens": 1}
_BY_SCALE: Facts = {"guidance_scale": 2.0}
_GUIDED: Facts = {**_GREEDY, **_BY_SCALE}
_OF_FORWARD = ("head_mask", "decoder_head_mask", "cross_attn_head_mask", "token_type_ids", ROUTERS)
"""Arguments of forward that generate() passes on."""
_SECOND = "second token"
_FORCED = ("forced_bos_token_id", "forced_eos_token_id")
"""Fields of a generation config that choose a token whatever an argument does."""
_SOUND = "input_features"


OWN_LIMIT = "max_length (of the model's own generation_config)"
_DEFAULT_LIMITS = {None, 20}
"""``GenerationConfig().max_length`` of 5.x and of 4.x (generation/configuration_utils.py)."""


class Asked(NamedTuple):
    """An argument, and the call that it is added to."""

    name: str
    value: Any
    base: Facts
    kind: str = ""
    """What the value is, where an argument is given several."""
    beside: Facts = MappingProxyType({})  # type: ignore[assignment]
    """What is given only with it."""

    @property
    def shown(self) -> str:
        """The name by which the effect is kept."""
        return f"{self.name} ({self.kind})" if self.kind else self.name


def inputs(model: Any, kwargs: Facts) -> Facts | None:
    """Return what generate() gets of the inputs of forward: one row of token ids, or of a sound.

    None if the model does not generate from them.
    """
    if not getattr(model, "can_generate", lambda: False)():
        return None
    tokens, sound = kwargs.get(TOKENS), kwargs.get(_SOUND)
    encoded = _encoded(kwargs)
    if _is_row(tokens, 2) and encoded.keys() <= {TOKENS, MASK}:
        return encoded
    return encoded if _is_row(sound, 3) and encoded.keys() == {_SOUND} else None


def with_media(model: Any, kwargs: Facts) -> Facts | None:
    """Return what generate() gets of one row of token ids and an image, a video or a sound; None of another prompt."""
    encoded = _encoded(kwargs)
    can = getattr(model, "can_generate", lambda: False)()
    is_more = _is_row(encoded.get(TOKENS), 2) and encoded.keys() - {TOKENS, MASK}
    return encoded if can and is_more else None


def _encoded(kwargs: Facts) -> Facts:
    """Return the inputs without the ids of the decoder, which generate() makes."""
    return {name: value for name, value in kwargs.items() if name != DECODER}


def _is_row(value: Any, dimensions: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == dimensions and value.shape[0] == 1


def asked(length: int, first: int, vocabulary: int) -> Iterator[Asked]:
    """Yield the arguments, for a prompt of some length behind which a greedy model chooses ``first``."""
    second = next(token for token in range(4, vocabulary) if token != first)
    yield from _of_one_token(length, first, second)
    yield from _of_more_tokens(length, first, second)
    for name, value in (
        ("temperature", 0.5),
        ("top_k", 2),
        ("top_p", 0.1),
        ("top_h", 0.1),
        ("min_p", 0.9),
        ("typical_p", 0.1),
        ("epsilon_cutoff", 0.5),
        ("eta_cutoff", 0.5),
    ):
        yield Asked(name, value, _SAMPLED)


def _of_one_token(length: int, first: int, second: int) -> Iterator[Asked]:
    """Yield those that show within one token."""
    for name, value in (
        ("bad_words_ids", [[first]]),
        ("suppress_tokens", [first]),
        ("begin_suppress_tokens", [first]),
        ("sequence_bias", {(first,): -5.0}),
        ("forced_eos_token_id", second),
        ("repetition_penalty", 2.0),
        ("encoder_repetition_penalty", 2.0),
        ("no_repeat_ngram_size", 1),
        ("encoder_no_repeat_ngram_size", 1),
        ("renormalize_logits", True),
        ("guidance_scale", 2.0),
        ("prefix_allowed_tokens_fn", lambda _row, _ids: [first, second]),
        ("logits_processor", transformers.LogitsProcessorList([lambda _ids, scores: scores * 2])),
        ("output_logits", True),
        ("output_hidden_states", True),
        ("output_attentions", True),
        ("return_dict_in_generate", False),
    ):
        yield Asked(name, value, _GREEDY)
    yield Asked("watermarking_config", {"bias": 4.0}, _GREEDY, "as a dict")
    if length > 1:
        negative = torch.tensor([[second, first, second]])
        yield Asked("negative_prompt_ids", negative, _GUIDED)
        # what the first token leaves in the cache of the prompt without guidance
        yield Asked("negative_prompt_ids", negative, {**_TWO, **_BY_SCALE}, _SECOND)
    else:  # a decoder behind its start token
        yield Asked("forced_bos_token_id", second, _GREEDY)
    # it has what the model's own one has not
    for base, kind in ((_GREEDY, ""), (_BY_CHANCE, "sampling")):
        yield Asked("generation_config", transformers.GenerationConfig(), base, kind)


def _of_more_tokens(length: int, first: int, second: int) -> Iterator[Asked]:
    """Yield those that show within two tokens, or that draft them."""
    yield Asked("guidance_scale", 2.0, _TWO, _SECOND)
    yield Asked("num_beams", 2, _TWO)  # its cache is put in order behind the first token
    yield Asked("length_penalty", 5.0, _BEAMS)
    yield Asked("num_return_sequences", 2, _BEAMS)
    yield Asked("eos_token_id", first, _TWO)
    yield Asked("min_new_tokens", 2, {**_TWO, "eos_token_id": first})
    yield Asked("min_length", length + 2, {**_TWO, "eos_token_id": first})
    yield Asked("exponential_decay_length_penalty", (0, 2.0), {**_TWO, "eos_token_id": second})
    yield Asked("max_length", length + 1, _THREE, beside={"max_new_tokens": None})
    yield Asked("stopping_criteria", transformers.StoppingCriteriaList([_stops]), _TWO)
    yield Asked("max_time", 1e-9, _TWO)  # no first step is as fast
    # they only change how the same is computed, and must not raise
    yield Asked("use_cache", False, _TWO)
    yield Asked("prefill_chunk_size", 2, _TWO)
    yield Asked("cache_implementation", "quantized", _TWO, "quantized")
    yield Asked("prompt_lookup_num_tokens", 2, _DRAFTED)
    yield Asked("assistant_early_exit", 1, _DRAFTED)


def _stops(ids: torch.Tensor, _scores: Any, **_kwargs: Any) -> torch.Tensor:
    return torch.ones(ids.shape[0], dtype=torch.bool)


def assistants(model: Any) -> Iterator[Asked]:
    """Yield the model as its own assistant, the decoder of an encoder-decoder model, and a model of other tokens.

    A token that an assistant proposes is taken only if the model chooses it, so nothing may change.
    """
    yield Asked("assistant_model", model, _DRAFTED)
    if (decoder := _decoder_of(model)) is not None:
        yield Asked("assistant_model", decoder, _DRAFTED, "its decoder")
    n_ids = getattr(text_config(model.config), "vocab_size", None)
    if n_ids and not getattr(model.config, "is_encoder_decoder", False):
        reader, beside = reader_of_digits(n_ids)
        yield Asked("assistant_model", reader, _DRAFTED, OF_ANOTHER_TOKENIZER, beside)


def _decoder_of(model: Any) -> Any:
    """Return the decoder of a model, by the class that AutoModelForCausalLM has for it; None without one.

    None, too, if it does not read what the encoder made, as that of Whisper does: generate() refuses it.
    """
    if not getattr(model.config, "is_encoder_decoder", False):
        return None
    classes = transformers.AutoModelForCausalLM._model_mapping
    if type(model.config) not in classes:
        return None
    with suppress(Exception):  # the other class of the checkpoint is another question
        decoder = classes[type(model.config)](copy.deepcopy(model.config))
        if "encoder_outputs" not in inspect.signature(decoder.forward).parameters:
            return None
        decoder.load_state_dict(model.state_dict(), strict=False)
        return decoder.to(model.dtype).eval()
    return None


class Generation:
    """One model, one prompt, and what generate() returns for each call that arguments are added to."""

    def __init__(self, model: Any, kwargs: Facts, restore: Callable[[], None]) -> None:
        self._model, self._kwargs, self._restore = model, kwargs, restore
        self._plain: dict[str, Any] = {}

    def effects(self) -> dict[str, Facts]:
        """Return argument -> whether the release names it, and its effect; {} where generate() raises without any."""
        if (plain := self._of(_GREEDY)) is None:
            return {}
        if plain.sequences.dim() != 2:  # CSM, Dia: there is no one token to forbid or to force
            return self._effects([Asked("use_cache", False, _TWO, STREAMS)])
        length = plain.sequences.shape[1] - 1
        first = int(plain.sequences[0, -1])
        of_all = asked(length, first, plain.scores[0].shape[-1])
        effects = self._effects([*of_all, *assistants(self._model), *self._of_forward()])
        return effects | self._own_limit(length)

    def of_media(self) -> dict[str, Facts]:
        """Return the effects of what splits a prompt or repeats a part of it, where it is more than text."""
        return self._effects(
            [
                Asked("prefill_chunk_size", 2, _TWO, MORE_THAN_TEXT),
                Asked("guidance_scale", 2.0, _TWO, MORE_THAN_TEXT),
            ]
        )

    def _of_forward(self) -> Iterator[Asked]:
        values = given(self._model, self._kwargs)
        for name in (name for name in _OF_FORWARD if name in values):
            yield Asked(name, values[name], _TWO)

    def _effects(self, all_asked: Iterable[Asked]) -> dict[str, Facts]:
        return {
            each.shown: {"named": _is_named(self._model, each.name)} | effect
            for each in all_asked
            # where the call raises without the argument, too, the argument is not what it refuses
            if self._of(each.base) is not None
            and (each.base.get("max_new_tokens") == 1 or self._of(_TWO) is not None)
            and (effect := self._effect(each))
        }

    def _own_limit(self, length: int) -> dict[str, Facts]:
        """Return the effect of a max_length that no call gives: one token less; none if more are made than it says.

        It is asked of a model whose files have one.
        """
        if self._model.generation_config.max_length in _DEFAULT_LIMITS:
            return {}
        if (before := self._of({"do_sample": False, "max_length": length + 2})) is None:
            return {}
        own = copy.deepcopy(self._model.generation_config)
        own.max_length, own.max_new_tokens = length + 1, None
        try:
            with mock.patch.object(self._model, "generation_config", own):
                after = self._call({"do_sample": False})
        except Exception as error:  # noqa: BLE001  that it raises is the observation
            return {OWN_LIMIT: {"named": True} | raised(error)}
        is_kept = after.sequences.shape[1] <= length + 1
        effect = _effect_of(before, after) | ({} if is_kept else {"effect": "none"})
        return {OWN_LIMIT: {"named": True} | effect}

    def _effect(self, each: Asked) -> Facts:
        before = self._of(each.base)
        try:
            after = self._call({**each.base, **each.beside, each.name: each.value})
        except ImportError:  # it says what is not installed
            return {}
        except Exception as error:  # noqa: BLE001  that it raises is the observation
            return raised(error)
        effect = _effect_of(before, after)
        is_second = each.kind == _SECOND and effect["effect"] == OTHER
        return effect | _of_second(before, after) if is_second else effect

    def _of(self, base: Facts) -> Any:
        """Return what a call without the argument gives, computed once; None if it raises."""
        key = repr(base)
        if key not in self._plain:
            self._plain[key] = None
            with suppress(Exception):  # the greedy decoding of the cell has its exception
                self._plain[key] = self._call(base)
        return self._plain[key]

    def _call(self, arguments: Facts) -> Any:
        # releases write arguments into it, and the next call would read them
        own = copy.deepcopy(self._model.generation_config)
        for name in _FORCED:
            setattr(self._model.generation_config, name, None)
        torch.default_generator.manual_seed(0)
        try:
            with torch.no_grad():
                return self._model.generate(**self._kwargs, **(_FULL | arguments))
        finally:
            self._model.generation_config = own
            forks.drop_cache(self._model)
            self._restore()


def _is_named(model: Any, name: str) -> bool:
    """Return True if a generation config, generate(), or the one that a class of its own passes on to, names it."""
    methods = (model.generate, transformers.GenerationMixin.generate)
    is_of_config = hasattr(transformers.GenerationConfig(), name)
    if name in _OF_FORWARD:
        return forks.accepts(model, name)
    return is_of_config or any(name in inspect.signature(m).parameters for m in methods)


def _effect_of(before: Any, after: Any) -> Facts:
    """Return the effect: another form, another shape, other fields, other scores, or none."""
    if not hasattr(after, "items"):
        return {"effect": "another form", "message": type(after).__name__}
    shapes = [str(tuple(output.sequences.shape)) for output in (before, after)]
    if shapes[0] != shapes[1]:
        lengths = ([float(output.sequences.shape[-1])] for output in (before, after))
        numbers = dict(zip(("without", "numbers"), lengths, strict=True))
        return {"effect": "another shape", "message": " → ".join(shapes), **numbers}
    if added := added_fields(before, after):
        return added
    scores = _scores_of(before), _scores_of(after)
    facts = effect_of(*scores)
    if (
        scores[0] is None
        or scores[1] is None
        or facts["effect"] != OTHER
        or not _is_of_one_prompt(before)
    ):
        return facts
    return facts | numbers_of(*scores)


def _of_second(before: Any, after: Any) -> Facts:
    """Return the scores of the second token, and the first ones, which must be the same to compare releases."""
    if min(len(before.scores), len(after.scores)) == 1:
        return {}
    first = [int(output.sequences[0, -2]) for output in (before, after)]
    numbers = numbers_of(before.scores[1], after.scores[1])
    return {"message": f"behind token {first[0]} → {first[1]}", **numbers}


def _is_of_one_prompt(output: Any) -> bool:
    """Return True for scores behind the same tokens in every release: of one step, or of whole beams."""
    return output.get("sequences_scores") is not None or len(output.scores) == 1


def _scores_of(output: Any) -> torch.Tensor | None:
    scores = output.get("sequences_scores")
    if scores is None and output.get("scores"):
        scores = torch.stack(output.scores)
    return scores
