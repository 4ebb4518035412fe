"""Every command that a page shows can be typed: its program, session, command and options exist.

A line that begins with ``$`` in a block is parsed as a whole, by the parser that would run it. A
command in running text may have a placeholder, so only its command and its options are checked.
"""

import argparse
import ast
import json
import re
import shlex
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from samebits import cli, schemas

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/*.md",
        "docs/how-to/*.md",
        "docs/reference/*.md",
        "examples/**/*.md",
        "tests/*/README.md",
    )
    for path in ROOT.glob(pattern)
)

HOW_TOS = [path for path in PAGES if path.parent.name == "how-to"]

PROMPT = re.compile(r"^ *\$ (.+(?:\\\n.+)*)", re.MULTILINE)
SPAN = re.compile(r"(?<!`)`((?:uvx |uv run )?(?:samebits|nox) [^`]+)`(?!`)")
FENCE = re.compile(r"^( *)(```+)(\w*)\n(.*?)^\1\2", re.MULTILINE | re.DOTALL)

OTHERS = {"pip", "python", ".venv/bin/pip", ".venv/bin/python", "git", "gh", "pytest", "uv"}
OTHERS |= {"sbatch", "kubectl", "ray"}
"""Programs that are not ours: their options are theirs."""

MATRIX = jsonschema.Draft202012Validator(json.loads(schemas.render()["matrix.schema.json"]))

RUN_A_MATRIX = {"matrix": "matrix", "zoo": "matrix", "probe": "probe"}
"""Session of nox -> the command that takes what follows ``--``."""


class WrongCommand(Exception):  # noqa: N818  it is what a test looks for
    """A command that cannot be typed, and why."""


@cache
def sessions():
    """Return the names of the noxfile's sessions."""
    names = set()
    for node in ast.parse((ROOT / "noxfile.py").read_text("utf-8")).body:
        for mark in getattr(node, "decorator_list", ()):
            if ast.unparse(mark).startswith("nox.session"):
                named = {k.arg: k.value for k in getattr(mark, "keywords", ())}
                names.add(named["name"].value if "name" in named else node.name)
    return names


@cache
def parsers():
    return cli.parsers()


def check(command, *, whole=True):
    """Check a command; with ``whole`` its arguments, too. Raises WrongCommand."""
    words = shlex.split(command, comments=True)
    while words and (re.fullmatch(r"[A-Z_]+=.*", words[0]) or words[:1] == ["uvx"]):
        words = words[1:]
    for part in split_at_and(words):
        check_one(part, whole=whole)


def split_at_and(words):
    parts = [[]]
    for word in words:
        if word == "&&":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def check_one(words, *, whole):
    program, *rest = words
    if program in OTHERS:
        return
    if program == "nox":
        check_nox(rest, whole=whole)
    elif program == "samebits":
        check_samebits(rest, whole=whole)
    else:
        raise WrongCommand(f"an unknown program: {program}")


def check_nox(words, *, whole):
    words, after = (
        (words[: words.index("--")], words[words.index("--") + 1 :])
        if "--" in words
        else (words, [])
    )
    if words[:1] != ["-s"]:
        if words != ["-l"]:
            raise WrongCommand(f"nox {' '.join(words)}: no session")
        return
    for name in words[1:]:
        if re.sub(r"\(.*\)$", "", name) not in sessions():
            raise WrongCommand(f"there is no session {name}")
    command = RUN_A_MATRIX.get(re.sub(r"\(.*\)$", "", words[1]))
    if after and command:
        check_samebits([command, *after], whole=whole)


def check_samebits(words, *, whole):
    name, *arguments = words
    if not whole and name.isupper():
        return
    if name not in parsers():
        raise WrongCommand(f"there is no command {name}")
    parser = parsers()[name]
    if not whole:
        check_options(parser, arguments)
        return
    if "--help" in arguments:
        return
    try:
        _, unknown = parser.parse_known_args(arguments)
    except (SystemExit, argparse.ArgumentError) as error:
        raise WrongCommand(f"samebits {' '.join(words)}: {error}") from error
    if unknown:
        raise WrongCommand(f"samebits {' '.join(words)}: unknown: {unknown}")


def check_options(parser, arguments):
    options = {name for action in parser._actions for name in action.option_strings}
    for argument in arguments:
        option = argument.partition("=")[0]
        if option.startswith("--") and option not in options:
            raise WrongCommand(f"{parser.prog} has no option {option}")


def commands(text):
    """Return the commands of a page: those of its blocks, and those in running text."""
    blocks = [match[4] for match in FENCE.finditer(text) if match[3] in ("console", "")]
    typed = [c.replace("\\\n", " ") for block in blocks for c in PROMPT.findall(block)]
    return typed, SPAN.findall(FENCE.sub("", text))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_can_be_typed(path):
    typed, named = commands(path.read_text("utf-8"))
    for command in typed:
        check(command)
    for command in named:
        check(command, whole=False)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_first_commands_work_from_a_clone(page):
    """No index has samebits before its first release, so uvx finds none."""
    typed, _ = commands((ROOT / page).read_text("utf-8"))
    assert typed[0].startswith("pip install .")
    assert not [command for command in typed if "uvx" in command]


def test_the_pages_have_commands():
    typed = [command for path in PAGES for command in commands(path.read_text("utf-8"))[0]]
    assert len(typed) > 60
    for path in HOW_TOS:
        assert len(commands(path.read_text("utf-8"))[0]) >= 2, path


@pytest.mark.parametrize("path", HOW_TOS, ids=lambda path: path.name)
def test_every_matrix_of_a_how_to_is_valid(path):
    """A block may leave out models: then it shows other keys of the same file."""
    for match in FENCE.finditer(path.read_text("utf-8")):
        others = "uses:" in match[4] or "repos:" in match[4]  # a workflow, hooks of pre-commit
        if match[3] == "yaml" and not others:
            MATRIX.validate({"models": {"m": {"build": "llama"}}} | yaml.safe_load(match[4]))


def test_a_role_has_at_most_what_fits_two_screens():
    for path in HOW_TOS:
        assert len(path.read_text("utf-8").splitlines()) <= 120, path


WRONG = {
    "$ samebits cehck x": "no command cehck",
    "$ samebits check x --frmo 4.57": "unknown",
    "$ samebits check": "2",
    "$ uvx samebits verify --format xml": "2",
    "$ nox -s matirx": "no session matirx",
    "$ nox -s matrix -- --modles x": "unknown",
    "$ samebtis check x": "unknown program",
    "$ pip install nox && samebits matrix --nothing": "unknown",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_in_a_block_is_seen(line):
    ((command,), _) = commands(f"```console\n{line}   # a remark\n```\n")
    with pytest.raises(WrongCommand, match=WRONG[line]):
        check(command)


@pytest.mark.parametrize("text", ["`samebits cehck`", "`samebits check X --form 4`"])
def test_a_wrong_command_in_a_text_is_seen(text):
    _, (command,) = commands(f"Run {text}.\n")
    with pytest.raises(WrongCommand):
        check(command, whole=False)


def test_a_placeholder_in_a_text_is_no_mistake():
    _, (command,) = commands("Run `samebits lint PATH…` first.\n")
    check(command, whole=False)
