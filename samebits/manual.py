"""Pages of docs/reference/ that follow from the code: keys of matrix.yaml, command line, known fixes.

``python -m samebits.manual`` writes them; tests/test_manual.py checks that they are current.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from samebits import schemas
from samebits.cli.parser import parsers
from samebits.reports.answer.known_fixes import FILE, known_fixes
from samebits.text.blocks import fence, heading, link, linked, page, slug, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, markdown, prose

FOLDER = Path(__file__).parents[1] / "docs" / "reference"

EXAMPLE = """\
version: 1
environments: ["4.57", {id: nightly, transformers: 5.x, packages: [accelerate]}]
reference: "4.57"
defaults:
  dtypes: [float32, bfloat16]
  attention: [sdpa, eager]
models:
  on-the-hub: {hub: org/name, revision: main}
  in-a-folder: {path: ../checkpoint, trust_remote_code: true, patch: [repair.diff]}
  made-here: {build: {architecture: llama, config: {num_hidden_layers: 2}}}
exclude:
  - {model: made-here, variant: "*-eager", reason: its attention is the same}
expected:
  - {model: "on-*", environment: nightly, signal: logits, verdict: diverged, reason: the mask was repaired}
"""
"""A file with a key of every section; the test validates it."""

_FORMS = {
    "ModelEntry": "A model",
    "Settings": "Settings of a model",
    "StackEntry": "An environment",
    "Recipe": "A model that is built",
    "TokenizerRecipe": "The tokenizer of a model that is built",
    "Prompt": "A prompt",
    "InputSetEntry": "A set of inputs",
    "Argument": "An argument of forward",
    "ProbeEntry": "A probe",
    "Rule": "A rule",
    "ExpectedEntry": "A known difference",
}
"""Mapping of the schema -> its heading, in the order of the page."""

_OF_SOURCES = "ModelEntry"
_SETTINGS = "Settings"


def render() -> dict[str, str]:
    """Return the text of every page by the name of its file."""
    return {
        "matrix.md": f"{_matrix(json.loads(schemas.render()['matrix.schema.json']))}\n",
        "command-line.md": f"{_command_line()}\n",
        "known-fixes.md": f"{_known_fixes()}\n",
    }


def write(folder: Path = FOLDER) -> None:
    """Write every page into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _matrix(schema: dict[str, Any]) -> Markdown:
    forms = schema["$defs"]
    parts = [
        heading(1, "matrix.yaml"),
        fill(
            "{} Every key, from {}; {} writes this page. All mistakes in a file are reported at once, "
            "each with line and column.",
            markdown(schema["description"]),
            link("matrix.schema.json", "../../samebits/schemas/matrix.schema.json"),
            code("nox -s docs"),
        ),
        fence(EXAMPLE, "yaml"),
        heading(2, "Keys at the top"),
        _keys(schema),
    ]
    for name in [*_FORMS, *sorted(set(forms) - set(_FORMS))]:
        parts += [heading(2, _FORMS[name]), *map(prose, _paragraphs(forms[name]["description"]))]
        if name == _OF_SOURCES:
            text = "It also has all keys of {}."
            parts.append(fill(text, _link_to(_SETTINGS)))
        left_out = forms[_SETTINGS]["properties"] if name == _OF_SOURCES else ()
        parts.append(_keys(forms[name], left_out))
    return page(parts)


def _known_fixes() -> Markdown:
    intro = (
        "Where two releases differ, and no finding and no consistency check says which one is wrong, samebits looks "
        "up whether a release is known to have a fault at the very place where the difference begins. Each entry was "
        "proven in the sources of the releases. {} has them; {} writes this page."
    )
    file = link(FILE.name, f"../../samebits/reports/answer/{FILE.name}")
    parts = [heading(1, "Known fixes"), fill(intro, file, code("nox -s docs"))]
    for fix in sorted(known_fixes(), key=lambda fix: (fix.folders, fix.before)):
        since = "" if fix.since == "0" else f" from {fix.since} on"
        releases = f"before {fix.before}" if fix.before else f"{fix.since} and later"
        parts += [
            heading(2, f"{', '.join(fix.folders)}: {releases}"),
            prose(f"The fault{since}: {fix.why}. It shows with {fix.when}."),
            linked(f"{fix.proof} Source: {fix.source}"),
        ]
    return page(parts)


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("\n\n")]


def _keys(form: dict[str, Any], left_out: Iterable[str] = ()) -> Markdown:
    """Return the table of a mapping's keys."""
    needed = form.get("required", ())
    rows = [
        [
            code(key),
            prose(" ".join(value.get("description", "").split())),
            _default(value, needed=key in needed),
            _value(value),
        ]
        for key, value in form["properties"].items()
        if key not in left_out
    ]
    return table(["key", "what", "default", "value"], rows)


def _default(value: dict[str, Any], *, needed: bool) -> Markdown:
    if needed:
        return markdown("needed")
    if "default" not in value:
        return EMPTY
    default = value["default"]
    plain = default[0] if isinstance(default, list) and len(default) == 1 else default
    return code(plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False))


def _value(schema: dict[str, Any]) -> Markdown:
    """Return which values a part of the schema allows, in a few words."""
    if "$ref" in schema:
        return _link_to(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return join(map(code, schema["enum"]), ", ")
    if "const" in schema:
        return code(str(schema["const"]))
    if "anyOf" in schema and "properties" not in schema:
        return _one_of(schema["anyOf"])
    kind = schema.get("type", "any")
    if kind == "array":
        return fill("list of: {}", _value(schema.get("items", {})))
    if kind == "object":
        return _mapping(schema)
    if kind in ("integer", "number"):
        return _number(schema)
    return _text(schema, kind)


def _one_of(schemas_: Iterable[dict[str, Any]]) -> Markdown:
    """Return alternatives; null only stands for a section whose entries are commented out."""
    parts = [s for s in schemas_ if s.get("type") != "null" and not _is_special(s)]
    if len(parts) == 2 and parts[1].get("items") == parts[0]:
        return fill("one or a list of: {}", _value(parts[0]))
    return join(dict.fromkeys(map(_value, parts)), " or ")


def _is_special(schema: dict[str, Any]) -> bool:
    return "Infinity" in schema.get("enum", ())


def _mapping(schema: dict[str, Any]) -> Markdown:
    values = [*schema.get("patternProperties", {}).values()]
    if isinstance(schema.get("additionalProperties"), dict):
        values.append(schema["additionalProperties"])
    if not values:
        return markdown("mapping")
    return fill("names, each with: {}", _value(values[0]))


def _number(schema: dict[str, Any]) -> Markdown:
    word = "whole number" if schema["type"] == "integer" else "number"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return markdown(f"{word}, {low:,} to {high:,}")
    if high is not None:
        return markdown(f"{word}, above {schema.get('exclusiveMinimum', 0)}, up to {high:,}")
    return markdown(word if low is None else f"{word} from {low:,}")


_ANY_TEXT = r"\S"
_TEXTS = (["string", "number"], ["string", "number", "boolean", "array"])


def _text(schema: dict[str, Any], kind: object) -> Markdown:
    if kind == "boolean":
        return join(map(code, ("true", "false")), ", ")
    if kind == _TEXTS[1]:
        return markdown("a constant")
    if kind not in ("string", _TEXTS[0]):
        return markdown("any value")
    if "examples" in schema:
        return fill("text, such as {}", join(map(code, schema["examples"]), ", "))
    pattern = schema.get("pattern", _ANY_TEXT)
    if pattern == _ANY_TEXT:
        return markdown("text")
    return fill("text: {}", code(pattern.removeprefix("^").removesuffix("$")))


def _link_to(form: str) -> Markdown:
    title = _FORMS[form]
    return link(f"{title[0].lower()}{title[1:]}", f"#{slug(title)}")


def _command_line() -> Markdown:
    parts = [
        heading(1, "Command line"),
        fill(
            "Every command and option, as {} prints them; {} writes this page. In a folder whose "
            "noxfile has a session {}, the same options follow {}.",
            code("samebits COMMAND --help"),
            code("nox -s docs"),
            code("matrix"),
            code("nox -s matrix --"),
        ),
    ]
    for name, parser in parsers().items():
        parts += [heading(2, f"samebits {name}"), *_command(name, parser)]
    return page(parts)


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[Markdown]:
    actions = [a for a in parser._actions if not isinstance(a, argparse._HelpAction)]
    operands = [action for action in actions if not action.option_strings]
    words = ["samebits", name, *(_operand(action) for action in operands), "[options]"]
    yield fence(" ".join(words), "text")
    for text in (parser.description or "", parser.epilog or ""):
        for part in text.strip().split("\n\n"):
            # an indented line belongs to a list that is laid out by hand
            yield (
                fence(part)
                if any(line[:1].isspace() for line in part.splitlines())
                else _words(" ".join(part.split()))
            )
    rows = [[_names(action), _words(_help(action))] for action in (*operands, *actions)]
    yield table(["argument or option", "what"], list(dict.fromkeys(map(tuple, rows))))


_CODE = re.compile(r"`([^`]+)`|(?<!\w)(--[a-z][\w-]*)|(?<!\w)'([^'\s]+)'")
"""What a help text means as code: in backticks, an option, or a word in quotes."""


def _words(text: str) -> Markdown:
    """Return running text with its options and its quoted words as code."""
    parts: list[Markdown] = []
    end = 0
    for match in _CODE.finditer(text):
        parts += [_between(text[end : match.start()]), code(match[match.lastindex or 0])]
        end = match.end()
    return join([*parts, _between(text[end:])], "")


def _between(text: str) -> Markdown:
    """Return running text that keeps the blanks at its ends."""
    head, tail = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return Markdown(f"{head}{prose(text)}{tail}") if text.strip() else Markdown(text)


def _operand(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    return {"*": f"[{name} …]", "+": f"{name} …"}.get(str(action.nargs), name)


def _names(action: argparse.Action) -> Markdown:
    if not action.option_strings:
        return code(str(action.metavar or action.dest))
    value = "" if action.nargs == 0 else f" {_metavar(action)}"
    return join((code(f"{name}{value}") for name in action.option_strings), ", ")


def _metavar(action: argparse.Action) -> str:
    if action.metavar or not action.choices:
        return str(action.metavar or action.dest.upper())
    return f"{{{','.join(map(str, action.choices))}}}"


def _help(action: argparse.Action) -> str:
    """Return the help of an option, without the default that some Pythons add to a switch."""
    text = action.help or ""
    if isinstance(action, argparse.BooleanOptionalAction):
        text = text.removesuffix(" (default: %(default)s)")
    return text % {"default": action.default} if "%" in text else text


if __name__ == "__main__":
    write()
