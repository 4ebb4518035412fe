"""The command ``samebits bisect``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from samebits.base.errors import OptionError
from samebits.base.options import Option
from samebits.bisect.finder import Finder, Request
from samebits.bisect.history import End, History
from samebits.bisect.records import Bisection, Culprit, Hunk
from samebits.bisect.subject import Subject, of_package, of_transformers
from samebits.bisect.trials import Trials
from samebits.check import options as check
from samebits.check.command import prepare
from samebits.diagnose.exit_code import FAIL, INCOMPLETE, PASS
from samebits.matrix.levels import at_level
from samebits.matrix.spec import Matrix, ModelSpec
from samebits.pipeline.order import Order
from samebits.stacks.places import LOCK_AGE, checks_folder
from samebits.stacks.slots import usable_cores
from samebits.terminal.progress import silent

HELP = """\
Find the commit at which a model's bits change, on a local clone of transformers or of a package of yours.

Commits that change code which the model runs are tried first, each in the environment of a release, on top of
which the code of the commit runs. Nothing is checked out: the clone stays as it is. A commit that does not
import, or that fails in its own way, is skipped. What is found is proven by trying the commit and its parent.
How often it found the right one of published regressions: docs/bisect.md.

Examples:
  samebits bisect ./my-model --from 5.14 --to 5.15 --repo ../transformers
  samebits bisect ./my-model --from 5.14 --to HEAD --repo ../transformers
  samebits bisect ./my-model --from v1.2 --to HEAD --package-repo ../my-models --import my_models

Exit codes: 0, both ends do the same; 1, the commits are found; 2, a mistake on the command line; 3, not found,
as both ends fail alike, or an end or the commits around the change cannot be tried.
"""


_MAX_REASON = 300
"""Characters of the reason why a commit could not be tried."""


class Options(check.Options):
    """The options of ``samebits bisect``."""

    first: Annotated[str, Option("REV", "--from", required=True)]
    """The reference: a release such as 5.14, a tag or a commit."""
    last: Annotated[str, Option("REV", "--to", required=True)]
    """The candidate: a release, a tag or a commit."""
    repo: Annotated[Path | None, Option("DIR", type=Path, apart="repo")] = None
    """A clone of transformers."""
    package_repo: Annotated[Path | None, Option("DIR", type=Path, apart="repo")] = None
    """A clone of a package of your own, whose commits are searched; --from and --to are tags, branches or commits of
    it."""
    base: Annotated[str | None, Option("RELEASE")] = None
    """The release in whose environment the commits run (default: that of --to, else the one that each descends
    from; with --package-repo the newest)."""
    format: Annotated[Literal["text", "json"], Option("FORMAT")] = "text"
    """text or json."""


async def run(
    options: Options, environ: Mapping[str, str], say: Callable[[str], None]
) -> Bisection:
    """Find the commits for a model that is named as for ``samebits check``."""
    plain = {name: getattr(options, name) for name in check.Options.model_fields}
    prepared = prepare(check.Options(**plain | {"first": None, "last": None}))
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
    subject, history, ends = _subject(matrix, options)
    if subject.packages:
        matrix = matrix.model_copy(update={"models": _with(matrix.models, subject.packages)})
    order = Order(
        matrix=Path(matrix.path),
        level="quick",
        work=checks_folder(environ),
        lock_age=LOCK_AGE,
        checks=True,
        program=("samebits", "check", options.model),
    )
    trials = Trials(at_level(matrix, "quick"), subject, order, environ, silent)
    request = Request(options.model, *ends, subject.place, usable_cores(), explains, subject.name)
    finder = Finder(history, trials, request, say)
    finder.notes += subject.notes
    return await finder.find()


def _subject(matrix: Matrix, options: Options) -> tuple[Subject, History, tuple[End, End]]:
    if (options.repo is None) == (options.package_repo is None):
        msg = "the commits are those of transformers (--repo DIR) or of a package of yours (--package-repo DIR): name one"
        raise OptionError(msg)
    if options.package_repo is not None:
        make, repo, option = of_package, options.package_repo.absolute(), "--package-repo"
    else:
        assert options.repo is not None
        make, repo, option = of_transformers, options.repo.absolute(), "--repo"
    history = History(repo, option)
    releases = options.package_repo is None
    ends = (
        history.end(options.first, releases=releases),
        history.end(options.last, releases=releases),
    )
    return make(repo, ends, matrix.stacks[-1], options.base), history, ends


def _with(models: Iterable[ModelSpec], packages: tuple[str, ...]) -> tuple[ModelSpec, ...]:
    """Return models with packages beside those that the user listed."""
    return tuple(m.model_copy(update={"packages": (*m.packages, *packages)}) for m in models)


def exit_code(bisection: Bisection) -> int:
    """Return how the command ends."""
    if not bisection.culprits:
        return PASS if bisection.same else INCOMPLETE
    return FAIL if all(culprit.is_proven for culprit in bisection.culprits) else INCOMPLETE


def lines(bisection: Bisection) -> Iterator[str]:
    """Yield what the terminal shows."""
    yield f"{bisection.model}  {bisection.first} → {bisection.last}: {_summary(bisection)}"
    for culprit in bisection.culprits:
        yield ""
        yield from _culprit(culprit)
    yield ""
    yield (
        f"tried       {bisection.n_tried} commits, with the ends; of {bisection.n_commits:,} between them {bisection.n_suspected:,} "
        f"change code that the model ran; {bisection.seconds:.0f} s"
    )
    if bisection.environment:
        yield f"in          {bisection.environment}"
    for note in bisection.notes:
        yield f"note        {note}"


def _summary(bisection: Bisection) -> str:
    if bisection.failure:
        return bisection.failure
    if len(bisection.culprits) > 1:
        return f"{len(bisection.culprits)} changes on the way"
    (culprit,) = bisection.culprits
    if culprit.is_proven:
        return "one change"
    return f"one change at least, in one of {len(culprit.skipped) + 1} commits"


def _culprit(culprit: Culprit) -> Iterator[str]:
    if culprit.is_proven:
        yield f"commit      {culprit.sha[:10]} {culprit.title}"
        pull = f", pull request #{culprit.pull}" if culprit.pull else ""
        yield f"            {culprit.date}{pull}"
    else:
        n = len(culprit.skipped)
        yield f"commit      one of {n + 1}; only the last of them could be tried:"
        for untried in culprit.skipped:
            yield f"            {untried.sha[:10]} {untried.title}"
        yield f"            {culprit.sha[:10]} {culprit.title}"
        yield f"not tried   {culprit.skipped[0].sha[:10]}: {culprit.skipped[0].reason[:_MAX_REASON]}"
    yield f"change      {culprit.verdict}: {culprit.headline}"
    if culprit.cause:
        yield f"cause       {culprit.cause}"
    for hunk in culprit.hunks:
        of = "" if culprit.is_proven else f"{hunk.commit[:10]} "
        yield f"code        {of}{hunk.file}: {hunk.name}"
        yield from _hunk(hunk)


def _hunk(hunk: Hunk) -> Iterator[str]:
    yield from (f"    {line}" for line in hunk.diff.splitlines())
