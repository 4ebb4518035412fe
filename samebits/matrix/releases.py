"""Additional stacks for a run: the releases between those of a matrix, or those of another package.

Where bits change between two stacks of a matrix, there are many releases in between, and a release
may repair what an earlier one broke. So every release is run instead of a bisection (``--releases``).
With ``--scan`` transformers stays as it is, and the releases of another package vary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from samebits.base.errors import SelectionError
from samebits.matrix.levels import without_pairs
from samebits.matrix.spec import Matrix, StackSpec


class Releases(Protocol):
    """An index of the releases that can be installed."""

    def version(self, spec: StackSpec) -> str:
        """Return the release of transformers that a stack resolves to."""

    def below(self, spec: StackSpec, version: str, oldest: str) -> str:
        """Return the newest release from ``oldest`` to below ``version`` that fits a stack."""

    def installed(self, spec: StackSpec, package: str) -> str | None:
        """Return the release of a package that a stack has; None if it does not have it."""

    def newest(self, spec: StackSpec, requirement: str) -> str | None:
        """Return the newest release of another package that fits a stack; None if none does."""


def widened(matrix: Matrix, releases: Releases, *, patches: bool = False) -> Matrix:
    """Return the matrix with a stack for every minor release between its stacks.

    Each is the newest patch release of its minor release; with ``patches``, every patch release is
    added, too. A minor release that has a stack in the matrix is not added again. The added stacks
    use the newest stack's torch and Python and never build a checkpoint from a recipe. Questions
    about pairs of stacks are switched off for all models, because their number grows with the square of
    the number of stacks.

    Raises:
        StackError: a stack cannot be resolved.

    """
    versions = {spec.id: Version(releases.version(spec)) for spec in matrix.stacks}
    newest = max(matrix.stacks, key=lambda spec: versions[spec.id])
    between = _patches_between if patches else _between
    missing = list(between(newest, versions.values(), releases))
    added_specs = [_spec(newest, version, versions, exact=patches) for version in missing]
    versions |= {spec.id: version for spec, version in zip(added_specs, missing, strict=True)}
    stacks = sorted((*matrix.stacks, *added_specs), key=lambda spec: versions[spec.id])
    return without_pairs(matrix).model_copy(update={"stacks": tuple(stacks)})


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


def _patches_between(
    newest: StackSpec, versions: Iterable[Version], releases: Releases
) -> Iterable[Version]:
    """Yield every release that has no stack, newest first."""
    existing = set(versions)
    oldest, current = min(existing), max(existing)
    while current > oldest:
        current = Version(releases.below(newest, str(current), str(oldest)))
        if current not in existing:
            yield current


def scanned(matrix: Matrix, scanned_requirement: str, releases: Releases) -> Matrix:
    """Return the matrix with the releases of one other package as its stacks.

    They are copies of the newest stack of the matrix, with its release of transformers, and differ
    in the newest patch release of each minor release of the package that fits; where only one minor
    release fits, as of tokenizers, in its patch releases. The newest stack stays as it is and becomes
    the reference. ``scanned_requirement`` names the package and may
    bound its releases, as ``tokenizers>=0.21``. Questions about pairs of stacks are switched
    off, as by :func:`widened`.

    Raises:
        SelectionError: it is transformers, or no release of it fits.
        StackError: the stack cannot be resolved.

    """
    requirement = _requirement(scanned_requirement)
    package = canonicalize_name(requirement.name)
    if package == "transformers":
        raise SelectionError(
            "--scan names another package than transformers, of which --releases runs the releases"
        )
    newest = max(matrix.stacks, key=lambda spec: Version(releases.version(spec)))
    base = newest.model_copy(
        update={
            "transformers": releases.version(newest),
            "packages": tuple(p for p in newest.packages if _name(p) != package),
        }
    )
    own = releases.installed(newest, package)
    versions = list(_fitting(base, requirement, releases, _minor))
    if len(versions) == 1:
        versions = list(_fitting(base, requirement, releases, str))
    added = [_with_package(base, package, version) for version in versions if str(version) != own]
    if not added:
        raise SelectionError(
            f"--scan {scanned_requirement}: no release of {package} but {own or 'none'} fits environment "
            f"{newest.id} (transformers {base.transformers}): widen the range, or name another environment "
            "in the matrix"
        )
    by_version = {Version(own): newest} if own else {}
    by_version |= dict(zip((v for v in versions if str(v) != own), added, strict=True))
    stacks = tuple(by_version[version] for version in sorted(by_version))
    reference = newest.id if own else stacks[-1].id
    return without_pairs(matrix).model_copy(update={"stacks": stacks, "reference": reference})


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        msg = f"--scan {text}: not a package, such as tokenizers or 'accelerate>=1.4'"
        raise SelectionError(msg) from error


def _fitting(
    base: StackSpec, requirement: Requirement, releases: Releases, bound: Callable[[Version], str]
) -> Iterable[Version]:
    """Yield releases of a package that fit a stack, newest first, each below ``bound`` of the last."""
    limits = str(requirement.specifier)
    below = ""
    while (text := releases.newest(base, _bounded(requirement.name, limits, below))) is not None:
        version = Version(text)
        yield version
        below = f"<{bound(version)}"


def _bounded(name: str, *limits: str) -> str:
    return name + ",".join(limit for limit in limits if limit)


def _with_package(base: StackSpec, package: str, version: Version) -> StackSpec:
    """Return the stack with one release of a package."""
    changes: dict[str, object] = {"id": f"{package}-{version}", "between": True}
    if package == "torch":
        return base.model_copy(update=changes | {"torch": str(version)})
    packages = (*base.packages, f"{package}=={version}")
    return base.model_copy(update=changes | {"packages": packages})


def _name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def _minor(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def _spec(
    template: StackSpec, version: Version, ids: Iterable[str], *, exact: bool = False
) -> StackSpec:
    """Return the stack of a release; its id is the version, minor or exact, unless it is taken."""
    release = str(version) if exact else _minor(version)
    name = release if release not in ids else f"transformers-{version}"
    return StackSpec(
        id=name, transformers=release, torch=template.torch, python=template.python, between=True
    )
