"""What does a user do around a model, and what does this release answer.

Attention maps asked for, sequences packed into one row, cache layers looked into, arguments of
generate(), a save, gradient checkpointing: each is done once on the model as it was loaded, and
what came of it is noted. All of it happens in a process of its own (probe_apart). What comes back
has the form of samebits/usage.py's UsageSignal.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import probe_apart
import probe_usage_forward as forward
import probe_usage_generate as generate
import probe_usage_save as save
from probe_usage_subject import NoMeaning, Subject, said

if TYPE_CHECKING:
    from collections.abc import Callable

    import probe_load

Facts = dict[str, Any]
MOST_BYTES = 1 << 30
"""Bytes of parameters above which nothing is tried: some thirty forwards, and a save."""


class Question(NamedTuple):
    """One thing that a user does."""

    name: str
    ask: Callable[[Subject], Facts]
    of_text: bool
    """True if it has a meaning for causal language models alone."""


QUESTIONS = (
    Question("attentions", forward.attentions, of_text=True),
    Question("packed", forward.packed, of_text=True),
    Question("cache", forward.cache, of_text=True),
    Question("cache_position", forward.cache_position, of_text=True),
    Question("position_ids", generate.position_ids, of_text=True),
    Question("assisted", generate.assisted, of_text=True),
    Question("strategies", generate.strategies, of_text=True),
    Question("checkpointing", save.checkpointing, of_text=False),
    Question("saved", save.saved, of_text=False),
)
"""In the order asked: what saving and checkpointing leave on a model is nobody's any more."""


def apart(loaded: probe_load.Loaded, folder: Path, limit: float) -> Facts:
    """Return the usage signal, observed in a forked child within ``limit`` seconds.

    ``folder`` holds the saved model while it lasts.

    Raises:
        NoAnswer: no child can be made, or it raised, died or took too long.

    """
    size = sum(p.numel() * p.element_size() for p in loaded.model.parameters())
    if size > MOST_BYTES:
        msg = f"a model of {size / 2**30:.1f} GiB would take too long"
        raise probe_apart.NoAnswer(msg)
    if reason := probe_apart.refusal(str(loaded.model.device)):
        raise probe_apart.NoAnswer(reason)
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".usage-", dir=folder) as saved:
        found: Facts = probe_apart.apart(lambda: usage(loaded, Path(saved), limit / 2), limit)
    return found


def usage(loaded: probe_load.Loaded, folder: Path, limit: float) -> Facts:
    """Return the usage signal; what would begin after ``limit`` seconds is left out, and said."""
    started = time.perf_counter()
    subject = Subject(loaded.model, loaded.head, folder)
    no_text = subject.refuses_text()
    facts: Facts = {"skips": {}}
    for question in QUESTIONS:
        reason = no_text if question.of_text else ""
        if time.perf_counter() - started > limit:
            reason = f"no time was left after {limit:g} s"
        if not reason:
            reason = _asked(question, subject, facts)
        if reason:
            facts["skips"][question.name] = reason
    return facts | {"seconds": round(time.perf_counter() - started, 4)}


def _asked(question: Question, subject: Subject, facts: Facts) -> str:
    """Ask one question and note the answer; return why there is none, or ''."""
    # nothing here is on a device, and torch.manual_seed() formats a stack trace for each kind
    torch.default_generator.manual_seed(0)
    try:
        with torch.no_grad():
            facts[question.name] = question.ask(subject)
    except NoMeaning as reason:
        return str(reason)
    except Exception as error:  # noqa: BLE001  our instrument failed, not the model
        return said(error)
    return ""
