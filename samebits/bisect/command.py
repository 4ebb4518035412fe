"""The command ``samebits bisect``."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from samebits.base.options import Option
from samebits.bisect.finder import Finder, Request
from samebits.bisect.history import History
from samebits.bisect.trials import Trials
from samebits.check import command as check
from samebits.diagnose.exit_code import FAIL, INCOMPLETE, PASS
from samebits.matrix.levels import at_level
from samebits.matrix.spec import StackSpec
from samebits.pipeline.order import Order
from samebits.stacks.places import checks_folder
from samebits.stacks.slots import usable_cores
from samebits.stacks.source import FOLDER
from samebits.terminal.progress import Progress
from samebits.text.terminal import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from samebits.bisect.records import Bisection, Culprit, Hunk
    from samebits.matrix.spec import Matrix

HELP = """\
Find the commit at which a model's bits change, on a local clone.

Commits that change code which the model runs are tried first, each in the environment of a release, on top of
which the code of the commit runs. Nothing is checked out: the clone stays as it is. A commit that does not
import, or that fails in its own way, is skipped. What is found is proven by trying the commit and its parent.
How often it finds the right one was measured on few published regressions yet: docs/bisect.md.

Examples:
  samebits bisect ./my-model --from 5.14 --to 5.15 --repo ../transformers
  samebits bisect ./my-model --from 5.14 --to HEAD --repo ../transformers

Exit codes: 0, both ends do the same; 1, the commits are found; 2, a mistake on the command line; 3, not found,
as an end or the commits around the change cannot be tried.
"""


class Options(check.Options):
    """The options of ``samebits bisect``."""

    first: Annotated[str, Option("REV", "--from", required=True)]
    """The reference: a release such as 5.14, a tag or a commit."""
    last: Annotated[str, Option("REV", "--to", required=True)]
    """The candidate: a release, a tag or a commit."""
    repo: Annotated[Path, Option("DIR", type=Path, required=True)]
    """A clone of transformers."""
    base: Annotated[str | None, Option("RELEASE")] = None
    """The release in whose environment the commits run (default: that of --to, else the one that each descends
    from)."""
    format: Annotated[Literal["text", "json"], Option("FORMAT")] = "text"
    """text or json."""


async def run(
    options: Options, environ: Mapping[str, str], say: Callable[[str], None]
) -> Bisection:
    """Find the commits for a model that is named as for ``samebits check``."""
    plain = {name: getattr(options, name) for name in check.Options.model_fields}
    prepared = check.prepare(check.Options(**plain | {"first": None, "last": None}))
    return await bisected(prepared.matrix, options, environ, say)


async def bisected(
    matrix: Matrix,
    options: Options,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    *,
    explains: bool = True,
) -> Bisection:
    """Find the commits for the models of a matrix, whose environments do not count.

    Without ``explains`` no cause is looked for.

    Raises:
        HistoryError: the clone does not have what is named.

    """
    repo = options.repo.absolute()
    history = History(repo)
    first, last = history.end(options.first), history.end(options.last)
    template = matrix.stacks[-1]
    base = options.base or last.release or None

    @cache
    def spec(name: str, own: bool) -> StackSpec:
        is_release = name in (first.release, last.release)
        fields: dict[str, Any] = {
            "id": name[:10],
            "transformers": name if is_release else f"{repo}@{name}",
            "torch": template.torch,
            "python": template.python,
            "packages": template.packages,
            "base": None if own or is_release else base,
        }
        return StackSpec(**{key: value for key, value in fields.items() if value})

    order = Order(
        matrix=Path(matrix.path),
        level="quick",
        work=checks_folder(environ),
        lock_age=check.LOCK_AGE,
        checks=True,
        program=("samebits", "check", options.model),
    )
    trials = Trials(at_level(matrix, "quick"), spec, order, environ, _quiet)
    request = Request(options.model, first, last, FOLDER, usable_cores(), explains)
    return await Finder(history, trials, request, say).find()


class _Quiet(Progress):
    """Says nothing: there are many short runs, and a line for each of their commits."""

    def note(self, text: str) -> None:
        """Leave a line out."""


def _quiet(total: int) -> Progress:
    return _Quiet(total, time.monotonic, PLAIN)


def exit_code(found: Bisection) -> int:
    """Return how the command ends."""
    if not found.culprits:
        return PASS if found.same else INCOMPLETE
    return FAIL if all(culprit.is_proven for culprit in found.culprits) else INCOMPLETE


def lines(found: Bisection) -> Iterator[str]:
    """Yield what the terminal shows."""
    yield f"{found.model}  {found.first} → {found.last}: {_summary(found)}"
    for culprit in found.culprits:
        yield ""
        yield from _culprit(culprit)
    yield ""
    tried = f"tried       {found.n_tried} of {found.n_commits:,} commits"
    yield f"{tried}, {found.n_suspected:,} of which change code that the model ran; {found.seconds:.0f} s"
    if found.environment:
        yield f"in          {found.environment}"
    for note in found.notes:
        yield f"note        {note}"


def _summary(found: Bisection) -> str:
    if found.failure:
        return found.failure
    if len(found.culprits) == 1:
        return "one change"
    return f"{len(found.culprits)} changes on the way"


def _culprit(culprit: Culprit) -> Iterator[str]:
    yield f"commit      {culprit.sha[:10]} {culprit.title}"
    pull = f", pull request #{culprit.pull}" if culprit.pull else ""
    yield f"            {culprit.date}{pull}"
    if culprit.skipped:
        shas = ", ".join(sha[:10] for sha in culprit.skipped)
        yield f"            or one of these, which could not be tried: {shas}"
    yield f"change      {culprit.verdict}: {culprit.headline}"
    if culprit.cause:
        yield f"cause       {culprit.cause}"
    for hunk in culprit.hunks:
        yield f"code        {hunk.file}: {hunk.name}"
        yield from _hunk(hunk)


def _hunk(hunk: Hunk) -> Iterator[str]:
    yield from (f"    {line}" for line in hunk.diff.splitlines())
