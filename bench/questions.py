"""The questions of the default level: what each costs, and what a run without it cannot say."""

from __future__ import annotations

from typing import Any, NamedTuple


class Question(NamedTuple):
    """A part of the default level, and what a run without it cannot say."""

    name: str
    phases: frozenset[str]
    """Phases of cells that belong to it."""
    jobs: frozenset[str]
    """Kinds of jobs that belong to it."""
    without: str
    loses: str


QUESTIONS = (
    Question(
        "relations inside a release",
        frozenset({"relations"}),
        frozenset(),
        "`relations: false`",
        "that a cache, a padding, a batch or a different attention changes the results of one release",
    ),
    Question(
        "training step and Trainer",
        frozenset(),
        frozenset({"training.step", "training.trace", "training.graft", "trainer.run"}),
        "`training: false`",
        "that a loss, a gradient or a default of Trainer changes",
    ),
    Question(
        "API checks",
        frozenset({"usage"}),
        frozenset(),
        "`usage: false`",
        "that generate(), beams, logits processors or saved options change while the model does not",
    ),
    Question(
        "save/load",
        frozenset(),
        frozenset({"crossings.save", "crossings.load"}),
        "`save_load: false`",
        "that a release reads differently what another release saved",
    ),
    Question(
        "programs of the model",
        frozenset({"exports"}),
        frozenset(),
        "`exports: false`",
        "that torch.export or torch.jit.trace refuses the model, or that its program computes other numbers",
    ),
    Question(
        "tokenizers",
        frozenset({"texts"}),
        frozenset(),
        "no switch",
        "that the ids of a text, a chat template or a decoded text change",
    ),
    Question(
        "edits",
        frozenset({"edits"}),
        frozenset(),
        "`edits: false`",
        "that a model with another vocabulary, other labels, another dtype, or a copy of it is another one",
    ),
    Question(
        "arguments",
        frozenset({"arguments"}),
        frozenset(),
        "`arguments: false`",
        "that an argument of forward or generate() loses its effect",
    ),
    Question(
        "first weights",
        frozenset({"initial"}),
        frozenset(),
        "`first_weights: false`",
        "that new models start with other weights",
    ),
    Question(
        "other classes",
        frozenset({"classes"}),
        frozenset(),
        "`other_classes: false`",
        "that AutoModel, another head or a part reads something else of the checkpoint",
    ),
    Question(
        "processors",
        frozenset({"processors"}),
        frozenset(),
        "no switch",
        "that the model gets other numbers for an image, a sound or a video",
    ),
    Question(
        "pipelines",
        frozenset({"pipelines"}),
        frozenset(),
        "`pipelines: false`",
        "that pipeline() answers something else while the model does not",
    ),
    Question(
        "float64 check",
        frozenset(),
        frozenset({"ladder"}),
        "no switch",
        "whether a difference is rounding: without it there is no verdict",
    ),
    Question(
        "greedy decoding",
        frozenset({"greedy", "first token"}),
        frozenset(),
        "`greedy: 0`",
        "that prefill and decode differ, and that tokens change",
    ),
    Question(
        "a second run over other memory",
        frozenset(),
        frozenset({"cell b"}),
        "no switch",
        "that a cell reads uninitialised memory, or draws numbers",
    ),
)


def costs(whole: dict[str, Any]) -> list[tuple[Question, float]]:
    """Return the questions that a run asked, each with its seconds, the most expensive first.

    The time of a phase of cells is by the clock, that of a job is CPU time.
    """
    jobs = {spent["kind"]: spent["cpu"] for spent in whole["spent"]}
    seconds = [
        (
            question,
            sum(whole["phases"].get(name, 0.0) for name in question.phases)
            + sum(jobs.get(kind, 0.0) for kind in question.jobs),
        )
        for question in QUESTIONS
    ]
    return sorted((item for item in seconds if item[1]), key=lambda item: -item[1])
