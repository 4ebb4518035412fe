"""The loaded model and the tokens that the questions of usage.usage use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from samebits_probe.model import forks, load
from samebits_probe.model.choice import DoesNotApply
from samebits_probe.model.inputs import seeded_ids, text_config
from samebits_probe.process.failure import place
from samebits_wire.folders import without_folders

HALF = 6
"""Tokens of each of the two sequences that are packed into one row."""
_MAX_ERROR_LENGTH = 120


class NoMeaning(Exception):  # noqa: N818  a question that does not apply is a result
    """The question does not apply to this model; the message says why."""


class Subject:
    """One model of any kind."""

    def __init__(
        self,
        model: Any,
        head: str,
        folder: Path,
        prompts: Mapping[str, dict[str, Any]] = MappingProxyType({}),
        with_eager: Callable[[], Any] | None = None,
        tokenizer: Any = None,
        source: load.Source | None = None,
    ) -> None:
        self.model = model
        self.head = head
        self.folder = folder
        self.prompts = prompts
        """Prompt of the cell -> arguments of forward."""
        self.with_eager = with_eager
        """Loads the checkpoint once more, with eager attention."""
        self.tokenizer = tokenizer
        """That of the checkpoint; None without one."""
        self.source = source
        """From what the model was loaded."""
        self._plain_logits: torch.Tensor | None = None

    def refuses_text(self) -> str:
        """Return why questions about tokens do not apply; '' if they do."""
        main_input = getattr(self.model, "main_input_name", "input_ids")
        if self.head != "causal-lm" or main_input != "input_ids":
            return f"{type(self.model).__name__} is no causal language model"
        if getattr(self.model.config, "is_encoder_decoder", False):
            return f"{type(self.model).__name__} has an encoder"
        try:
            self.logits()
        except Exception as error:  # noqa: BLE001  the cell's own forward reports it too
            return f"the plain forward raised {error_text(error)}"
        return ""

    def fed(self) -> dict[str, Any]:
        """Return the arguments of the cell's first prompt, else those of a text; {} if the model takes no text."""
        if self.prompts:
            return next(iter(self.prompts.values()))
        return {} if self.refuses_text() else {"input_ids": self.ids()}

    def ids(self, name: str = "usage", length: int = 2 * HALF) -> torch.Tensor:
        """Return one row of token ids that follow from the name."""
        try:
            return torch.tensor([seeded_ids(name, length, text_config(self.model.config))])
        except DoesNotApply as reason:
            raise NoMeaning(str(reason)) from reason

    def logits(self) -> torch.Tensor:
        """Return the logits of the plain forward over :meth:`ids`, computed once."""
        if self._plain_logits is None:
            with torch.no_grad():
                self._plain_logits = self.model(self.ids()).logits
        return self._plain_logits

    def accepts(self, name: str) -> bool:
        """Return True if forward names such a parameter."""
        return forks.accepts(self.model, name)


def error_text(error: BaseException) -> str:
    """Return type and first line of an exception, paths removed, and its place."""
    first_line = str(error).strip().partition("\n")[0]
    text = without_folders(f"{type(error).__name__}: {first_line}")
    text = text if len(text) <= _MAX_ERROR_LENGTH else f"{text[:_MAX_ERROR_LENGTH]}…"
    return f"{text}{place(error)}"
