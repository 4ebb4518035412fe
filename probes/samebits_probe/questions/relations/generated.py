"""Relation of generation beside an image, a video or a sound, and of encoder-decoders that read no text.

What generate() computes step by step, through its cache, must be what one forward without a cache computes of the same
tokens beside the same image or sound. The relations of tokens feed text alone, and leave models of sounds out.

Without a cache each step is fed the image or sound anew, and must choose from what it does with one.

A second turn of text, over the cache of the first and without its image, must be what it is anew with the image.

A row must give what it gives without its padding, be it of text alone. Some classes are not made for padding on the left:
only where the first step agrees are the later ones compared, which come from the cache.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import torch

from samebits_probe.model import forks, media_way, named
from samebits_probe.model.choice import DECODER, IMAGE_PLACES, MASK, TOKENS
from samebits_probe.model.decode import GREEDY_LOGITS
from samebits_probe.model.inputs import has_media, pad_id, seeded_ids, text_config
from samebits_probe.questions.relations import pictured, rows
from samebits_probe.questions.relations.embedded import Way, tried, unrepeated
from samebits_probe.questions.relations.rows import Answer, Pair, Runner

Facts = dict[str, Any]

NAME, PADDED, LATER, UNCACHED = (
    "generate() with images or sounds = forward",
    "generate() of a padded row = without padding",
    "generate() over the cache of a turn = anew",
    "generate(use_cache=False) with images or sounds = with a cache",
)
NAMES = (NAME, PADDED, LATER, UNCACHED)
_STEPS = 4
_N_TOKENS, _N_PADS = 9, 3
_FIRST = "logits of the first step"
_TURN = 3
"""Tokens of text that begin a second turn."""
_ZEROS = (media_way.TOKEN_TYPES, IMAGE_PLACES)
"""What has 0 for a token of text."""
_OF_TOKENS = {*media_way.OF_TOKENS, named.BOXES}
_ENDLESS = {"eos_token_id": None, "pad_token_id": 0}
"""Arguments with which generate() makes all steps."""
_UNKNOWN = "how its arguments go on behind the prompt is not known"
_NO_PADDING = "the first step differs, so its class may not be made for padding on the left"
_NO_TURN = "what it chose is no text, its arguments go on in no known way, or its cache cannot be handed on"
_ROUNDING = 1e-3
"""Part of the first step's largest logit up to which padding may move it."""


def observe(
    model: Any, prompts: Collection[tuple[str, Facts]], padded: Facts | None = None
) -> Answer:
    """Try the relations on the prompts that are more than text; of each the worst one is returned.

    ``padded`` is one row of text with padding, if the model takes text alone.
    """
    if not getattr(model, "can_generate", lambda: False)():
        return _untried(f"{type(model).__name__} does not generate")
    if getattr(getattr(model.config, "decoder", None), "num_codebooks", None):
        return _untried("its tokens are of several codebooks")
    listed = [(name, kwargs) for name, kwargs in prompts if has_media(kwargs)]
    no_media = "no prompt of it has an image, a video or a sound"
    if not listed and padded is None:
        return _untried(no_media)
    runner = Runner(model)
    if listed and (reason := unrepeated(runner, listed[0][1])):
        return _untried(reason)
    whole = [tried(runner, _way(name, kwargs), _UNKNOWN) for name, kwargs in listed]
    if prompts and not listed:
        whole.append(rows.untried(no_media, (NAME, LATER, UNCACHED)))
    ways = [way for name, kwargs in listed if (way := _padded_way(name, kwargs)) is not None]
    if padded is not None:
        alone = _way_of_row("text", padded, 0)
        ways += [alone, alone._replace(**_among(padded))]
    if not ways:
        whole.append(rows.untried("no prompt of it has a padded row of a decoder", (PADDED,)))
    turns = [way for name, kwargs in listed if (way := _later_way(name, kwargs)) is not None]
    if listed and not turns:
        whole.append(rows.untried("no prompt of it is all of tokens without padding", (LATER,)))
    later = [tried(runner, way, _NO_TURN) for way in turns]
    later += [tried(runner, _uncached_way(name, kwargs)) for name, kwargs in listed]
    padded_rows = [_noted(tried(runner, way)) for way in ways]
    return rows.worst_of([*whole, *padded_rows, *later], NAMES)


def padded_text(model: Any, config: Any) -> Facts | None:
    """Return a row of text with padding: on its left, of an encoder on its right; None if nothing is generated."""
    if not getattr(model, "can_generate", lambda: False)():
        return None
    text = text_config(config)
    tokens = seeded_ids("padded text", _N_TOKENS, text)
    ids = torch.tensor([[*tokens, *[pad_id(text)] * _N_PADS]])
    mask = torch.tensor([[*[1] * _N_TOKENS, *[0] * _N_PADS]])
    if not getattr(config, "is_encoder_decoder", False):
        ids, mask = ids.flip(1), mask.flip(1)
    given = {TOKENS: ids, MASK: mask} | named.beside(model, ids)
    return {name: tensor.to(model.device) for name, tensor in given.items()}


def _noted(answer: Answer) -> Answer:
    """Return a relation; if the first step differs, with why that is by design."""
    for relation in answer.relations:
        is_first = relation["layers"][0]["name"] == f"output {_FIRST}"
        relation["note"] = _NO_PADDING if is_first else ""
    return answer


def _untried(reason: str) -> Answer:
    return rows.untried(reason, NAMES)


def _way(prompt: str, kwargs: Facts) -> Way:
    return Way(NAME, f"{prompt}: {_STEPS} tokens", kwargs, partial(_pairs, kwargs))


def _pairs(kwargs: Facts, runner: Runner) -> dict[str, Pair]:
    """Return the logits of all steps, by generate() and by one forward over what it chose."""
    steps, chosen = _generated(runner, kwargs)
    longer = _behind(kwargs, chosen)
    if longer is None or (DECODER in longer and not _begins(runner.model, chosen)):
        return {}
    whole = runner.run(longer).get("logits")
    if whole is None or whole.ndim != steps.ndim or whole.shape[1] < steps.shape[1]:
        return {}
    return {"logits": (steps, whole[:, -steps.shape[1] :])}


def _padded_way(prompt: str, kwargs: Facts) -> Way | None:
    """Return how the row with most padding is generated with and without it; None if there is none."""
    if DECODER in kwargs or not pictured.has_rows(kwargs):
        return None
    pads = (kwargs[MASK] == 0).sum(1)
    row = int(pads.argmax())
    return _way_of_row(prompt, pictured.row_of(kwargs, row), row) if pads.any() else None


def _way_of_row(prompt: str, padded: Facts, row: int) -> Way:
    shown = padded[MASK][0].nonzero()
    span = slice(int(shown[0]), int(shown[-1]) + 1)
    alone = padded | {name: padded[name][:, span] for name in _OF_TOKENS & padded.keys()}
    case = f"{prompt}: row {row}, {int((padded[MASK] == 0).sum())} pads"
    return Way(PADDED, case, padded, partial(_padded_pairs, padded, alone))


def _among(padded: Facts) -> Facts:
    """Return case, arguments and outputs of a batch that begins with a row of as many tokens and no padding."""
    real = padded[MASK] == 1
    full = torch.where(real, padded[TOKENS], padded[TOKENS][real][0]).flip(1)
    beside = {TOKENS: full, MASK: torch.ones_like(full)}
    batch = {n: torch.cat([beside.get(n, value), value]) for n, value in padded.items()}
    alone = {n: value[:, real[0]] for n, value in padded.items() if n in _OF_TOKENS}
    case = f"text: row 1 of 2, {int((~real).sum())} pads"
    pairs = partial(_padded_pairs, batch, padded | alone)
    return {"case": case, "kwargs": batch, "pairs": pairs}


def _padded_pairs(padded: Facts, alone: Facts, runner: Runner) -> dict[str, Pair]:
    """Return the logits of the steps behind the first, as far as both ways chose the same tokens before.

    If the first step differs, return its logits. Of a batch the last row counts.
    """
    (whole, chosen), (second, other_ids) = _generated(runner, padded), _generated(runner, alone)
    first, ids = whole[-1:], chosen[-1:]
    if (first[:, 0] - second[:, 0]).abs().max() > _ROUNDING * second[:, 0].abs().max():
        return {_FIRST: (first[:, :1], second[:, :1])}
    new = other_ids[:, other_ids.shape[1] + 1 - second.shape[1] :]
    n_same = _n_same(ids[:, -new.shape[1] :], new)
    steps = slice(1, 1 + n_same)
    return {"logits": (first[:, steps], second[:, steps])} if n_same else {}


def _later_way(prompt: str, kwargs: Facts) -> Way | None:
    """Return how a second turn goes on behind a prompt; None for one with a decoder of its own, or with padding."""
    if DECODER in kwargs or TOKENS not in kwargs or not bool(kwargs.get(MASK, torch.ones(1)).all()):
        return None
    case = f"{prompt}: {_STEPS} tokens, {_TURN} more, {_STEPS} tokens"
    return Way(LATER, case, kwargs, partial(_later_pairs, kwargs))


def _later_pairs(kwargs: Facts, runner: Runner) -> dict[str, Pair]:
    """Return the logits of a second turn, over the cache and anew. They end behind the first token that differs."""
    never = torch.tensor(media_way.reserved(runner.model.config))
    text = kwargs[TOKENS][0][~torch.isin(kwargs[TOKENS][0], never)][-_TURN:]
    if not len(text) or not forks.generates_behind_cache(runner.model):
        return {}
    first, second = runner.call(partial(_two_turns, runner.model, text), kwargs)
    n_steps, n_ids = len(second.logits), second.sequences.shape[1]
    ids = second.sequences[:, : n_ids - n_steps]
    longer = _behind(kwargs, ids)
    if longer is None or torch.isin(first.sequences[:, kwargs[TOKENS].shape[1] :], never).any():
        return {}
    over_cache = torch.stack(second.logits, dim=1)
    anew, chosen = _generated(runner, longer)
    n_same = _n_same(second.sequences[:, ids.shape[1] : -1], chosen[:, ids.shape[1] :])
    return {"logits": (over_cache[:, : n_same + 1], anew[:, : n_same + 1])}


def _uncached_way(prompt: str, kwargs: Facts) -> Way:
    case = f"{prompt}: {_STEPS} tokens, use_cache=False"
    return Way(UNCACHED, case, kwargs, partial(_uncached_pairs, kwargs))


def _uncached_pairs(kwargs: Facts, runner: Runner) -> dict[str, Pair]:
    """Return the logits of the steps without a cache and with one, up to the first other token."""
    steps, tokens = [], []
    for use_cache in (False, True):
        logits, ids = _generated(runner, kwargs, use_cache=use_cache)
        steps.append(logits)
        tokens.append(ids[:, ids.shape[1] + 1 - logits.shape[1] :])
    n_both = min(ids.shape[1] for ids in tokens)
    n_compared = _n_same(*(ids[:, :n_both] for ids in tokens)) + 1
    return {"logits": (steps[0][:, :n_compared], steps[1][:, :n_compared])}


def _two_turns(model: Any, text: torch.Tensor, **given: Any) -> tuple[Any, Any]:
    """Return what generate() returns for a prompt, and for text behind it over the cache that it returned."""
    forks.drop_cache(model)
    settings = GREEDY_LOGITS | {"max_new_tokens": _STEPS} | _ENDLESS
    first = model.generate(**given, **settings)
    ids = torch.cat([first.sequences, text.repeat(len(first.sequences), 1)], dim=1)
    mask, cache = torch.ones_like(ids), forks.behind_cache(model, first.past_key_values, ids)
    return first, model.generate(**{TOKENS: ids, MASK: mask}, **cache, **settings)


def _n_same(first: torch.Tensor, second: torch.Tensor) -> int:
    """Return how many tokens two batches of ids begin with in common, in every row."""
    return int((first == second).all(0).long().cumprod(0).sum())


def _generated(
    runner: Runner, kwargs: Facts, **arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of each greedy step, [rows, steps, vocabulary], and all ids but the last one."""
    prompt = {name: value for name, value in kwargs.items() if name != DECODER}
    settings = GREEDY_LOGITS | {"max_new_tokens": _STEPS} | arguments

    def generate(**given: Any) -> Any:
        forks.drop_cache(runner.model)
        try:
            return runner.model.generate(**given, **settings, **_ENDLESS)
        except TypeError:  # BLIP's generate() gives its own ends to that of its decoder
            return runner.model.generate(**given, **settings)

    output = runner.call(generate, prompt)
    return torch.stack(output.logits, dim=1), output.sequences[:, :-1]


def _behind(kwargs: Facts, chosen: torch.Tensor) -> Facts | None:
    """Return forward's arguments for a prompt and what was chosen behind it; None if not all of them are known."""
    if DECODER in kwargs or TOKENS not in kwargs:
        return {**kwargs, DECODER: chosen}
    n_new = chosen.shape[1] - kwargs[TOKENS].shape[1]
    if n_new <= 0 or media_way.SEGMENTS in kwargs or media_way.PATCH_NUMBERS in kwargs:
        return None
    new: Facts = {TOKENS: chosen}
    new |= {name: _longer(kwargs[name], n_new, 0) for name in _ZEROS if name in kwargs}
    if MASK in kwargs:
        new[MASK] = _longer(kwargs[MASK], n_new, 1)
    for name in {*media_way.VISIBLE} & kwargs.keys():
        last = kwargs[name][:, -1:]
        new[name] = torch.cat([kwargs[name], last.repeat(1, n_new, *[1] * (last.ndim - 2))], dim=1)
    return kwargs | new


def _begins(model: Any, chosen: torch.Tensor) -> bool:
    """Return True if ids begin with the decoder's start: Whisper of some releases returns them without."""
    configs = (model.generation_config, model.config)
    starts = {getattr(config, "decoder_start_token_id", None) for config in configs} - {None}
    return bool(starts) and all(int(first) in starts for first in chosen[:, 0])


def _longer(tensor: torch.Tensor, n_new: int, value: int) -> torch.Tensor:
    return torch.cat([tensor, tensor.new_full((len(tensor), n_new), value)], dim=1)
