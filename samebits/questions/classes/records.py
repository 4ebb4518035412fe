"""What other classes read of a checkpoint in one environment, and two environments compared.

probes/samebits_probe/questions/classes/ writes :class:`ClassesSignal` without this class; it is the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field

from samebits.records.question import Answer, ComparedOfRow, Key
from samebits.records.record import RAISED, Record, marked

Kind = Literal["tensors", "class", "outputs", "head"]
"""tensors: one release reads fewer tensors. class: the candidate loads another class, or none. outputs: the same
tensors are read, and the base model in it computes other bits in one release only. head: the base model computes the
same, and the head on it another output or loss."""

Samples = dict[str, tuple[float, ...]]
"""Name and shape of an output -> evenly spaced values of it, and its norm."""


class ClassLoad(Record):
    """The checkpoint loaded by one class, compared with the load by its own class in the same environment."""

    model_class: str
    """The class that was loaded; with nothing else if it is the checkpoint's own. '' if the Auto class knows none."""
    left_out: str = ""
    """Why it was not loaded: a package is missing."""
    raised: Annotated[str, RAISED] = ""
    n_tensors: int = 0
    """Tensors that the checkpoint's own class has from the files."""
    n_left: int = 0
    """Those of them whose bytes are nowhere in this model."""
    elements: int = 0
    elements_left: int = 0
    left: tuple[str, ...] = ()
    """The first ones, by their names in the checkpoint's own class."""
    n_fresh: int = 0
    """Tensors of this model whose bytes are not from the files."""
    fresh: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()
    """The first tensors of this model that hold the fill of unwritten memory and nothing else."""
    outputs: Literal["same bits", "rounding", "other bits"] | None = None
    """What the base model in it computes, compared with the base model in the checkpoint's own class; None: these
    are of different classes, or a forward raises."""
    not_compared: str = ""
    """The exception of that forward."""
    forward_raised: Annotated[str, RAISED] = ""
    """The exception of the whole model's forward, with labels where it takes them."""
    dtype: Literal["float64", "float32"] | None = None
    """What the numbers are computed in: float32 where a forward in float64 raises; None: there are none."""
    base_numbers: Samples = Field(default_factory=dict)
    """What the base model in it computes, where tensors that no file has are filled by a formula."""
    numbers: Samples = Field(default_factory=dict)
    """What the whole model computes then, its loss included."""


class NewModel(Record):
    """A model of the checkpoint's own class that ``from_config`` makes."""

    asked: str = ""
    """The dtype that is asked for; '' for that of the config."""
    dtypes: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Parameter or buffer, with * in place of the number of a layer -> its dtypes, of which layers may have several."""
    left_out: str = ""
    """Why none was made: a package is missing."""
    raised: Annotated[str, RAISED] = ""


class ClassesSignal(Answer):
    """The classes that were loaded; it does not affect the verdict."""

    loads: dict[str, ClassLoad] = Field(default_factory=dict)
    """What ``from_pretrained`` is called of, such as ``AutoModel`` -> what it reads."""
    from_base: dict[str, ClassLoad] = Field(default_factory=dict)
    """What the checkpoint's own class reads of its base model, which the same release saved alone; {} if it has none."""
    made: dict[str, NewModel] = Field(default_factory=dict)
    """Arguments of ``from_config`` -> what it makes."""

    def tried(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield what was tried, with its exception: an Auto class that knows none for the config loads nothing."""
        yield from marked(self.model_copy(update={"loads": self._known()}), name)

    def trimmed(self) -> Self:
        """Return the classes that there are and the new models, these without their tensors."""
        made = {name: new.model_copy(update={"dtypes": {}}) for name, new in self.made.items()}
        return self.model_copy(update={"loads": self._known(), "made": made})

    def _known(self) -> dict[str, ClassLoad]:
        return {name: load for name, load in self.loads.items() if load.model_class}


class ClassDifference(Record):
    """One class whose load differs."""

    name: str
    kind: Kind
    reference: ClassLoad
    candidate: ClassLoad | None
    """None: the release has no such class for the config."""

    @property
    def of_reference(self) -> bool:
        """True if the reference knows no class, reads fewer tensors, or if its base model computes other bits."""
        reference, candidate = self.reference, self.candidate
        if not reference.model_class:
            return True
        if self.kind == "tensors" and candidate is not None:
            n_read = [load.elements - load.elements_left for load in (reference, candidate)]
            return n_read[0] < n_read[1]
        return self.kind == "outputs" and reference.outputs == "other bits"


class ClassesOfRow(ComparedOfRow[ClassesSignal, ClassDifference]):
    """The classes of a row's cells."""


CLASSES = Key(
    "classes",
    ClassesSignal,
    ClassesOfRow,
    word="other_classes",
    switch="Whether to load the checkpoint with other classes: AutoModel, the other heads, a part alone; and to make new models of its config.",
    hint="do AutoModel, other heads and parts read the same tensors",
)
