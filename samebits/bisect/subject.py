"""What the commits are of: transformers itself, or a package of the user's beside one release of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name

from samebits.base.errors import StackError
from samebits.bisect.history import End, HistoryError
from samebits.bisect.suspects import Place, Ran
from samebits.check.releases import NEWEST
from samebits.matrix.spec import StackSpec
from samebits.stacks import package_source
from samebits.stacks.build import Stack, transformers_folder
from samebits.stacks.source import FOLDER, PACKAGE
from samebits_wire.places import BESIDE


class Subject(NamedTuple):
    """How a commit is tried, and which files it may change."""

    name: str
    place: Place
    spec: Callable[[str, bool], StackSpec]
    """Returns the environment of a commit or of a release; with True that of the release it descends from."""
    ran: Callable[[Stack, Mapping[str, set[int]]], Ran]
    """Returns what ran of it, of all functions that a model entered."""
    packages: tuple[str, ...] = ()
    """What is installed beside it."""
    notes: tuple[str, ...] = ()


def of_transformers(
    repo: Path, ends: tuple[End, End], template: StackSpec, base: str | None
) -> Subject:
    """Return transformers as the subject; ``base`` is the release in whose environment commits run."""
    releases = [end.release for end in ends]
    base = base or ends[1].release or None

    @cache
    def spec(name: str, own: bool) -> StackSpec:
        is_release = name in releases
        return _spec(
            template,
            name,
            transformers=name if is_release else f"{repo}@{name}",
            base=None if own or is_release else base,
        )

    def ran(stack: Stack, entered: Mapping[str, set[int]]) -> Ran:
        return Ran(transformers_folder(stack), entered)

    return Subject(PACKAGE, partial(_below, f"{FOLDER}/"), spec, ran)


def of_package(repo: Path, ends: tuple[End, End], template: StackSpec, base: str | None) -> Subject:
    """Return a user's package as the subject, beside one release of transformers, the ``base``.

    Raises:
        HistoryError: an end has no modules, or some that have to be compiled.

    """
    try:
        first, last = (package_source.read(repo, end.sha) for end in ends)
    except StackError as error:
        raise HistoryError(str(error)) from error
    if last.name == PACKAGE:
        raise HistoryError(f"{repo.name} is a clone of transformers: name it with --repo")

    @cache
    def spec(name: str, _own: bool) -> StackSpec:
        return _spec(template, name, transformers=base or NEWEST, commit=f"{repo}@{name}")

    def place(path: str) -> str:
        return last.layout.place(path) or first.layout.place(path)

    def ran(stack: Stack, entered: Mapping[str, set[int]]) -> Ran:
        own = {f.removeprefix(BESIDE): n for f, n in entered.items() if f.startswith(BESIDE)}
        return Ran(Path(stack.commit or ""), own, package="")

    packages, notes = _needed(last)
    return Subject(last.name, place, spec, ran, packages, notes)


def _spec(template: StackSpec, name: str, **fields: Any) -> StackSpec:  # noqa: ANN401
    given = {"torch": template.torch, "python": template.python, "packages": template.packages}
    fields = {"id": name[:10], **given, **fields}
    return StackSpec(**{key: value for key, value in fields.items() if value})


def _below(folder: str, path: str) -> str:
    return path.removeprefix(folder) if path.startswith(folder) else ""


def _needed(package: package_source.Package) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a package needs beside an environment, and what is to be known of it."""
    if package.requires is None:
        note = (
            f"what {package.name} needs is not in its pyproject.toml, and nothing was installed for it: "
            "name what is missing with --package"
        )
        return (), (note,)
    installed = {"torch", PACKAGE, package.name}
    others = (r for r in package.requires if canonicalize_name(r.name) not in installed)
    return tuple(str(r) for r in others if r.url is None), ()
