"""cases.yaml: published regressions, and the pairs of releases in which nothing may be accused."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bench.place import ROOT

PATH = Path(__file__).parent / "cases.yaml"
Area = Literal[
    "loading",
    "configs",
    "rope",
    "attention and masks",
    "caches",
    "experts",
    "state spaces",
    "tokenizers",
    "processors",
    "chat templates",
    "generation",
    "training",
    "imports and custom code",
    "saving",
]
SWITCHES = ("relations", "save_load", "usage", "training", "changes")
"""What is asked of a model only if its case says so."""
PASSING = frozenset({"reference", "identical", "rounding", "absent", "expected", "fixed"})
"""Verdicts that let a run pass."""


class Form(BaseModel):
    """A part of cases.yaml; a key that it does not know is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Sign(Form):
    """What a run shows of a regression if it finds it."""

    signals: tuple[str, ...] = ()
    """It is found if one of them differs in a cell with a verdict that fails the run."""
    verdict: Literal["", "rounding"] = ""
    """The verdict with which a signal differs where the change is one of rounding; '': one that fails the run."""
    findings: tuple[str, ...] = ()
    """It is found, and named, if the cell has one of them."""
    evidence: str = ""
    """A finding counts only if its evidence contains this."""
    failure: str = ""
    """It is found if the cell fails with an exception of which type or message contain this."""
    source: tuple[str, ...] = ()
    """It is named if the cause or the traceback has one of these: functions, or files of the release."""

    @model_validator(mode="after")
    def _says_something(self) -> Sign:
        if not (self.signals or self.findings or self.failure):
            raise ValueError("one of signals, findings and failure says what is expected")
        if not (self.findings or self.source):
            raise ValueError("one of findings and source says what the run is to name")
        return self


class ModelCase(Form):
    """A model of which some releases are to show what a sign says, and others are not."""

    good: Annotated[tuple[str, ...], Field(min_length=1)]
    """Releases without it; the first one is the reference."""
    bad: Annotated[tuple[str, ...], Field(min_length=1)]
    """Releases with it."""
    expect: Sign
    model: dict[str, Any]
    """The model as an entry of matrix.yaml; paths are relative to the repository."""

    @property
    def releases(self) -> tuple[str, ...]:
        """All of its releases, oldest first."""
        return tuple(sorted({*self.good, *self.bad}, key=Version))

    @property
    def trains(self) -> bool:
        """Whether training is asked for without a word in its model."""
        return False


class Case(ModelCase):
    """One published regression."""

    link: Annotated[str, Field(pattern=r"^https://")]
    """The page that describes it."""
    symptom: str
    """What its reporters saw, in one line."""
    area: Area
    held_out: bool = False
    """Whether neither zoo.yaml nor a test had this regression when it entered the file."""
    neighbours: bool = False
    """Whether the last bad release and the first good one have no release between them."""

    @property
    def trains(self) -> bool:
        """Whether it is about training."""
        return self.area == "training"


class Pair(Form):
    """Two releases in which most models execute the same code."""

    reference: str
    candidate: str


class Cases(Form):
    """The content of cases.yaml."""

    version: Literal[1]
    models: dict[str, Any] = Field(default_factory=dict)
    """Entries that cases refer to by YAML anchors; nothing reads them here."""
    together: tuple[tuple[str, ...], ...] = ()
    """Releases of which one run has all: a case whose releases are among them joins that run."""
    clean: tuple[Pair, ...] = ()
    cases: dict[str, Case]


class Group(NamedTuple):
    """Cases that one run of samebits covers."""

    releases: tuple[str, ...]
    reference: str
    cases: Mapping[str, ModelCase]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{'_'.join(self.releases)}-from-{self.reference}"

    def rows(self) -> dict[str, str]:
        """Return the model that each case looks at: cases of equal models share one."""
        first: dict[str, str] = {}
        return {
            name: first.setdefault(json.dumps([case.model, case.trains], sort_keys=True), name)
            for name, case in self.cases.items()
        }

    def matrix(self, folder: Path) -> dict[str, Any]:
        """Return the matrix of its run, with paths as seen from ``folder``."""
        releases: defaultdict[str, set[str]] = defaultdict(set)
        for name, model in self.rows().items():
            releases[model] |= {*self.cases[name].releases}
        models = {
            name: {"training": self.cases[name].trains, **_model(self.cases[name].model, folder)}
            for name in releases
        }
        unused = [
            {"model": [name], "environment": sorted({*self.releases} - used)}
            for name, used in releases.items()
            if {*self.releases} - used
        ]
        return {
            "version": 1,
            "environments": [{"id": release, "transformers": release} for release in self.releases],
            "reference": self.reference,
            "defaults": dict.fromkeys(SWITCHES, False),
            "models": models,
            "exclude": unused,
        }


def read(path: Path = PATH) -> Cases:
    """Return the cases of a file."""
    return Cases.model_validate(yaml.safe_load(path.read_text("utf-8")))


def groups(
    cases: Mapping[str, ModelCase], together: tuple[tuple[str, ...], ...] = ()
) -> list[Group]:
    """Return the runs that cover all cases, each with as few releases as its cases need."""
    members: defaultdict[tuple[tuple[str, ...], str], dict[str, ModelCase]] = defaultdict(dict)
    for name, case in cases.items():
        members[_run(case, together), case.good[0]][name] = case
    result = []
    for (_, reference), group in members.items():
        releases = {release for case in group.values() for release in case.releases}
        result.append(Group(tuple(sorted(releases, key=Version)), reference, group))
    return result


def _run(case: ModelCase, together: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    for releases in together:
        if {*case.releases} <= {*releases}:
            return releases
    return case.releases


def _model(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return an entry of matrix.yaml whose paths begin at ``folder``; ``zoo: NAME`` is one of zoo.yaml."""
    moved = dict(entry)
    if "zoo" in moved:
        moved = {**_of_zoo(moved.pop("zoo")), **moved}
    if "path" in moved:
        moved["path"] = _from(folder, moved["path"])
    if "patch" in moved:
        moved["patch"] = [_from(folder, path) for path in moved["patch"]]
    return moved


def _from(folder: Path, path: str) -> str:
    return os.path.relpath(ROOT / path, folder)


@cache
def zoo() -> dict[str, dict[str, Any]]:
    """Return the models of zoo.yaml."""
    models: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "zoo.yaml").read_text("utf-8"))[
        "models"
    ]
    return models


def _of_zoo(name: str) -> dict[str, Any]:
    """Return the recipe of a model of zoo.yaml, with the settings of this matrix."""
    settings = {"dtypes", "attention", "samples", "group", *SWITCHES}
    return {key: value for key, value in zoo()[name].items() if key not in settings}
