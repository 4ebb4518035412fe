"""Options from the fields of a record: how a field's type, default and marks are read."""

import argparse
from pathlib import Path
from typing import Annotated, Literal

import pytest

from samebits.base.options import Option, add_options, name_of, option_of, record_of
from samebits.records.record import Record

LEVELS = {"low": "ask little", "high": "ask much"}


class Asked(Record):
    folder: Annotated[Path, Option("DIR", "")]
    """Where it lies."""
    others: Annotated[tuple[str, ...], Option("WHAT", "--other")] = ()
    """One more; may be repeated."""
    base_line: Annotated[Path | None, Option("FILE")] = None
    """A file of before,
    or none."""
    fast: Annotated[bool, Option()] = False
    """Be fast."""
    kept: Annotated[bool | None, Option()] = None
    """Keep it."""
    form: Annotated[Literal["text", "json"], Option()] = "text"
    """What is written."""
    all_of: Annotated[bool | Literal["all"], Option("all", apart="span")] = False
    """Some, or all."""
    one_of: Annotated[str, Option("NAME", apart="span")] = ""
    """One alone."""
    level: Annotated[Literal["low", "usual", "high"], Option(words=LEVELS)] = "usual"
    """How much is asked."""
    derived: int = 3
    """Follows from the others."""


def parsed(*words, **defaults):
    parser = argparse.ArgumentParser()
    add_options(parser, Asked, **defaults)
    return parser, record_of(Asked, parser.parse_args(words))


def test_what_is_not_given_has_the_defaults_of_the_record():
    assert parsed("x")[1] == Asked(folder=Path("x"))


def test_each_type_is_read_in_its_way(monkeypatch):
    monkeypatch.setenv("HOME", "/h")
    words = ("--other", "a", "--other", "b", "--base-line", "~/f", "--fast", "--no-kept")
    _, asked = parsed("x", *words, "--form", "json", "--all-of", "--high")
    assert asked == Asked(
        folder=Path("x"),
        others=("a", "b"),
        base_line=Path("/h/f"),
        fast=True,
        kept=False,
        form="json",
        all_of=True,
        level="high",
    )
    assert parsed("x", "--all-of", "all")[1].all_of == "all"


@pytest.mark.parametrize(
    "words",
    [(), ("x", "--low", "--high"), ("x", "--all-of", "--one-of", "y"), ("x", "--form", "xml")],
    ids=["no operand", "two words", "two of a group", "no choice"],
)
def test_what_cannot_be_asked_is_refused(words):
    with pytest.raises(SystemExit):
        parsed(*words)


def test_the_help_is_the_description_as_a_phrase():
    parser, _ = parsed("x", base_line="that of x")
    help = {action.dest: action.help for action in parser._actions if action.dest != "level"}
    assert help["folder"] == "where it lies"
    assert help["base_line"] == "a file of before, or none (default: that of x)"
    assert [a.help for a in parser._actions if a.dest == "level"] == list(LEVELS.values())
    assert "derived" not in help


def test_names():
    assert [name_of(Asked, name) for name in ("others", "base_line")] == ["--other", "--base-line"]
    assert option_of(Asked, "derived") is None


def test_what_follows_from_several_options_is_given_beside_them():
    parser = argparse.ArgumentParser()
    add_options(parser, Asked, "folder", "fast")
    assert record_of(Asked, parser.parse_args(["x"]), derived=4).derived == 4
