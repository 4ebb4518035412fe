"""Whether a beam goes on with its own state: beam search by the model's own cache.

Beams are chosen from the logits of a table (usage/table.py), so that they are the same in every
release and always change places. What the model itself computes for each beam in the last step must
then be what it computes for the beam's tokens without a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import LogitsProcessorList

from samebits_probe.model import forks
from samebits_probe.model.decode import GREEDY
from samebits_probe.model.distance import distance
from samebits_probe.questions.usage.subject import NoMeaning, error_text
from samebits_probe.questions.usage.table import Table

if TYPE_CHECKING:
    from samebits_probe.questions.usage.subject import Subject

Facts = dict[str, Any]
_PROMPT_LENGTH = 8
_STEPS = 6
_BEAMS: Facts = {"do_sample": False, "num_beams": 3}


class _Watched(Table):
    """A table of logits that keeps the model's own logits of the last token."""

    own: torch.Tensor | None = None
    """Logits of the last forward, [rows, vocabulary]."""

    def __call__(self, module: Any, args: Any, kwargs: Facts, output: Any) -> Any:
        """Keep the logits and replace them."""
        logits = getattr(output, "logits", None)
        self.own = None if logits is None else logits[:, -1].detach().clone()
        return super().__call__(module, args, kwargs, output)


class _Rows:
    """A logits processor that keeps the tokens of every row and counts the rows that moved."""

    def __init__(self) -> None:
        self.ids: torch.Tensor | None = None
        self.n_moved = 0

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores as they are."""
        if self.ids is not None:
            before = ids[:, : self.ids.shape[1]]
            self.n_moved += int((before != self.ids).any(dim=1).sum())
        self.ids = ids.clone()
        return scores


def beams(subject: Subject) -> Facts:
    """Return how far the logits of beams are from those of their tokens without a cache.

    Raises:
        NoMeaning: the class does not generate, or the beams did not change places.

    """
    if not getattr(subject.model, "can_generate", lambda: False)():
        msg = f"{type(subject.model).__name__} does not generate"
        raise NoMeaning(msg)
    try:
        greedy, _ = _run(subject, GREEDY)
        searched, n_moved = _run(subject, _BEAMS)
    except NoMeaning:
        raise
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"refused": error_text(error)}
    if not n_moved:
        msg = "no beam took the place of another one"
        raise NoMeaning(msg)
    return {"n_moved": n_moved, "greedy": greedy["by_cache"], **searched}


def _run(subject: Subject, arguments: Facts) -> tuple[Facts, int]:
    """Return distances of the last step's logits, and how many rows moved before it."""
    table, rows = _Watched(by_step=True), _Rows()
    prompt = subject.ids("beams", _PROMPT_LENGTH)
    handle = subject.model.register_forward_hook(table, with_kwargs=True)
    try:
        subject.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=_STEPS,
            eos_token_id=None,
            pad_token_id=0,
            logits_processor=LogitsProcessorList([rows]),
            **arguments,
        )
    finally:
        handle.remove()
    assert table.own is not None
    assert rows.ids is not None
    options = {"use_cache": False} if forks.accepts(subject.model, "use_cache") else {}
    full = subject.model(rows.ids, **options).logits[:, -1]
    facts = {"by_cache": distance(full, table.own)["max_abs"]}
    if len(full) > 1:
        facts["of_others"] = distance(full, full.roll(1, dims=0))["max_abs"]
    return facts, rows.n_moved
