"""What a question found to differ, as tables: one line for each thing, one column for each environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from samebits.findings.rule import Rule
from samebits.questions.question import ModelSection, Question, Section, in_first_variant
from samebits.records.question import Answer, Key
from samebits.records.record import Record
from samebits.records.report import Report, Row
from samebits.text.blocks import below, codes, heading, page, table
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, code, fill, prose
from samebits.text.numbers import plural

NOT_OBSERVED = "\N{EN DASH}"

_OF_MODEL = 50
"""How far behind its place in findings.md a section stands on the page of a model."""
_MAX_MODELS = 6
Line = tuple[Markdown, ...]
"""A thing, and what it is in each environment."""


def line_of(name: str, answers: Iterable[str]) -> Line:
    """Return a line of answers as code, and of a dash where nothing was observed."""
    return (prose(name), *(code(a) if a != NOT_OBSERVED else prose(a) for a in answers))


def differing_lines(lines: Iterable[list[str]]) -> list[Line]:
    """Return the lines in which two environments have other answers; a line begins with its name."""
    return [
        line_of(name, answers) for name, *answers in lines if len(set(answers) - {NOT_OBSERVED}) > 1
    ]


def fact_lines(facts: Mapping[str, Mapping[str, str]], stacks: Iterable[str]) -> list[list[str]]:
    """Return the name of each fact and what it is on the stacks, from stack -> fact -> value."""
    names = dict.fromkeys(name for of_stack in facts.values() for name in of_stack)
    stacks = list(stacks)
    return [[n, *(facts.get(s, {}).get(n, NOT_OBSERVED) for s in stacks)] for n in names]


def first_lines(headers: Sequence[str], lines: Sequence[Sequence[str]], limit: int) -> Markdown:
    """Return a table of the first lines, and how many more are in report.json."""
    more = len(lines) - limit
    rest = prose(f"{plural(more, 'more line')} in report.json.") if more > 0 else EMPTY
    return page([table(headers, lines[:limit]), rest])


def once_for_models(models: Mapping[str, Iterable[Line]]) -> list[Line]:
    """Return each line of some models once, with the models that have it."""
    pairs = ((model, line) for model, lines in models.items() for line in lines)
    return [
        (*line, codes([model for model, _ in group], _MAX_MODELS))
        for line, group in grouped(pairs, lambda pair: pair[1]).items()
    ]


class Differing(NamedTuple):
    """A question whose rows have ``stacks``, and in ``compared`` the ``differences`` of each, and its sections."""

    title: str
    thing: str
    """What a line is about, as the head of its column."""
    intro: str
    """The sentence on the page of all models; ``{}`` is the number of models."""
    key: Key[Any, Any]
    name: Callable[[Any], str]
    """Returns the thing that a difference is about."""
    in_words: Callable[[Any, str], str]
    """Returns what a thing is, from what a cell has left and its name."""

    def question(
        self,
        differences: Callable[[Any, Any], Iterable[Record]],
        rules: tuple[Rule, ...],
        order: int,
    ) -> Question:
        """Return the question, asked by its phase in the first variant; ``order`` is that of its sections."""

        def report(first: str, reference: Answer, candidate: Answer) -> dict[str, object]:
            return {"reference": first, "differences": tuple(differences(reference, candidate))}

        return Question(
            key=self.key,
            options=in_first_variant,
            of_captures=self.key.kept(report),
            rules=rules,
            sections=(Section("findings.md", order, self.of_run),),
            of_model=(ModelSection(_OF_MODEL + order, self.of_model),),
            has_details=self.has_details,
        )

    def of_run(self, report: Report) -> Markdown:
        """Return what differs, once for all models in which it is the same; empty if nothing does."""
        stacks = [stack.id for stack in report.stacks]
        models = self.key.by_model(report.rows)
        rows = once_for_models({model: self._lines(row, stacks) for model, row in models.items()})
        if not rows:
            return EMPTY
        intro = fill(self.intro, plural(len(models), "model"))
        return page([heading(2, self.title), intro, table([self.thing, *stacks, "models"], rows)])

    def of_model(self, rows: list[Row], report: Report) -> Markdown:
        """Return what differs in one model; empty if nothing does."""
        row = next(iter(self.key.by_model(rows).values()), None)
        stacks = [stack.id for stack in report.stacks if row is not None and stack.id in row.stacks]
        lines = self._lines(row, stacks) if row is not None else []
        return below(heading(2, self.title), table([self.thing, *stacks], lines))

    def has_details(self, rows: Iterable[Row], _report: Report) -> bool:
        """Return True if something differs."""
        models = self.key.by_model(rows).values()
        return any(compared.differences for row in models for compared in row.compared.values())

    def _lines(self, row: Any, stacks: list[str]) -> list[Line]:  # noqa: ANN401  each question has its own record
        names = {
            self.name(each) for compared in row.compared.values() for each in compared.differences
        }
        return [
            (code(name), *(prose(self._words(row.stacks.get(stack), name)) for stack in stacks))
            for name in sorted(names)
        ]

    def _words(self, signal: Any, name: str) -> str:  # noqa: ANN401  each question has its own record
        return "" if signal is None else self.in_words(signal, name)
