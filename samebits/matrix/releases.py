"""Which releases lie between the oldest and the newest stack, and what if each were a stack?

Where bits move between two stacks of a matrix, many releases lie in between, and what breaks may be
right again in the next one. So all of them are run, and none is guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from packaging.version import Version

from samebits.matrix.spec import StackSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.matrix.spec import Matrix


class Releases(Protocol):
    """Someone who knows what can be installed."""

    def version(self, spec: StackSpec) -> str:
        """Return the release of transformers that a stack resolves to."""

    def below(self, spec: StackSpec, version: str, oldest: str) -> str:
        """Return the newest release below ``version``, from ``oldest`` on, that fits a stack."""


def widened(matrix: Matrix, releases: Releases) -> Matrix:
    """Return the matrix with the newest patch of every minor release between its stacks as a stack.

    What a stack of the matrix stands for is not added again. Those that are have the newest stack's
    torch and Python, make no checkpoint of a recipe, and are not crossed with each other: a save and
    a load of each pair grow with the square of the stacks.

    Raises:
        StackError: a stack cannot be resolved.

    """
    known = {spec.id: Version(releases.version(spec)) for spec in matrix.stacks}
    newest = max(matrix.stacks, key=lambda spec: known[spec.id])
    between = list(_between(newest, known.values(), releases))
    added = [_spec(newest, version, known) for version in between]
    known |= {spec.id: version for spec, version in zip(added, between, strict=True)}
    stacks = sorted((*matrix.stacks, *added), key=lambda spec: known[spec.id])
    models = (model.model_copy(update={"crossings": False}) for model in matrix.models)
    return matrix.model_copy(update={"stacks": tuple(stacks), "models": tuple(models)})


def _between(newest: StackSpec, known: Iterable[Version], releases: Releases) -> Iterable[Version]:
    """Yield the newest patch of every minor release that no stack stands for, newest first."""
    taken = set(known)
    minors = {_minor(version) for version in taken}
    oldest, at = min(taken), max(taken)
    while _minor(at) != _minor(oldest):
        at = Version(releases.below(newest, _minor(at), str(oldest)))
        if _minor(at) not in minors:
            yield at


def _minor(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def _spec(like: StackSpec, version: Version, known: Iterable[str]) -> StackSpec:
    """Return the stack of a release: the minor version, unless a stack of the matrix is named so."""
    minor = _minor(version)
    name = minor if minor not in known else f"transformers-{version}"
    return StackSpec(
        id=name, transformers=minor, torch=like.torch, python=like.python, between=True
    )
