import io
from threading import Thread

from rich.console import Console

from samebits.progress import Plain, Tally, Terminal, choose
from samebits.words import CellId, Variant


def name(stack="4.48"):
    return CellId(model="llama", variant=Variant(dtype="float32", attention="sdpa"), stack=stack)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Stream(io.StringIO):
    """A stream that says what it is told to say about itself."""

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
    """The live lines as a terminal that shows nothing else would hold them."""
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(progress.__rich__())
    return stream.getvalue()


def test_plain_writes_whole_lines():
    stream, clock = Stream(), Clock()
    progress = Plain(stream, 3, clock)
    progress.stack("4.48", "building")
    progress.stack("4.48", "building")
    progress.stack("4.48", "ready")
    progress.start(name())
    progress.done(name(), "complete")
    progress.done(name("5.0"), "failed", "load: KeyError: 'qwen3'\x1b[31m")
    progress.done(name("5.9"), "failed")
    progress.note("two\nlines")
    clock.now += 75
    progress.close()
    assert stream.getvalue().splitlines() == [
        "samebits: 3 cells to run",
        "stack 4.48: building",
        "stack 4.48: ready",
        "failed: llama/float32-sdpa@5.0: load: KeyError: 'qwen3'\\x1b[31m",
        "failed: llama/float32-sdpa@5.9",
        "two\\nlines",
        "3 of 3 cells in 1 min 15 s: 1 complete, 2 failed",
    ]


def test_plain_survives_a_stream_without_the_characters():
    stream = Stream(encoding="ascii")
    Plain(stream, 1, Clock()).note("版")
    assert "\\u7248" in stream.getvalue()


def test_plain_closing_without_any_cell():
    stream = Stream()
    Plain(stream, 2, Clock()).close()
    assert stream.getvalue().endswith("0 of 2 cells in 0.0 s\n")


def test_plain_lines_of_many_threads_stay_whole():
    stream = Stream()
    progress = Plain(stream, 40, Clock())
    threads = [Thread(target=progress.done, args=(name(), "failed", "x" * 50)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[1:-1] == [f"failed: llama/float32-sdpa@4.48: {'x' * 50}"] * 40
    assert lines[-1].endswith("40 failed")


def test_terminal_shows_counts_cells_and_times():
    progress, clock, _ = terminal()
    progress.stack("4.48", "ready")
    progress.stack("5.0", "building")
    clock.now += 60
    progress.start(name())
    progress.start(name("5.0"))
    clock.now += 10
    progress.done(name(), "complete")
    lines = shown(progress)
    progress.close()
    assert "4.48 ready, 5.0 building" in lines
    assert "1/4 1 min 10 s, about 30 s left" in lines
    assert "llama/float32-sdpa@5.0" in lines
    assert "llama/float32-sdpa@4.48" not in lines


def test_terminal_leaves_failures_and_a_closing_line():
    progress, _, stream = terminal()
    progress.done(name(), "failed", "[bold]load\x1b[2J")
    assert "1 failed" in shown(progress)
    progress.close()
    assert "failed: llama/float32-sdpa@4.48: [bold]load\\x1b[2J" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith("1 of 4 cells in 0.0 s: 1 failed")


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
    clock.now += 1000
    assert tally.remaining is None
    tally.start("a")
    assert tally.remaining is None
    clock.now += 5
    tally.done("a", "complete")
    tally.done("b", "absent")
    assert tally.remaining == 2.5
    assert tally.elapsed == 1005


def test_choose_is_live_only_where_a_person_looks():
    assert isinstance(choose(1, Stream(), {}), Plain)
    assert isinstance(choose(1, Stream(terminal=True), {"CI": "true"}), Plain)
    assert isinstance(choose(1, Stream(terminal=True), {"TERM": "dumb"}), Plain)
    live = choose(1, Stream(terminal=True), {"TERM": "xterm"})
    live.close()
    assert isinstance(live, Terminal)


def test_choose_takes_stderr_and_the_environment(monkeypatch):
    stream = Stream()
    monkeypatch.setattr("sys.stderr", stream)
    choose(2)
    assert stream.getvalue() == "samebits: 2 cells to run\n"


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
