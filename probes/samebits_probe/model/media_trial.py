"""Layouts of an image, a video or a sound, tried in a small model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from samebits_probe.model import named, outputs, shrink, tried
from samebits_probe.model.choice import DECODER, IMAGE_PLACES, TOKENS, Signature
from samebits_probe.model.inputs import seeded_ids, token_config
from samebits_probe.model.media_layouts import Layout, Tensors, image_size, number, part
from samebits_probe.model.media_way import (
    ONE_IMAGE,
    OPTIONAL,
    TWO_IMAGES,
    VISIBLE,
    Rows,
    Way,
    reserved,
)
from samebits_probe.model.tensor import tensor_hash
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line

_MISMATCH = "match"
"""Part of a refusal of a number of tokens."""
_TEXT = 9
"""Tokens of a text without an image."""
_ROUNDING = 1e-3
"""Part of an image's effect on its own row that may be an effect on another row."""
_COUNTS = (
    "num_query_tokens",
    "mm_tokens_per_image",
    "image_seq_length",
    "image_seq_len",
    "num_image_tokens",
    "latent_query_num",
    "vision_soft_tokens_per_image",
    "num_tokens_per_image",
    "perceiver_n_latents",
    "resampler_n_latents",
)
"""Fields of a config for the number of features of an image."""


class Trial:
    """Layouts tried in one small model."""

    def __init__(
        self, kind: str, model: Any, signature: Signature, placeholder: int | None
    ) -> None:
        """Try layouts of a kind with the token id that stands for one, if any does."""
        self.reason = ""
        """Why a layout does not fit: the first reason that is not a number of tokens, as other numbers are tried."""
        self._kind, self._model, self._signature = kind, model, signature
        self._placeholder = placeholder
        self._named = named.names(type(model), signature, model.config)
        self._is_longer = False
        self._is_seen = True
        """False if what forward returns does not follow from the image, as a gate is closed at first."""

    def way(self, layout: Layout) -> Way | None:
        """Return the way to feed images in a layout; None if it does not fit."""
        if (count := self._count(layout)) is None:
            return None
        way = self._way(layout, count)._replace(no_text=self._why_no_text())
        return self._with_two(way) if self._kind == "image" else way

    def _way(self, layout: Layout, count: int) -> Way:
        return Way(self._kind, layout, self._placeholder, count, self._is_longer, named=self._named)

    def _why_no_text(self) -> str:
        """Return why forward takes no text alone; '' if it does."""
        config = self._model.config
        ids = seeded_ids("text", _TEXT, token_config(config), reserved(config))
        try:
            with torch.no_grad():
                self._model(**{TOKENS: torch.tensor([ids])})
        except Exception as error:  # noqa: BLE001  a forward may refuse inputs in any way
            return in_one_line(error, tried.MAX_REASON)
        return ""

    def _with_two(self, way: Way) -> Way:
        """Return the way with how it takes two images per row."""
        if reason := self._why_one(way):
            return way._replace(no_two=reason)
        layout = way.layout
        self.reason = ""
        may_be_in_rows = layout.are_patches or (layout.shape[0] == 1 and not layout.joined)
        for in_rows in (True, False) if may_be_in_rows else (False,):
            two = way._replace(in_rows=in_rows)
            if self._takes_two(two):
                return two
        return way._replace(no_two=self.reason)

    def _why_one(self, way: Way) -> str:
        """Return why nobody feeds two images per row, even if forward takes them; '' if somebody may."""
        config, names = self._model.config, self._signature.names
        if way.placeholder is None and not names & {*VISIBLE}:
            return "no token stands for an image"
        if hasattr(config, "qformer_config") or IMAGE_PLACES in names or DECODER in names:
            return "processors of its kind take one image per text"
        return ""

    def _takes_two(self, way: Way) -> bool:
        """Return True if an image changes what forward returns of its own row, and of no other."""
        kwargs = self._kwargs(way, "two", TWO_IMAGES)
        main = kwargs[way.layout.main]
        n_images = 2 * len(TWO_IMAGES)
        try:
            before = self._logits(kwargs)
            for image in (1, 2):  # the second one of the first row, and the first one of the second
                progress.tick("two images per row")
                pixels = main.clone().reshape(n_images, -1)
                pixels[image] = pixels[image].flip(0)
                after = self._logits({**kwargs, way.layout.main: pixels.reshape(main.shape)})
                if (
                    before is None
                    or after is None
                    or not self._is_of_row(image // 2, before, after)
                ):
                    self.reason = (
                        "what forward returns of a row does not follow from its own images"
                    )
                    return False
        except Exception as error:  # noqa: BLE001  a forward may refuse inputs in any way
            self.reason = in_one_line(error, tried.MAX_REASON)
            return False
        return True

    def _is_of_row(self, row: int, before: torch.Tensor, after: torch.Tensor) -> bool:
        """Return True if an image changed this row; experts that all rows share may round otherwise in the others."""
        changes = [float((a - b).abs().max()) for a, b in zip(before, after, strict=True)]
        own = changes.pop(row)
        return max(changes) <= own * _ROUNDING and (own > 0 or not self._is_seen)

    def _count(self, layout: Layout) -> int | None:
        """Return the number of placeholder tokens with which a layout fits; None if it does not."""
        progress.tick("layouts of an image")
        if self._placeholder is None:
            return 0 if self._fits(layout, 0) else None
        likely = self._likely_counts(layout)
        fitting = [count for count in sorted(likely, reverse=True) if self._fits(layout, count)]
        if not fitting:
            return None
        # a forward that does not count them takes any number: one stands for the image, as in its processor
        return fitting[0] if not self._fits(layout, max(likely) + 1) else 1

    def _note(self, reason: str) -> None:
        if not self.reason or _MISMATCH in self.reason:
            self.reason = reason

    def _likely_counts(self, layout: Layout) -> set[int]:
        """Return numbers of features: of the config, of a refusal's message, of what modules return."""
        config = self._model.config
        counts = {1, *(number(config, name) or 0 for name in _COUNTS), *_patches(config)}
        counts |= _codes(config)
        with _widths_seen(self._model) as seen:
            try:
                self._run(layout, 1, "likely", rows=1)
            except Exception as error:  # noqa: BLE001  its message may tell the number
                self._note(in_one_line(error, tried.MAX_REASON))
                if _MISMATCH in str(error):
                    counts |= {int(number) for number in re.findall(r"\d+", str(error))}
        if self._kind == "video" and not layout.joined:
            counts |= {layout.shape[0] * count for count in counts}  # of whole frames
        counts |= seen
        counts |= {count // layout.runs for count in counts if count % layout.runs == 0}
        return {count for count in counts if 0 < count <= 1 << 14}

    def _fits(self, layout: Layout, count: int) -> bool:
        try:
            first = self._run(layout, count, "first", rows=1)
            changed = self._run(layout, count, "first", rows=1, pixels="other")
            self._run(layout, count, "batch", rows=2)
        except Exception as error:  # noqa: BLE001  a forward may refuse inputs in any way
            self._note(in_one_line(error, tried.MAX_REASON))
            return False
        if first is None or changed is None:
            self._note("forward made the row longer, or returned no tensor")
            return False
        self._is_seen = tensor_hash(first) != tensor_hash(changed)
        if not self._is_seen and not self._runs_more(layout, count):
            self._note("what forward returns does not follow from the image")
            return False
        return True

    def _runs_more(self, layout: Layout, count: int) -> bool:
        """Return True if modules run that do not run without the image: a gate may be closed at first."""
        with _called(self._model) as with_image:
            self._run(layout, count, "first", rows=1)
        with _called(self._model) as without:
            try:
                self._run(layout, count, "first", rows=1, pixels="")
            except Exception:  # noqa: BLE001  then it does not run without an image
                return True
        return bool(with_image - without)

    def _run(
        self, layout: Layout, count: int, name: str, *, rows: int, pixels: str = "same"
    ) -> torch.Tensor | None:
        """Return the first output; None if forward made the row longer, as if a token were an image."""
        kwargs = self._kwargs(self._way(layout, count), name, ONE_IMAGE[:rows])
        if pixels == "other":
            kwargs |= {layout.main: layout.tensors("other", rows)[layout.main]}
        elif not pixels:
            beside = [name for name, *_ in layout.beside] + [name for name, _ in layout.more]
            for argument in (layout.main, *VISIBLE, IMAGE_PLACES, *beside):
                kwargs.pop(argument, None)
        return self._logits(kwargs)

    def _kwargs(self, way: Way, name: str, rows: Rows) -> Tensors:
        kwargs = way.tensors(name, self._model.config, self._signature, rows)
        return {k: v for k, v in kwargs.items() if k not in OPTIONAL or k in self._signature.names}

    def _logits(self, kwargs: Tensors) -> torch.Tensor | None:
        with torch.no_grad():
            result = self._model(**kwargs)
        logits = outputs.usual_logits_of(result)
        # a head for whole rows, as of classes, has no axis of tokens
        if logits is None or DECODER in kwargs or logits.ndim == 2:
            return logits
        if logits.shape[1] == kwargs[TOKENS].shape[1]:
            return logits
        self._is_longer = self._placeholder is None
        return logits if self._is_longer else None


def _patches(config: Any) -> set[int]:
    """Return numbers of patches of a whole image: all of them, and where squares of them are merged."""
    vision = part(config, "vision")
    patch = getattr(vision, "patch_size", None)
    if not isinstance(patch, int):
        return set()
    height, width = (size // patch for size in image_size(vision, config))
    return {height * width // merged**2 for merged in (1, 2, 3, 4)}


def _codes(config: Any) -> set[int]:
    """Return numbers of codes of a quantized image, with and without a token behind each row, as Emu3's have."""
    if getattr(config, "vq_config", None) is None:
        return set()
    height, width = image_size(part(config, "vision"), config)
    sides = [(height >> k, width >> k) for k in range(6)]
    return {count for h, w in sides for count in (h * w, h * (w + 1))}


@contextmanager
def _widths_seen(model: Any) -> Iterator[set[int]]:
    """Collect how many vectors of the text's width each module returned for one row, as features may be."""
    width = shrink.hidden_size(token_config(model.config).to_dict())
    seen: set[int] = set()

    def note(_module: Any, _args: Any, output: Any) -> None:
        for tensor in outputs.tensors(output).values():
            if tensor.ndim > 1 and tensor.shape[-1] == width:
                seen.add(tensor.numel() // width)

    with torch.nn.modules.module.register_module_forward_hook(note):
        yield seen


@contextmanager
def _called(model: Any) -> Iterator[set[str]]:
    names = {id(module): name for name, module in model.named_modules()}
    called: set[str] = set()

    def note(module: Any, _args: Any) -> None:
        called.add(names.get(id(module), ""))

    with torch.nn.modules.module.register_module_forward_pre_hook(note):
        yield called
