"""Makes the capsule of a cell: select a question, try it, shrink it, judge it, write it, run it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from samebits.capsules import files, shrinking, trials
from samebits.capsules.asking import (
    CannotReproduce,
    Query,
    ReproductionFailed,
    earlier_feeds,
    query_for,
)
from samebits.capsules.issue import ZEROS, Issue, issue
from samebits.capsules.judging import Judge, Party
from samebits.capsules.running import Place
from samebits.capsules.script import FOLDER, Expectation, Installed, Subject, ZerosIn, script
from samebits.capsules.trials import Answers
from samebits.jobs.checkpoints import Checkpoint
from samebits.matrix.spec import ModelSpec
from samebits.records.capsule import CapsuleFile, Contrast, Feed, Question, Seen, Side, script_name
from samebits.records.capture import Capture, Failure
from samebits.records.comparison import CellResult, Metrics
from samebits.stacks.packages import ExtendedStack
from samebits.stacks.slots import Slots
from samebits.storage.store import Store
from samebits_wire.jobs import RunName

EXPECTED = "expected.json"
ISSUE = "ISSUE.md"
_MAX_COPIED = 256 << 20
"""Maximum bytes of a checkpoint that is copied to be shrunk."""


class Wanted(NamedTuple):
    """A cell that needs a capsule, and its reference."""

    result: CellResult
    reference: Capture
    candidate: tuple[Capture, ...]
    model: ModelSpec
    checkpoint: Checkpoint
    sides: tuple[Party, Party]


class Case(NamedTuple):
    """A question for the scripts with its answers, the model's folder, and the parts left out."""

    question: Question
    folder: Path | None
    """None: the model is on the hub."""
    answers: Answers
    contrast: Contrast
    shrunk: tuple[str, ...] = ()


class Machine(NamedTuple):
    """The machine that makes a capsule."""

    fingerprint: str
    platform: str
    cpu_capability: str


class Maker:
    """Makes capsules. Intermediate files are in one work folder and are removed afterwards."""

    def __init__(
        self,
        work: Path,
        values: Store,
        probes: str,
        machine: Machine,
        place: Place,
        slots: Slots,
    ) -> None:
        self._work = work
        self._values = values
        self._probes = probes
        self._machine = machine
        self._place = place
        self._slots = slots
        self._place_lock = asyncio.Lock()  # all capsules share the place

    async def make(self, request: Wanted) -> dict[str, bytes]:
        """Return the files of a capsule by their paths inside it, after running its scripts.

        Raises:
            CannotReproduce: no capsule can be made; the message gives the reason.

        """
        cell = request.result.cell
        work = self._work / f"{cell.model}-{cell.variant}-{cell.stack}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            builder = _Builder(request, work, self._values)
            case, result = await builder.case(Judge(work, self._probes, self._machine.fingerprint))
            folder = builder.write(case, result, self._machine)
            async with self._place_lock, self._slots.taken(case.question.threads):
                await asyncio.to_thread(self._verify, request, folder)
            return {
                str(path.relative_to(folder).as_posix()): path.read_bytes()
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            }
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _verify(self, request: Wanted, folder: Path) -> None:
        """Run both scripts with uv in another folder; raise ReproductionFailed if one fails."""
        scripts = tuple(script_name(side.cell.stack) for side in request.sides)
        needs_hub = request.model.hub is not None
        results = self._place.run(folder, scripts, needs_hub=needs_hub)
        for name, result in results.items():
            if result.code != 0 and not result.has_started:
                raise ReproductionFailed(f"uv could not run {name}: {result.last_line}")
            if result.code != 0:
                raise ReproductionFailed(
                    f"{name} did not reproduce the difference outside samebits: {result.last_line}"
                )


class _Builder:
    """Builds one capsule."""

    def __init__(self, request: Wanted, work: Path, values: Store) -> None:
        self._request = request
        self._work = work
        self._values = values
        self._trial_values = Store(work)
        self._n_trials = 0
        self._layout: ZerosIn = "model.safetensors"
        """File of zeros that the scripts of a stand-in write: named like the model's weights."""
        self._no_stand_in = ""
        """Why zeros in place of the weights do not show the failure, as the end of a sentence."""

    async def case(self, judge: Judge) -> tuple[Case, CellResult]:
        """Return the smallest case that shows the same defect, and its result."""
        request = self._request
        query = query_for(request.result, request.reference, request.candidate, self._values)
        base = await self._captured_case(query)
        smallest = await self._cut_steps(query, await self._shrink(query, base))
        if query.contrast != "differs":
            self._refuse_large(smallest)
            return smallest, request.result
        result: CellResult | None = None
        for case in (smallest, base):
            checkpoint = self._checkpoint(case)
            result = await judge.judge(request.model, checkpoint, case.question, request.sides)
            if result is not None and result.judged is request.result.judged:
                self._refuse_large(case)
                return case, result
        if result is None:
            msg = f"outside samebits, prompt {query.question.prompt} gets different inputs"
        else:
            msg = (
                f"outside samebits, the difference is {result.judged}, not {request.result.judged}"
            )
        raise CannotReproduce(msg)

    def _checkpoint(self, case: Case) -> Checkpoint:
        """Return the checkpoint that the scripts of a case load."""
        changed = {} if case.folder is None else {"source": str(case.folder), "digest": None}
        return self._request.checkpoint.model_copy(update=changed)

    async def _captured_case(self, query: Query) -> Case:
        """Return the case as it was captured; without a large model's weights for an exception."""
        if query.contrast == "fails" and self._size > files.LIMIT:
            try:
                return await self._case_in(query, await self._stand_in())
            except CannotReproduce as reason:
                self._no_stand_in = f"; with zeros in place of its weights, {reason}"
        folder = self._checkpoint_copy()
        try:
            return await self._case_in(query, folder)
        except CannotReproduce as reason:
            raise CannotReproduce(f"outside samebits, {reason}") from reason

    async def _case_in(self, query: Query, folder: Path | None) -> Case:
        """Return the case that shows the defect, with the prompts before it only if needed.

        Raises:
            CannotReproduce: no case shows it; the message gives the result of the last one.

        """
        questions = [query.question]
        if query.question.kind in {"forward", "generate"} and (
            earlier := self._earlier_feeds(query)
        ):
            questions.append(query.question.model_copy(update={"before": earlier}))
        reason = ""
        for question in questions:
            answers = await self._run_scripts(query, question, folder)
            reason = self._mismatch(query, question, answers, folder)
            if not reason:
                left_out = (ZEROS,) if self._zeros_file(folder) else ()
                return Case(question, folder, answers, query.contrast, left_out)
        raise CannotReproduce(reason)

    async def _stand_in(self) -> Path:
        """Return a copy of the model's folder without its weights.

        Raises:
            CannotReproduce: its tensors cannot be listed.

        """
        folder, source = self._work / "stand-in", Path(self._request.checkpoint.source)
        folder.mkdir()
        process, timeout = self._request.sides[0].process, self._request.model.timeout
        tensors = await trials.list_tensors(process, source, folder / "tensors.json", timeout)
        if tensors.refused:
            msg = f"the tensors of the checkpoint cannot be listed: {tensors.refused}"
            raise CannotReproduce(msg)
        self._layout = "pytorch_model.bin" if tensors.pickled else "model.safetensors"
        code = self._request.model.trust_remote_code
        files.copy_without_weights(source, folder / FOLDER, tensors.header, code=code)
        return folder / FOLDER

    def _zeros_file(self, folder: Path | None) -> ZerosIn | None:
        """Return the file of zeros that the scripts write; None if the folder has weights."""
        return self._layout if folder is not None and files.is_stand_in(folder) else None

    def _earlier_feeds(self, query: Query) -> tuple[Feed, ...]:
        feeds = earlier_feeds(query.question, self._request.reference, self._values)
        are_rows = all(fed.is_rows for feed in feeds for fed in feed.values())
        return feeds if are_rows else ()

    def _mismatch(
        self, query: Query, question: Question, answers: Answers, folder: Path | None
    ) -> str:
        """Return how the scripts differ from the run; '' if they show the same."""
        request = self._request
        stacks = (request.sides[0].cell.stack, request.sides[1].cell.stack)
        failure = request.result.failure if query.contrast == "fails" else None
        if reason := trials.why_not(query.contrast, answers, stacks, _exception_words(failure)):
            return reason
        if self._zeros_file(folder):
            return self._newly_missing(answers)
        if query.contrast == "unstable":
            return ""
        sides = zip(stacks, answers, (request.reference, *request.candidate[:1]), strict=False)
        for stack, (trial, *_), capture in sides:
            if not trials.matches_capture(
                question, trial, capture, self._values, self._trial_values
            ):
                return f"{stack} gives different bits than in the run"
        return ""

    def _newly_missing(self, answers: Answers) -> str:
        """Return a key that loading misses in a stand-in but not in the model; '' if none."""
        load = self._request.reference.signals.load
        captured = {*load.missing_keys, *load.mismatched_keys} if load is not None else set()
        loading = answers.reference[0].loading
        missing = {*loading.get("missing_keys", ()), *loading.get("mismatched_keys", ())}
        if not missing - captured:
            return ""
        stack = self._request.sides[0].cell.stack
        return f"{stack} reports {min(missing - captured)} as a missing key"

    @property
    def _size(self) -> int:
        """Bytes of a copy of the model; 0 for a hub model, which is not copied."""
        on_hub = self._request.model.hub is not None
        return 0 if on_hub else files.size(Path(self._request.checkpoint.source))

    def _checkpoint_copy(self) -> Path | None:
        if self._request.model.hub is not None:
            return None
        if (n := self._size) > _MAX_COPIED:
            msg = f"its checkpoint has {n >> 20:,} MiB, too many to copy{self._no_stand_in}"
            raise CannotReproduce(msg)
        out = self._work / "as-captured" / FOLDER
        code = self._request.model.trust_remote_code
        files.copy_checkpoint(Path(self._request.checkpoint.source), out, code=code)
        return out

    async def _shrink(self, query: Query, base: Case) -> Case:
        """Return the smallest case found in a limited number of trials."""
        case, trials_left = base, shrinking.MAX_TRIALS
        min_distance = self._min_distance(query, base)
        for proposals in (
            self._fewer_rows,
            self._fewer_layers,
            self._fewer_steps,
            self._fewer_tokens,
        ):
            for question, folder, left_out in proposals(case):
                if not trials_left:
                    return case
                trials_left -= 1
                answers = await self._run_scripts(query, question, folder)
                if self._still_shows(query, question, answers, base.answers, min_distance):
                    case = Case(question, folder, answers, query.contrast, (*case.shrunk, left_out))
                    break
        return case

    def _still_shows(
        self, query: Query, question: Question, answers: Answers, base: Answers, min_distance: float
    ) -> bool:
        if not trials.holds(query.contrast, answers, base):
            return False
        metrics = trials.distance(question, answers, self._trial_values)
        return query.contrast != "differs" or (
            metrics is not None and metrics.max_abs >= min_distance
        )

    def _min_distance(self, query: Query, base: Case) -> float:
        """Return the distance that a smaller case has to keep."""
        if query.contrast != "differs" or self._request.result.judged.passes:
            return 0.0
        metrics = trials.distance(base.question, base.answers, self._trial_values)
        return metrics.max_abs * shrinking.KEPT_SHARE if metrics is not None else 0.0

    def _fewer_rows(self, case: Case) -> Iterator[tuple[Question, Path | None, str]]:
        if case.question.before:
            return
        for question in shrinking.single_rows(case.question):
            yield question, case.folder, "one row of the padded batch, without its padding"

    def _fewer_layers(self, case: Case) -> Iterator[tuple[Question, Path | None, str]]:
        if case.folder is None:
            return
        total = files.n_layers(case.folder)
        for n in shrinking.layer_counts(self._request.result, total):
            out = self._work / f"layers-{n}" / FOLDER
            try:
                files.copy_with_layers(case.folder, out, n)
            except files.CannotShrink:
                return
            yield case.question, out, f"{n} of {total} layers"

    def _fewer_steps(self, case: Case) -> Iterator[tuple[Question, Path | None, str]]:
        """Yield fewer greedy steps before an exception; for a difference see :meth:`_cut_steps`."""
        if case.question.kind == "generate" and case.contrast == "fails":
            for n in range(1, min(3, case.question.steps)):
                left_out = f"{n} of {case.question.steps} greedy steps"
                yield case.question.model_copy(update={"steps": n}), case.folder, left_out

    def _fewer_tokens(self, case: Case) -> Iterator[tuple[Question, Path | None, str]]:
        if case.question.before or case.question.kind not in {"forward", "generate"}:
            return
        metrics = trials.distance(case.question, case.answers, self._trial_values)
        largest = metrics.top[0].index if metrics is not None and metrics.top else None
        places = (metrics.first_index if metrics is not None else None, largest)
        tokens = case.question.feed.get("input_ids")
        total = len(tokens.rows[0]) if tokens and tokens.rows else 0
        for question in shrinking.fewer_tokens(case.question, places):
            n = len(question.feed["input_ids"].rows[0])
            yield question, case.folder, f"{n} of {total} tokens of the prompt"

    async def _cut_steps(self, query: Query, case: Case) -> Case:
        """Return the case with only as many greedy steps as it needs."""
        question = case.question
        if question.kind != "generate" or query.contrast != "differs":
            return case
        steps = trials.steps_needed(case.answers, self._trial_values)
        if steps is None or steps >= question.steps:
            return case
        cut = question.model_copy(update={"steps": steps})
        answers = await self._run_scripts(query, cut, case.folder)
        if not trials.holds(query.contrast, answers):
            return case
        return case._replace(question=cut, answers=answers)

    def _refuse_large(self, case: Case) -> None:
        if case.folder is not None and (n := files.size(case.folder)) > files.LIMIT:
            fewer = " with fewer layers" if n < self._size else ""
            raise CannotReproduce(
                f"its checkpoint has {n / 2**20:,.1f} MiB{fewer}, and a reproducer holds "
                f"{files.LIMIT >> 20}{self._no_stand_in}"
            )

    async def _run_scripts(self, query: Query, question: Question, folder: Path | None) -> Answers:
        """Run both scripts in the stacks' processes; three times each for an unstable cell."""
        self._n_trials += 1
        script_folder = folder.parent if folder is not None else self._work / "hub"
        script_folder.mkdir(parents=True, exist_ok=True)
        unstable = query.contrast == "unstable"
        runs: tuple[RunName, ...] = ("a", "a", "b") if unstable else ("a",)
        scripts = []
        for side in self._request.sides:
            path = script_folder / f"trial-{self._n_trials}-{script_name(side.cell.stack)}"
            text = script(self._subject(question, folder), _installed(side))
            path.write_text(text, "utf-8")
            scripts.append((side.process, path))
        timeout = self._request.model.timeout
        results = await asyncio.gather(
            *(
                trials.run_trial(
                    process,
                    path,
                    run,
                    self._work,
                    timeout,
                    nth,
                    question.threads,
                    trusts_code=self._request.model.trust_remote_code,
                )
                for process, path in scripts
                for nth, run in enumerate(runs)
            )
        )
        return Answers(tuple(results[: len(runs)]), tuple(results[len(runs) :]))

    def _subject(self, question: Question, folder: Path | None) -> Subject:
        model, load = self._request.model, self._request.reference.signals.load
        assert load is not None
        return Subject(
            model.name,
            self._request.result.cell.variant,
            question,
            _model_class(model, load.model_class, self._request.checkpoint),
            model.hub,
            model.revision,
            model.trust_remote_code,
            load.class_module,
            model.imports,
            tuple(model.load.items()),
            model.logits,
            self._zeros_file(folder),
        )

    def write(self, case: Case, result: CellResult, machine: Machine) -> Path:
        """Write the capsule's files into a new folder and return the folder."""
        request, folder = self._request, self._work / "capsule"
        folder.mkdir()
        subject = self._subject(case.question, case.folder)
        if case.folder is not None:
            files.copy_checkpoint(case.folder, folder / FOLDER)
            subject = subject._replace(files=files.digests(folder / FOLDER))
        metrics = trials.distance(case.question, case.answers, self._trial_values)
        sees = tuple(map(_sees, (case.answers.reference, case.answers.candidate)))
        first_index = metrics.top[0].index if metrics is not None and metrics.top else None
        sides = []
        for number, side in enumerate(request.sides):
            expectation = Expectation(
                sees[number],
                sees[1 - number],
                request.sides[1 - number].cell.stack,
                machine.cpu_capability,
                first_index,
            )
            installed = _installed(side)
            for wheel in _wheels(side).values():
                shutil.copy(wheel, folder)
            text = script(subject, installed, expectation)
            (folder / script_name(side.cell.stack)).write_text(text, "utf-8")
            sides.append(_side(installed, sees[number]))
        file = CapsuleFile(
            cell=request.result.cell,
            contrast=case.contrast,
            question=case.question,
            checkpoint=FOLDER if case.folder is not None else request.checkpoint.shown_source,
            shrunk=case.shrunk,
            reference=sides[0],
            candidate=sides[1],
            platform=machine.platform,
            cpu_capability=machine.cpu_capability,
        )
        # a reader needs these before the schema, which has the defaults of all other fields
        head = {
            name: getattr(file, name) for name in ("format", "format_version", "hash_algorithm")
        }
        text = json.dumps(head | file.model_dump(mode="json", exclude_defaults=True), indent=1)
        (folder / EXPECTED).write_text(f"{text}\n", "utf-8")
        (folder / ISSUE).write_text(issue(self._issue(file, result, metrics)), "utf-8")
        return folder

    def _issue(self, file: CapsuleFile, result: CellResult, metrics: Metrics | None) -> Issue:
        request = self._request
        scripts = {
            side.script: (self._work / "capsule" / side.script).read_text("utf-8")
            for side in (file.reference, file.candidate)
        }
        return Issue(
            file,
            result,
            request.result,
            metrics,
            request.checkpoint.shown_source,
            request.model.build is not None,
            scripts,
        )


def _installed(side: Party) -> Installed:
    wheels = {name: Path(path).name for name, path in _wheels(side).items()}
    return Installed(side.cell.stack, side.python, side.stack.packages, wheels)


def _wheels(side: Party) -> dict[str, str]:
    """Return the wheels of packages that only this machine has: name -> path."""
    return side.stack.wheels if isinstance(side.stack, ExtendedStack) else {}


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


def _sees(results: tuple[trials.Trial, ...]) -> Seen:
    first = results[0]
    if first.error:
        return Seen(error=first.error, message=trials.portable_message(trials.first_line(first)))
    hashes = {trial.ref.hash for trial in results if trial.ref is not None}
    ref = first.ref.model_copy(update={"stored": False}) if first.ref is not None else None
    return Seen(unstable=True) if len(hashes) > 1 else Seen(ref=ref, sha256=first.sha256)


def _exception_words(failure: Failure | None) -> str:
    """Return an exception's class and the first line of its message; '' without an exception."""
    if failure is None:
        return ""
    first_line = failure.message.strip().partition("\n")[0]
    return f"{failure.type.rpartition('.')[2]}: {first_line}"


def _model_class(model: ModelSpec, class_name: str, checkpoint: Checkpoint) -> str:
    """Return the class to load with, chosen as in probes/samebits_probe/model/load.py."""
    if not model.trust_remote_code or model.has_own_code:
        return class_name
    path = Path(checkpoint.source) / "config.json"
    auto_map = json.loads(path.read_text("utf-8")).get("auto_map", {}) if path.is_file() else {}
    names = [name for name in auto_map if name.startswith("AutoModel") and name.isidentifier()]
    preferred = "AutoModelForCausalLM"
    if model.hub is not None or preferred in names:
        return preferred
    return names[0] if names else class_name
