"""Things that users do around a model, and the answers of this release.

The questions are attention maps, sequences packed into one row, cache layers, arguments of
generate(), a save, gradient checkpointing, settings of the config, methods that libraries call. Each is tried once on the model as it was loaded, and
the result is recorded. All of it runs in a separate process (process.fork) whose model has not run
any prompt. The result has the form of UsageSignal in samebits/questions/usage/records.py.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from samebits_probe.model import load
from samebits_probe.process import progress
from samebits_probe.questions.usage import (
    attention,
    beams,
    features,
    forward,
    generate,
    loads,
    methods,
    names,
    optional,
    save,
    settings,
    ways,
)
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text

Facts = dict[str, Any]
_MAX_FORWARDS, _MAX_POSITIONS = 16, 16
"""Limits of one question: eight tokens of two strategies, and a dozen tokens of a prompt."""
MAX_BYTES = 1 << 30
"""Bytes of parameters above which no question is tried: about thirty forwards, and a save."""


class Question(NamedTuple):
    """One thing that a user does with a model."""

    name: str
    ask: Callable[[Subject], Facts | list[str]]
    of_text: bool
    """True if it applies only to causal language models."""


QUESTIONS = (
    Question("attentions", forward.attentions, of_text=True),
    Question("packed", forward.packed, of_text=True),
    Question("cache", forward.cache, of_text=True),
    Question("cache_position", forward.cache_position, of_text=True),
    Question("repeated", generate.repeated, of_text=True),
    Question("static", generate.static, of_text=True),
    Question("flex", generate.flex, of_text=True),
    Question("caches", generate.caches, of_text=True),
    Question("position_ids", generate.position_ids, of_text=True),
    Question("assisted", generate.assisted, of_text=True),
    Question("strategies", generate.strategies, of_text=True),
    Question("beams", beams.beams, of_text=True),
    Question("several", beams.several, of_text=False),
    Question("features", features.features, of_text=False),
    Question("optional", optional.optional, of_text=False),
    Question("names", names.names, of_text=False),
    Question("config_names", names.config_names, of_text=False),
    Question("attention", attention.attention, of_text=False),
    Question("settings", settings.settings, of_text=False),
    Question("loads", loads.loads, of_text=False),
    Question("generation", ways.generation, of_text=False),
    Question("checkpointing", save.checkpointing, of_text=False),
    Question("saved", save.saved, of_text=False),
    Question("methods", methods.methods, of_text=False),
)
"""In the order of asking: those that change the model are last."""


def usage(
    loaded: load.Loaded,
    folder: Path,
    limit: float,
    prompts: Mapping[str, Facts] | None = None,
    with_eager: Callable[[], Any] | None = None,
    source: load.Source | None = None,
) -> Facts:
    """Return the usage signal; questions after ``limit`` seconds are skipped and listed as such.

    ``folder`` holds the saved model for the time being. The questions change the model. ``prompts`` are those of
    the cell, if it is the cell's model; ``with_eager`` loads that once more, with eager attention. ``source`` is that
    of the model.
    """
    progress.begin("usage")
    started = time.perf_counter()
    subject = Subject(
        loaded.model, loaded.head, folder, prompts or {}, with_eager, loaded.tokenizer, source
    )
    no_text = subject.refuses_text()
    facts: Facts = {"skips": {}, "raised": {}}
    for i, question in enumerate(QUESTIONS, 1):
        forwards = _MAX_FORWARDS * progress.FACTOR * progress.expected(_MAX_POSITIONS)
        progress.tick(question.name, i, len(QUESTIONS), allowance=forwards)
        reason = no_text if question.of_text else ""
        if time.perf_counter() - started > limit:
            reason = "no time was left: raise budget: in matrix.yaml"
        if not reason:
            reason = _answer(question, subject, facts)
        if reason:
            facts["skips"][question.name] = reason
    return facts | {"seconds": round(time.perf_counter() - started, 4)}


def _answer(question: Question, subject: Subject, facts: Facts) -> str:
    """Ask one question and record the answer; return why there is none, or ''."""
    # all is on the CPU, and torch.manual_seed() formats a stack trace for each kind of device
    torch.default_generator.manual_seed(0)
    # assisted decoding of 4.x writes its arguments into it, and the next question would read them
    config = copy.deepcopy(getattr(subject.model, "generation_config", None))
    try:
        with torch.no_grad():
            facts[question.name] = question.ask(subject)
    except NoMeaning as reason:
        return str(reason)
    except Exception as error:  # noqa: BLE001  another release may answer
        facts["raised"][question.name] = error_text(error)
        return error_text(error)
    else:
        facts["raised"][question.name] = ""
    finally:
        if config is not None:
            subject.model.generation_config = config
    return ""
