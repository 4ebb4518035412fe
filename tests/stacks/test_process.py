"""The process of a stack: answers of jobs, and processes that die, hang or do not start."""

import asyncio
import itertools
import signal
import sys
from pathlib import Path

import pytest

from samebits.stacks import process as stacks_process
from samebits.stacks.process import Ended, StackProcess, start_process, tail
from samebits.stacks.slots import Slots
from tests.support.fakes import READY, FakeProcess, FakeStarter, ended

JOB = {"kind": "cell", "timeout": 10}
LOG = Path("stack.log")


def stack(starter, slots=None):
    return StackProcess("4.48", "python", {"A": "1"}, LOG, slots or Slots(4), starter)


def run(scenario, *processes):
    """Run ``scenario`` with a stack of these processes; return its result and the starter."""

    async def main():
        starter = FakeStarter(*processes)
        process = stack(starter)
        try:
            return await asyncio.wait_for(scenario(process), 5), starter
        finally:
            await process.close()

    return asyncio.run(main())


def after(*answers):
    """Return a process's behaviour: these answers in order of the jobs; None is no answer."""
    remaining = list(answers)
    return lambda job: answer(job) if callable(answer := remaining.pop(0)) else answer


def run_job(process, job=JOB):
    return process.run(job)


# jobs and answers


def test_a_job_is_answered():
    end, starter = run(run_job)
    assert end == Ended(exit=0, seconds=0.5)
    assert end.reason == ""
    assert starter.started == [("python", {"A": "1"}, LOG)]
    (job,) = starter.processes[0].jobs
    assert job == JOB | {"id": "4.48#1", "slots": 4}


def test_a_process_is_started_when_it_is_first_needed_and_once():
    async def scenario(process):
        assert process.machine is None
        await asyncio.gather(*(process.run(JOB) for _ in range(6)))
        return process.machine

    machine, starter = run(scenario)
    assert machine == READY["ready"]
    assert len(starter.started) == 1
    assert run(lambda process: asyncio.sleep(0))[1].started == []


def test_answers_find_their_jobs_in_any_order():
    async def scenario(process):
        jobs = [{"n": n, "timeout": 10} for n in range(4)]
        return await asyncio.gather(*(process.run(job) for job in jobs))

    async def late(job):
        await asyncio.sleep(0.01 * (4 - job["n"]))
        return ended(job, seconds=float(job["n"]))

    ends, _ = run(scenario, lambda: FakeProcess(late))
    assert [answer.seconds for answer in ends] == [0.0, 1.0, 2.0, 3.0]


def test_how_a_child_ended_is_told():
    async def scenario(process):
        return [await process.run(JOB) for _ in range(6)]

    at = {"phase": "greedy long", "step": "3 of 12"}
    quiet = {"stalled": "no progress for 120 s", "meanwhile": "it used no CPU: it waits"}
    does = after(
        lambda job: ended(job, exit=3),
        lambda job: ended(job, exit=None, signal=11),
        lambda job: ended(job, exit=None, signal=250),
        lambda job: ended(job, exit=1, said="SystemExit: enough", phase="forward short"),
        lambda job: ended(job, exit=None, signal=9, **at),
        lambda job: ended(job, exit=None, signal=9, timed_out=True, **at, **quiet),
    )
    ends, _ = run(scenario, lambda: FakeProcess(does))
    place = ", in phase greedy long (3 of 12)"
    memory = ", most likely because memory ran out (use --jobs 1, or more memory)"
    assert [end.reason for end in ends] == [
        "exited with 3",
        "killed by signal 11 (SIGSEGV)",
        "killed by signal 250 (unknown)",
        "exited with 1: SystemExit: enough, in phase forward short",
        f"killed by signal 9 (SIGKILL){memory}{place}",
        f"no progress for 120 s (it used no CPU: it waits; if it was still working, raise timeout: in matrix.yaml){place}",
    ]
    assert ends[4].why.startswith("killed by signal 9 (SIGKILL), most likely")
    assert [end.crashed for end in ends] == [True, True, True, True, False, False]
    assert [end.stopped for end in ends] == [False, False, False, False, True, True]
    assert not Ended(exit=0, phase="greedy long").reason


def test_a_job_may_take_as_long_as_it_makes_progress():
    """The process reports running jobs again and again, and ``on_step`` gets each report."""

    async def scenario(process):
        process.on_step = lambda job, running: reports.append((job["n"], running))
        return await process.run({"timeout": 0.01, "n": 7})

    async def slowly(job):
        for step in range(3):
            await asyncio.sleep(0.02)
            running = {
                "id": job["id"],
                "phase": "forward long",
                "step": step,
                "of": 3,
                "quiet": 0.5,
            }
            fake.say(
                {"running": [running, {"id": "4.48#99", "phase": "none of ours"}, {"id": 3}, 4]}
            )
        return ended(job)

    def started():
        fake.does = slowly
        return fake

    reports, fake = [], FakeProcess()
    end, _ = run(scenario, started)
    assert end.reason == ""
    assert [(n, running.phase, running.step, running.of) for n, running in reports] == [
        *((7, "forward long", step, 3) for step in range(3)),
        (7, "", 0, 0),  # it has ended
    ]


def test_what_a_package_prints_is_no_answer():
    def chatty():
        process = FakeProcess(ready=None)
        process._lines.get_nowait()
        for line in ("Welcome to the library!", "3", '["a"]', "{}", ""):
            process.say(line)
        process.say(READY)

        def does(job):
            process.say("imported something")
            process.say('{"exit": 1}')
            process.say(ended(job, id="4.48#99"))
            return ended(job, seconds=2.0)

        process.does = does
        return process

    end, _ = run(run_job, chatty)
    assert end == Ended(exit=0, seconds=2.0)


# processes that go wrong


def test_the_job_that_ends_its_process_takes_no_other_with_it():
    """Both are lost at first; each runs again in a separate process, where one dies again."""

    def kills(job):
        if job["n"] == "culprit":
            return OSError("killed")
        return None if job["n"] == "beside" else ended(job)

    def calmly(job):
        return kills({**job, "n": "culprit" if job["n"] == "culprit" else "alone"})

    async def scenario(process):
        neighbour = asyncio.create_task(process.run({"timeout": 10, "n": "beside"}))
        await asyncio.sleep(0)
        culprit = await process.run({"timeout": 10, "n": "culprit"})
        return await neighbour, culprit, await process.run({"timeout": 10, "n": "later"})

    def dies(does):
        return lambda: FakeProcess(does)

    (neighbour, culprit, later), starter = run(scenario, dies(kills), *[dies(calmly)] * 3)
    assert culprit.reason == "the environment's process died; the end of its log:\nlast words"
    assert not culprit.timed_out
    assert neighbour.reason == later.reason == ""
    logs = [log.name for _, _, log in starter.started]
    assert logs == ["stack.log", "stack-alone3.log", "stack-alone4.log", "stack.log"]
    assert all(process.has_ended for process in starter.processes)


def test_a_process_that_died_unnoticed_is_found_when_it_is_written_to():
    async def scenario(process):
        await process.run(JOB)
        process._process.has_ended = True
        return await process.run(JOB)

    def gone():
        process = FakeProcess()
        process.has_ended = True
        return process

    end, starter = run(scenario)
    assert end.reason == ""
    assert len(starter.started) == 2
    end, _ = run(scenario, FakeProcess, gone)
    assert (
        end.reason == "the connection to the environment's process was lost: [Errno 32] Broken pipe"
    )


@pytest.mark.parametrize("last", [None, "Traceback (most recent call last):"], ids=["end", "text"])
def test_a_process_that_never_comes_up_fails_every_job_and_is_not_tried_again(last):
    def broken():
        process = FakeProcess(ready=last)
        process.die()
        return process

    async def scenario(process):
        return await asyncio.gather(*(process.run(JOB) for _ in range(3)))

    ends, starter = run(scenario, broken)
    assert {end.reason for end in ends} == {
        "the environment could not import its packages; the end of its log:\nlast words"
    }
    assert len(starter.started) == 1
    assert starter.processes[0].has_ended
    assert starter.processes[0].jobs == []


def gone():
    return FileNotFoundError(2, "No such file", "bin/python")


def test_an_interpreter_that_is_gone_is_no_failure_of_the_model():
    end, starter = run(run_job, gone, gone)
    assert "could not be started" in end.reason
    assert "bin/python" in end.reason
    assert end.stopped
    assert len(starter.started) == 2


def never_ready(code=1, log="Traceback:\nImportError: no such name"):
    return lambda: FakeProcess(ready=None, code=code, log=log)


MACHINE = {
    "killed": (-9, "", "killed by signal 9 (SIGKILL), most likely because memory ran out"),
    "segfault": (-11, "", "killed by signal 11 (SIGSEGV)"),
    "abort": (-6, "terminate called", "killed by signal 6 (SIGABRT)"),
    "memory": (1, "Traceback:\nMemoryError", "MemoryError"),
    "ulimit": (
        1,
        "ImportError: libtorch_cpu.so: failed to map segment from shared object",
        "failed to map segment",
    ),
    "disk": (1, "x\nOSError: [Errno 28] No space left on device", "No space left on device"),
    "files": (1, "OSError: [Errno 24] Too many open files: 'x'", "Too many open files"),
}


@pytest.mark.parametrize(("code", "log", "words"), MACHINE.values(), ids=MACHINE)
def test_a_start_that_the_machine_ended_is_tried_once_more(code, log, words):
    end, starter = run(run_job, never_ready(code, log))
    assert end.reason == ""
    assert len(starter.started) == 2
    end, starter = run(run_job, *[never_ready(code, log)] * 2)
    assert words in end.reason
    assert "while it imported its packages" in end.reason
    assert "2 tries" in end.reason
    assert "\n" not in end.reason
    assert end.stopped, "it would be a failure of the model"
    assert not end.crashed
    assert len(starter.started) == 2


@pytest.mark.parametrize(
    "log", ["Traceback:\nImportError: no such name", "a MemoryError\nKeyError: 1"]
)
def test_a_stack_whose_packages_cannot_be_imported_fails_and_is_not_tried_again(log):
    end, starter = run(run_job, never_ready(1, log))
    last = log.splitlines()[-1]
    first, _, rest = end.reason.partition("; ")
    assert first == f"the environment could not import its packages: {last}"
    assert rest == f"the end of its log:\n{log}"
    assert not end.stopped
    assert len(starter.started) == 1


@pytest.mark.parametrize(("code", "words"), [(3, "exit code is 3"), (None, "unknown")])
def test_an_empty_log_is_said_to_be_empty(code, words):
    for end, _ in (
        run(run_job, never_ready(code, "")),
        run(run_job, *[lambda: FakeProcess(lambda job: OSError(), code=code, log="")] * 2),
    ):
        assert "its log is empty" in end.reason
        assert words in end.reason
        assert not end.reason.rstrip().endswith(":")


def test_a_process_that_is_killed_twice_with_a_job_is_named_with_its_signal():
    def killed():
        return FakeProcess(lambda job: OSError(), code=-9, log="")

    end, starter = run(run_job, killed, killed)
    assert end.reason.startswith("the environment's process was killed by signal 9 (SIGKILL)")
    assert end.stopped
    assert len(starter.started) == 2

    def crashed():
        return FakeProcess(lambda job: OSError(), code=-11, log="")

    end, _ = run(run_job, crashed, crashed)
    assert end.reason == "the environment's process was killed by signal 11 (SIGSEGV)"
    assert not end.stopped, "the job did it, alone in its process"


STORE_FAULT = "StoreFault: 02a0.bin cannot be read"


def test_a_job_that_a_damaged_file_ended_runs_again_after_it_was_mended():
    mended = []

    async def scenario(process):
        async def mend(job):
            assert process._slots._jobs._value == 4, "what mends needs a slot"
            mended.append(job)

        process.mend = mend
        return await process.run(JOB)

    fails = after(lambda job: ended(job, exit=1, said=STORE_FAULT), ended)
    end, _ = run(scenario, lambda: FakeProcess(fails))
    assert (end.reason, mended) == ("", [JOB])


def test_a_file_that_cannot_be_mended_is_no_failure_of_the_model():
    def fails(job):
        return ended(job, exit=1, said=STORE_FAULT)

    end, starter = run(run_job, lambda: FakeProcess(fails))
    assert end.stopped
    assert not end.crashed
    assert end.reason.endswith("also after it was made again: 02a0.bin cannot be read")
    assert len(starter.processes[0].jobs) == 2
    raises = ended({"id": 1}, exit=1, said="RuntimeError: StoreFault: a model's own")
    assert Ended.model_validate({k: v for k, v in raises.items() if k != "id"}).crashed


@pytest.fixture
def listening(monkeypatch):
    monkeypatch.setattr(stacks_process, "_CHECK_INTERVAL", 0.02)
    monkeypatch.setattr(stacks_process, "_MAX_SILENCE", 0.06)


def mute():
    return FakeProcess(lambda job: None)


@pytest.mark.usefixtures("listening")
def test_a_process_that_stops_answering_is_ended_and_its_job_runs_once_more():
    async def scenario(process):
        return await process.run(JOB), await process.run(JOB)

    (silent, again), starter = run(scenario, mute, mute)
    assert silent.reason == "the environment's process stopped answering"
    assert again.reason == ""
    assert [process.has_ended for process in starter.processes[:2]] == [True, True]
    assert len(starter.started) == 3


@pytest.mark.usefixtures("listening")
def test_jobs_beside_one_that_hangs_run_again_at_once_and_end_nothing_later():
    async def scenario(process):
        neighbour_task = asyncio.create_task(process.run(JOB))
        hung = await process.run(JOB)
        neighbour = await asyncio.wait_for(asyncio.shield(neighbour_task), 0.1)
        again = await process.run(JOB)
        await asyncio.sleep(0.25)  # longer than the first process may be silent
        return hung, neighbour, again, await process.run(JOB)

    ends, starter = run(scenario, mute)
    assert [end.reason for end in ends] == [""] * 4
    assert len(starter.started) == 4
    assert len(starter.processes[3].jobs) == 2


@pytest.mark.usefixtures("listening")
def test_a_process_that_speaks_is_left_alone_however_long_a_job_takes():
    async def slowly(job):
        for _ in range(10):
            await asyncio.sleep(0.015)
            fake.say({"running": []})
        return ended(job)

    def made():
        fake.does = slowly
        return fake

    fake = FakeProcess()
    end, starter = run(run_job, made)
    assert end.reason == ""
    assert len(starter.started) == 1


@pytest.mark.usefixtures("listening")
def test_a_process_without_jobs_need_not_speak():
    async def scenario(process):
        await process.run(JOB)
        await asyncio.sleep(0.2)
        return await process.run(JOB)

    end, starter = run(scenario)
    assert end.reason == ""
    assert len(starter.started) == 1


@pytest.mark.parametrize("line", ["[" * 100_000, '{"id": "4.48#1", "exit": "soon"}', "x" * 100])
def test_an_answer_that_is_none_harms_no_job_but_its_own(line):
    def odd():
        process = FakeProcess()
        process.does = lambda job: line if job["n"] == 0 else ended(job)
        return process

    async def scenario(process):
        first = asyncio.create_task(process.run({"timeout": 10, "n": 0}))
        second = await process.run({"timeout": 10, "n": 1})
        await process.close()
        return await first, second

    (first, second), _ = run(scenario, odd)
    assert first.reason
    assert second.reason == ""


def silent(activity=lambda: None):
    def made():
        process = FakeProcess()
        process._lines.get_nowait()
        process.activity = activity
        return process

    return made


def test_a_process_that_never_gets_ready_is_given_up(monkeypatch):
    monkeypatch.setattr(stacks_process, "_CHECK_INTERVAL", 0.01)
    monkeypatch.setattr(stacks_process, "_MAX_START", 0.05)
    end, starter = run(run_job, silent(), silent())
    assert end.reason == "the environment did not finish importing its packages in 0 s (2 tries)"
    assert end.stopped
    assert [process.has_ended for process in starter.processes] == [True, True]


@pytest.fixture
def watching(monkeypatch):
    monkeypatch.setattr(stacks_process, "_CHECK_INTERVAL", 0.01)
    monkeypatch.setattr(stacks_process, "_MAX_IDLE", 0.05)
    monkeypatch.setattr(stacks_process, "_MAX_START", 1000)


@pytest.mark.usefixtures("watching")
def test_a_start_that_does_nothing_is_replaced():
    end, starter = run(run_job, silent(lambda: (1, 2)))
    assert end.reason == ""
    assert len(starter.started) == 2
    end, _ = run(run_job, *[silent(lambda: (1, 2))] * 2)
    assert end.reason.startswith("the environment's process did nothing for 0 s while it imported")
    assert end.stopped


@pytest.mark.usefixtures("watching")
@pytest.mark.parametrize("unknown", [False, True])
def test_a_start_that_works_or_cannot_be_watched_may_take_long(unknown):
    ticks = iter(range(1000))

    def slowly():
        process = silent(lambda: None if unknown else (next(ticks),))()
        asyncio.get_running_loop().call_later(0.3, process.say, READY)
        return process

    end, starter = run(run_job, slowly)
    assert end.reason == ""
    assert len(starter.started) == 1


def test_jobs_that_wait_for_a_start_take_no_slot_from_other_stacks():
    async def main():
        slots = Slots(2)
        stuck = stack(FakeStarter(silent()), slots)
        waiting = [asyncio.create_task(stuck.run(JOB)) for _ in range(4)]
        await asyncio.sleep(0.01)
        well = stack(FakeStarter(), slots)
        ends = await asyncio.wait_for(asyncio.gather(*(well.run(JOB) for _ in range(3))), 2)
        for task in waiting:
            task.cancel()
        await well.close()
        return ends

    assert [end.reason for end in asyncio.run(main())] == [""] * 3


@pytest.mark.parametrize("n_slots", [1, 2])
@pytest.mark.parametrize("spins", [False, True])
def test_starts_that_hang_hold_up_no_other_stack(monkeypatch, n_slots, spins):
    """Not even as many as there are slots, and whether or not they use the processor."""
    monkeypatch.setattr(stacks_process, "_SLOT_OF_START", 0.05)
    ticks = itertools.count()

    async def main():
        slots = Slots(n_slots)
        hung = [
            stack(FakeStarter(silent(lambda: (next(ticks),) if spins else (1,))), slots)
            for _ in range(n_slots)
        ]
        waiting = [asyncio.create_task(process.run(JOB)) for process in hung]
        await asyncio.sleep(0.01)
        well = stack(FakeStarter(), slots)
        end = await asyncio.wait_for(well.run(JOB), 2)
        are_waiting = not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        ended = [process.has_ended for one in hung for process in one._starter.processes]
        await well.close()
        return end.reason, are_waiting, ended

    assert asyncio.run(main()) == ("", True, [True] * n_slots)


def test_no_more_stacks_import_at_once_than_there_are_slots():
    async def main():
        slots, importing, most = Slots(2), [], []

        async def start(python, environment, log):
            importing.append(1)
            most.append(len(importing))
            await asyncio.sleep(0.01)
            importing.pop()
            return FakeProcess()

        stacks = [stack(start, slots) for _ in range(6)]
        ends = await asyncio.gather(*(process.run(JOB) for process in stacks))
        for process in stacks:
            await process.close()
        return max(most), {end.reason for end in ends}

    assert asyncio.run(main()) == (2, {""})


@pytest.mark.processes
def test_the_activity_of_a_stopped_process_stands_still(tmp_path):
    """A process that waits without a word is told from one that works, by what the kernel counts."""
    if not Path("/proc/self/io").exists():
        pytest.skip("this platform has no /proc")
    code = "import time\nwhile True: sum(range(10**5)); time.sleep(0.01)"

    async def main():
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        piped = stacks_process._PipedProcess(process, tmp_path / "log")
        await asyncio.sleep(0.5)
        first = piped.activity()
        for _ in range(50):
            await asyncio.sleep(0.1)
            if piped.activity() != first:
                break
        works = piped.activity() != first
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.1)
        first = piped.activity()
        await asyncio.sleep(0.5)
        stands = piped.activity() == first
        process.kill()
        await process.wait()
        return works, stands, piped.exit_code(), piped.activity()

    assert asyncio.run(main()) == (True, True, -9, None)


def test_a_process_that_is_slow_to_end_does_not_take_the_next_one_with_it():
    async def scenario(process):
        await process.run(JOB)
        first = process._process
        gate = asyncio.Event()
        first.end = gate.wait
        closing = asyncio.create_task(process.close())
        await asyncio.sleep(0)
        running = asyncio.create_task(process.run(JOB))
        await asyncio.sleep(0.01)
        gate.set()
        await closing
        return await running, await process.run(JOB)

    ends, starter = run(scenario)
    assert [end.reason for end in ends] == ["", ""]
    assert len(starter.started) == 2


def test_jobs_that_wait_when_all_is_closed_are_told_and_run_no_more():
    async def scenario(process):
        waiting = asyncio.create_task(process.run(JOB))
        await asyncio.sleep(0.01)
        await process.close()
        await process.close()  # a second call is harmless
        return await waiting

    end, starter = run(scenario, mute)
    assert end.reason == "the environment's process was ended"
    assert len(starter.started) == 1


# slots


def test_slots_bound_how_many_jobs_run_over_all_stacks():
    async def main():
        slots, begun = Slots(2), []

        async def slowly(job):
            await asyncio.sleep(0.005)
            assert len(begun) <= done.count(1) + 2
            done.append(1)
            return ended(job)

        done = []
        starters = [FakeStarter(lambda: FakeProcess(slowly)) for _ in range(2)]
        stacks = [stack(starter, slots) for starter in starters]
        await asyncio.gather(
            *(s.run(JOB, lambda: begun.append(1)) for s in stacks for _ in range(4))
        )
        for s in stacks:
            await s.close()
        return [p.most_running for starter in starters for p in starter.processes], begun

    most, begun = asyncio.run(main())
    assert len(begun) == 8
    assert max(most) <= 2


def test_a_job_that_is_lost_gives_its_slot_back():
    async def main():
        process = stack(FakeStarter(lambda: FakeProcess(ready=None)), Slots(1))
        return [await asyncio.wait_for(process.run(JOB), 1) for _ in range(3)]

    assert all(end.lost for end in asyncio.run(main()))


# logs, and a real process


def test_the_tail_of_a_log(tmp_path):
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_text("".join(f"{n}\n" for n in range(100)), "utf-8")
    assert tail(log, 3) == "97\n98\n99"
    assert len(tail(log).splitlines()) == 15
    log.write_bytes(b"x" * 50_000 + b"\n\xff\xfe end")
    assert tail(log).splitlines()[-1].endswith(" end")
    assert len(tail(log)) <= 1 << 14


FAKE_STACK = """
import json, os, sys
print(json.dumps({"ready": {"environment": dict(os.environ)}}), flush=True)
print("to the log", file=sys.stderr, flush=True)
for line in sys.stdin:
    job = json.loads(line)
    if job["kind"] == "die":
        sys.exit(1)
    print(json.dumps({"id": job["id"], "exit": 0, "seconds": job["x"]}), flush=True)
"""


@pytest.mark.processes
def test_a_real_process_is_spoken_to_line_by_line(tmp_path, monkeypatch):
    (tmp_path / "stack.py").write_text(FAKE_STACK, "utf-8")
    monkeypatch.setattr(stacks_process.probes, "STACK", tmp_path / "stack.py")
    log = tmp_path / "logs" / "4.48.log"

    async def main():
        process = StackProcess("4.48", sys.executable, {"A": "1"}, log, Slots(2), start_process)
        long = {"kind": "cell", "timeout": 10, "x": 1.5, "text": "ü" * 100_000}
        first = await process.run(long)
        machine = process.machine
        died = await process.run({"kind": "die", "timeout": 10})
        again = await process.run(long)
        await process.close()
        return first, machine, died, again

    first, machine, died, again = asyncio.run(main())
    assert first == again == Ended(exit=0, seconds=1.5)
    assert machine["environment"]["A"] == "1"
    assert "HOME" not in machine["environment"]
    assert died.reason == "the environment's process died; the end of its log:\nto the log"
    assert (tmp_path / "logs" / "4.48-alone3.log").read_text() == "to the log\n"
