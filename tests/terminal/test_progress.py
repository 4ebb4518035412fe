"""Progress of a run: whole logs against gold files, and no silence, with a fake clock."""

import io
import os
import time
from pathlib import Path
from threading import Thread

import pytest
from rich.console import Console

from samebits.records.ids import CellId, Variant
from samebits.stacks.costs import Estimate
from samebits.terminal.progress import (
    CellLines,
    GitHub,
    Phases,
    Plain,
    Tally,
    Terminal,
    Ticker,
    choose,
)

GOLD = Path(__file__).parents[1] / "gold" / "progress"


def name(stack="4.48", model="llama"):
    return CellId(model=model, variant=Variant(dtype="float32", attention="sdpa"), stack=stack)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Stream(io.StringIO):
    """A stream with a configurable terminal flag and encoding."""

    def __init__(self, terminal=False, encoding="utf-8"):
        super().__init__()
        self._terminal = terminal
        self._encoding = encoding

    def isatty(self):
        return self._terminal

    @property
    def encoding(self):
        return self._encoding


def terminal(total=4):
    stream, clock = Stream(terminal=True), Clock()
    console = Console(file=stream, force_terminal=True, width=100, color_system=None)
    return Terminal(console, total, clock), clock, stream


def shown(progress, width=100):
    """Return the live lines as an otherwise empty terminal would show them."""
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(progress.__rich__())
    return stream.getvalue()


def test_plain_writes_whole_lines():
    stream, clock = Stream(), Clock()
    progress = Plain(stream, 3, clock)
    progress.stack("4.48", "building")
    progress.stack("4.48", "ready", is_busy=False)
    progress.start(name())
    progress.done(name(), "complete")
    progress.done(name("5.0"), "failed")
    progress.failure("failed: llama/float32-sdpa@5.0: load: KeyError: 'qwen3'\x1b[31m")
    progress.done(name("5.9"), "failed")
    progress.note("two\nlines")
    clock.now += 75
    progress.close()
    assert stream.getvalue().splitlines() == [
        "samebits: 3 runs to do",
        "environment 4.48: ready",
        "failed: llama/float32-sdpa@5.0: load: KeyError: 'qwen3'\\x1b[31m",
        "two\\nlines",
        "3 of 3 runs in 1 min 15 s: 1 complete, 2 failed",
    ]


def test_plain_survives_a_stream_without_the_characters():
    stream = Stream(encoding="ascii")
    Plain(stream, 1, Clock()).note("版")
    assert "\\u7248" in stream.getvalue()


def test_plain_closing_without_any_cell():
    stream = Stream()
    Plain(stream, 2, Clock()).close()
    assert stream.getvalue().endswith("0 of 2 runs in 0.0 s\n")


def test_plain_lines_of_many_threads_stay_whole():
    stream = Stream()
    progress = Plain(stream, 40, Clock())
    threads = [Thread(target=progress.failure, args=("x" * 50,)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[1:-1] == ["x" * 50] * 40


def test_terminal_shows_counts_cells_and_times():
    progress, clock, _ = terminal()
    progress.stack("4.48", "ready", is_busy=False)
    progress.stack("5.0", "building")
    clock.now += 60
    progress.begin("cells", 4, "4 cells of 1 model, each run twice")
    progress.start(name())
    progress.start(name("5.0"))
    progress.step(str(name("5.0")), "greedy long", 3, 12)
    clock.now += 10
    progress.done(name(), "complete")
    lines = shown(progress)
    progress.close()
    assert "4.48 ready, 5.0 building" in lines
    assert "1/4 1 min 10 s, about 30 s left in this phase" in lines
    assert "llama/float32-sdpa@5.0: greedy long, 3 of 12" in lines
    assert "llama/float32-sdpa@5.0" in lines
    assert "llama/float32-sdpa@4.48" not in lines


def test_terminal_leaves_failures_and_a_closing_line():
    progress, _, stream = terminal()
    progress.begin("cells", 4, "4 cells of 1 model, each run twice")
    progress.done(name(), "failed")
    progress.failure("failed: llama/float32-sdpa@4.48: [bold]load\x1b[2J")
    assert "1 failed" in shown(progress)
    progress.close()
    assert "failed: llama/float32-sdpa@4.48: [bold]load\\x1b[2J" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith("1 of 4 runs in 0.0 s: 1 failed")


def test_terminal_names_few_of_many_running_cells():
    progress, _, _ = terminal(total=20)
    for i in range(9):
        progress.start(name(f"5.{i}"))
    lines = shown(progress, 400)
    progress.close()
    assert "llama/float32-sdpa@5.5 and 3 more" in lines


def test_narrow_terminals_get_no_more_lines():
    progress, _, _ = terminal()
    for i in range(6):
        progress.start(name(f"5.{i}"))
    progress.stack("4.48", "building " + "x" * 80)
    assert len(shown(progress, 40).splitlines()) == 3
    progress.close()


def test_remaining_counts_from_the_first_cell_on():
    clock = Clock()
    tally = Tally(total=3, clock=clock)
    tally.begin("cells", 3)
    tally.done("a", "complete")  # it has captures, and tells nothing of the pace
    clock.now += 1000
    assert tally.remaining is None
    tally.start("b")
    assert tally.remaining is None
    clock.now += 5
    tally.done("b", "complete")
    assert tally.remaining == (5.0, False)
    assert tally.elapsed == 1005


@pytest.mark.parametrize(
    ("is_terminal", "environment", "kind"),
    [
        (False, {}, Plain),
        (True, {"CI": "true"}, Plain),
        (True, {"TERM": "dumb"}, Plain),
        (True, {"TERM": "xterm"}, Terminal),
        (False, {"GITHUB_ACTIONS": "true"}, GitHub),
        (True, {"GITHUB_ACTIONS": "true", "CI": "true"}, GitHub),
        (True, {"GITHUB_ACTIONS": "false", "TERM": "xterm"}, Terminal),
    ],
)
def test_choose_is_live_only_where_a_person_looks(is_terminal, environment, kind):
    chosen = choose(1, Stream(terminal=is_terminal), environment)
    chosen.close()
    assert type(chosen) is kind


def test_choose_takes_stderr_and_the_environment(monkeypatch):
    stream = Stream()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("os.environ", {})
    choose(2).close()
    assert stream.getvalue().startswith("samebits: 2 runs to do\n")


def test_what_is_asked_before_there_is_a_plan_says_that_alone():
    stream = Stream()
    progress = choose(0, stream, {})
    progress.note("asking")
    progress.close()
    assert stream.getvalue() == "asking\n"


def test_nor_does_a_terminal_count_cells_then():
    progress, _, stream = terminal(total=0)
    progress.note("asking")
    progress.close()
    assert "asking" in stream.getvalue()
    assert "0 of 0 cells" not in stream.getvalue()


# no silence


class Watched(Stream):
    """A stream that records when each line was written."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.times = [clock.now]

    def write(self, text):
        self.times.append(self.clock.now)
        return super().write(text)

    @property
    def longest_silence(self):
        return max(
            b - a for a, b in zip(self.times, [*self.times[1:], self.clock.now], strict=True)
        )


def pass_time(progress, clock, seconds):
    """Run a ticker against an advancing clock, with no other events."""
    end = clock.now + seconds

    def wait(pause):
        clock.now += pause
        return clock.now > end

    Ticker(progress.tick, wait).run()


@pytest.mark.parametrize("make", [Plain, GitHub])
def test_no_silence_is_longer_than_half_a_minute(make):
    clock = Clock()
    stream = Watched(clock)
    progress = make(stream, 2, clock)
    progress.begin("stacks", 1, "1, built where they are new")
    progress.stack("4.48", "resolving and building")
    pass_time(progress, clock, 400)
    progress.end("stacks")
    pass_time(progress, clock, 29)
    progress.begin("cells", 2, "2 cells of 1 model, each run twice")
    progress.start(name())
    pass_time(progress, clock, 300)
    progress.failure("failed: something")
    pass_time(progress, clock, 300)
    progress.done(name(), "complete")
    progress.end("cells")
    pass_time(progress, clock, 100)
    progress.close()
    assert stream.longest_silence <= 30
    status_lines = [line for line in stream.getvalue().splitlines() if line.startswith("[")]
    assert len(status_lines) > 1100 / 30
    assert status_lines[0] == "[25 s] environments: 0 of 1; 4.48 resolving and building"
    assert any(
        line.endswith("runs: 0 of 2; running llama/float32-sdpa@4.48") for line in status_lines
    )


def test_without_its_ticker_a_log_would_be_silent():
    clock = Clock()
    stream = Watched(clock)
    progress = Plain(stream, 2, clock)
    progress.begin("cells", 2, "2 cells of 1 model, each run twice")
    clock.now += 400
    assert stream.longest_silence == 400


def test_what_keeps_the_main_thread_busy_holds_up_no_line(monkeypatch):
    monkeypatch.setattr("samebits.terminal.progress.TICK", 0.005)
    monkeypatch.setattr("samebits.terminal.progress.QUIET", 0.02)
    stream = Stream()
    progress = choose(1, stream, {})
    progress.begin("comparing", 1, "1 row, byte for byte")
    end = time.monotonic() + 10
    while "] comparing: 0 of 1" not in stream.getvalue():  # pure computing: no event loop turns
        assert time.monotonic() < end
    progress.close()
    length = len(stream.getvalue())
    time.sleep(0.1)
    assert len(stream.getvalue()) == length


def test_a_log_that_is_gone_ends_the_ticker_and_nothing_else():
    def gone():
        raise BrokenPipeError(32, "Broken pipe")

    assert Ticker(gone, lambda seconds: False).run() is None


# the likely end


def estimate(**phases):
    weights = {"a": 90.0, "b": 5.0, "c": 5.0}
    return Estimate(phases, weights)


def test_the_likely_end_follows_from_what_cells_cost_before():
    clock = Clock()
    tally = Tally(total=3, clock=clock)
    tally.begin("cells", 3)
    tally.estimate = estimate(cells=100.0, grafts=30.0)
    assert tally.remaining == (130.0, True)
    for cell in "abc":
        tally.start(cell)
    clock.now += 20
    tally.done("b", "complete")
    tally.done("c", "complete")
    # two of three cells, a tenth of the cost, at half the pace: grafts will be as slow
    assert tally.remaining == (180.0 + 60.0, True)
    clock.now += 180
    tally.done("a", "complete")
    tally.end("cells")
    tally.begin("grafts", 2)
    assert tally.remaining == (30.0, True)
    clock.now += 10
    assert tally.remaining == (20.0, True)
    tally.advance("grafts")
    assert tally.remaining == (10.0, True)


def test_a_cell_that_costs_nothing_after_all_is_not_waited_for():
    clock = Clock()
    tally = Tally(total=3, clock=clock)
    tally.begin("cells", 3)
    tally.estimate = estimate(cells=100.0)
    tally.done("a", "failed")  # its stack could not be built: it never started
    tally.start("b")
    clock.now += 4
    tally.done("b", "complete")
    assert tally.remaining == (4.0, True)


def test_an_estimate_of_nothing_divides_by_nothing():
    clock = Clock()
    tally = Tally(total=1, clock=clock)
    tally.begin("cells", 1)
    tally.estimate = Estimate({}, {"a": 0.0})
    tally.start("a")
    clock.now += 4
    assert tally.remaining is None
    tally.done("a", "complete")
    assert tally.remaining == (0.0, True)


def test_a_phase_that_follows_another_takes_no_time_from_it():
    clock = Clock()
    phases = Phases(Plain(Stream(), 1, clock), clock)
    with phases("comparing", 2, "2 rows") as ended:
        clock.now += 3
        ended()
    with phases("comparing", 2, "2 rows, again") as ended:
        clock.now += 4
    with phases("grafts", 0, "none"):
        clock.now += 5
    assert phases.taken == {"comparing": 7.0}


# whole logs


def story(make):
    """Report a whole run to a log and return the text of the log."""
    clock = Clock()
    stream = Stream()
    progress = make(stream, 4, clock)
    phases = Phases(progress, clock)
    with phases("stacks", 2, "2, built where they are new") as ended:
        for stack in ("4.48", "5.x"):
            progress.stack(stack, "resolving and building")
        pass_time(progress, clock, 40)
        progress.stack("4.48", "transformers 4.48.3", is_busy=False)
        ended()
        progress.stack("5.x", "failed", is_busy=False)
        ended()
    cells = [name("4.48"), name("5.x"), name("4.48", "gpt2"), name("5.x", "gpt2")]
    phases.begin("cells", 4, "4 cells of 2 models, each run twice")
    phases.begin("checkpoints", 2, "2 to read or make")
    progress.note("1 of 4 cells known from an earlier run")
    progress.expect(Estimate({"cells": 60.0, "grafts": 30.0}, {str(cells[2]): 60.0}))
    progress.note("about 1 min 30 s for the new cells, estimated from earlier runs")
    progress.done(cells[0], "complete")
    progress.done(cells[1], "failed")
    progress.done(cells[3], "failed")
    progress.failure("failed in 5.x: ::set-output name=x::100% of it\n::error::no")
    for _ in range(2):
        progress.advance("checkpoints")
    phases.end("checkpoints")
    progress.start(cells[2])
    progress.step(str(cells[2]), "greedy long", 3, 12)
    pass_time(progress, clock, 60)
    progress.done(cells[2], "complete")
    phases.end("cells")
    with phases("float64 check", 2, "1 run again in float64") as ended:
        progress.step("gpt2/float32-sdpa@5.x: ladder", "float64", 0, 0)
        pass_time(progress, clock, 30)
        progress.step("gpt2/float32-sdpa@5.x: ladder", "", 0, 0)
        ended()
        ended()
    with phases("comparing", 2, "2 rows, byte for byte"):
        pass
    pass_time(progress, clock, 26)
    progress.note("##[error]a model may say anything")
    progress.close()
    return stream.getvalue()


@pytest.mark.parametrize(("make", "gold"), [(Plain, "plain.log"), (GitHub, "github.log")])
def test_a_whole_log_is_the_gold_one(make, gold):
    """tests/gold/README.md says how to refresh the gold files."""
    if os.environ.get("SAMEBITS_REFRESH_GOLD"):
        (GOLD / gold).write_text(story(make), "utf-8")
        pytest.skip(f"wrote {gold}")
    assert story(make).splitlines() == (GOLD / gold).read_text("utf-8").splitlines()


def test_every_fold_of_a_github_log_is_closed_before_the_next_one():
    depth = 0
    for line in story(GitHub).splitlines():
        depth += line.startswith("::group::") - line.startswith("::endgroup::")
        assert depth in (0, 1)
    assert depth == 0


def test_what_a_model_says_is_no_command_of_a_github_log():
    commands = [line for line in story(GitHub).splitlines() if line.startswith("::")]
    assert {line.split("::")[1].split(" ")[0] for line in commands} == {
        "group",
        "endgroup",
        "warning",
    }
    assert "##[" not in story(GitHub)
    assert "100%25 of it" in story(GitHub)


def test_an_interrupted_run_closes_its_fold():
    stream = Stream()
    progress = GitHub(stream, 1, Clock())
    progress.begin("cells", 1, "1 cell of 1 model, each run twice")
    progress.close()
    assert stream.getvalue().splitlines()[-2:] == ["::endgroup::", "0 of 1 run in 0.0 s"]


def test_a_phase_that_is_short_as_a_rule_is_told_only_when_it_is_not():
    clock = Clock()
    stream = Stream()
    progress = GitHub(stream, 0, clock)
    for seconds in (5, 29):
        progress.begin("writing the report", 0, "")
        pass_time(progress, clock, seconds)
        progress.end("writing the report")
    assert stream.getvalue().splitlines() == [
        "[25 s] writing the report",
        "writing the report: done in 30 s",
    ]


def test_each_cell_of_a_check_has_a_line_as_it_ends():
    stream = io.StringIO()
    progress = CellLines(Plain(stream, 3, time.monotonic))
    for stack, release, outcome in (
        ("4.57", "transformers 4.57.6", "complete"),
        ("5.2", "failed", "failed"),
        ("5.x", "transformers 5.23.0", "absent"),
        ("5.9", "not finished", "unfinished"),
    ):
        progress.stack(stack, release, is_busy=False)
        progress.done(name(stack), outcome)
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if line.startswith("transformers")] == [
        "transformers 4.57.6, float32-sdpa: done",
        "transformers 5.23.0, float32-sdpa: the release does not know the model",
    ]
    assert lines[-1] == "environment 5.9: not finished"


def test_many_environments_are_not_all_named():
    clock = Clock()
    stream = Stream()
    progress = Plain(stream, 40, clock)
    progress.begin("stacks", 40, "40, built where they are new")
    for minor in range(40):
        progress.stack(f"5.{minor}", "building")
    progress.stack("5.0", "transformers 5.0.0", is_busy=False)
    clock.now += 26
    progress.tick()
    lines = stream.getvalue().splitlines()
    assert lines[-2:] == [
        "environment 5.0: transformers 5.0.0",
        f"[26 s] environments: 0 of 40; {', '.join(f'5.{n} building' for n in range(1, 7))} and 33 more",
    ]
    assert len(lines) == 4
