"""From a cell that stands out to a folder that shows it: ask, try, shrink, judge, write, run."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from samebits.capsules import files, shrinking, trials
from samebits.capsules.asking import Asked, Unasked, Unproved, asked, earlier
from samebits.capsules.issue import ZEROS, Issue, issue
from samebits.capsules.judging import Judge, Party
from samebits.capsules.script import FOLDER, Installed, Subject, Told, script
from samebits.capsules.trials import Answers
from samebits.records.capsule import CapsuleFile, Question, Seen, Side, script_name
from samebits.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.capsules.running import Place
    from samebits.capsules.script import ZerosIn
    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.spec import ModelSpec
    from samebits.records.capsule import Contrast, Feed
    from samebits.records.capture import Capture, Failure
    from samebits.records.comparison import CellResult, Metrics

EXPECTED = "expected.json"
ISSUE = "ISSUE.md"
_LARGEST = 256 << 20
"""Bytes of a checkpoint that is copied in order to be shrunk."""


class Wanted(NamedTuple):
    """A cell for which a capsule is to be made, and its reference."""

    result: CellResult
    reference: Capture
    candidate: tuple[Capture, ...]
    model: ModelSpec
    checkpoint: Checkpoint
    sides: tuple[Party, Party]


class Case(NamedTuple):
    """What the scripts are about: a question, the model's folder, and what was left out so far."""

    question: Question
    folder: Path | None
    """None: the model is on the hub."""
    answers: Answers
    contrast: Contrast
    shrunk: tuple[str, ...] = ()


class Machine(NamedTuple):
    """Where it is made."""

    fingerprint: str
    platform: str
    cpu_capability: str


class Maker:
    """Makes capsules; everything on the way lies in one folder of work, and is gone afterwards."""

    def __init__(
        self,
        work: Path,
        kept: Store,
        probes: str,
        machine: Machine,
        place: Place,
        slots: asyncio.Semaphore,
    ) -> None:
        self._work = work
        self._kept = kept
        self._probes = probes
        self._machine = machine
        self._place = place
        self._slots = slots
        self._proving = asyncio.Lock()  # there is one place

    async def make(self, wanted: Wanted) -> dict[str, bytes]:
        """Return the files of a capsule by their paths inside it; its scripts have been run.

        Raises:
            Unasked: none can be made, and why.

        """
        cell = wanted.result.cell
        work = self._work / f"{cell.model}-{cell.variant}-{cell.stack}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            making = _Making(wanted, work, self._kept)
            case, told = await making.case(Judge(work, self._probes, self._machine.fingerprint))
            folder = making.write(case, told, self._machine)
            async with self._proving, self._slots:
                await asyncio.to_thread(self._prove, wanted, folder)
            return {
                str(path.relative_to(folder).as_posix()): path.read_bytes()
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            }
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _prove(self, wanted: Wanted, folder: Path) -> None:
        """Run both scripts by uv in another folder; raise Unasked if one sees something else."""
        scripts = tuple(script_name(side.cell.stack) for side in wanted.sides)
        needs_hub = wanted.model.hub is not None
        ran = self._place.run(folder, scripts, needs_hub=needs_hub)
        for name, how in ran.items():
            if how.code != 0 and not how.began:
                msg = f"uv could not run {name}: {how.last_line}"
                raise Unproved(msg)
            if how.code != 0:
                msg = f"run by uv alone, {name} did not see what the run saw: {how.last_line}"
                raise Unproved(msg)


class _Making:
    """One capsule on its way."""

    def __init__(self, wanted: Wanted, work: Path, kept: Store) -> None:
        self._wanted = wanted
        self._work = work
        self._kept = kept
        self._tried = Store(work)
        self._n = 0
        self._layout: ZerosIn = "model.safetensors"
        """What a stand-in's scripts write: the layout of the model's own weights."""
        self._no_stand_in = ""
        """Why zeros in place of the weights do not show it, as the end of a sentence."""

    async def case(self, judge: Judge) -> tuple[Case, CellResult]:
        """Return the smallest case that shows the same, and what is said of it."""
        wanted = self._wanted
        found = asked(wanted.result, wanted.reference, wanted.candidate, self._kept)
        base = await self._base(found)
        small = await self._cut_steps(found, await self._shrunk(found, base))
        if found.contrast != "differs":
            self._refuse_large(small)
            return small, wanted.result
        told: CellResult | None = None
        for case in (small, base):
            where = self._checkpoint(case)
            told = await judge.judged(wanted.model, where, case.question, wanted.sides)
            if told is not None and told.judged is wanted.result.judged:
                self._refuse_large(case)
                return case, told
        if told is None:
            msg = f"run alone, prompt {found.question.prompt} is not fed the same numbers"
        else:
            msg = f"what shows it is judged {told.judged} alone, and not {wanted.result.judged}"
        raise Unasked(msg)

    def _checkpoint(self, case: Case) -> Checkpoint:
        """Return the checkpoint that a case's scripts load."""
        changed = {} if case.folder is None else {"source": str(case.folder), "digest": None}
        return self._wanted.checkpoint.model_copy(update=changed)

    async def _base(self, found: Asked) -> Case:
        """Return the case as it was captured; an exception needs none of a large model's weights."""
        if found.contrast == "fails" and self._size > files.LIMIT:
            try:
                return await self._shown(found, await self._stood_in())
            except Unasked as reason:
                self._no_stand_in = f"; with zeros in place of its weights, {reason}"
        folder = self._copied()
        try:
            return await self._shown(found, folder)
        except Unasked as reason:
            msg = f"outside of the run {reason}"
            raise Unasked(msg) from reason

    async def _shown(self, found: Asked, folder: Path | None) -> Case:
        """Return the case that shows it, with the prompts before it only if it needs them.

        Raises:
            Unasked: none does; the message says what the last one did.

        """
        questions = [found.question]
        if found.question.kind in {"forward", "generate"} and (before := self._earlier(found)):
            questions.append(found.question.model_copy(update={"before": before}))
        reason = ""
        for question in questions:
            answers = await self._answers(found, question, folder)
            reason = self._why_not(found, question, answers, folder)
            if not reason:
                said = (ZEROS,) if self._zeros_in(folder) else ()
                return Case(question, folder, answers, found.contrast, said)
        raise Unasked(reason)

    async def _stood_in(self) -> Path:
        """Return a copy of the model's folder without its weights.

        Raises:
            Unasked: its tensors cannot be listed.

        """
        work, source = self._work / "stand-in", Path(self._wanted.checkpoint.source)
        work.mkdir()
        process, timeout = self._wanted.sides[0].process, self._wanted.model.timeout
        tensors = await trials.tensors_of(process, source, work / "tensors.json", timeout)
        if tensors.refused:
            msg = f"they cannot be listed: {tensors.refused}"
            raise Unasked(msg)
        self._layout = "pytorch_model.bin" if tensors.pickled else "model.safetensors"
        files.without_weights(source, work / FOLDER, tensors.header)
        return work / FOLDER

    def _zeros_in(self, folder: Path | None) -> ZerosIn | None:
        """Return the file of zeros that scripts write into a folder; None if it has weights."""
        return self._layout if folder is not None and files.is_stand_in(folder) else None

    def _earlier(self, found: Asked) -> tuple[Feed, ...]:
        before = earlier(found.question, self._wanted.reference, self._kept)
        seeded = any(fed.seed is not None for feed in before for fed in feed.values())
        return () if seeded else before

    def _why_not(
        self, found: Asked, question: Question, answers: Answers, folder: Path | None
    ) -> str:
        """Return what the scripts do other than the run did; '' if they show the same."""
        wanted = self._wanted
        stacks = (wanted.sides[0].cell.stack, wanted.sides[1].cell.stack)
        failure = wanted.result.failure if found.contrast == "fails" else None
        if reason := trials.why_not(found.contrast, answers, stacks, _raised(failure)):
            return reason
        if self._zeros_in(folder):
            return self._loads_less(answers)
        if found.contrast == "unstable":
            return ""
        sides = zip(stacks, answers, (wanted.reference, *wanted.candidate[:1]), strict=False)
        for stack, (trial, *_), capture in sides:
            if not trials.as_captured(question, trial, capture, self._kept, self._tried):
                return f"{stack} gives other bits than in the run"
        return ""

    def _loads_less(self, answers: Answers) -> str:
        """Return what the reference misses of a stand-in and not of the model; '' if nothing."""
        load = self._wanted.reference.signals.load
        then = {*load.missing_keys, *load.mismatched_keys} if load is not None else set()
        loading = answers.reference[0].loading
        now = {*loading.get("missing_keys", ()), *loading.get("mismatched_keys", ())}
        if not now - then:
            return ""
        return f"{self._wanted.sides[0].cell.stack} misses {min(now - then)}"

    @property
    def _size(self) -> int:
        """Bytes that a copy of the model takes; 0 of one on the hub, which is referred to."""
        on_hub = self._wanted.model.hub is not None
        return 0 if on_hub else files.size(Path(self._wanted.checkpoint.source))

    def _copied(self) -> Path | None:
        if self._wanted.model.hub is not None:
            return None
        if (n := self._size) > _LARGEST:
            msg = f"its checkpoint has {n >> 20:,} MiB, which are not copied{self._no_stand_in}"
            raise Unasked(msg)
        out = self._work / "as-captured" / FOLDER
        files.copied(Path(self._wanted.checkpoint.source), out)
        return out

    async def _shrunk(self, found: Asked, base: Case) -> Case:
        """Return the smallest case that was found in a bounded number of trials."""
        case, left = base, shrinking.MOST_TRIALS
        bar = self._bar(found, base)
        for propose in (self._rows, self._layers, self._steps, self._tokens):
            for question, folder, said in propose(case):
                if not left:
                    return case
                left -= 1
                answers = await self._answers(found, question, folder)
                if self._is_kept(found, question, answers, base.answers, bar):
                    case = Case(question, folder, answers, found.contrast, (*case.shrunk, said))
                    break
        return case

    def _is_kept(
        self, found: Asked, question: Question, answers: Answers, base: Answers, bar: float
    ) -> bool:
        if not trials.holds(found.contrast, answers, base):
            return False
        metrics = trials.distance(question, answers, self._tried)
        return found.contrast != "differs" or (metrics is not None and metrics.max_abs >= bar)

    def _bar(self, found: Asked, base: Case) -> float:
        """Return how far a smaller case has to stay apart."""
        if found.contrast != "differs" or self._wanted.result.judged.passes:
            return 0.0
        metrics = trials.distance(base.question, base.answers, self._tried)
        return metrics.max_abs * shrinking.KEPT_SHARE if metrics is not None else 0.0

    def _rows(self, case: Case) -> Iterator[tuple[Question, Path | None, str]]:
        if case.question.before:
            return
        for question in shrinking.single_rows(case.question):
            yield question, case.folder, "one row of the padded batch, without its padding"

    def _layers(self, case: Case) -> Iterator[tuple[Question, Path | None, str]]:
        if case.folder is None:
            return
        total = files.n_layers(case.folder)
        for n in shrinking.layer_counts(self._wanted.result, total):
            out = self._work / f"layers-{n}" / FOLDER
            try:
                files.with_layers(case.folder, out, n)
            except files.CannotShrink:
                return
            yield case.question, out, f"{n} of {total} layers"

    def _steps(self, case: Case) -> Iterator[tuple[Question, Path | None, str]]:
        """Yield fewer greedy steps before an exception; a difference has its own, see below."""
        if case.question.kind == "generate" and case.contrast == "fails":
            for n in range(1, min(3, case.question.steps)):
                said = f"{n} of {case.question.steps} greedy steps"
                yield case.question.model_copy(update={"steps": n}), case.folder, said

    def _tokens(self, case: Case) -> Iterator[tuple[Question, Path | None, str]]:
        if case.question.before or case.question.kind not in {"forward", "generate"}:
            return
        metrics = trials.distance(case.question, case.answers, self._tried)
        largest = metrics.top[0].index if metrics is not None and metrics.top else None
        places = (metrics.first_index if metrics is not None else None, largest)
        tokens = case.question.feed.get("input_ids")
        total = len(tokens.rows[0]) if tokens else 0
        for question in shrinking.fewer_tokens(case.question, places):
            n = len(question.feed["input_ids"].rows[0])
            yield question, case.folder, f"{n} of {total} tokens of the prompt"

    async def _cut_steps(self, found: Asked, case: Case) -> Case:
        """Return the case with as many greedy steps as it takes."""
        question = case.question
        if question.kind != "generate" or found.contrast != "differs":
            return case
        steps = trials.steps_needed(case.answers, self._tried)
        if steps is None or steps >= question.steps:
            return case
        cut = question.model_copy(update={"steps": steps})
        answers = await self._answers(found, cut, case.folder)
        if not trials.holds(found.contrast, answers):
            return case
        return case._replace(question=cut, answers=answers)

    def _refuse_large(self, case: Case) -> None:
        if case.folder is not None and (n := files.size(case.folder)) > files.LIMIT:
            fewer = " with fewer layers" if n < self._size else ""
            msg = (
                f"its checkpoint has {n / 2**20:,.1f} MiB{fewer}, and a capsule holds "
                f"{files.LIMIT >> 20}{self._no_stand_in}"
            )
            raise Unasked(msg)

    async def _answers(self, found: Asked, question: Question, folder: Path | None) -> Answers:
        """Run both scripts in the stacks' processes; twice where it is about the heap."""
        self._n += 1
        where = folder.parent if folder is not None else self._work / "hub"
        where.mkdir(parents=True, exist_ok=True)
        unstable = found.contrast == "unstable"
        runs: tuple[trials.RunName, ...] = ("a", "a", "b") if unstable else ("a",)
        scripts = []
        for side in self._wanted.sides:
            path = where / f"trial-{self._n}-{script_name(side.cell.stack)}"
            text = script(self._subject(question, folder), _installed(side))
            path.write_text(text, "utf-8")
            scripts.append((side.process, path))
        timeout = self._wanted.model.timeout
        done = await asyncio.gather(
            *(
                trials.tried(process, path, run, self._work, timeout, nth)
                for process, path in scripts
                for nth, run in enumerate(runs)
            )
        )
        return Answers(tuple(done[: len(runs)]), tuple(done[len(runs) :]))

    def _subject(self, question: Question, folder: Path | None) -> Subject:
        model, load = self._wanted.model, self._wanted.reference.signals.load
        assert load is not None
        return Subject(
            model.name,
            self._wanted.result.cell.variant,
            question,
            _model_class(model, load.model_class, self._wanted.checkpoint),
            model.hub,
            model.revision,
            model.trust_remote_code,
            self._zeros_in(folder),
        )

    def write(self, case: Case, told: CellResult, machine: Machine) -> Path:
        """Write the capsule's files into a folder of its own and return it."""
        wanted, folder = self._wanted, self._work / "capsule"
        folder.mkdir()
        if case.folder is not None:
            files.copied(case.folder, folder / FOLDER)
        metrics = trials.distance(case.question, case.answers, self._tried)
        sees = tuple(map(_seen, (case.answers.reference, case.answers.candidate)))
        subject = self._subject(case.question, case.folder)
        at = metrics.top[0].index if metrics is not None and metrics.top else None
        sides = []
        for mine, side in enumerate(wanted.sides):
            told_side = Told(
                sees[mine],
                sees[1 - mine],
                wanted.sides[1 - mine].cell.stack,
                machine.cpu_capability,
                at,
            )
            installed = _installed(side)
            text = script(subject, installed, told_side)
            (folder / script_name(side.cell.stack)).write_text(text, "utf-8")
            sides.append(_side(installed, sees[mine]))
        file = CapsuleFile(
            cell=wanted.result.cell,
            contrast=case.contrast,
            question=case.question,
            checkpoint=FOLDER if case.folder is not None else wanted.checkpoint.said,
            shrunk=case.shrunk,
            reference=sides[0],
            candidate=sides[1],
            platform=machine.platform,
            cpu_capability=machine.cpu_capability,
        )
        text = json.dumps(file.model_dump(mode="json", exclude_defaults=True), indent=1)
        (folder / EXPECTED).write_text(f"{text}\n", "utf-8")
        (folder / ISSUE).write_text(issue(self._issue(file, told, metrics)), "utf-8")
        return folder

    def _issue(self, file: CapsuleFile, told: CellResult, metrics: Metrics | None) -> Issue:
        wanted = self._wanted
        scripts = {
            side.script: (self._work / "capsule" / side.script).read_text("utf-8")
            for side in (file.reference, file.candidate)
        }
        return Issue(file, told, wanted.result, metrics, wanted.checkpoint.said, scripts)


def _installed(side: Party) -> Installed:
    return Installed(side.cell.stack, side.python, side.stack.packages)


def _side(installed: Installed, sees: Seen) -> Side:
    return Side(
        stack=installed.stack,
        script=script_name(installed.stack),
        transformers=installed.transformers,
        torch=installed.packages["torch"],
        python=installed.python,
        packages=installed.packages,
        sees=sees,
    )


def _seen(found: tuple[trials.Trial, ...]) -> Seen:
    first = found[0]
    if first.error:
        return Seen(error=first.error, message=trials.said_everywhere(trials.first_line(first)))
    hashes = {trial.ref.hash for trial in found if trial.ref is not None}
    ref = first.ref.model_copy(update={"stored": False}) if first.ref is not None else None
    return Seen(unstable=True) if len(hashes) > 1 else Seen(ref=ref)


def _raised(failure: Failure | None) -> str:
    """Return an exception's class and the first line of its message; '' if there is none."""
    if failure is None:
        return ""
    first_line = failure.message.strip().partition("\n")[0]
    return f"{failure.type.rpartition('.')[2]}: {first_line}"


def _model_class(model: ModelSpec, named: str, checkpoint: Checkpoint) -> str:
    """Return the class to load with, as probes/samebits_probe/model/load.py chooses it."""
    if not model.trust_remote_code:
        return named
    path = Path(checkpoint.source) / "config.json"
    auto_map = json.loads(path.read_text("utf-8")).get("auto_map", {}) if path.is_file() else {}
    names = [name for name in auto_map if name.startswith("AutoModel") and name.isidentifier()]
    preferred = "AutoModelForCausalLM"
    if model.hub is not None or preferred in names:
        return preferred
    return names[0] if names else named
