"""Relations of rows with images: a batch of them gives what each row gives alone, and leaves nothing to later rows.

A row keeps its padding where it runs alone: what padding does is another relation, and needs positions. Another batch has
one row with an image and one of text. Rows of text must give the same before and after a batch with images. Every output
is compared, and both ways run again in float64 where their bytes differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch

from samebits_probe.model import choice, media_way
from samebits_probe.model.choice import DECODER, IMAGE_PLACES, MASK, PIXELS, TOKENS
from samebits_probe.model.inputs import pad_id, tensors_of, token_config
from samebits_probe.questions.relations import rows
from samebits_probe.questions.relations.embedded import Way, outputs_of_both, tried, unrepeated
from samebits_probe.questions.relations.rows import Answer, Pair, Runner

Facts = dict[str, Any]

APART, AFTER = "rows with images = one by one", "rows of text after images = before"
NAMES = (APART, AFTER)
_WITHOUT_ROWS = (2, 4)
"""Dimensions of images that have no place in a row; with another number, processors fill the place of a missing one."""
_N_TEXTS = 3
"""Rows of text behind two rows with images: what the images leave has no place for them."""
_MIN_TEXT = 3
"""Tokens of a row of text."""


def observe(model: Any, prompts: Iterable[tuple[str, Facts]]) -> Answer:
    """Try both relations on the prompts of several rows with images, videos or sounds; of each the worst is returned."""
    listed = [(name, kwargs) for name, kwargs in prompts if has_rows(kwargs)]
    if not listed:
        return rows.untried(
            "no prompt of it has several rows with an image, a video or a sound", NAMES
        )
    runner = Runner(model)
    if reason := unrepeated(runner, listed[0][1]):
        return rows.untried(reason, NAMES)
    ways = [way for name, kwargs in listed for way in _ways(model, name, kwargs)]
    return rows.worst_of([tried(runner, way) for way in ways], NAMES)


def has_rows(kwargs: Facts) -> bool:
    """Return True for several rows with equally many values of media each, padded on the left if at all."""
    ids: Any = kwargs.get(TOKENS)
    mask: Any = kwargs.get(MASK)
    if not torch.is_tensor(ids) or not torch.is_tensor(mask) or ids.ndim != 2 or len(ids) < 2:
        return False
    media = {name: t for name, t in tensors_of(kwargs).items() if name not in media_way.OF_TOKENS}
    return (
        mask.shape == ids.shape
        and bool((mask.diff(dim=1) >= 0).all())
        and any(t.is_floating_point() for t in media.values())
        and all(t.ndim and len(t) % len(ids) == 0 for t in media.values())
        and all(bool((t == t[:1]).all()) for name, t in media.items() if "grid" in name)
    )


def _ways(model: Any, name: str, kwargs: Facts) -> Iterator[Way]:
    # made here: a slice of float32 is no leak of the float64 that is watched
    alone = [row_of(kwargs, i) for i in range(len(kwargs[TOKENS]))]
    yield Way(APART, f"{name}: {len(alone)} rows", kwargs, partial(_compared, kwargs, alone))
    if (texts := _texts(model, kwargs)) is None:
        return
    after = f"{name}: {_N_TEXTS} rows of text after {len(alone)} rows"
    same = {n: t.repeat(_N_TEXTS, 1) for n, t in _text_row(kwargs, texts[0]).items()}
    yield Way(AFTER, after, kwargs, partial(_after, kwargs, same))
    if kwargs[PIXELS].ndim not in _WITHOUT_ROWS:
        return
    for i, text in enumerate(texts[:2]):
        mixed = _one_with_an_image(model, kwargs, 1 - i, text)
        yield Way(
            APART, f"{name}: row {1 - i} of 2 has an image", kwargs, partial(_compared, *mixed)
        )


def row_of(kwargs: Facts, i: int) -> Facts:
    """Return one row with its own share of each tensor of media."""
    row = dict(kwargs)
    for name, tensor in tensors_of(kwargs).items():
        share = len(tensor) // len(kwargs[TOKENS])
        row[name] = tensor[i * share : (i + 1) * share]
    return row


def _texts(model: Any, kwargs: Facts) -> list[torch.Tensor] | None:
    """Return the tokens of text of each row; None for a model of which a row of text needs more than these."""
    placeholder = media_way.placeholder("image", model.config, choice.signature_of(model.forward))
    fed = {*media_way.OF_TOKENS, PIXELS, "image_grid_thw", "image_sizes"}
    beside = {IMAGE_PLACES, DECODER, *media_way.VISIBLE, media_way.PATCH_NUMBERS}
    names = tensors_of(kwargs).keys()
    if placeholder is None or PIXELS not in names or names - fed or names & beside:
        return None
    never = torch.tensor([placeholder, *media_way.reserved(model.config)])
    real = [ids[mask == 1] for ids, mask in zip(kwargs[TOKENS], kwargs[MASK], strict=True)]
    texts = [row[~torch.isin(row, never)] for row in real]
    has_images = all(bool((row == placeholder).any()) for row in real)
    return texts if has_images and min(map(len, texts)) >= _MIN_TEXT else None


def _text_row(kwargs: Facts, text: torch.Tensor, pads: tuple[int, ...] = ()) -> Facts:
    """Return the arguments of one row of text: of what has a value for each token, zeros for all but ids and mask."""
    mask = torch.tensor([0] * len(pads) + [1] * len(text))[None]
    ids = torch.cat([torch.tensor(pads, dtype=text.dtype), text])[None]
    fed = {name: torch.zeros_like(ids) for name in media_way.OPTIONAL if name in kwargs}
    return fed | {TOKENS: ids, MASK: mask}


def _one_with_an_image(
    model: Any, kwargs: Facts, i: int, text: torch.Tensor
) -> tuple[Facts, list[Facts]]:
    """Return a batch of row ``i`` with its image and of a text in the place of the other row, and both rows alone."""
    n_pads = kwargs[TOKENS].shape[1] - len(text)
    image = row_of(kwargs, i)
    row = _text_row(kwargs, text, (pad_id(token_config(model.config)),) * n_pads)
    alone = [image, row] if i == 0 else [row, image]
    return image | {name: torch.cat([each[name] for each in alone]) for name in row}, alone


def _compared(batch: Facts, alone: list[Facts], runner: Runner) -> dict[str, Pair]:
    """Return the outputs of all rows of a batch, and of each alone."""
    whole = runner.run(batch)
    pairs: dict[str, list[Pair]] = {}
    for i, row in enumerate(alone):
        n_tokens = int(row[MASK].sum())
        for name, tensor in runner.run(row).items():
            if (pair := _pair(whole.get(name), tensor, i, len(alone), n_tokens)) is not None:
                pairs.setdefault(name, []).append(pair)
    return {
        name: (torch.cat([a.flatten() for a, _ in of]), torch.cat([b.flatten() for _, b in of]))
        for name, of in pairs.items()
        if len(of) == len(alone)
    }


def _pair(
    whole: torch.Tensor | None, alone: torch.Tensor, i: int, n: int, n_tokens: int
) -> Pair | None:
    """Return an output of a row in the batch and alone, of tokens those behind the padding; None if it has no rows."""
    if whole is None or not whole.is_floating_point() or whole.ndim < 2:
        return None
    if len(whole) != n or alone.shape != (1, *whole.shape[1:]):
        return None
    first, second = whole[i], alone[0]
    return (first[-n_tokens:], second[-n_tokens:]) if whole.ndim > 2 else (first, second)


def _after(before: Facts, texts: Facts, runner: Runner) -> dict[str, Pair]:
    pairs = outputs_of_both(runner.run(texts), runner.run(texts, before=before))
    return {name: pair for name, pair in pairs.items() if pair[0].is_floating_point()}
