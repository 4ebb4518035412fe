"""cases.yaml: items of the migration guide and changes of releases, each with what shows it and a clean twin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, model_validator

from bench.recall.cases import Form, ModelCase

PATH = Path(__file__).parent / "cases.yaml"
OLD, NEW = "4.57.6", "5.23.0"
TWIN = "-clean"
"""What the name of a clean twin ends with."""


class Run(ModelCase):
    """A model that samebits runs in some releases."""

    good: Annotated[tuple[str, ...], Field(min_length=1)] = (OLD,)
    bad: Annotated[tuple[str, ...], Field(min_length=1)] = (NEW,)
    clean: dict[str, Any]
    """The twin, of which no release may show what is expected of the other."""

    def twin(self) -> Run:
        """Return the twin as a case of its own."""
        return self.model_copy(update={"model": self.clean})


class Lint(Form):
    """A script that ``samebits lint`` reads."""

    script: str
    clean: str
    """The script that does the same without what changed."""
    finding: str
    says: str = ""
    """The message of the problem contains this."""
    good: str = OLD
    """A release in which the script is right."""
    bad: str = NEW
    """A release in which it is not."""


class Defaults(Form):
    """A file that ``samebits defaults`` reads, or a class."""

    name: str = "config.json"
    """The name of the file."""
    content: dict[str, Any] = Field(default_factory=dict)
    of: str = ""
    """The class, in place of a file."""
    clean: dict[str, Any] | str
    """What the twin has beside the content, or another class."""
    field: str
    good: str = OLD
    bad: str = NEW


class Item(Form):
    """One item of the guide, or one change of a release."""

    text: str
    where: str
    """The item's number in the guide, or the release."""
    link: str = ""
    run: Run | None = None
    lint: Lint | None = None
    defaults: Defaults | None = None
    unobservable: str = ""
    """Why nothing that runs here can show it."""
    missed: str = ""
    """Why samebits does not show it, though it could be shown."""

    @model_validator(mode="after")
    def _has_one_answer(self) -> Item:
        shown = [part for part in (self.run, self.lint, self.defaults) if part is not None]
        if len(shown) + bool(self.unobservable) + bool(self.missed) != 1:
            msg = "one of run, lint, defaults, unobservable and missed says how the item is asked"
            raise ValueError(msg)
        return self


class Items(Form):
    """The content of cases.yaml."""

    version: int
    models: dict[str, Any] = Field(default_factory=dict)
    """Entries that items refer to by YAML anchors; nothing reads them here."""
    together: tuple[tuple[str, ...], ...] = ()
    """Releases of which one run has all."""
    guide: dict[str, Item]
    releases: dict[str, Item]

    def every(self) -> dict[str, Item]:
        """Return the items of both parts."""
        return {**self.guide, **self.releases}

    def cases(self) -> dict[str, ModelCase]:
        """Return the models to run, each beside its twin."""
        cases: dict[str, ModelCase] = {}
        for name, item in self.every().items():
            if item.run is not None:
                cases |= {name: item.run, name + TWIN: item.run.twin()}
        return cases


def read(path: Path = PATH) -> Items:
    """Return the items of the file."""
    return Items.model_validate(yaml.safe_load(path.read_text("utf-8")))
