"""The commands, with their help and their options, as argparse reads them."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from samebits.base.options import add_options
from samebits.base.parser import Parser
from samebits.bisect import command as bisect
from samebits.check import bump, init
from samebits.check import options as check
from samebits.cli import warm
from samebits.cli.report import ReportOptions
from samebits.defaults import command as defaults
from samebits.gate import command as gate
from samebits.golden import command as golden
from samebits.lint import command as lint
from samebits.matrix.known import near
from samebits.matrix.plan import Selection
from samebits.overview import add_overview, show
from samebits.pipeline.order import Files, Order
from samebits.reports import issue
from samebits.reports.html import plot
from samebits.text.terminal import PLAIN, TerminalText
from samebits.watch import command as watch

EXIT_CODES = """\
Exit codes:
  0  nothing new: identical, rounding, not supported by the release, or a known difference
  1  something fails or changes behaviour
  2  there is a mistake in matrix.yaml or on the command line
  3  incomplete: nothing fails, but something was not finished or not observed
  4  as 0, but with --strict changed code within reach did not run in any check, or
     with --strict-findings one release alone has a finding beside the verdict
"""

_MATRIX = f"""\
Run every model of matrix.yaml in every environment, compare the results and write the report.

Filters are names or shell patterns, separated by commas. A filter that matches nothing is an error.
The report replaces the earlier one in the same folder. The commands after "To reproduce" in a report
write to another folder, reports/reproduce/MODEL@ENVIRONMENT.

{EXIT_CODES}"""


_PLOT = """\
Write a chart of one cell as SVG or PNG, as report.html shows it. It needs the extra samebits[plot].
"""


_MERGE = f"""\
Write the report of a run whose shards ran on several machines (samebits matrix --shard I/N).

The shards' results are fetched from the folders, and from --store. Give the same matrix.yaml, filters
and level as the shards had. What needs several cells is computed here: comparisons, float64
checks, causes. The report is that of one run. A shard that left no result is named.

{EXIT_CODES}"""


_CHECK = f"""\
Run one model under two releases of transformers: what changed, which side is right, what to do.

MODEL is a folder with config.json, or an id on the hub. The releases are those from the one that saved
the model to the newest, unless --from and --to name others. The report goes to reports/check/NAME in the
current folder. What is kept between checks lies in the cache folder of the platform (SAMEBITS_CACHE).

Examples:
  samebits check ./my-model
  samebits check org/name --from 4.57 --to 5.x --quick
  samebits check type:qwen2_vl        a tiny model of a model_type, which the run makes
  samebits check 'type:gemma2#1'      the same with other values of the switches of its config

{EXIT_CODES}"""


_ISSUE = """\
Draft a GitHub issue for the failures of a report that have none, for a run in CI.

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
    "matrix": _MATRIX,
    "probe": "Run the models of matrix.yaml in every environment, without a comparison and a report.",
    "merge": _MERGE,
    "check": _CHECK,
    "bisect": bisect.HELP,
    "golden": golden.HELP,
    "init": _INIT,
    "report": _REPORT,
    "issue": _ISSUE,
    "bump": bump.HELP,
    "watch": watch.HELP,
    "plot": _PLOT,
    "record": gate.RECORD_HELP,
    "verify": gate.VERIFY_HELP,
    "warm": warm.HELP,
}
"""Command -> its help at length."""

ALONE = {"lint": lint, "defaults": defaults}
"""Command that reads its own options -> its module."""

_OF_MODEL = (
    "trust_remote_code",
    "packages",
    "environment_packages",
    "imports",
    "model_class",
    "inputs",
)
_OF_VARIANTS = ("dtypes", "attention", "devices")
_DEPTH = ("level", "causes", "repro")
_RUN = ("strict", "strict_findings", "fresh", "upgrade", "store", "jobs", "warm")

_ASKED = (
    "fresh",
    "upgrade",
    "level",
    "releases",
    "scan",
    "causes",
    "strict",
    "strict_findings",
    "store",
    "jobs",
    "warm",
)
"""Fields of the order that say how much is asked."""


class _Parser(Parser):
    """A parser whose errors have secrets redacted."""

    spoken = PLAIN

    def error(self, message: str) -> NoReturn:
        super().error(self.spoken.text(message))


def make_parser(spoken: TerminalText) -> tuple[_Parser, dict[str, _Parser]]:
    """Return the main parser, and the parsers of its commands by name."""
    parser = _Parser()
    add_overview(parser)
    parser.spoken = spoken
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="samebits"
    )
    by_name: dict[str, _Parser] = {}
    for name, description in _COMMANDS.items():
        command = commands.add_parser(name, description=description)
        if "\n\n" in description:
            command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.spoken = spoken
        by_name[name] = command
    for name in ("matrix", "probe"):
        by_name[name].prog = _shown_program(name)
    _add_options(by_name)
    # __main__ runs these commands itself, without what is imported here
    for name in ALONE:
        commands.add_parser(name, add_help=False)
    return parser, dict(commands.choices)


def _add_options(parsers: Mapping[str, _Parser]) -> None:
    """Add the options of every command, in the order of its help."""
    matrix, probe, merge, checked = (parsers[n] for n in ("matrix", "probe", "merge", "check"))
    add_options(matrix, Order, "on", "shard")
    add_options(merge, Order, "merged")
    _add_options_of_check(checked)
    _add_options_of_bisect(parsers["bisect"])
    for parser in (matrix, probe, merge):
        add_options(parser, Order, "matrix")
        add_options(parser, Selection)
    for parser in (matrix, probe, merge):
        add_options(parser, Order, *_ASKED)
    add_options(matrix, Files, reports="reports/latest")
    add_options(merge, Files, reports="reports/latest")
    for parser in (matrix, merge):
        add_options(parser, Order, "repro")
    add_options(parsers["golden"], golden.Options)
    add_options(parsers["init"], init.Options)
    add_options(parsers["report"], ReportOptions, reports="that of REPORT.json")
    add_options(parsers["issue"], issue.Options)
    add_options(parsers["bump"], bump.Options)
    add_options(parsers["watch"], watch.Options)
    add_options(parsers["plot"], plot.Options)
    add_options(parsers["warm"], warm.WarmOptions)
    for name, options in (("record", gate.RecordOptions), ("verify", gate.VerifyOptions)):
        add_options(parsers[name], options, *gate.own_first(options))


def _add_options_of_check(parser: _Parser) -> None:
    """Add the options of a check, in groups: more than twenty in a row hide those that are needed."""
    add_options(parser, check.Options, "model")
    group = parser.add_argument_group("releases")
    add_options(group, check.Options, "first", "last")
    add_options(group, Order, "releases", "scan")
    add_options(parser.add_argument_group("model"), check.Options, *_OF_MODEL)
    add_options(parser.add_argument_group("variants"), check.Options, *_OF_VARIANTS)
    add_options(parser.add_argument_group("depth"), Order, *_DEPTH)
    add_options(parser.add_argument_group("output"), Files, reports="reports/check/NAME")
    add_options(parser.add_argument_group("run"), Order, *_RUN)


def _add_options_of_bisect(parser: _Parser) -> None:
    add_options(parser, bisect.Options, "model", "first", "last", "repo", "package_repo", "base")
    add_options(parser.add_argument_group("model"), bisect.Options, *_OF_MODEL)
    add_options(parser.add_argument_group("variants"), bisect.Options, *_OF_VARIANTS)
    add_options(parser.add_argument_group("output"), bisect.Options, "format")


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command by its name."""
    alone = {name: module.make_parser() for name, module in ALONE.items()}
    return {**make_parser(PLAIN)[1], **alone}


def parsed(arguments: Sequence[str], spoken: TerminalText) -> argparse.Namespace:
    """Return the options; an unknown option is reported with the usage of the command."""
    if not arguments:
        show([])
    parser, commands = make_parser(spoken)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        command = commands[options.command]
        names = [name for action in command._actions for name in action.option_strings]
        word = unknown[0].partition("=")[0]
        hint = near(word[2:], [name[2:] for name in names]) if word.startswith("--") else ""
        hint = hint.replace('"', '"--', 1)
        if options.command == "check" and not word.startswith("-"):
            hint = ". A check is of one model; samebits init MODEL MODEL writes a matrix.yaml of several"
        if word == "--json":
            hint = _instead_of_json(command) or hint
        command.error(f"unknown option or argument: {' '.join(unknown)}{hint}")
    return options


def _instead_of_json(command: argparse.ArgumentParser) -> str:
    """Return where the JSON of a command is, which has no option of that name; '' if it has none."""
    options = {action.dest: action for action in command._actions}
    if "reports" in options:
        return ". report.json is always written, beside report.md"
    prints = "format" in options and "json" in (options["format"].choices or ())
    return ': did you mean "--format json"?' if prints else ""


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
