"""The scheduler: a plan becomes captures, and a failure affects only the cells that need it."""

import asyncio
import os
from pathlib import Path

import pytest

from samebits.base.errors import StackMachineError
from samebits.diagnose.exit_code import exit_code
from samebits.diagnose.verdict import result
from samebits.matrix.spec import Recipe, Rule
from samebits.records.capture import Capture, Failure
from samebits.records.ids import CellId
from samebits.records.inputs import InputsFile
from samebits.records.record import read_record
from samebits.records.report import StackReport
from samebits.stacks import costs
from samebits.stacks.packages import PackagesError
from tests.support.builders import model_spec
from tests.support.fakes import ended, leave
from tests.support.scheduler_bench import STACKS, Bench, extended, probe, recipe, statuses


def failures(runs):
    return {
        f"{cell.model}@{cell.stack}": (pair[0].failure.phase, pair[0].failure.message)
        for cell, pair in runs.items()
        if pair[0].failure
    }


COMPLETE = ["complete"] * 2
FAILED = ["failed"] * 2


def test_every_cell_of_the_plan_has_two_captures_in_its_order(tmp_path):
    bench = Bench(tmp_path, recipe(), recipe("small", "llama"))
    runs = bench.run()
    assert tuple(runs) == bench.plan.cells
    assert list(statuses(runs).values()) == [COMPLETE] * 6
    assert all((a.run, b.run) == ("a", "b") for a, b in runs.values())
    assert len(bench.jobs_of("cell")) == 12
    assert sorted(bench.built) == sorted(STACKS)
    assert all(process.has_ended for process in bench.starter.processes)


def test_a_second_run_uses_what_the_first_left(tmp_path):
    first = Bench(tmp_path).run()
    second = Bench(tmp_path)
    assert second.run() == first
    assert second.jobs == []
    assert second.starter.started == []
    assert second.lab.machine == {"platform": "Linux", "cpu": "fake"}  # of the first run
    fresh = Bench(tmp_path, fresh=True)
    assert fresh.run() == first
    assert len(fresh.jobs_of("cell")) == 6
    assert fresh.jobs_of("build") == []


def test_what_is_told_while_it_runs(tmp_path):
    bench = Bench(tmp_path, failing=("5.0",))
    bench.run()
    progress = bench.progress
    assert set(progress.of("stack 4.48")) == {
        "stack 4.48: resolving and building",
        "stack 4.48: transformers 4.48.0",
    }
    assert progress.of("stack 5.0")[-1] == "stack 5.0: failed"
    assert sorted(progress.of("done")) == [
        "done llama/float32-sdpa@4.48: complete",
        "done llama/float32-sdpa@4.57: complete",
        "done llama/float32-sdpa@5.0: failed",
    ]
    assert progress.of("failure") == [
        "failure failed: llama/float32-sdpa@5.0: stack 5.0: no resolution: numpy is too old"
    ]


def test_every_phase_is_told_from_beginning_to_end(tmp_path):
    bench = Bench(tmp_path, recipe(), recipe("small", "llama"))
    bench.run()
    assert [line for line in bench.progress.lines if line.startswith(("begin", "end"))] == [
        "begin stacks (3): 3, built where they are new",
        "end stacks",
        "begin cells (6): 6 cells of 2 models, each run twice",
        "begin checkpoints (2): 2 to read or make",
        "end checkpoints",
        "end cells",
    ]
    assert sorted(bench.progress.advanced) == [*["checkpoints"] * 2, *["stacks"] * 3]
    assert set(bench.lab.scope.phases.taken) == {"stacks", "cells", "checkpoints"}


def fails(message, type="KeyError"):
    """Return the behaviour of a stack in which a model does not load."""

    def does(job):
        if job["kind"] in {"build", "inputs"}:
            return probe(job)
        cell = CellId.model_validate(job["cell"])
        failure = Failure(phase="load", type=type, message=message, traceback="")
        written = Capture(cell=cell, run=job["run"], status="failed", failure=failure)
        leave(job["capture"], written)
        return ended(job)

    return does


def test_what_fails_in_every_stack_is_said_once(tmp_path):
    bench = Bench(tmp_path, does=dict.fromkeys(STACKS, fails("'a'")))
    bench.run()
    line = "failure failed in all 3 environments: llama/float32-sdpa: load: KeyError: 'a'"
    assert bench.progress.of("failure") == [line]
    # once its last cell is known
    assert bench.progress.lines.index(line) > bench.progress.lines.index(
        bench.progress.of("done")[-1]
    )


def test_what_fails_otherwise_in_one_of_them_is_said_apart(tmp_path):
    bench = Bench(tmp_path, does={"4.48": fails("'a'"), "4.57": fails("'a'"), "5.0": fails("'b'")})
    bench.run()
    assert bench.progress.of("failure") == [
        "failure failed in 4.48, 4.57: llama/float32-sdpa: load: KeyError: 'a'",
        "failure failed: llama/float32-sdpa@5.0: load: KeyError: 'b'",
    ]


@pytest.mark.parametrize(
    ("type", "message", "words", "outcome"),
    [
        ("OSError", "[Errno 28] No space left on device", "not finished", "unfinished"),
        ("MemoryError", "8 GiB", "not finished", "unfinished"),
        ("KeyError", "'a'", "failed", "failed"),
    ],
)
def test_what_the_machine_ended_is_said_to_be_not_finished(tmp_path, type, message, words, outcome):
    bench = Bench(tmp_path, does=dict.fromkeys(STACKS, fails(message, type)))
    bench.run()
    (line,) = bench.progress.of("failure")
    assert line.startswith(f"failure {words} in all 3 environments: llama/float32-sdpa: ")
    assert message in line
    assert {line.partition(": ")[2] for line in bench.progress.of("done")} == {outcome}


# what a run takes


def test_the_cells_that_have_captures_are_counted(tmp_path):
    first = Bench(tmp_path)
    first.run()
    assert not [line for line in first.progress.of("note") if "known from" in line]
    second = Bench(tmp_path, recipe(), recipe("small", "llama"))
    second.run()
    assert "note 3 of 6 cells known from an earlier run" in second.progress.lines
    fresh = Bench(tmp_path, fresh=True)
    fresh.run()
    assert not [line for line in fresh.progress.of("note") if "known from" in line]


def test_what_jobs_took_is_left_for_an_estimate(tmp_path):
    bench = Bench(tmp_path)
    bench.run()
    assert not hasattr(bench.progress, "estimate")
    bench.lab.finished = True
    bench.lab.keep_costs()
    recorded = costs.read(tmp_path / "work")
    assert recorded.new == 3
    assert recorded.of["llama/float32-sdpa@5.0"]["cell"] == costs.Cost(jobs=2, seconds=1.0, cpu=0.0)
    again = Bench(tmp_path, fresh=True)
    again.run()
    # three cells of a second each, four at a time
    assert again.progress.estimate.phases["cells"] == pytest.approx(3 * 1.0 / 4)
    assert again.progress.estimate.weights == {str(cell): 1.0 for cell in again.plan.cells}
    assert [line for line in again.progress.of("note") if "estimated from earlier" in line]


def test_no_estimate_is_said_before_cells_run_and_nothing_for_known_ones(tmp_path):
    first = Bench(tmp_path, level="quick")
    first.run()
    unknown = "note no earlier run at this level to estimate the minutes from"
    assert unknown in first.progress.lines
    again = Bench(tmp_path, level="quick")
    again.run()
    assert unknown not in again.progress.lines


# stacks


def test_a_stack_that_cannot_be_built_fails_its_cells_alone(tmp_path):
    bench = Bench(tmp_path, failing=("4.57",))
    runs = bench.run()
    assert statuses(runs) == {"llama@4.48": COMPLETE, "llama@4.57": FAILED, "llama@5.0": COMPLETE}
    assert failures(runs) == {
        "llama@4.57": ("stack", "stack 4.57: no resolution:\nnumpy is too old")
    }
    failed = {id: str(error) for id, error in bench.lab.stacks.failures.items()}
    assert failed == {"4.57": "stack 4.57: no resolution:\nnumpy is too old"}
    assert "stack 4.57: failed" in bench.progress.lines
    assert list(bench.lab.stacks.built) == ["4.48", "5.0"]
    assert bench.built.count("4.57") == 1, "what nothing fits is not tried again"


def test_a_stack_that_the_machine_kept_from_being_built_is_not_finished(tmp_path):
    bench = Bench(tmp_path, failing=("4.57",))
    bench.error = StackMachineError
    runs = bench.run()
    unfinished = ["unfinished"] * 2
    assert statuses(runs) == {
        "llama@4.48": COMPLETE,
        "llama@4.57": unfinished,
        "llama@5.0": COMPLETE,
    }
    ((capture, _),) = (pair for cell, pair in runs.items() if cell.stack == "4.57")
    assert capture.unfinished.phase == "stack"
    assert capture.unfinished.reason == "stack 4.57: no resolution: numpy is too old"
    assert "stack 4.57: not finished" in bench.progress.lines
    assert _code(runs, "4.57") == 3


def test_a_stack_whose_packages_do_not_fit_fails_the_run(tmp_path):
    assert _code(Bench(tmp_path, failing=("4.57",)).run(), "4.57") == 1


def _code(runs, stack):
    """Return the exit code of a run with the cells of one stack, which was not built."""
    reference = next(iter(runs.values()))
    results = [result(c, pair, reference, None) for c, pair in runs.items() if c.stack == stack]
    return exit_code(results, [], [StackReport(id=stack, failure="no resolution")])[0]


def test_what_the_builders_say_is_shown_and_kept_for_the_report(tmp_path):
    bench = Bench(tmp_path)
    bench.run()
    assert bench.lab.notes == ()
    bench.lab.stacks._installer.say("stack 4.57 was damaged")
    assert bench.lab.notes == ("stack 4.57 was damaged",)
    assert {f"note {note}" for note in bench.lab.notes} <= set(bench.progress.lines)


def test_no_stack_at_all_is_no_crash(tmp_path):
    bench = Bench(tmp_path, failing=STACKS)
    assert list(statuses(bench.run()).values()) == [FAILED] * 3
    assert bench.lab.machine is None
    assert bench.lab.checkpoints.known == {}
    assert bench.starter.started == []


def test_a_process_that_never_comes_up_fails_its_cells_alone(tmp_path):
    bench = Bench(tmp_path)

    async def start(python, environment, log):
        process = await Bench.start(bench, python, environment, log)
        if python == "python4.57":
            process._lines.get_nowait()
            process.die()
        return process

    bench.start = start
    runs = bench.run()
    assert statuses(runs)["llama@4.57"] == FAILED
    assert failures(runs) == {
        "llama@4.57": (
            "process",
            "the environment could not import its packages; the end of its log:\nlast words",
        )
    }
    assert bench.lab.machine == {"platform": "Linux", "cpu": "fake"}


def test_only_the_stacks_of_the_plan_are_built(tmp_path):
    hub = model_spec("hub", hub="org/hub")
    bench = Bench(tmp_path, hub, select={"environments": "4.57"})
    bench.run()
    assert bench.built == ["4.57"]


@pytest.mark.parametrize(
    ("model", "built"),
    [
        (recipe(), ["4.48", "4.57"]),
        (recipe(stack="5.0"), ["4.57", "5.0"]),
        (recipe(stack="4.57"), ["4.57"]),
        (recipe(architecture="gemma3"), ["4.48", "4.57"]),
        (recipe(architecture="qwen3"), ["4.48", "4.57", "5.0"]),
    ],
    ids=["oldest", "a-newer-one", "itself", "not-the-oldest", "none-of-the-plan"],
)
def test_and_those_that_may_have_to_make_a_checkpoint_for_it(tmp_path, model, built):
    bench = Bench(tmp_path, model, select={"environments": "4.57"})
    runs = bench.run()
    assert sorted(bench.built) == built
    assert statuses(runs) == {"llama@4.57": COMPLETE}


# checkpoints


def test_the_oldest_stack_that_knows_it_makes_the_checkpoint_once_for_all(tmp_path):
    bench = Bench(tmp_path, recipe(), recipe("gemma3"), recipe("qwen3"))
    runs = bench.run()
    assert {(s, j["recipe"]["architecture"]) for s, j in bench.jobs_of("build")} == {
        ("4.48", "llama"),
        ("4.57", "gemma3"),
        ("5.0", "qwen3"),
    }
    assert len(bench.jobs_of("build")) == 3
    assert set(map(tuple, statuses(runs).values())) == {tuple(COMPLETE)}
    for model, builder in (("llama", "4.48"), ("gemma3", "4.57"), ("qwen3", "5.0")):
        checkpoint = bench.lab.checkpoints.known[model]
        assert (checkpoint.builder, checkpoint.parameters) == (builder, 12)
        sources = {
            job["model"]["source"] for _, job in bench.jobs_of("cell") if model in job["log"]
        }
        assert sources == {checkpoint.source}


def test_a_release_between_the_stacks_makes_no_checkpoint(tmp_path):
    """Releases that ``--releases`` adds run the same checkpoint as the matrix."""
    bench = Bench(tmp_path, between=("4.48",))
    bench.run()
    assert [stack for stack, _ in bench.jobs_of("build")] == ["4.57"]


def test_the_next_oldest_makes_it_if_the_oldest_could_not_be_built(tmp_path):
    bench = Bench(tmp_path, failing=("4.48",))
    bench.run()
    assert [stack for stack, _ in bench.jobs_of("build")] == ["4.57"]


def test_a_recipe_that_nobody_knows_fails_its_cells_alone(tmp_path):
    bench = Bench(tmp_path, recipe(), recipe("odd", "lama"))
    runs = bench.run()
    assert statuses(runs)["llama@5.0"] == COMPLETE
    assert failures(runs) == {
        f"odd@{stack}": (
            "build",
            "no environment of the matrix knows the architecture 'lama'; did you mean \"llama\"?",
        )
        for stack in STACKS
    }
    assert "odd" not in bench.lab.checkpoints.known
    assert len(bench.progress.of("done odd")) == 3


def test_a_named_builder_that_could_not_be_built_is_said(tmp_path):
    runs = Bench(tmp_path, recipe(stack="5.0"), failing=("5.0",)).run()
    assert failures(runs)["llama@4.48"] == (
        "build",
        "environment 5.0, which makes the checkpoint, could not be built",
    )


@pytest.mark.parametrize("dies", [False, True], ids=["child", "process"])
def test_a_checkpoint_that_could_not_be_made_fails_its_cells_with_the_log(tmp_path, dies):
    def breaks(job):
        if job["kind"] != "build" or job["recipe"]["architecture"] != "llama":
            return probe(job)
        Path(job["log"]).parent.mkdir(parents=True, exist_ok=True)
        Path(job["log"]).write_text("KeyError: 'rope'")
        return OSError("killed") if dies else ended(job, exit=1)

    runs = Bench(tmp_path, recipe(), recipe("gemma3"), does={"4.48": breaks}).run()
    assert statuses(runs)["gemma3@4.48"] == COMPLETE
    for stack in STACKS:
        phase, message = failures(runs)[f"llama@{stack}"]
        assert phase == "build"
        assert message.startswith("4.48 could not make the checkpoint: ")
        assert ("the environment's process died" if dies else "exited with 1") in message
        assert message.endswith("\nKeyError: 'rope'")


@pytest.mark.parametrize("limit", ["NoneMade", "TooLarge"])
def test_a_type_that_samebits_cannot_make_blames_no_release(tmp_path, limit):
    def knows_no_plan(job):
        return ended(job, exit=1, said=f"{limit}: no plan") if job["kind"] == "build" else None

    runs = Bench(tmp_path, recipe(), does={"4.48": knows_no_plan}).run()
    reasons = {first.unfinished.reason for first, _ in runs.values()}
    assert reasons == {
        "samebits makes no tiny model of llama: no plan. Name a checkpoint of it instead"
    }
    assert failures(runs) == {}


def test_a_type_that_an_older_release_cannot_make_is_made_by_a_newer_one(tmp_path):
    def knows_no_plan(job):
        return (
            ended(job, exit=1, said="NoneMade: no plan") if job["kind"] == "build" else probe(job)
        )

    bench = Bench(tmp_path, recipe(auto=True), does={"4.48": knows_no_plan})
    assert all(status == COMPLETE for status in statuses(bench.run()).values())
    assert [stack for stack, _ in bench.jobs_of("build")] == ["4.48", "4.57"]


def test_a_folder_is_loaded_as_it_is(tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    bench = Bench(tmp_path, model_spec("tiny", path="tiny"))
    bench.run()
    assert bench.jobs_of("build") == []
    sources = {job["model"]["source"] for _, job in bench.jobs_of("cell")}
    assert sources == {str((tmp_path / "tiny").resolve())}


# the second look


def test_a_second_look_runs_the_cells_that_differ_anew_for_their_values(tmp_path):
    bench = Bench(tmp_path)
    hashes = {"ab" * 32}
    runs = bench.run(again=lambda runs: {cell: hashes for cell in runs if cell.stack == "5.0"})
    wanted = [(s, j["store"]["wanted"]) for s, j in bench.jobs_of("cell") if j["store"]["wanted"]]
    assert wanted == [("5.0", ["ab" * 32])], "a short second run stores nothing"
    assert len(bench.jobs_of("cell")) == 6 + 2
    assert len(bench.jobs_of("build")) == 1
    assert len(runs) == 3
    assert len(bench.progress.of("done")) == 3  # no cell is counted twice
    assert bench.progress.of("begin second") == [
        "begin second look (1): 1 cell again, to store the values that differ"
    ]
    assert bench.progress.lines[-1] == "end second look"


def test_nothing_wanted_no_second_look(tmp_path):
    bench = Bench(tmp_path)
    bench.run(again=lambda runs: {})
    assert bench.progress.of("begin second") == []
    assert len(bench.jobs_of("cell")) == 6


# what the processes see


def test_the_hub_is_switched_off_unless_a_model_of_the_plan_is_there(tmp_path):
    models = recipe(), model_spec("hub", hub="org/hub")
    for select, offline in (({}, None), ({"models": "llama"}, "1")):
        bench = Bench(tmp_path, *models, select=select, fresh=True)
        bench.run()
        assert {env.get("HF_HUB_OFFLINE") for _, env, _ in bench.starter.started} == {offline}


def test_each_stack_has_a_log_and_a_copy_of_remote_code_of_its_own(tmp_path):
    bench = Bench(tmp_path)
    bench.run()
    logs = {log for _, _, log in bench.starter.started}
    modules = {env["HF_MODULES_CACHE"] for _, env, _ in bench.starter.started}
    assert len(logs) == len(modules) == 3
    assert not any(Path(folder).exists() for folder in modules)


def test_excluded_cells_are_not_run(tmp_path):
    rule = Rule(stack=("4.57",))
    bench = Bench(tmp_path, exclude=(rule,))
    assert list(statuses(bench.run())) == ["llama@4.48", "llama@5.0"]
    assert {stack for stack, _ in bench.jobs_of("cell")} == {"4.48", "5.0"}


def test_closing_before_anything_ran_is_no_mistake(tmp_path):
    async def main():
        await Bench(tmp_path).make().close()

    asyncio.run(main())


def test_slots_bound_the_cells_of_all_stacks_together(tmp_path):
    running, most = 0, 0

    async def slowly(job):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        return probe(job)

    for slots, model in ((1, recipe()), (3, recipe("gemma3"))):
        most = 0
        Bench(tmp_path, model, does=dict.fromkeys(STACKS, slowly), slots=slots).run()
        assert most == slots


def test_without_a_number_there_is_a_slot_for_each_core(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(7))
    slots = Bench(tmp_path, slots=None).make().scope.slots
    assert (slots.jobs, slots.cores) == (7, 7)
    slots = Bench(tmp_path, slots=2).make().scope.slots
    assert (slots.jobs, slots.cores) == (2, 7)


def test_what_runs_left_long_ago_goes_and_nothing_else(tmp_path):
    kept = {"modules/mine", f"logs/4.48-{'b' * 12}.log", "logs/notes.txt"}
    gone = {f"modules/{'0' * 12}-{'a' * 12}", f"logs/5.0-{'a' * 12}.log"}
    for name in kept | gone:
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        if "b" * 12 not in name:
            os.utime(path, (0, 0))
    bench = Bench(tmp_path, failing=STACKS)
    bench.run()
    assert {name for name in kept | gone if (tmp_path / "work" / name).exists()} == kept


def test_a_run_leaves_no_copies_of_remote_code(tmp_path):
    bench = Bench(tmp_path)

    async def main():
        scheduler = bench.make()
        await scheduler.observe()
        folders = [scheduler.stacks.modules(s) for s in scheduler.stacks.built.values()]
        for folder in folders:
            folder.mkdir(parents=True)
        await scheduler.close()
        return folders

    folders = asyncio.run(main())
    assert len(folders) == 3
    assert not any(folder.exists() for folder in folders)


def with_packages(name="mine", **changed):
    return model_spec(
        name,
        build=Recipe(architecture="of-a-package"),
        packages=("my-models",),
        imports=("my_models",),
        **changed,
    )


def test_packages_run_beside_the_stack_in_a_process_of_their_own(tmp_path):
    bench = Bench(tmp_path, recipe(), with_packages(), with_packages("twin"))
    runs = bench.run()
    assert list(statuses(runs).values()) == [COMPLETE] * 9
    folders = {}
    for (_, environment, _), process in zip(
        bench.starter.started, bench.starter.processes, strict=True
    ):
        for job in process.jobs:
            if job["kind"] == "cell":
                cell = job["cell"]["model"], job["cell"]["stack"]
                folders.setdefault(cell, set()).add(environment.get("SAMEBITS_PACKAGES"))
    for stack in STACKS:
        # the environment of a model without packages is that of the stack alone
        assert folders["llama", stack] == {None}
        assert folders["mine", stack] == folders["twin", stack] == {f"/packages/{stack}"}
    assert len(bench.starter.started) == 2 * len(STACKS)
    logs = [str(log) for _, _, log in bench.starter.started]
    assert len(set(logs)) == len(logs)


def test_the_oldest_stack_makes_what_a_package_registers(tmp_path):
    bench = Bench(tmp_path, with_packages(model_class="my_models.modeling:Mine"))
    bench.run()
    ((stack, job),) = bench.jobs_of("build")
    assert stack == "4.48"
    assert (job["imports"], job["model_class"]) == (["my_models"], "my_models.modeling:Mine")


@pytest.mark.parametrize(("contradicts", "status"), [(True, "absent"), (False, "failed")])
def test_packages_that_are_not_installed_fail_no_other_cell(tmp_path, contradicts, status):
    def extend(stack, python, packages, stays):
        if stack.id == "4.57":
            msg = "its packages cannot be installed: Because …"
            raise PackagesError(msg, contradicts=contradicts)
        return extended(stack, python, packages)

    bench = Bench(tmp_path, recipe(), with_packages(), extend=extend)
    runs = bench.run()
    ended = {cell: kinds for cell, kinds in statuses(runs).items() if kinds != COMPLETE}
    assert ended == {"mine@4.57": [status] * 2}
    (captures,) = (pair for pair in runs.values() if pair[0].status == status)
    said = captures[0].absent if contradicts else captures[0].failure.message
    assert said.startswith("its packages cannot be installed: Because …")
    assert ("All environments get the same version, my-models==1.0" in said) == contradicts
    assert contradicts or captures[0].failure.phase == "packages"
    assert any("my-models" in reason for reason in bench.lab.scope.dependencies.unrepeatable)


class Index:
    """Replaces an index: the versions of packages that fit each stack, the newest first."""

    def __init__(self, **versions):
        self.versions = versions
        self.asked = []

    def __call__(self, stack, python, packages, stays):
        self.asked.append((stack.id, packages))
        return extended(stack, python, [self.fitting(stack.id, package) for package in packages])

    def fitting(self, stack, package):
        name, _, exact = package.partition("==")
        versions = self.versions[name.replace("-", "_")][stack]
        if (exact and exact not in versions) or not versions:
            msg = f"its packages do not fit {stack}: Because {package} excludes it."
            raise PackagesError(msg, contradicts=True)
        return f"{name}=={exact or versions[0]}"


def test_all_stacks_get_the_version_that_the_oldest_has(tmp_path):
    index = Index(my_models={"4.48": ["1.8"], "4.57": ["1.9", "1.8"], "5.0": ["1.5"]})
    bench = Bench(tmp_path, with_packages(), extend=index)
    runs = bench.run()
    versions = {
        stack: beside.added.packages["my-models"]
        for (stack, _), beside in bench.lab.stacks.extended.items()
    }
    assert versions == {"4.48": "1.8", "4.57": "1.8"}
    # an older version, which sets no bound on transformers, is not the model's in 5.0
    absent = next(pair[0] for cell, pair in runs.items() if cell.stack == "5.0")
    assert absent.status == "absent"
    assert absent.absent.startswith("its packages do not fit 5.0: Because my-models==1.8 excludes")
    assert absent.absent.endswith("my-models==1.8, the newest for environment 4.48.")


def test_a_stack_that_cannot_have_the_package_does_not_choose_its_version(tmp_path):
    index = Index(my_models={"4.48": [], "4.57": ["2.0", "1.8"], "5.0": ["2.1", "2.0"]})
    bench = Bench(tmp_path, with_packages(), extend=index)
    runs = bench.run()
    assert {cell.stack: pair[0].status for cell, pair in runs.items()} == {
        "4.48": "absent",
        "4.57": "complete",
        "5.0": "complete",
    }
    assert bench.lab.stacks.extended["5.0", ("my-models",)].added.packages == {"my-models": "2.0"}


IMAGES = ("pillow", "torchvision")
EVERYWHERE = {stack: ["0.28"] for stack in STACKS}


@pytest.mark.parametrize(
    ("torchvision", "installed"),
    [({"5.0": ["0.28"]}, {"pillow", "torchvision"}), ({"5.0": []}, {"pillow"})],
    ids=["everywhere", "not in one"],
)
def test_what_is_added_for_images_is_in_all_stacks_or_in_none(tmp_path, torchvision, installed):
    """What does not fit is a result, and no fault that another run may not have."""
    index = Index(pillow=EVERYWHERE, torchvision=EVERYWHERE | torchvision)
    model = recipe().model_copy(update={"packages": IMAGES, "added": IMAGES})
    bench = Bench(tmp_path, model, extend=index)
    assert list(statuses(bench.run()).values()) == [COMPLETE] * 3
    for stack in STACKS:
        assert bench.lab.stacks.extended[stack, IMAGES].added.packages.keys() == installed
    assert not bench.lab.notes
    assert not bench.lab.scope.dependencies.unrepeatable


def test_what_the_user_listed_is_not_left_out(tmp_path):
    index = Index(pillow=EVERYWHERE, torchvision=EVERYWHERE | {"5.0": []})
    model = recipe().model_copy(update={"packages": IMAGES})
    runs = Bench(tmp_path, model, extend=index).run()
    assert [pair[0].status for pair in runs.values()] == ["complete", "complete", "absent"]


NO_NETWORK = PackagesError("error: client error (Connect)", contradicts=False, machine=True)


class FaultyIndex(Index):
    """An index that some stacks do not reach ``times`` times when they ask for ``missing``."""

    def __init__(self, missing, times, error=NO_NETWORK, **versions):
        super().__init__(**versions)
        self.missing, self.times, self.error = missing, times, error

    def __call__(self, stack, python, packages, stays):
        if stack.id == "5.0" and self.missing in packages and self.times:
            self.asked.append((stack.id, packages))
            self.times -= 1
            raise self.error
        return super().__call__(stack, python, packages, stays)


@pytest.mark.parametrize("error", [NO_NETWORK, OSError(28, "No space left on device")], ids=str)
def test_packages_that_the_machine_did_not_let_be_installed_are_tried_again(tmp_path, error):
    index = FaultyIndex("my-models==0.28", 1, error, my_models=EVERYWHERE)
    bench = Bench(tmp_path / "once", with_packages(), extend=index)
    assert list(statuses(bench.run()).values()) == [COMPLETE] * 3
    assert [id for id, _ in index.asked].count("5.0") == 2
    assert not bench.lab.scope.dependencies.unrepeatable
    index = FaultyIndex("my-models==0.28", 2, error, my_models=EVERYWHERE)
    bench = Bench(tmp_path / "twice", with_packages(), extend=index)
    assert statuses(bench.run())["mine@5.0"] == ["unfinished"] * 2


def test_packages_that_do_not_fit_are_not_tried_again(tmp_path):
    index = Index(my_models=EVERYWHERE | {"5.0": []})
    Bench(tmp_path, with_packages(), extend=index).run()
    assert [id for id, _ in index.asked].count("5.0") == 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_run_whose_torchvision_was_not_fetched_says_so_and_stands_for_no_other(tmp_path, times):
    index = FaultyIndex("torchvision==0.28", times, pillow=EVERYWHERE, torchvision=EVERYWHERE)
    model = recipe().model_copy(update={"packages": IMAGES, "added": IMAGES})
    bench = Bench(tmp_path, model, extend=index)
    assert list(statuses(bench.run()).values()) == [COMPLETE] * 3
    is_missing = times == 2
    for stack in STACKS:
        installed = bench.lab.stacks.extended[stack, IMAGES].added.packages
        assert ("torchvision" in installed) is not is_missing
    notes = [
        note for note in bench.lab.notes if note.startswith("no torchvision for all environments")
    ]
    assert bool(notes) is is_missing
    assert all("client error (Connect)" in note for note in notes)
    unrepeatable = ["torchvision could not be fetched"] if is_missing else []
    assert list(bench.lab.scope.dependencies.unrepeatable) == unrepeatable


# faults of the machine and of the work folder

UNFINISHED = ["unfinished"] * 2
NO_ROOM = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "error", [NO_ROOM, StackMachineError("uv was killed by signal 9")], ids=str
)
def test_a_stack_that_the_machine_did_not_let_be_built_is_tried_again(tmp_path, error):
    bench = Bench(tmp_path / "once")
    bench.refusing = {"4.57": [error, None]}
    assert set(map(tuple, statuses(bench.run()).values())) == {tuple(COMPLETE)}
    assert bench.built.count("4.57") == 2
    bench = Bench(tmp_path / "always")
    bench.refusing = {"4.57": [error, error]}
    runs = bench.run()
    assert statuses(runs)["llama@4.57"] == UNFINISHED
    (reason,) = {
        run.unfinished.reason for cell, pair in runs.items() for run in pair if cell.stack == "4.57"
    }
    assert str(error) in reason


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ({"exit": None, "signal": 9}, UNFINISHED),
        ({"exit": 1, "said": "OSError: [Errno 28] No space left on device: 'x'"}, UNFINISHED),
        ({"exit": 1, "said": "ValueError: no such option"}, FAILED),
        ({"exit": None, "signal": 11}, FAILED),
    ],
)
def test_a_checkpoint_that_the_machine_did_not_let_be_made_fails_no_cell(tmp_path, end, status):
    def does(job):
        return ended(job, **end) if job["kind"] == "build" else probe(job)

    runs = Bench(tmp_path, does=dict.fromkeys(STACKS, does)).run()
    assert set(map(tuple, statuses(runs).values())) == {tuple(status)}


@pytest.mark.parametrize("fresh", [False, True])
def test_inputs_that_a_job_misses_are_made_again_and_it_runs_once_more(tmp_path, fresh):
    kinds = []

    def does(job):
        kinds.append(job["kind"])
        if job["kind"] == "cell":
            record = Path(job["model"]["inputs"]["record"])
            if kinds.count("cell") == 1:
                record.write_text("damaged")
            if read_record(record, InputsFile) is None:
                return ended(job, exit=1, said=f"StoreFault: {record.name} is damaged")
        return probe(job)

    runs = Bench(tmp_path, does={"4.48": does}, fresh=fresh).run()
    assert set(map(tuple, statuses(runs).values())) == {tuple(COMPLETE)}
    assert kinds.count("inputs") >= 2
    assert kinds.count("cell") >= 3
