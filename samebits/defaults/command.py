"""The command ``samebits defaults``: defaults that moved between two releases, from the table alone.

It imports little and installs nothing, so it answers at once. Exit codes: 0, no default moved; 1, at least one did;
2, a mistake on the command line or in a file.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from samebits.base.parser import Parser
from samebits.defaults.moved import Move, class_names, moves, spelling
from samebits.defaults.table import Table, table

FORMAT: Final = "samebits-defaults"
FORMAT_VERSION: Final = 1
_OLDEST: Final = "4.57"
_NEWEST: Final = "5.x"
FILES: Final = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
    "tokenizer_config.json",
)
"""Files of a folder that are read."""
_INSIDE: Final = ("image_processor", "video_processor", "feature_extractor")
"""Parts of processor_config.json that have a class of their own."""
_MAX_VALUE: Final = 60
"""Characters of a value that are shown."""


class MistakeError(ValueError):
    """What the user is to change."""


@dataclass(frozen=True)
class Answer:
    """What moved for one file, or for one class."""

    name: str
    classes: tuple[str, str]
    """The class in the older and in the newer release."""
    moves: tuple[Move, ...]


def main(arguments: Sequence[str]) -> int:
    """Run the command with what follows ``defaults``; print, and return the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        history = table()
        first, last = (_release(history, text) for text in (options.first, options.last))
        if history.releases.index(first) > history.releases.index(last):
            parser.error(f"--from {first} is newer than --to {last}: swap them")
        answers, notes = _answers(history, options.of, first, last)
    except MistakeError as error:
        parser.error(str(error))
    lines = _json if options.format == "json" else _text
    sys.stdout.writelines(f"{line}\n" for line in lines(answers, first, last))
    for note in notes:
        sys.stderr.write(f"{note}\n")
    return int(any(answer.moves for answer in answers))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = Parser(
        prog="samebits defaults",
        description=(
            "Which defaults of a release are other ones in a newer release, and does this file leave them to the "
            "release? The answer comes from a table of all releases since 4.48.0; nothing is installed or run."
        ),
        epilog="Exit codes: 0, no default moved; 1, at least one did; 2, a mistake.",
    )
    parser.add_argument(
        "of",
        nargs="+",
        metavar="PATH|CLASS",
        help="a folder of a model, one of its config files, or a class such as TrainingArguments",
    )
    parser.add_argument("--from", dest="first", default=_OLDEST, help=f"default: {_OLDEST}")
    parser.add_argument(
        "--to", dest="last", default=_NEWEST, help=f"default: {_NEWEST}, the newest"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    return parser


def _release(known: Table, text: str) -> str:
    """Return the newest release of ``4.57``, ``5.x`` or ``4.57.1``."""
    family = text.removesuffix(".x")
    members = [release for release in known.releases if f"{release}.".startswith(f"{family}.")]
    if not members:
        newest = known.releases[-1]
        msg = f"the table of defaults has no release {text}: it has {known.releases[0]} to {newest}"
        raise MistakeError(msg)
    return members[-1]


def _answers(
    known: Table, of: Sequence[str], first: str, last: str
) -> tuple[list[Answer], list[str]]:
    """Return the answers, and a line for each file that has none."""
    answers, notes = [], []
    for name, document, classes in _asked(known, of, first, last):
        before, after = classes
        if before is None or after is None:
            where = first if before is None else last
            notes.append(
                f"{name}: transformers {where} has no class for it, so it has no defaults to compare"
            )
            continue
        moved = moves(known, document, first, last, (before, after))
        answers.append(Answer(name, (before, after), tuple(moved)))
    return answers, notes


_Pair = tuple[str | None, str | None]


def _asked(
    known: Table, of: Sequence[str], first: str, last: str
) -> Iterator[tuple[str, dict[str, Any], _Pair]]:
    """Yield what is shown as name, the content, and the class in both releases."""
    for text in of:
        path = Path(text)
        if not path.exists():
            yield text, {}, _of_class(known, text, first, last)
            continue
        files = (
            [path / name for name in FILES if (path / name).is_file()] if path.is_dir() else [path]
        )
        if not files:
            raise MistakeError(f"{text} has none of the files {', '.join(FILES)}")
        for file in files:
            document = _read(file)
            if file.name == "generation_config.json":
                yield str(file), document, ("GenerationConfig", "GenerationConfig")
                continue
            parts = {
                f"{file}: {part}": document[part]
                for part in _INSIDE
                if file.name == "processor_config.json" and isinstance(document.get(part), dict)
            }
            for name, content in parts.items() or {str(file): document}.items():
                yield name, content, _both(known, content, first, last)


def _both(known: Table, document: dict[str, Any], first: str, last: str) -> _Pair:
    return class_names(known, document, first), class_names(known, document, last)


def _of_class(known: Table, name: str, first: str, last: str) -> _Pair:
    pair = spelling(known, name, first), spelling(known, name, last)
    if pair == (None, None):
        near = difflib.get_close_matches(name, known.classes, n=1)
        hint = f": did you mean {near[0]}?" if near else ""
        msg = f"{name} is no file and no class of transformers {first} or {last}{hint}"
        raise MistakeError(msg)
    return pair


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise MistakeError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise MistakeError(f"{path} is no JSON object")
    return content


def _text(answers: Sequence[Answer], first: str, last: str) -> Iterator[str]:
    for answer in answers:
        shown = " → ".join(dict.fromkeys(answer.classes))
        if not answer.moves:
            yield f"{answer.name} ({shown}): no default that it leaves out moved from {first} to {last}"
            continue
        count = len(answer.moves)
        noun = "default" if count == 1 else "defaults"
        yield f"{answer.name} ({shown}): {count} {noun} moved from {first} to {last}"
        rows = [("field", first, last, "since"), *map(_row, answer.moves)]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            yield "  " + "  ".join([*cells, row[3]])
        yield f"To keep those of {first}, write them into the file or pass them."


def _row(move: Move) -> tuple[str, str, str, str]:
    since = f"{move.since}, with torch {move.torch} or newer" if move.torch else move.since
    return move.field, _shown(move.before), _shown(move.after), since


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"


def _json(answers: Sequence[Answer], first: str, last: str) -> list[str]:
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "from": first,
        "to": last,
        "answers": [asdict(answer) for answer in answers],
    }
    return [json.dumps(document, indent=2, ensure_ascii=False)]
