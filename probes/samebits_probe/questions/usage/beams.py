"""Whether a beam goes on with its own state, and with its own row's image: beam search by the model's own cache.

Beams are chosen from the logits of a table (usage/table.py), so that they are the same in every
release and always change places. What the model itself computes for each beam in the last step must
then be what it computes for the beam's tokens without a cache. Where a prompt has rows with images or
sounds, generate() has to repeat those for each beam of a row, and not for the next row's.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import LogitsProcessorList

from samebits_probe.model import forks, media_way
from samebits_probe.model.decode import GREEDY
from samebits_probe.model.distance import distance
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text
from samebits_probe.questions.usage.table import Table

Facts = dict[str, Any]
_IDS, _MASK = "input_ids", "attention_mask"
_PROMPT_LENGTH = 8
_STEPS = 6
_BEAMS: Facts = {"do_sample": False, "num_beams": 3}
_SEVERAL: Facts = {"do_sample": False, "num_beams": 2, "num_return_sequences": 2}


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
    """A logits processor that keeps the tokens of every row and counts the rows that moved.

    Tokens that may stand for an image are never chosen: there is no image for them.
    """

    def __init__(self, never: list[int]) -> None:
        self.ids: torch.Tensor | None = None
        self.n_moved = 0
        self._never = never

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores, those of some tokens without a chance."""
        if self.ids is not None:
            self.n_moved += int((ids[:, : self.ids.shape[1]] != self.ids).any(dim=1).sum())
        self.ids = ids.clone()
        never = [token for token in self._never if token < scores.shape[1]]
        return scores.index_fill(1, torch.tensor(never, dtype=torch.long), -torch.inf)


def beams(subject: Subject) -> Facts:
    """Return how far the logits of beams are from those of their tokens without a cache."""
    _require_generates(subject)
    prompt = subject.ids("beams", _PROMPT_LENGTH)
    facts = _searched(subject, {_IDS: prompt, _MASK: torch.ones_like(prompt)}, _BEAMS, never=[])
    if facts.get("n_moved") == 0:
        raise NoMeaning("no beam took the place of another one")
    return facts


def several(subject: Subject) -> Facts:
    """Return the same for each prompt of several rows with images, videos or sounds, with two answers to each row.

    Raises:
        NoMeaning: there is such a prompt, and the class does not generate.

    """
    prompts = {name: fed for name, fed in subject.prompts.items() if _has_more_than_text(fed)}
    if prompts:
        _require_generates(subject)
    never = media_way.reserved(subject.model.config)
    return {
        name: _searched(subject, fed, _SEVERAL, never=[*never, *fed[_IDS].unique().tolist()])
        for name, fed in prompts.items()
    }


def _has_more_than_text(fed: Facts) -> bool:
    ids = fed.get(_IDS)
    tensors = [value for value in fed.values() if torch.is_tensor(value)]
    is_of_decoder = any(name.startswith("decoder_") for name in fed)
    return (
        ids is not None
        and len(ids) > 1
        and not is_of_decoder
        and any(t.is_floating_point() and len(t) % len(ids) == 0 for t in tensors)
    )


def _require_generates(subject: Subject) -> None:
    if not getattr(subject.model, "can_generate", lambda: False)():
        raise NoMeaning(f"{type(subject.model).__name__} does not generate")


def _searched(subject: Subject, fed: Facts, arguments: Facts, never: list[int]) -> Facts:
    try:
        greedy, _ = _run(subject, fed, GREEDY, never)
        searched, n_moved = _run(subject, fed, arguments, never)
    except NoMeaning:
        raise
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"refused": error_text(error)}
    return {"n_moved": n_moved, "greedy": greedy["by_cache"], **searched}


def _run(subject: Subject, fed: Facts, arguments: Facts, never: list[int]) -> tuple[Facts, int]:
    table, rows = _Watched(by_step=True), _Rows(never)
    copies = {n: value.clone() if torch.is_tensor(value) else value for n, value in fed.items()}
    with subject.model.register_forward_hook(table, with_kwargs=True):
        subject.model.generate(
            **copies,
            max_new_tokens=_STEPS,
            eos_token_id=None,
            pad_token_id=0,
            logits_processor=LogitsProcessorList([rows]),
            **arguments,
        )
    if table.own is None or rows.ids is None:
        raise NoMeaning("generate() does not call the model's own forward")
    full = subject.model(**_repeated(fed, rows.ids), **forks.uncached(subject.model)).logits[:, -1]
    facts = {"by_cache": distance(full, table.own)["max_abs"]}
    if len(full) > 1:
        facts["of_others"] = distance(full, full.roll(1, dims=0))["max_abs"]
    return facts, rows.n_moved


def _repeated(fed: Facts, ids: torch.Tensor) -> Facts:
    """Return the arguments of forward for the tokens of all beams, [rows x beams, tokens].

    What belongs to a row is repeated for each of its beams. A new token is as the last one of the prompt: text, and
    behind all images.
    """
    n_rows, width = fed[_IDS].shape
    times, n_new = len(ids) // n_rows, ids.shape[1] - width
    repeated = {}
    for name, value in fed.items():
        if torch.is_tensor(value) and name != _IDS:
            own = value.reshape(n_rows, -1, *value.shape[1:]).repeat_interleave(times, dim=0)
            own = own.flatten(0, 1)
            if own.dim() > 1 and own.shape[1] == width and not own.is_floating_point():
                own = torch.cat([own, *[own[:, -1:]] * n_new], dim=1)
            repeated[name] = own
        elif name != _IDS:
            repeated[name] = value
    if _MASK in fed and bool(fed[_MASK].all()):
        del repeated[_MASK]
    return {_IDS: ids, **repeated}
