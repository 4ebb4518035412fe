"""Which parts of a function two releases have otherwise.

A part is a region of ``samebits_wire.regions``: statements that run together. A function that differs in one
branch only is not checked by a run that takes another one.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from samebits.questions.changes.source import Bare, Function, functions
from samebits_wire.regions import FUNCTIONS, regions

_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


class Statement(NamedTuple):
    """One statement, without those inside it."""

    digest: str
    line: int
    """That of the region in which it runs."""


def read(text: bytes, path: str) -> dict[str, Function]:
    """Return qualified name -> function of a file.

    Raises:
        SyntaxError, ValueError: this interpreter cannot read it.

    """
    return dict(functions(ast.parse(text, path)))


def statements(node: Function) -> Iterator[Statement]:
    """Yield the statements of a function, those of functions inside it at the end."""
    for function in ast.walk(node):
        if isinstance(function, FUNCTIONS):
            for region in regions(function):
                for statement in region.body[region.start : region.stop]:
                    if digest := _digest(statement):
                        yield Statement(digest, region.line)


def changed(before: Sequence[Statement], after: Sequence[Statement]) -> tuple[set[int], set[int]]:
    """Return the lines of the regions that differ, in each of two releases."""
    before_digests, after_digests = (
        [statement.digest for statement in side] for side in (before, after)
    )
    lines: tuple[set[int], set[int]] = (set(), set())
    for kind, i, j, k, end in SequenceMatcher(
        None, before_digests, after_digests, autojunk=False
    ).get_opcodes():
        if kind != "equal":
            lines[0].update(statement.line for statement in before[i:j])
            lines[1].update(statement.line for statement in after[k:end])
    return lines


def _digest(statement: ast.stmt) -> str:
    """Return the digest of what a statement computes before its bodies; '' if that is nothing."""
    head = copy.copy(statement)
    heads: list[ast.AST] = [head]
    for name in _BODIES:
        if inner := getattr(head, name, None):
            heads += [
                part.type or ast.Pass() for part in inner if isinstance(part, ast.ExceptHandler)
            ]
            heads += [part.pattern for part in inner if isinstance(part, ast.match_case)]
            setattr(head, name, [])
    bare = [Bare().visit(part) for part in heads]  # parts that are bare stay as they are
    if bare[0] is None or isinstance(bare[0], ast.Pass):
        return ""
    text = "\0".join(ast.dump(part) for part in bare)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
