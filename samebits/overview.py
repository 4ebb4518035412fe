"""What samebits alone prints: its commands by group.

Nothing else is imported here: whoever asks what there is does not wait for what it needs.
"""

from __future__ import annotations

import argparse

from samebits.base.version import VERSION

COMMANDS = {
    "Start": {
        "check": "compare one model under two releases of transformers",
        "bisect": "find the commit of transformers, or of your package, at which a model's bits change",
        "golden": "say whether a test's expected values moved by rounding or by a behaviour change",
        "lint": "find custom code that breaks or changes meaning between releases",
        "defaults": "defaults that moved between two releases and that a config leaves out",
    },
    "Watch": {
        "init": "write a matrix.yaml for your models, and a noxfile.py",
        "matrix": "compare many models under many releases and write the report",
        "report": "write a report in other formats, from its report.json",
    },
    "Keep": {
        "record": "keep the bits of models in samebits.lock",
        "verify": "compare the project's environment with samebits.lock",
    },
    "Advanced": {
        "probe": "run the models of matrix.yaml without a comparison and a report",
        "merge": "write the report of a run from its shards",
        "plot": "write a chart of one cell of a report as SVG or PNG",
        "issue": "draft a GitHub issue for failures that have none",
        "bump": "say what a pull request moves of transformers, torch, tokenizers and accelerate",
        "watch": "draft an issue for each new cause by which transformers' main differs",
        "warm": "list the environments that --warm left in memory, and end them",
    },
}
"""Group of the help -> its commands, each with its help in one line."""

_EXAMPLES = """\
Examples:
  samebits check ./my-model           what changes for this model under the newest release
  samebits lint ./my-model            custom code that breaks, without running it
  samebits init ./a ./b               then: samebits matrix
"""

NO_COMMAND = 2
"""Exit code of samebits alone, which prints the help: a script that forgot the command is to notice."""


def add_overview(parser: argparse.ArgumentParser) -> None:
    """Give a parser the texts and the options of samebits without a command."""
    groups = [
        "\n".join([f"{title}:", *(f"  {name:<8} {help}" for name, help in commands.items())])
        for title, commands in COMMANDS.items()
    ]
    parser.prog = "samebits"
    parser.usage = "samebits COMMAND [options]"
    parser.description = "Does a model compute the same bits under every transformers release?"
    parser.epilog = "\n\n".join([*groups, _EXAMPLES, "Help of a command: samebits COMMAND --help"])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--version", action="version", version=f"samebits {VERSION}")


def is_asked(arguments: list[str]) -> bool:
    """Return whether these words ask for nothing but the overview, or the version."""
    return arguments in ([], ["-h"], ["--help"], ["--version"])


def show(arguments: list[str]) -> None:
    """Print what is asked, and exit."""
    parser = argparse.ArgumentParser()
    add_overview(parser)
    if not arguments:
        parser.print_help()
        parser.exit(NO_COMMAND)
    parser.parse_args(arguments)
