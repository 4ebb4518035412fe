"""Tests that no line on a terminal contains a secret of its user, wherever the line comes from."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from samebits import cli
from samebits.base.errors import StackError
from samebits.records.ids import CellId, Variant
from samebits.terminal.progress import GitHub, Plain, Terminal, choose
from samebits.text.terminal import TerminalText
from tests.support.sample_report import sample_report

TOKEN = "hf_abcdefgh12345678"
ENVIRON = {"HF_TOKEN": TOKEN, "HOME": "/home/jo"}
TOLD = f"401 for {TOKEN} in /home/jo/models\x1b[31m"
SHOWN = "401 for (HF_TOKEN) in ~/models\\x1b[31m"
CELL = CellId(model="m", variant=Variant(dtype="float32", attention="sdpa"), stack="4.48")


def test_a_line():
    assert TerminalText(ENVIRON).text(TOLD) == SHOWN


def test_a_secret_may_hold_the_end_of_a_line():
    spoken = TerminalText({"MY_SECRET": "first half\nother half"})
    assert spoken.lines("a first half\nother half b") == "a (MY_SECRET) b"


def plain(stream):
    return Plain(stream, 2, lambda: 0.0, TerminalText(ENVIRON))


def terminal(stream):
    # narrow, so that a token would be split by a line feed if it were redacted too late
    console = Console(file=stream, force_terminal=True, width=24, color_system=None)
    return Terminal(console, 2, lambda: 0.0, TerminalText(ENVIRON))


def github(stream):
    return GitHub(stream, 2, lambda: 0.0, TerminalText(ENVIRON))


@pytest.mark.parametrize("make", [plain, github, terminal])
def test_progress(make):
    stream = io.StringIO()
    progress = make(stream)
    progress.stack("4.48", TOLD)
    progress.start(CELL)
    progress.note(TOLD)
    progress.step(TOLD, TOLD, 1, 2)
    progress.begin("cells", 2, TOLD)
    progress.failure(TOLD)
    progress.done(CELL, "failed")
    progress.close()
    said = "".join(stream.getvalue().split())
    assert TOKEN not in said
    assert "/home/jo" not in said
    assert said.count("(HF_TOKEN)") >= 2
    assert "\x1b[31m" not in said


def test_choose_hands_it_on():
    stream = io.StringIO()
    progress = choose(1, stream, spoken=TerminalText(ENVIRON))
    progress.note(TOLD)
    progress.close()
    assert SHOWN in stream.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.yaml").write_text("models: {llama: {build: llama}}\n")
    return tmp_path


def running(monkeypatch, raises=None, report=None):
    async def run(order, environ, progress, dependencies):
        progress(1).note(TOLD)
        if raises is not None:
            raise raises
        return report, {}

    monkeypatch.setattr("samebits.cli.matrix.run_matrix", run)


@pytest.mark.parametrize(
    "error",
    [StackError(TOLD), PermissionError(13, TOLD, "/home/jo/x"), ZeroDivisionError(TOLD)],
    ids=lambda error: type(error).__name__,
)
def test_errors_and_the_traceback_of_a_defect(folder, monkeypatch, capsys, error):
    running(monkeypatch, raises=error)
    # what blames the machine says nothing of a model
    expected = 3 if isinstance(error, PermissionError) else 1
    assert cli.program(["matrix"], ENVIRON) == expected
    out, err = capsys.readouterr()
    assert err.count(SHOWN) >= 2
    assert TOKEN not in out + err
    assert "/home/jo" not in out + err
    assert ("Traceback" in err) == isinstance(error, ZeroDivisionError)


def test_a_word_on_the_command_line(folder, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.program(["matrix", TOKEN], ENVIRON)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "(HF_TOKEN)" in err
    assert TOKEN not in err


def test_the_summary_and_what_a_receipt_prints_again(folder, monkeypatch, capsys):
    report = sample_report().model_copy(update={"notes": (TOLD,)})
    running(monkeypatch, report=report)
    answers = []
    monkeypatch.setattr(
        "samebits.cli.matrix.save", lambda *arguments: answers.append(arguments[-1])
    )
    home = folder / "home/jo"  # the report's path is printed, too
    environ = ENVIRON | {"HOME": str(home)}
    assert cli.program(["matrix", "--reports", str(home / "report")], environ) == 1
    out = capsys.readouterr().out
    assert "Report: ~/report/report.md" in out
    assert "(HF_TOKEN)" in out
    assert TOKEN not in out
    assert "".join(f"{line}\n" for line in answers[0].lines) == out


@pytest.mark.processes
def test_the_program_itself(folder):
    (folder / "matrix.yaml").write_text(f"models: {{{TOKEN}: {{biuld: llama}}}}\n")
    command = [sys.executable, "-m", "samebits", "matrix"]
    environ = {"HF_TOKEN": TOKEN, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    ran = subprocess.run(command, check=False, env=environ, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "(HF_TOKEN)" in ran.stderr
    assert TOKEN not in ran.stdout + ran.stderr
