"""Additional stacks for the releases between the stacks of a matrix (``--releases``).

Where bits change between two stacks of a matrix, there are many releases in between, and a release
may repair what an earlier one broke. So every release is run instead of a bisection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from packaging.version import Version

from samebits.matrix.spec import StackSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.matrix.spec import Matrix


class Releases(Protocol):
    """An index of the releases that can be installed."""

    def version(self, spec: StackSpec) -> str:
        """Return the release of transformers that a stack resolves to."""

    def below(self, spec: StackSpec, version: str, oldest: str) -> str:
        """Return the newest release from ``oldest`` to below ``version`` that fits a stack."""


def widened(matrix: Matrix, releases: Releases) -> Matrix:
    """Return the matrix with a stack for every minor release between its stacks.

    Each is the newest patch release of its minor release. A minor release that has a stack in the
    matrix is not added again. The added stacks use the newest stack's torch and Python and never
    build a checkpoint from a recipe. Crossings are switched off for all models, because the number
    of saves and loads grows with the square of the number of stacks.

    Raises:
        StackError: a stack cannot be resolved.

    """
    versions = {spec.id: Version(releases.version(spec)) for spec in matrix.stacks}
    newest = max(matrix.stacks, key=lambda spec: versions[spec.id])
    missing = list(_between(newest, versions.values(), releases))
    added_specs = [_spec(newest, version, versions) for version in missing]
    versions |= {spec.id: version for spec, version in zip(added_specs, missing, strict=True)}
    stacks = sorted((*matrix.stacks, *added_specs), key=lambda spec: versions[spec.id])
    models = (model.model_copy(update={"crossings": False}) for model in matrix.models)
    return matrix.model_copy(update={"stacks": tuple(stacks), "models": tuple(models)})


def _between(
    newest: StackSpec, versions: Iterable[Version], releases: Releases
) -> Iterable[Version]:
    """Yield the newest patch of every minor release that has no stack, newest first."""
    existing = set(versions)
    minors = {_minor(version) for version in existing}
    oldest, current = min(existing), max(existing)
    while _minor(current) != _minor(oldest):
        current = Version(releases.below(newest, _minor(current), str(oldest)))
        if _minor(current) not in minors:
            yield current


def _minor(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def _spec(template: StackSpec, version: Version, ids: Iterable[str]) -> StackSpec:
    """Return the stack of a release; its id is the minor version unless that id is taken."""
    minor = _minor(version)
    name = minor if minor not in ids else f"transformers-{version}"
    return StackSpec(
        id=name, transformers=minor, torch=template.torch, python=template.python, between=True
    )
