"""Questions beside the verdict: their names, what they leave, and their switches in matrix.yaml.

Each question is a folder of samebits/questions/, whose records.py makes one :class:`Key`. Captures, rows
and matrix.yaml are read by packages that know no question; they look up what they need here by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, Self, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, SerializeAsAny

from samebits.records.record import Record, marked

if TYPE_CHECKING:
    from pydantic_core import core_schema

    from samebits.records.capture import Capture
    from samebits.records.kinds import Kind
    from samebits.records.report import Row

_KEYS: dict[str, Key[Any, Any]] = {}


class Answer(Record):
    """What a question leaves of one cell, or what a report says of one row."""

    def tried(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield what was tried in a cell, with its exception, '' where it answered.

        ``name`` is that of the question. What the record marks as an exception was tried.
        """
        yield from marked(self, name)

    def tried_on(self, stack: str, name: str) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        """Yield what jobs tried on a stack of the row, as :meth:`tried`."""
        yield from ()

    def of_stack(self, stack: str) -> object:
        """Return what it says of one stack: what a finding about releases is seen in; None: nothing.

        It is looked up in its ``stacks``, if it has them.
        """
        return getattr(self, "stacks", {}).get(stack)

    def trimmed(self) -> Self:
        """Return what a report keeps of the answer of a cell."""
        return self

    def facts(self) -> dict[str, Any]:
        """Return what findings may depend on, as JSON: all but times."""
        return self.model_dump(mode="json", exclude={"seconds"})


class NoAnswer(Answer):
    """The form of what a question does not leave."""


C = TypeVar("C", bound=Answer)
R = TypeVar("R", bound=Answer)
V = TypeVar("V")


class StacksOfRow(Answer, Generic[C]):
    """The answers of a row's cells."""

    stacks: dict[str, C] = Field(default_factory=dict)
    """Environment -> the answer of its cell, as far as a report keeps it."""


class Differences(Record, Generic[V]):
    """The answer in one environment, compared with another's."""

    model_config = ConfigDict(json_schema_extra={"description": __doc__})

    reference: str
    differences: tuple[V, ...] = ()


class ComparedOfRow(StacksOfRow[C], Generic[C, V]):
    """The answers of a row's cells, and what differs."""

    compared: dict[str, Differences[V]] = Field(default_factory=dict)
    """Environment -> what differs from the reference, or from the oldest one; not for that one itself."""


@dataclass(frozen=True)
class Key(Generic[C, R]):
    """The name of a question, and the records of its answers."""

    name: str
    of_cell: type[C]
    """What a phase of it leaves in the capture of a cell; :class:`NoAnswer` without a phase."""
    of_row: type[R]
    """What a report says of the cells of a row."""
    switch: str = ""
    """Description of its key in matrix.yaml, which switches it off; '' if it has none."""
    word: str = ""
    """Its key in matrix.yaml, if that is not its name."""
    hint: str = ""
    """The same as a few words for the matrix.yaml that ``samebits init`` writes."""
    always: bool = False
    """Whether it is asked at every level, ``--quick`` included."""
    of_pairs: bool = False
    """Whether it runs for each pair of stacks, so that runs over many releases leave it out."""
    of_release: bool = False
    """Whether what it tries shows the release, whatever the model."""
    of_model: tuple[str, ...] = ()
    """Fields of its answer in a cell that show the model all the same."""
    sees_images: bool = False
    """Whether it needs the packages by which users of images load processors."""
    kinds: tuple[Kind, ...] = ()
    """The kinds of its jobs."""

    def __post_init__(self) -> None:
        """Make its answers known to captures, rows and matrix.yaml."""
        _KEYS[self.name] = self

    def in_cell(self, capture: Capture | None) -> C | None:
        """Return its answer in a capture; None if it has none, or without a capture."""
        answer = None if capture is None else capture.signals.answers.get(self.name)
        assert answer is None or isinstance(answer, self.of_cell)
        return answer

    def in_row(self, answers: Mapping[str, Answer]) -> R | None:
        """Return its answer among those of a row; None if it has none."""
        answer = answers.get(self.name)
        assert answer is None or isinstance(answer, self.of_row)
        return answer

    def on_both(self, reference: Capture | None, candidate: Capture) -> tuple[C, C] | None:
        """Return its answers in two captures; None if one has none."""
        before, after = self.in_cell(reference), self.in_cell(candidate)
        return (before, after) if before is not None and after is not None else None

    def of_both(
        self, reference: Capture | None, candidate: Capture, compare: Callable[[C, C], Iterable[V]]
    ) -> Iterable[V]:
        """Return what ``compare`` says of its answers in two captures; nothing if one has none."""
        pair = self.on_both(reference, candidate)
        return compare(*pair) if pair is not None else ()

    def by_stack(self, captures: Mapping[str, Capture]) -> dict[str, C]:
        """Return stack -> its answer in the capture of a cell, for the stacks that have one."""
        answers = {stack: self.in_cell(capture) for stack, capture in captures.items()}
        return {stack: answer for stack, answer in answers.items() if answer is not None}

    def kept(
        self, compare: Callable[[str, C, C], object] | None = None
    ) -> Callable[[Mapping[str, Capture], str], R | None]:
        """Return what makes its answer of a row: of the captures of its cells, and the reference's stack.

        The answer has the ``stacks``, and with ``compare``, as of :func:`compared`, what is ``compared``.
        """

        def of_captures(captures: Mapping[str, Capture], reference: str) -> R | None:
            answers = self.by_stack(captures)
            if not answers:
                return None
            row: dict[str, Any] = {"stacks": {s: a.trimmed() for s, a in answers.items()}}
            if compare is not None:
                row["compared"] = compared(reference, answers, compare)
            return self.of_row.model_validate(row)

        return of_captures

    def by_model(self, rows: Iterable[Row]) -> dict[str, R]:
        """Return model -> its answer in the model's first row that has one."""
        models: dict[str, R] = {}
        for row in rows:
            if (answer := self.in_row(row.answers)) is not None:
                models.setdefault(row.model, answer)
        return models


def first_side(reference: str, stacks: Iterable[str]) -> str:
    """Return the stack that others are compared with: the reference, else the first one; '' if there is none."""
    listed = list(stacks)
    return reference if reference in listed else next(iter(listed), "")


def compared(
    reference: str, answers: Mapping[str, C], compare: Callable[[str, C, C], V]
) -> dict[str, V]:
    """Return stack -> what ``compare`` says of it: of the first side's stack, its answer, and this one's."""
    first = first_side(reference, answers)
    return {
        stack: compare(first, answers[first], answer)
        for stack, answer in answers.items()
        if stack != first
    }


def keys() -> tuple[Key[Any, Any], ...]:
    """Return the keys of all questions."""
    return tuple(_KEYS.values())


def arrange(ordered: Iterable[Key[Any, Any]]) -> None:
    """Put keys into this order, whatever the order of the imports that made them known."""
    for key in ordered:
        _KEYS[key.name] = _KEYS.pop(key.name)


def is_question(name: str) -> bool:
    """Return True if a question has this name."""
    return name in _KEYS


def is_of_release(name: str, field: str = "") -> bool:
    """Return True if a question has this name, and what it tries, in a field of its answer, shows the release."""
    return name in _KEYS and _KEYS[name].of_release and field not in _KEYS[name].of_model


def switches() -> dict[str, Key[Any, Any]]:
    """Return the keys that matrix.yaml has for questions, each with the question's own."""
    return {key.word or key.name: key for key in keys() if key.switch}


class _ByName:
    """Validates answers by the records of their questions, and describes them in a schema."""

    def __init__(self, field: str) -> None:
        self._field = field

    def form(self, name: str) -> type[Answer]:
        """Return the record of a question's answer."""
        if name not in _KEYS:
            raise ValueError(f"there is no question {name}")
        form: type[Answer] = getattr(_KEYS[name], self._field)
        return form

    def __call__(self, value: object) -> object:
        """Return answers as records."""
        if not isinstance(value, dict):
            return value
        return {
            name: answer if isinstance(answer, Answer) else self.form(name).model_validate(answer)
            for name, answer in value.items()
        }

    def __get_pydantic_json_schema__(
        self, _schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe the answers of all questions."""
        forms = {name: getattr(key, self._field) for name, key in _KEYS.items()}
        for form in forms.values():
            form.model_rebuild()  # a form that nothing has read or written so far has no schema
        properties = {
            name: handler(form.__pydantic_core_schema__)
            for name, form in forms.items()
            if form is not NoAnswer
        }
        return {"type": "object", "properties": properties, "additionalProperties": False}


def _answers(field: str) -> Any:  # noqa: ANN401  # an annotation
    by_name = _ByName(field)
    return Annotated[dict[str, SerializeAsAny[Answer]], BeforeValidator(by_name), by_name]


if TYPE_CHECKING:
    CellAnswers = dict[str, Answer]
    RowAnswers = dict[str, Answer]
else:
    CellAnswers = _answers("of_cell")
    """Question -> its answer in a capture."""
    RowAnswers = _answers("of_row")
    """Question -> what a report says of a row."""
