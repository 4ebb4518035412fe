"""The commands, with their help and their options, as argparse reads them."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from samebits.base.options import add_options
from samebits.check import command as check
from samebits.check import init
from samebits.cli.report import ReportOptions
from samebits.gate import command as gate
from samebits.lint import command as lint
from samebits.matrix.known import near
from samebits.matrix.plan import Selection
from samebits.pipeline.order import Files, Order
from samebits.reports import issue
from samebits.reports.html import plot
from samebits.text.terminal import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from samebits.text.terminal import TerminalText

_MATRIX = """\
Run every model of matrix.yaml in every stack, compare the results and write the report.

Filters are names or shell patterns, separated by commas. A filter that matches nothing is an error.
The report replaces the earlier one in the same folder. The commands after "To reproduce" in a report
write to another folder, reports/reproduce/MODEL@STACK.

Exit codes:
  0  everything is identical, rounding, absent or expected
  1  something fails
  2  there is a mistake in matrix.yaml or on the command line
  3  incomplete: nothing fails, but a cell is not finished or not observed
  4  with --strict: as 0, but changed code within reach did not run in any check
"""


_PLOT = """\
Write a chart of one cell as SVG or PNG, as report.html shows it. It needs the extra samebits[plot].
"""


_MERGE = """\
Write the report of a run whose shards ran on several machines (samebits matrix --shard I/N).

The shards' results are fetched from the folders, and from --store. Give the same matrix.yaml, filters
and level as the shards had. What needs several cells is computed here: comparisons, the precision
ladder, causes. The report is that of one run. A shard that left no result is named.

Exit codes: as of samebits matrix.
"""


_CHECK = """\
Run one model under two releases of transformers and say what moved: no file is needed.

MODEL is a folder with config.json, or an id on the hub. The releases are those from the one that saved
the model to the newest, unless --from and --to name others. The report goes to reports/check/NAME in the
current folder. What is kept between checks lies in the cache folder of the platform (SAMEBITS_CACHE).

Exit codes: as of samebits matrix.
"""


_ISSUE = """\
Write an issue about what fails in a report and is in no issue yet, for a run that nobody watches.

A difference is not new if an open issue of samebits has it, or a closed one for the same release of
transformers. If nothing is new, no file is written. The exit code is 0 either way.
"""


_REPORT = """\
Write the formats of a report from its report.json. Nothing is run, and no fact changes.

The files go beside REPORT.json, or to --reports DIR with a copy of it. Formats that the folder has are
written again. The exit code is 0 if the report was written, whatever the report says.
"""


_INIT = "Write matrix.yaml and, if there is none, noxfile.py into the current folder."

_COMMANDS = {
    "matrix": ("run the matrix and write the report", _MATRIX),
    "probe": ("build the stacks and run the cells, without a comparison and a report", None),
    "merge": ("write the report of a run from its shards", _MERGE),
    "check": ("run one model, in a folder or on the hub, from one release to another", _CHECK),
    "init": ("write a matrix.yaml for your models, and a noxfile.py", _INIT),
    "report": ("write a report in other formats, from its report.json and without a run", _REPORT),
    "issue": (issue.HELP, _ISSUE),
    "plot": (plot.HELP, _PLOT),
    "record": ("keep the bits of models in samebits.lock", gate.RECORD_HELP),
    "verify": ("compare the project's environment with samebits.lock", gate.VERIFY_HELP),
}
"""Command -> its help in one line, and at length."""

_ASKED = ("fresh", "upgrade", "level", "releases", "scan", "causes", "strict", "store", "jobs")
"""Fields of the order that say how much is asked."""


class _Parser(argparse.ArgumentParser):
    """A parser whose error messages have secrets redacted."""

    spoken = PLAIN

    def error(self, message: str) -> NoReturn:
        super().error(self.spoken.text(message))


def make_parser(spoken: TerminalText) -> tuple[_Parser, dict[str, _Parser]]:
    """Return the main parser, and the parsers of its commands by name."""
    parser = _Parser(
        prog="samebits",
        description="Does a model compute the same bits under every transformers release?",
    )
    parser.spoken = spoken
    parser.add_argument("--version", action="version", version=f"samebits {version('samebits')}")
    commands = parser.add_subparsers(dest="command", required=True)
    by_name: dict[str, _Parser] = {}
    for name, (help, description) in _COMMANDS.items():
        command = commands.add_parser(name, help=help, description=description)
        if "\n\n" in (description or ""):
            command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.spoken = spoken
        by_name[name] = command
    for name in ("matrix", "probe"):
        by_name[name].prog = _shown_program(name)
    _add_options(by_name)
    # __main__ runs this command itself, without what is imported here
    commands.add_parser("lint", help=lint.HELP, add_help=False)
    return parser, dict(commands.choices)


def _add_options(parsers: Mapping[str, _Parser]) -> None:
    """Add the options of every command, in the order of its help."""
    matrix, probe, merge, checked = (parsers[n] for n in ("matrix", "probe", "merge", "check"))
    add_options(matrix, Order, "on", "shard")
    add_options(merge, Order, "merged")
    add_options(checked, check.Options)
    for parser in (matrix, probe, merge):
        add_options(parser, Order, "matrix")
        add_options(parser, Selection)
    for parser in (matrix, probe, merge, checked):
        add_options(parser, Order, *_ASKED)
    add_options(matrix, Files, reports="reports/latest")
    add_options(merge, Files, reports="reports/latest")
    add_options(checked, Files, reports="reports/check/NAME")
    for parser in (matrix, merge, checked):
        add_options(parser, Order, "repro")
    add_options(parsers["init"], init.Options)
    add_options(parsers["report"], ReportOptions, reports="that of REPORT.json")
    add_options(parsers["issue"], issue.Options)
    add_options(parsers["plot"], plot.Options)
    for name, options in (("record", gate.RecordOptions), ("verify", gate.VerifyOptions)):
        add_options(parsers[name], options, *gate.own_first(options))


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command by its name."""
    return {**make_parser(PLAIN)[1], "lint": lint.make_parser()}


def parsed(arguments: Sequence[str], spoken: TerminalText) -> argparse.Namespace:
    """Return the options; an unknown option is reported with the usage of the command."""
    parser, commands = make_parser(spoken)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        command = commands[options.command]
        names = [name for action in command._actions for name in action.option_strings]
        word = unknown[0].partition("=")[0]
        hint = near(word[2:], [name[2:] for name in names]) if word.startswith("--") else ""
        hint = hint.replace('"', '"--', 1)
        command.error(f"unknown option or argument: {' '.join(unknown)}{hint}")
    return options


_SESSION = re.compile(r"^def\s+matrix\s*\(", re.MULTILINE)


def _has_session() -> bool:
    """Return True if the current folder has a noxfile with a session for the matrix."""
    try:
        text = Path("noxfile.py").read_text("utf-8", "replace")
    except OSError:
        return False
    return _SESSION.search(text) is not None


def program_words(command: str) -> tuple[str, ...]:
    """Return the words that start a command, as it was started: by nox, or samebits itself."""
    if "NOX_CURRENT_SESSION" not in os.environ or not _has_session():
        return "samebits", command
    return "nox", "-s", {"probe": "probe(4.48)"}.get(command, command)


def _shown_program(command: str) -> str:
    words = program_words(command)
    return shlex.join(words) + (" --" if words[0] == "nox" else "")
