"""The command ``samebits golden``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from samebits.base.errors import OptionError, SamebitsError
from samebits.base.options import Option
from samebits.check.releases import span
from samebits.diagnose.exit_code import FAIL, INCOMPLETE, PASS
from samebits.golden import judge
from samebits.golden.asking import Asker, Case, Step, Wish, steps
from samebits.golden.judge import Asked, Pair
from samebits.golden.records import Change, Golden, Judged, Watched
from samebits.golden.running import Runner, Runs, TestError
from samebits.matrix.spec import StackEntry, StackSpec
from samebits.matrix.values import id_of_release, is_source
from samebits.records.record import Record
from samebits.stacks.places import LOCK_AGE, checks_folder
from samebits.storage.store import Store
from samebits.terminal.progress import silent

HELP = """\
Say why a test's expected values do not fit any more: rounding, or a behaviour change.

TEST is a node id of pytest, such as tests/test_my_model.py::test_logits. It runs in both environments, twice as it is
and once with its models in float64. What it compares by assert_close or allclose is recorded, with the calls of models
that the values come from. Each call is then run by samebits with the test's own inputs: the verdict, the first operation
that differs, and since when. Values to paste are printed only where the difference is rounding.

Examples:
  samebits golden tests/test_my_model.py::test_logits --from 5.14 --to 5.15
  samebits golden tests/models/llama --from 5.15 --to ../transformers --package parameterized
  samebits golden tests/test_my_model.py --from 5.23 --torch 2.12.1,2.13.0

Exit codes: 0, the values are the same or only round; 1, something else than rounding; 2, a mistake on the command line;
3, that is not known, the test compares nothing, or it fails in the candidate alone by what is not judged.
"""

_PASSING = {"same", "rounding", "not golden"}
_OPEN = {"undecided", "not repeatable"}
_LABEL = 12


class Options(Record):
    """The options of ``samebits golden``."""

    test: Annotated[str, Option("TEST", "")]
    """A node id of pytest: a file, or file::class::test."""
    first: Annotated[str, Option("RELEASE", "--from", required=True)]
    """The reference: a release in which the values were right."""
    last: Annotated[str | None, Option("RELEASE", "--to")] = None
    """The candidate: a release, or a folder with a checkout (default: that of --from)."""
    torch: Annotated[str, Option("VERSIONS")] = ""
    """One version of torch for both, or two for reference and candidate, such as 2.12.1,2.13.0."""
    releases: Annotated[bool, Option()] = False
    """Also run the model's calls in every minor release in between, to say since when."""
    repo: Annotated[Path | None, Option("DIR", type=Path)] = None
    """A clone of transformers, in which the commit is searched."""
    packages: Annotated[tuple[str, ...], Option("WHAT", "--package")] = ()
    """What the test needs beside pytest, torch and transformers, such as parameterized, or . for the project; may be
    repeated."""
    trust_remote_code: Annotated[bool, Option()] = False
    """Run code that comes with a model also in the runs of samebits; the test itself does as it says."""
    format: Annotated[Literal["text", "json"], Option("FORMAT")] = "text"
    """text or json."""


def environments(options: Options) -> tuple[StackSpec, StackSpec]:
    """Return reference and candidate.

    Raises:
        ReleaseError: there is no such release.
        OptionError: there is no such test, or the versions of torch are none.

    """
    file = Path(options.test.partition("::")[0])
    if not file.exists():
        msg = f"{file}: there is no such test; name a file, or file::test, from the folder in which pytest starts"
        raise OptionError(msg)
    last = options.last or options.first
    span(None, options.first, last)
    default = StackEntry.model_fields["torch"].default
    torches = [part.strip() for part in options.torch.split(",")] if options.torch else [default]
    if len(torches) > 2 or not all(torches):
        msg = f"--torch {options.torch}: name one version, or two such as 2.12.1,2.13.0"
        raise OptionError(msg)
    named = bool(options.torch)
    first, candidate = (
        _spec(release, torch, named=named)
        for release, torch in ((options.first, torches[0]), (last, torches[-1]))
    )
    return first, candidate


def _spec(release: str, torch: str, *, named: bool) -> StackSpec:
    id = id_of_release(release)
    try:
        entry = StackSpec(
            id=f"{id}-torch-{torch}" if named else id, transformers=release, torch=torch
        )
    except ValueError as error:
        raise OptionError(f"--torch {torch}: this is no version of torch") from error
    return entry


async def run(options: Options, environ: Mapping[str, str], say: Callable[[str], None]) -> Golden:
    """Run a test in both environments and judge what it compares.

    Raises:
        SamebitsError: a mistake of the user.

    """
    started = time.monotonic()
    first, last = environments(options)
    root = checks_folder(environ)
    runner = Runner(root, environ, LOCK_AGE)
    wish = Wish(options.releases, options.repo, options.packages, options.trust_remote_code)
    asker = Asker(root, environ, silent, say, wish)
    runs: list[Runs] = []
    try:
        for spec in [first] if first == last else [first, last]:
            say(f"{spec.id}: running {options.test}")
            runs.append(await runner.run(spec, options.test, options.packages))
        pairs = [*judge.pairs(runs[0], runs[-1])]
        answers = await _asked(pairs, asker, steps(first, last), say)
    except TestError as error:
        raise NotRunError(str(error)) from error
    finally:
        runner.end()
    store, (reference, candidate) = Store(root), (runs[0], runs[-1])
    judged = [judge.judgement(pair, _of(pair, answers), store) for pair in pairs]
    return Golden(
        test=options.test,
        environments=(_shown(first, reference), _shown(last, candidate)),
        judged=tuple(judge.worst(judged)),
        failure="" if pairs else _nothing(reference, candidate),
        unjudged=tuple(_unjudged(reference.first, candidate.first)),
        notes=tuple(_notes(reference, candidate, pairs)),
        seconds=round(time.monotonic() - started, 1),
    )


def _shown(spec: StackSpec, runs: Runs) -> str:
    release, torch = runs.first.transformers, runs.first.torch
    of = f"{spec.transformers} ({release})" if is_source(spec.transformers) else release
    return f"transformers {of}, torch {torch}"


class NotRunError(SamebitsError):
    """The test did not run."""

    exit_code = 3


async def _asked(
    pairs: Sequence[Pair], asker: Asker, way: Sequence[Step], say: Callable[[str], None]
) -> dict[int, Asked]:
    cases: dict[int, Case] = {}
    numbers: dict[str, int] = {}
    stands_for: dict[int, int] = {}
    for pair in pairs:
        for call, stand_in in judge.to_ask(pair):
            # tests of one class call the same model with the same inputs
            number = numbers.setdefault(f"{call.what} {stand_in.what}", call.number)
            stands_for[call.number] = number
            source = pair.sides[0].calls[pair.actual]
            names = {source[1]} if source is not None else {*call.outputs}
            case = cases.setdefault(number, Case(call, stand_in, frozenset()))
            cases[number] = case._replace(outputs=case.outputs | names)
    if not cases or not way:
        return {}
    calls = "one call of a model" if len(cases) == 1 else f"{len(cases)} calls of models"
    say(f"running {calls} in both environments")
    answers = await asker.ask(cases, way)
    return {number: answers[stand_in] for number, stand_in in stands_for.items()}


def _of(pair: Pair, answers: Mapping[int, Asked]) -> list[Asked]:
    return [answers[call.number] for call in pair.calls(0) if call.number in answers]


def _nothing(*runs: Runs) -> str:
    """Return why there is nothing to judge."""
    for run in runs:
        for test, (outcome, error) in run.first.outcomes.items():
            if outcome != "passed":
                return f"{test} {outcome} in transformers {run.first.transformers}: {error}"
    if not any(run.first.outcomes for run in runs):
        return "pytest finds no such test"
    return "the test compares no tensors by assert_close or allclose"


def _unjudged(reference: Watched, candidate: Watched) -> Iterator[str]:
    missed = {each.test for each in candidate.compared if not each.holds}
    for test, (outcome, _) in candidate.outcomes.items():
        passed_before = reference.outcomes.get(test, ("", ""))[0] == "passed"
        if passed_before and outcome not in ("passed", "skipped") and test not in missed:
            yield test


def _notes(reference: Runs, candidate: Runs, pairs: Sequence[Pair]) -> Iterator[str]:
    for run in [reference.first] if reference is candidate else [reference.first, candidate.first]:
        missed = {each.test for each in run.compared if not each.holds}
        for test, (outcome, error) in run.outcomes.items():
            if pairs and outcome not in ("passed", "skipped") and test not in missed:
                yield f"{test} {outcome} in transformers {run.transformers}: {error}"
    if any(run.first.left_out for run in (reference, candidate)):
        yield "the test makes many calls of models, and only the first of them were recorded"
    if len(reference.first.compared) != len(candidate.first.compared):
        yield "one environment reaches comparisons that the other one does not"


def exit_code(result: Golden) -> int:
    """Return how the command ends."""
    kinds = {each.kind for each in result.judged}
    if kinds - _PASSING - _OPEN:
        return FAIL
    return INCOMPLETE if kinds & _OPEN or result.failure or result.unjudged else PASS


def lines(result: Golden) -> Iterator[str]:
    """Yield what the terminal shows, what needs most attention last."""
    for each in reversed(result.judged):
        yield from _judged(each)
        yield ""
    first, last = result.environments
    yield _line("reference", first)
    yield _line("candidate", last)
    for note in result.notes:
        yield _line("note", note)
    if result.unjudged:
        names = ", ".join(test.rpartition("::")[2] for test in result.unjudged)
        yield _line("not judged", f"{names}: only assert_close, allclose and assert_allclose are")
    yield f"{result.test}: {result.failure or _counts(result)} ({result.seconds:.0f} s)"


def _counts(result: Golden) -> str:
    kinds = [each.kind for each in result.judged]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


def _judged(each: Judged) -> Iterator[str]:
    yield f"{each.file}:{each.line}  {each.kind}"
    yield _line("test", f"{each.test.rpartition('::')[2]}: {each.code}")
    if each.kind == "not golden":
        return
    sides = zip(("reference", "candidate"), each.holds, each.distances, strict=True)
    texts = [
        f"{'holds' if holds else 'fails'} in the {name} ({far:.1e} away)"
        for name, holds, far in sides
    ]
    yield _line("expected", f"{', '.join(texts)}; tolerance {each.allowed:.1e}")
    if each.moved:
        yield _line("moved", f"by {each.moved:.1e} from reference to candidate")
    if each.exact and each.moved:
        expected, reference, candidate = each.exact
        yield _line(
            "float64",
            f"{reference:.1e} away in the reference, {candidate:.1e} in the candidate, the expected values {expected:.1e}",
        )
    for change in each.changes:
        yield from _change(change)
    commits = [line for line in each.commits if line]
    yield from (_line("" if number else "search", line) for number, line in enumerate(commits))
    if each.reason:
        yield _line("why", each.reason)
    yield _line("do", _remedy(each))
    if each.new:
        yield _line("new", each.new)


def _remedy(each: Judged) -> str:
    if each.kind != "rounding" or each.new:
        return _DO[each.kind]
    return _KEEP if each.holds[1] else _ELSEWHERE


_KEEP = "nothing: the comparison still holds"
_ELSEWHERE = "the values belong to another machine: record them where the test is to run"
_DO = {
    "same": "no release is the reason; if the comparison fails, the line why says what its values are",
    "rounding": "replace the expected values, or widen the tolerance: the function is the same",
    "behaviour change": "do not replace the values: find out which side is right first",
    "other inputs": "look at what prepares the inputs before you replace the values",
    "other weights": "load a checkpoint in place of random weights, or look at what changed them",
    "after the model": "look at what the test computes from the model's output",
    "not repeatable": "seed the test; then ask again",
    "undecided": "do not replace the values yet: samebits check compares the model itself",
}
"""What to do, by kind."""


def _change(change: Change) -> Iterator[str]:
    which = f"{change.package} {change.before} → {change.after}"
    yield _line("model", f"{change.verdict} by {which}: {change.headline}")
    if change.since:
        yield _line("", change.since)
    if change.cause:
        yield _line("from", change.cause)
