"""Tests of the command line: options, printed lines, and the exit codes 0, 1, 2 and 3."""

import asyncio
import gc
import re
import signal
import sys
import threading
import time
from typing import Annotated
from unittest.mock import Mock

import pytest
from pydantic import BaseModel, PlainSerializer
from pydantic_core import PydanticSerializationError

from samebits import cli, overview
from samebits.__main__ import main as program
from samebits.base.errors import SelectionError, StackError
from samebits.cli import command, interrupts
from samebits.cli.parser import parsed, parsers
from samebits.matrix.plan import Selection
from samebits.pipeline.order import Order
from samebits.terminal.progress import choose
from samebits.text.terminal import PLAIN
from tests.support.sample_report import STACKS, sample_report

MATRIX = """\
environments: ["4.48", "5.x"]
models:
  llama: {build: llama}
"""
LOCKS = {f"locks/{stack}.txt": "numpy==2\n" for stack in STACKS}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change into an empty folder with a small matrix."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.yaml").write_text(MATRIX, "utf-8")
    return tmp_path


class Runner:
    """A fake of run_matrix that stores the order, and returns a report or raises."""

    def __init__(self):
        self.report = sample_report()
        self.raises = None
        self.order = self.environ = None

    async def __call__(self, order, environ, progress, dependencies):
        self.order, self.environ = order, environ
        assert progress.func is choose
        if self.raises is not None:
            raise self.raises
        return self.report, LOCKS

    def passes(self):
        good = {"exit_code": 0, "reasons": ()}
        stacks = [stack for stack in self.report.stacks if not stack.failure]
        self.report = self.report.model_copy(update=good | {"stacks": tuple(stacks)})


@pytest.fixture
def runner(monkeypatch):
    made = Runner()
    monkeypatch.setattr("samebits.cli.matrix.run_matrix", made)
    return made


def main(*arguments):
    return cli.main(arguments, {"HOME": "/h"})


# exit codes


def test_0_if_everything_passes(runner, folder, capsys):
    runner.passes()
    assert main("matrix") == 0
    out, err = capsys.readouterr()
    assert "\nmatrix.yaml: new: 4 models fail, " in out
    assert "latest/report.md" in out.splitlines()[0]
    assert err == ""
    written = {path.name for path in (folder / "reports" / "latest").iterdir()}
    assert {"locks", "report.json", "report.md"} <= written


def test_1_if_anything_does_not(runner, folder, capsys):
    assert main("matrix") == 1
    assert "\nmatrix.yaml: new: 4 models fail, " in capsys.readouterr().out
    assert (folder / "reports" / "latest" / "report.md").is_file()


def test_3_if_nothing_fails_and_something_was_not_finished(runner, folder, capsys):
    runner.passes()
    open_ = {"exit_code": 3, "reasons": ("1 cell not finished: no progress for 120 s",)}
    runner.report = runner.report.model_copy(update=open_)
    assert main("matrix") == 3
    out = capsys.readouterr().out
    assert "\nmatrix.yaml: incomplete: new: " in out
    assert "does not pass" not in out
    text = (folder / "reports" / "latest" / "report.md").read_text()
    assert text.startswith("# samebits: matrix.yaml: incomplete: new: ")
    assert "; exit code 3." in text


def test_2_for_a_mistake_in_the_matrix_without_a_traceback(folder, capsys):
    (folder / "matrix.yaml").write_text("models: {llama: {biuld: llama}}\n", "utf-8")
    assert main("matrix") == 2
    out, err = capsys.readouterr()
    assert err.startswith("matrix.yaml:1:")
    assert "biuld" in err
    assert "Traceback" not in err
    assert out == ""


def test_2_for_a_matrix_that_is_not_there(capsys):
    assert main("matrix", "--matrix", "nowhere.yaml") == 2
    err = capsys.readouterr().err
    assert "nowhere.yaml" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("matrix", "--models", "lama"),
        ("probe", "--environments", "9.9"),
        ("matrix", "--dtypes", "int4"),
    ],
    ids=" ".join,
)
def test_2_for_a_filter_that_matches_nothing(arguments, capsys):
    assert main(*arguments) == 2
    assert arguments[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"), [(SelectionError("s"), 2), (StackError("s"), 1)], ids=["selection", "stack"]
)
def test_every_error_of_a_user_has_its_own_code(runner, capsys, error, code):
    runner.raises = error
    assert main("matrix") == code
    assert capsys.readouterr() == ("", "s\n")


def test_a_defect_is_not_hidden(runner):
    runner.raises = KeyError("ours")
    with pytest.raises(KeyError):
        main("matrix")


def test_an_interrupt_says_that_nothing_is_lost(runner, capsys):
    runner.raises = KeyboardInterrupt()
    assert main("matrix") == 130
    assert "run the same command again" in capsys.readouterr().err


def test_an_interrupt_before_a_run_is_one(monkeypatch, capsys):
    """The run has its own handlers; what comes before and after them has none."""
    monkeypatch.setattr(command, "TerminalText", Mock(side_effect=KeyboardInterrupt))
    assert main("matrix") == 130
    monkeypatch.setattr(overview, "is_asked", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit) as end:
        program()
    assert end.value.code == 130
    assert capsys.readouterr() == ("", 2 * "interrupted; run the same command again to continue\n")


def raised_again(*, as_json):
    """Return the error that pydantic makes of a Ctrl-C while it serialises a record."""

    def interrupt(_value):
        raise KeyboardInterrupt

    class Record(BaseModel):
        field: Annotated[int, PlainSerializer(interrupt)]

    record = Record(field=1)
    with pytest.raises(PydanticSerializationError) as error:
        record.model_dump_json() if as_json else record.model_dump()
    return error.value


@pytest.mark.parametrize("as_json", [True, False])
def test_an_interrupt_that_pydantic_raises_as_its_own_error_is_one(runner, capsys, as_json):
    runner.raises = raised_again(as_json=as_json)
    assert main("matrix") == 130
    assert "run the same command again" in capsys.readouterr().err


def test_an_error_of_pydantic_alone_is_no_interrupt(runner):
    runner.raises = PydanticSerializationError("no JSON of it")
    with pytest.raises(PydanticSerializationError):
        main("matrix")


def test_an_interrupt_waits_until_the_event_loop_is_whole(runner, capfd, monkeypatch):
    """A half-created loop is collected with a traceback: ``no attribute '_ssock'``."""
    make, made = asyncio.SelectorEventLoop.__init__, []

    def interrupted(loop, *arguments):
        signal.raise_signal(signal.SIGINT)
        make(loop, *arguments)
        made.append(loop)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "__init__", interrupted)
    # a shell ignores SIGINT for tests that it starts in the background
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main("matrix") == 130
    finally:
        signal.signal(signal.SIGINT, before)
    gc.collect()
    assert made
    assert all(loop.is_closed() for loop in made)
    assert runner.order is None
    error = capfd.readouterr().err
    assert "Traceback" not in error
    assert "never awaited" not in error


class Finalised:
    """An object whose finalisation receives a Ctrl-C."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("late", [False, True], ids=["while it goes on", "as it ends"])
def test_an_interrupt_of_a_finaliser_is_heard_again(runner, capfd, monkeypatch, late):
    def write(*_, **__):
        Finalised()
        time.sleep(0 if late else 30)
        raise SelectionError("the end")

    monkeypatch.setattr("samebits.cli.report.write", write)
    if late:  # a slow machine must not send it before the run has ended
        monkeypatch.setattr(interrupts, "_RESEND_DELAY", 600)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main("matrix") == (2 if late else 130)
        # nothing comes when nobody is there to take it
        timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
        assert all(timer.finished.is_set() for timer in timers)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "Traceback" not in capfd.readouterr().err


# options


@pytest.mark.parametrize("command", [[], ["matrix"], ["probe"]], ids=["none", "matrix", "probe"])
def test_help_explains_and_exits_with_0(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main(*command, "--help")
    assert caught.value.code == 0
    out = capsys.readouterr().out
    if command:
        for option in ("--matrix", "--models", "--environments", "--dtypes", "--fresh", "--jobs"):
            assert option in out
    if command == ["matrix"]:
        assert out.startswith("usage: samebits matrix ")
        assert "0  nothing new: identical, rounding" in out
    else:
        start = "samebits probe " if command else "samebits"
        assert out.startswith(f"usage: {start}")


def test_alone_it_prints_the_help_which_has_every_command_once(capsys):
    with pytest.raises(SystemExit):
        main()
    alone = capsys.readouterr()
    with pytest.raises(SystemExit):
        main("--help")
    assert alone.out == capsys.readouterr().out
    assert not alone.err
    for name in parsers():
        assert len(re.findall(rf"^  {name} ", alone.out, re.MULTILINE)) == 1
    assert max(map(len, alone.out.splitlines())) <= 100
    with pytest.raises(SystemExit) as caught:
        main("--version")
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("samebits ")


def test_the_help_of_check_has_groups_examples_and_exit_codes(capsys):
    with pytest.raises(SystemExit):
        main("check", "--help")
    out = capsys.readouterr().out
    for title in ("releases:", "model:", "variants:", "depth:", "output:", "run:", "Examples:"):
        assert f"\n{title}\n" in out
    assert "1  something fails or changes behaviour" in out


@pytest.mark.parametrize(
    "arguments",
    [(), ("report",), ("matrix", "--nothing"), ("matrix", "--jobs", "0"), ("matrix", "x")],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_2_for_a_mistake_on_the_command_line(runner, arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(*arguments)
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
    assert runner.order is None


def test_a_command_that_prints_json_names_its_option(capsys):
    with pytest.raises(SystemExit):
        main("verify", "--json")
    assert '--json: did you mean "--format json"?' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--bogus", "1"), "samebits matrix: error: unknown option or argument: --bogus 1\n"),
        (("--jobs", "x"), "argument --jobs: 'x' is not a whole number of at least 1\n"),
        (("--quick", "--deep"), "argument --deep: not allowed with argument --quick\n"),
    ],
)
def test_a_mistake_is_told_in_the_words_of_the_command(runner, arguments, message, capsys):
    with pytest.raises(SystemExit):
        main("matrix", *arguments)
    error = capsys.readouterr().err
    assert message in error
    assert error.splitlines()[1:] == ["samebits matrix --help lists the options"]


def test_options_become_an_order(runner, folder):
    (folder / "other.yaml").write_text(MATRIX, "utf-8")
    main(
        *("matrix", "--matrix", "other.yaml", "--models", "llama*, t5", "--environments", "5.x"),
        *("--dtypes", "float32", "--attention", "eager,sdpa", "--devices", "cpu"),
        *("--fresh", "--upgrade", "--jobs", "3"),
    )
    order = runner.order
    assert str(order.matrix) == "other.yaml"
    assert order.selection.models == ("llama*", "t5")
    assert (order.selection.environments, order.selection.dtypes) == (("5.x",), ("float32",))
    assert (order.selection.attention, order.selection.devices) == (("eager", "sdpa"), ("cpu",))
    assert (order.fresh, order.upgrade, order.jobs) == (True, True, 3)
    assert order.command == (
        "samebits matrix --models 'llama*, t5' --environments 5.x --dtypes float32 "
        "--attention eager,sdpa --devices cpu --matrix other.yaml"
    )
    assert runner.environ == {"HOME": "/h"}


def test_every_option_reaches_the_order():
    """An option is a field of the order, or it is one of those that several fields follow from."""
    options = vars(parsed(["matrix"], PLAIN)).keys()
    derived = {"command", "repro", "single_file"} | Selection.model_fields.keys()
    assert options - derived <= Order.model_fields.keys()
    assert Order.model_fields.keys() - options == {
        *("selection", "capsules", "kernels", "merged"),  # follow from other options, or have none
        *("work", "lock_age", "program", "checks"),  # of samebits check
    }


def test_a_report_repeats_what_decides_what_it_shows(runner):
    main("matrix", "--causes", "--releases", "--no-repro", "--fresh", "--jobs", "2")
    assert runner.order.command == "samebits matrix --releases --causes --no-repro"


def test_a_home_that_a_shell_left_alone_is_expanded(runner, folder, monkeypatch):
    """A report writes ``~`` for the home, in quotes if the path has a space."""
    monkeypatch.setenv("HOME", str(folder))
    (folder / "my files").mkdir()
    (folder / "my files" / "matrix.yaml").write_text(MATRIX, "utf-8")
    main("matrix", "--matrix", "~/my files/matrix.yaml", "--reports", "~/out")
    assert runner.order.matrix == folder / "my files" / "matrix.yaml"
    assert (folder / "out" / "report.md").is_file()


NOXFILE = "import nox\n\n\n@nox.session\ndef matrix(session): ...\n"


@pytest.mark.parametrize(
    ("noxfile", "program", "usage"),
    [
        (NOXFILE, "nox -s matrix -- --quick", "usage: nox -s matrix -- "),
        (NOXFILE.replace("matrix", "tests"), "samebits matrix --quick", "usage: samebits matrix "),
    ],
    ids=["with the session", "without"],
)
def test_commands_go_through_nox_where_it_has_the_session(
    runner, folder, capsys, monkeypatch, noxfile, program, usage
):
    (folder / "noxfile.py").write_text(noxfile, "utf-8")
    monkeypatch.delenv("NOX_CURRENT_SESSION", raising=False)  # these tests run in one, too
    main("matrix", "--quick")
    assert runner.order.command == "samebits matrix --quick"  # as it was run
    monkeypatch.setenv("NOX_CURRENT_SESSION", "matrix")
    main("matrix", "--quick")
    assert runner.order.command == program
    with pytest.raises(SystemExit):
        main("matrix", "--help")
    assert usage in capsys.readouterr().out


def test_nothing_said_is_everything_as_usual(runner):
    main("matrix")
    order = runner.order
    assert (str(order.matrix), order.command) == ("matrix.yaml", "samebits matrix")
    assert (order.fresh, order.upgrade, order.jobs) == (False, False, None)
    assert not any(patterns for _, patterns in order.selection)


def test_the_report_goes_beside_the_matrix_unless_said(runner, folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "matrix.yaml").write_text(MATRIX, "utf-8")
    main("matrix", "--matrix", "sub/matrix.yaml")
    assert (folder / "sub" / "reports" / "latest" / "report.md").is_file()
    main("matrix", "--reports", "elsewhere")
    assert (folder / "elsewhere" / "report.md").is_file()
    assert not (folder / "reports").exists()


@pytest.mark.parametrize(
    ("words", "level", "scope"),
    [
        ((), "default", "failing"),
        (("--repro",), "default", "all"),
        (("--no-repro",), "default", "none"),
        (("--quick",), "quick", "none"),
        (("--quick", "--repro"), "quick", "all"),
        (("--deep",), "deep", "failing"),
    ],
)
def test_a_level_and_capsules_are_one_field_each_and_the_report_repeats_them(
    runner, words, level, scope
):
    main("matrix", *words)
    assert (runner.order.level, runner.order.capsules) == (level, scope)
    assert runner.order.command == " ".join(["samebits matrix", *words])
    main("probe", *(word for word in words if "repro" not in word))
    assert (runner.order.level, runner.order.capsules) == (level, "none")


def test_every_release_is_asked_for_and_makes_no_capsule_unasked(runner):
    main("matrix")
    assert not runner.order.releases
    main("matrix", "--releases", "--models", "llama")
    assert (runner.order.releases, runner.order.capsules) == (True, "none")
    assert runner.order.command == "samebits matrix --models llama --releases"
    main("matrix", "--releases", "--repro")
    assert runner.order.capsules == "all"


# probe


def test_probe_writes_no_report_and_minds_no_verdict(runner, folder, capsys):
    runner.passes()
    runner.report = runner.report.model_copy(update={"exit_code": 1})
    assert main("probe", "--environments", "4.48") == 0
    assert capsys.readouterr().out == ""
    assert not (folder / "reports").exists()


def test_probe_fails_if_its_stack_does(runner, capsys):
    assert main("probe") == 1
    assert capsys.readouterr().out.startswith("No solution found when resolving")


# output


def test_what_a_terminal_cannot_show_is_no_crash(runner, capsys, monkeypatch):
    runner.raises = SelectionError("naïve → 中")
    monkeypatch.setattr(sys, "stderr", Ascii())
    assert main("matrix") == 2
    assert sys.stderr.text == "na?ve ? ?\n"


class Ascii:
    encoding = "ascii"
    text = ""

    def write(self, text):
        self.text += text.encode("ascii").decode("ascii")

    def flush(self):
        """Everything is written at once."""


# formats


EVERY = ("json", "md", "junit", "github", "json,md,junit,github")


@pytest.mark.parametrize("formats", EVERY)
@pytest.mark.parametrize("passes", [True, False])
def test_the_exit_code_does_not_depend_on_formats(runner, folder, capsys, formats, passes):
    if passes:
        runner.passes()
    assert main("matrix", "--format", formats) == (0 if passes else 1)
    written = {path.name for path in (folder / "reports" / "latest").iterdir()}
    names = {"md": "report.md", "junit": "junit.xml", "github": "job-summary.md"}
    for name, path in names.items():
        assert (path in written) == (name in formats)
    assert "report.json" in written


def test_the_option_may_be_repeated(runner):
    main("matrix", "--format", "junit", "--format", "md, github")
    assert runner.order.formats == ("junit", "md", "github")


@pytest.mark.parametrize("value", ["junitxml", "md,xml", "", ","])
def test_2_for_a_format_that_does_not_exist(runner, capsys, value):
    with pytest.raises(SystemExit) as caught:
        main("matrix", "--format", value)
    assert caught.value.code == 2
    assert "json, md, html, junit, github" in " ".join(capsys.readouterr().err.split())


def test_a_report_without_markdown_leaves_no_old_one(runner, folder):
    main("matrix")
    main("matrix", "--format", "junit")
    left = {p.relative_to(folder).as_posix() for p in (folder / "reports").rglob("*.md")}
    assert left == set()
    assert (folder / "reports" / "latest" / "junit.xml").exists()
    main("matrix")
    assert not (folder / "reports" / "latest" / "junit.xml").exists()


def test_a_file_of_the_user_is_not_replaced_by_a_format(runner, folder, capsys):
    path = folder / "reports" / "latest" / "junit.xml"
    path.parent.mkdir(parents=True)
    path.write_text("<testsuites><testsuite/></testsuites>")
    assert main("matrix", "--format", "junit") == 2
    assert "junit.xml" in capsys.readouterr().err
    assert path.read_text() == "<testsuites><testsuite/></testsuites>"


def test_the_job_summary_is_appended_to_that_of_the_step(runner, folder, capsys):
    summary = folder / "step.md"
    summary.write_text("before\n")
    environ = {"HOME": "/h", "GITHUB_STEP_SUMMARY": str(summary)}
    assert cli.main(("matrix", "--format", "github"), environ) == 1
    text = summary.read_text("utf-8")
    assert text.startswith("before\n# samebits: matrix.yaml: new: 4 models fail, ")
    assert "::error title=samebits" in capsys.readouterr().out
    assert cli.main(("matrix", "--format", "md"), environ) == 1
    assert summary.read_text("utf-8") == text


def test_a_full_summary_is_not_made_longer(runner, folder, capsys):
    summary = folder / "step.md"
    summary.write_text("x" * 1_000_000)
    environ = {"HOME": "/h", "GITHUB_STEP_SUMMARY": str(summary)}
    assert cli.main(("matrix", "--format", "github"), environ) == 1
    assert summary.stat().st_size == 1_000_000
    assert "is full" in capsys.readouterr().err


def test_a_summary_that_cannot_be_written_does_not_decide_the_exit_code(runner, folder, capsys):
    runner.passes()
    environ = {"HOME": "/h", "GITHUB_STEP_SUMMARY": str(folder / "no" / "such")}
    assert cli.main(("matrix", "--format", "github"), environ) == 0
    assert "could not be written" in capsys.readouterr().err


def test_only_annotations_are_commands_of_a_log(runner, folder, capsys):
    runner.report = sample_report(text="x", message="\n::error::no\n##[error]no")
    environ = {"HOME": "/h", "GITHUB_ACTIONS": "true"}
    cli.main(("matrix", "--format", "github"), environ)
    lines = capsys.readouterr().out.splitlines()
    commands = [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    levels = {line.split("::")[1].split(" ")[0] for line in commands}
    assert levels <= {"error", "warning", "group", "endgroup"}
    assert all("title=samebits" in line for line in commands if "error" in line.split("::")[1])
    assert len([line for line in commands if line.startswith("::error")]) <= 10


def test_github_leaves_no_receipt_as_its_summary_is_written_again(runner, folder):
    main("matrix", "--format", "github")
    assert not list((folder / ".samebits" / "receipts").glob("*"))
    main("matrix", "--format", "md")
    assert list((folder / ".samebits" / "receipts").glob("*"))
