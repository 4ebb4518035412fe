"""What a new release changed, read from wheels, and which of it no item of cases.yaml has yet.

    python -m bench.guide.news 5.23.0 5.24.0

Names, arguments, tasks and variables are compared as ``samebits lint`` knows them, defaults as ``samebits defaults``
does, and flags of model classes such as _supports_sdpa. A change counts as asked if an item or its artefact names it.
Nothing is installed.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.defaults import Reader, wheels
from bench.guide.cases import PATH
from bench.place import ROOT
from bench.stated import written
from samebits.defaults.table import Table

sys.path.insert(0, str(ROOT / "tests" / "lint"))

_FLAG = re.compile(r"_(?:supports|is|can|keep|skip|no_split|tied)_\w+")


def main() -> None:
    """Print the changes between two releases by kind, those without an item first."""
    parser = argparse.ArgumentParser(prog="python -m bench.guide.news", description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    options = parser.parse_args()
    content = dict(wheels([options.before, options.after]))
    known = PATH.read_text("utf-8")
    for kind, change in changes(content[options.before], content[options.after]):
        word = re.split(
            r"[.:( ]", change.rpartition(".")[2] if kind != "default" else change.partition(".")[2]
        )[0]
        asked = re.search(rf"\b{re.escape(word)}\b", known) is not None
        print(f"{'asked' if asked else 'new  '}  {kind:<9}  {change}")


def changes(before: bytes, after: bytes) -> Iterator[tuple[str, str]]:
    """Yield kind and name of each change between two wheels."""
    yield from defaults(before, after)
    with TemporaryDirectory() as folder:
        roots = []
        for name, content in (("before", before), ("after", after)):
            with zipfile.ZipFile(io.BytesIO(content)) as wheel:
                wheel.extractall(Path(folder) / name)
            roots.append(Path(folder) / name / "transformers")
        yield from uses(*roots)
        yield from flags(*roots)


def defaults(before: bytes, after: bytes) -> Iterator[tuple[str, str]]:
    """Yield the defaults that moved."""
    table, read = Table([], {}), Reader()
    for release, wheel in (("0", before), ("1", after)):
        written.add(table, release, read.wheel(wheel))
    for name in sorted(table.classes):
        if not (table.has(name, "0") and table.has(name, "1")):
            continue
        old, new = table.of(name, "0"), table.of(name, "1")
        for field in sorted(old.keys() & new.keys()):
            pair = old[field], new[field]
            if all(default.is_stated for default in pair) and pair[0].value != pair[1].value:
                yield "default", f"{name}.{field}: {pair[0].value} → {pair[1].value}"


def uses(before: Path, after: Path) -> Iterator[tuple[str, str]]:
    """Yield public names, arguments, attributes, tasks and variables that went."""
    made: Any = import_module("make_uses")
    both = [made.Release(before), made.Release(after)]
    for name in sorted(both[0].public - both[1].public):
        yield "name", name
    for name in sorted(both[0].public & both[1].public):
        for method in made.calls(name, both):
            (old, named), (new, _) = (release.accepted(name, method) for release in both)
            call = f"{name}.{method}" if method else name
            for argument in sorted((old or named) - new) if new is not None else ():
                yield "argument", f"{call}.{argument}"
        old, new = (release.attributes(name) for release in both)
        if old is not None and new is not None:
            yield from (("attribute", f"{name}.{n}") for n in sorted(old - new) if n[0] != "_")
    for part in ("tasks", "variables"):
        gone = getattr(both[0], part) - getattr(both[1], part)
        yield from ((part.removesuffix("s"), name) for name in sorted(gone))


def flags(before: Path, after: Path) -> Iterator[tuple[str, str]]:
    """Yield the flags of model classes with another value."""
    old, new = (dict(_flags(root)) for root in (before, after))
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            yield "flag", f"{name}: {old[name]} → {new[name]}"


def _flags(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.glob("models/*/modeling_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            for statement in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(statement, ast.Assign) and isinstance(node, ast.ClassDef):
                    name = ast.unparse(statement.targets[0])
                    if _FLAG.fullmatch(name):
                        yield f"{node.name}.{name}", ast.unparse(statement.value)


if __name__ == "__main__":
    main()
