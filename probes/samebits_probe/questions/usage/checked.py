"""What generate() offers beside tokens, judged inside one release: by what follows from the tokens themselves.

A text that ends it, the scores of its tokens, what a streamer gets, a prompt in chunks, and tokens for a decoder to
begin with.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers

from samebits_probe.model import decode, forks, load
from samebits_probe.model.distance import same_bytes
from samebits_probe.model.inputs import text_config
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text
from samebits_wire.arguments import CHUNKED, OTHER_PROMPT, WHOLE_PROMPT

Facts = dict[str, Any]
_TEXT, _STOPS = "people said hello to the world", ("hello", "said hello")
"""What a model is made to write, and strings at which it is to stop: one that may be a token, and one that is none."""
_BEGIN = [[5, 6]]
_BEHIND = {
    "max_new_tokens": 3,
    "min_new_tokens": None,
    "eos_token_id": None,
    "do_sample": False,
    "pad_token_id": 0,
    "output_logits": True,
    "return_dict_in_generate": True,
}
_LONGER = [7, 8, 9, 10, 11]
"""Tokens of a decoder behind its start token, in the row whose length the shorter row is padded to."""
_STEPS: Facts = {"max_new_tokens": 3, "min_new_tokens": 3, "pad_token_id": 0, "do_sample": False}
_SCORED: Facts = {"output_scores": True, "return_dict_in_generate": True}
_REJECTED = "whose drafts are all rejected"
_DRAFTS: Facts = {"num_assistant_tokens": 2, "num_assistant_tokens_schedule": "constant"}
_N_TOKENS, _MAX_WINDOW = 10, 64
"""Tokens of a prompt, and the window up to which it is longer than that."""
_NEAR, _FAR = 1e-3, 1.0 / 64
"""Up to where scores are the same ones, and from where they are others. Sums in another order round far less."""
STOPS_OF_NO_WORD = "generate(stop_strings=…) of tokens that are no words"
_CHUNK, _N_PADS = "prefill_chunk_size", 3


def calls(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the calls that apply to a model that generates from token ids."""
    model = subject.model
    if not model.can_generate():
        return
    if load.is_encoder_decoder(model):
        yield "generate(decoder_input_ids=…) behind pads", partial(_behind_pads, subject)
        yield "generate(cache_implementation='static')", partial(_static, subject)
    if getattr(model, "main_input_name", "") != "input_ids":
        return
    yield "tokens that a streamer of generate() gets", partial(_streamed, subject)
    if load.is_encoder_decoder(model):
        yield "generate(decoder_input_ids=…)", partial(_begun, subject)
        yield "cross attention in the cache of generate()", partial(_kept, subject)
    elif subject.head == "causal-lm":
        yield "compute_transition_scores(…)", partial(_scored, subject)
        yield "compute_transition_scores(…) of beams", partial(_scored_beams, subject)
        yield f"generate(assistant_model=…) {_REJECTED}", partial(_rejected, subject)
        yield CHUNKED, partial(_chunked, subject)
        if subject.tokenizer is not None:
            yield "generate(stop_strings=…)", partial(_stopped, model, subject.tokenizer)
            yield STOPS_OF_NO_WORD, partial(_of_no_word, model, subject.tokenizer)


def _generated(model: Any, ids: torch.Tensor, **arguments: Any) -> Any:
    with torch.no_grad():
        given = _STEPS | {"attention_mask": torch.ones_like(ids)} | arguments
        return model.generate(ids, **given)


def _scored(subject: Subject) -> str:
    """Return whether the scores of greedy tokens are their log-probabilities."""
    ids = subject.ids()
    output = _generated(subject.model, ids, **_SCORED)
    scores = torch.stack(output.scores, 1).log_softmax(-1)
    expected = scores.gather(-1, output.sequences[:, ids.shape[1] :, None])[..., 0]
    return (
        f"the log-probabilities of the tokens: {_are_near(_transitions(subject, output), expected)}"
    )


def _scored_beams(subject: Subject) -> str:
    """Return whether the scores of a beam's tokens add up to what it was chosen by."""
    output = _generated(subject.model, subject.ids(), num_beams=2, length_penalty=0.0, **_SCORED)
    made = _transitions(subject, output, beam_indices=output.beam_indices, normalize_logits=False)
    return f"their sum is sequences_scores: {_are_near(made.sum(1), output.sequences_scores)}"


def _transitions(subject: Subject, output: Any, **arguments: Any) -> torch.Tensor:
    made: torch.Tensor = subject.model.compute_transition_scores(
        output.sequences, output.scores, **({"normalize_logits": True} | arguments)
    )
    return made


def _are_near(made: torch.Tensor, expected: torch.Tensor, share: float = _NEAR) -> bool:
    """Return whether no number is off by more than a share of the largest one, or of 1 if that is larger."""
    if made.shape != expected.shape:
        return False
    scale = expected.abs().max().clamp(min=1.0)
    return bool(((made - expected).abs() <= share * scale).all())


def _rejected(subject: Subject) -> str:
    """Return whether a model that takes back what its assistant proposes computes what it computes alone."""
    model = subject.model
    demand_float32(model)
    window: int | None = getattr(text_config(model.config), "sliding_window", None)
    length = max(_N_TOKENS, window + 2) if window and window <= _MAX_WINDOW else _N_TOKENS
    ids = subject.ids("rejected", length)
    alone, drafted = (
        _generated(model, ids, **_SCORED, **more)
        for more in ({}, {"assistant_model": _contrary(model)})
    )
    return f"the scores without it: {_same_scores(alone, drafted)}"


def _same_scores(first: Any, second: Any) -> bool:
    """Return whether two calls choose from the same scores, up to the first token that differs in a row.

    Raises:
        NoMeaning: they are neither near nor far apart.

    """
    scores = [torch.stack(output.scores) for output in (first, second)]
    if scores[0].shape != scores[1].shape:
        return False
    tokens = [output.sequences[:, -len(scores[0]) :] for output in (first, second)]
    n_same = int((tokens[0] == tokens[1]).all(0).long().cumprod(0).sum())
    return _are_alike(
        *(s[: n_same + 1].masked_fill(~s[: n_same + 1].isfinite(), 0.0) for s in scores)
    )


def _are_alike(made: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether numbers are the same but for rounding.

    Raises:
        NoMeaning: they are neither near nor far apart.

    """
    are_near = _are_near(made, expected)
    if not are_near and _are_near(made, expected, _FAR):
        raise NoMeaning("they are neither near nor far apart")
    return are_near


def _streamed(subject: Subject) -> str:
    """Return whether a streamer gets each token in turn, and the end."""
    streamer = _Kept()
    output = _generated(subject.model, subject.ids(), streamer=streamer)
    return f"those of the text: {streamer.tokens == output[0].tolist()}, and the end: {streamer.has_ended}"


class _Kept:
    """A streamer that keeps its tokens."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.has_ended = False

    def put(self, value: torch.Tensor) -> None:
        """Keep the tokens of a prompt, or the next one."""
        self.tokens += value.flatten().tolist()

    def end(self) -> None:
        """Keep that no token follows."""
        self.has_ended = True


def _chunked(subject: Subject) -> str:
    """Return whether a prompt that is fed in chunks, beside a row with padding on its left, has the scores that it has whole."""
    if not hasattr(transformers.GenerationConfig(), _CHUNK):
        raise NoMeaning("the release has no such argument")
    demand_float32(subject.model)
    ids = subject.ids("chunked", _N_TOKENS)
    rows, mask = torch.cat([ids, ids.roll(1, dims=1)]), torch.ones(2, _N_TOKENS).long()
    rows[1, :_N_PADS], mask[1, :_N_PADS] = 0, 0
    try:
        whole = _generated(subject.model, rows, attention_mask=mask, **_SCORED)
        chunked = _in_chunks(subject.model, rows, attention_mask=mask, **_SCORED)
    except Exception as error:  # another question asks what refuses the argument
        raise NoMeaning(f"generate() raises {error_text(error)}") from error
    return WHOLE_PROMPT if _same_scores(chunked, whole) else OTHER_PROMPT


def _in_chunks(model: Any, rows: torch.Tensor, **arguments: Any) -> Any:
    """Generate behind a prompt in chunks, with a cache of the caller where the release makes none for it (5.0)."""
    try:
        return _generated(model, rows, **arguments, **{_CHUNK: 2})
    except ValueError:
        cache = transformers.DynamicCache()
        return _generated(model, rows, **arguments, **{_CHUNK: 2}, past_key_values=cache)


def demand_float32(model: Any) -> None:
    """Refuse a model whose rounding may be as large as another result."""
    if model.dtype != torch.float32:
        raise NoMeaning("it is not in float32")


def _contrary(model: Any) -> Any:
    """Return a copy of a model that never chooses what the model chooses."""
    twin = copy.deepcopy(model)
    for name, value in _DRAFTS.items():
        setattr(twin.generation_config, name, value)
    twin.generation_config.assistant_confidence_threshold = 0.0
    forward = twin.forward

    @functools.wraps(forward)
    def contrary(*arguments: Any, **named: Any) -> Any:
        output = forward(*arguments, **named)
        output.logits = -output.logits
        return output

    twin.forward = contrary
    return twin


def _begun(subject: Subject) -> str:
    """Return whether a decoder's first tokens get the start token that they lack."""
    model, begin = subject.model, torch.tensor(_BEGIN)
    start = _start_of(model)
    whole = torch.cat([torch.tensor([[start]]), begin], dim=1)
    first, second = (
        _generated(
            model,
            subject.ids(),
            decoder_input_ids=tokens,
            decoder_attention_mask=torch.ones_like(tokens),
            **_SCORED,
        )
        for tokens in (begin, whole)
    )
    alike = same_bytes(torch.cat(first.scores), torch.cat(second.scores))
    return f"as if the start token were given: {alike and first.sequences.shape == second.sequences.shape}"


def _kept(subject: Subject) -> str:
    """Return how much of a text the decoder keeps, of any length: a window that a short text does not fill counts."""
    output = _generated(subject.model, subject.ids(), return_dict_in_generate=True)
    crossed = getattr(output.past_key_values, "cross_attention_cache", None)
    if crossed is None:
        raise NoMeaning("the cache has no part for cross attention")
    layers = getattr(crossed, "layers", ())
    windows = {window for layer in layers if (window := getattr(layer, "sliding_window", None))}
    return f"the last {min(windows)} tokens of a text" if windows else "a text of any length"


def _start_of(model: Any) -> int:
    """Return the token that a decoder starts with."""
    start = getattr(model.generation_config, "decoder_start_token_id", None)
    if not isinstance(start, int) or start in _BEGIN[0]:
        raise NoMeaning("the model has no start token of its own")
    return start


def _behind_pads(subject: Subject) -> str:
    """Return whether a decoder's first tokens, and what follows over the cache, give the same behind pads, beside a longer row, as alone."""
    demand_float32(subject.model)
    encoded, start = _encoded(subject), _start_of(subject.model)
    short = [start, *_BEGIN[0]]
    n_pads = len(_LONGER) + 1 - len(short)
    mask = torch.ones(2, len(_LONGER) + 1).long()
    mask[0, :n_pads] = 0
    rows = torch.tensor([[0] * n_pads + short, [start, *_LONGER]])
    alone = _logits(subject.model, encoded, rows[:1, n_pads:], mask[:1, n_pads:])
    among = _logits(subject.model, encoded, rows, mask)
    n = _n_compared(alone, among)
    return f"as alone: {_are_near(among[:n], alone[:n])}"


def _static(subject: Subject) -> str:
    """Return whether a decoder with an encoder computes over a static cache what it computes over its own one."""
    model = subject.model
    if not forks.takes_static_cache(model):
        msg = "its class takes no static cache"
        raise NoMeaning(msg)
    demand_float32(model)
    tokens = torch.tensor([[_start_of(model), *_BEGIN[0]]])
    compute = partial(_logits, model, _encoded(subject), tokens, torch.ones_like(tokens))
    own = compute()
    try:
        static = compute(cache_implementation="static")
    finally:
        forks.drop_cache(model)
    n = _n_compared(own, static)
    return f"the scores without it: {_are_alike(static[:n], own[:n])}"


def _n_compared(first: torch.Tensor, second: torch.Tensor) -> int:
    """Return how many steps follow the same tokens, by the logits that they are chosen from."""
    chosen = first.argmax(-1) == second.argmax(-1)
    return 1 + int(chosen.long().cumprod(0).sum())


def _encoded(subject: Subject) -> Facts:
    """Return what the encoder gets of a prompt of the cell, one row of it."""
    for kwargs in subject.prompts.values():
        given = {n: v[:1] for n, v in kwargs.items() if isinstance(v, torch.Tensor) and v.dim() > 1}
        main = given.get(subject.model.main_input_name)
        if main is not None:
            return {n: v for n, v in given.items() if not n.startswith("decoder_")}
    raise NoMeaning("no prompt of the cell is fed to an encoder")


def _logits(
    model: Any, encoded: Facts, tokens: torch.Tensor, mask: torch.Tensor, **arguments: Any
) -> torch.Tensor:
    """Return the logits of the tokens behind the first row of a decoder, [steps, vocabulary]."""
    named = {n: v.repeat_interleave(len(tokens), 0) for n, v in encoded.items()}
    # a class of its own, such as Whisper's, cuts sounds and makes the tokens itself
    generate = partial(transformers.GenerationMixin.generate, model)
    with torch.no_grad():
        output = generate(
            decoder_input_ids=tokens,
            decoder_attention_mask=mask,
            **named,
            **_BEHIND,
            **arguments,
        )
    return torch.stack([step[0] for step in output.logits])


def _stopped(model: Any, tokenizer: Any) -> str:
    """Return whether a text that the model is made to write ends where it has each string."""
    written = tokenizer(_TEXT, add_special_tokens=False)["input_ids"]
    if max(written) >= text_config(model.config).vocab_size:
        raise NoMeaning("its tokenizer makes other tokens than the model has")
    stops = (f"{stop!r}: {_stops_behind(model, tokenizer, written, stop)}" for stop in _STOPS)
    return f"stops behind {', '.join(stops)}"


def _of_no_word(model: Any, tokenizer: Any) -> str:
    """Return how many tokens a model writes that no word of its tokenizer has: rows fill a matrix up."""
    last = text_config(model.config).vocab_size - 1
    if last <= max(tokenizer.get_vocab().values()):
        raise NoMeaning("its tokenizer has a word for the last id")
    output = _generated(
        model,
        torch.tensor([[1, 2]]),
        logits_processor=decode.forcing([[last]]),
        stop_strings=[_STOPS[0]],
        tokenizer=tokenizer,
    )
    return f"{output.shape[1] - 2} tokens"


def _stops_behind(model: Any, tokenizer: Any, written: list[int], stop: str) -> bool:
    lengths = range(1, len(written))
    n_expected = next((n for n in lengths if stop in tokenizer.decode(written[:n])), 0)
    if not n_expected:
        raise NoMeaning("its tokenizer makes no such text")
    output = _generated(
        model,
        torch.tensor([written[:2]]),
        max_new_tokens=len(written),
        min_new_tokens=len(written),
        logits_processor=decode.forcing([written]),
        stop_strings=[stop],
        tokenizer=tokenizer,
    )
    return bool(output.shape[1] - 2 == n_expected)
