"""One Python file: its text, its syntax tree, and what its names are."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from samebits.lint.syntax import Function

_MAX_BYTES = 4 << 20
"""Bytes up to which a file is read; no model's code is larger."""

_IGNORE = re.compile(r"#\s*samebits:\s*ignore(?:\[([^\]]*)\])?")

Scope = Function | ast.Lambda


class UnreadableError(Exception):
    """A file cannot be read as Python; the message is one line without the file's name."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def read(path: Path) -> bytes:
    """Return the bytes of a file, of one too large for code only as many as show that."""
    with path.open("rb") as file:
        return file.read(_MAX_BYTES + 1)


class Import(NamedTuple):
    """What a name of a file was imported as."""

    module: str
    """With its leading dots, if it is relative."""
    name: str
    """Empty for ``import module``."""
    node: ast.Import | ast.ImportFrom
    alias: ast.alias

    @property
    def dotted(self) -> str:
        """``module.name``."""
        return f"{self.module}.{self.name}" if self.name else self.module


class Source:
    """A file that Python can parse.

    Raises:
        UnreadableError: it cannot be read or parsed.

    """

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.text, self.encoding = _decoded(data)
        self.tree = _parsed(self.text)
        self.nodes: list[ast.AST] = []
        self.by_kind: dict[type[ast.AST], list[Any]] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.imported_flags: frozenset[str] = frozenset()
        """Names from other files of the project that hold an answer about the release."""
        todo: list[ast.AST] = [self.tree]
        while todo:
            node = todo.pop()
            self.nodes.append(node)
            self.by_kind.setdefault(type(node), []).append(node)
            children = list(ast.iter_child_nodes(node))
            self.parents |= dict.fromkeys(children, node)
            todo += reversed(children)

    @cached_property
    def _line_starts(self) -> list[int]:
        """The offset of each line; lines end as Python's parser ends them, not at a form feed."""
        return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", self.text))]

    def offset(self, line: int, utf8_column: int) -> int:
        """Return the offset in the text of a position of the syntax tree."""
        start = self._line_starts[line - 1]
        end = self._line_starts[line] if line < len(self._line_starts) else len(self.text)
        data = self.text[start:end].encode("utf-8", "surrogatepass")[:utf8_column]
        return start + len(data.decode("utf-8", "surrogatepass"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the offsets where a node starts and ends."""
        lines = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        columns = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        return self.offset(lines[0], columns[0]), self.offset(lines[1], columns[1])

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column, both from 1, of an offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def segment(self, node: ast.AST) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def line_start(self, line: int) -> int:
        """Return the offset at which a line starts."""
        return self._line_starts[line - 1]

    def line_end(self, line: int) -> int:
        """Return the offset behind a line and its end."""
        inner = line < len(self._line_starts)
        return self._line_starts[line] if inner else len(self.text)

    @cached_property
    def newline(self) -> str:
        """The end of the file's first line."""
        match = re.search(r"\r\n|\r|\n", self.text)
        return match[0] if match else "\n"

    def own_lines(self, statement: ast.stmt) -> bool:
        """Return True if a statement shares none of its lines with another one."""
        start = self.line_start(statement.lineno)
        end = self.line_end(statement.end_lineno or statement.lineno)
        first, last = self.span(statement)
        before, after = self.text[start:first], self.text[last:end].strip()
        return not before.strip() and (not after or after.startswith("#"))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, the innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def function(self, node: ast.AST) -> Function | None:
        """Return the innermost function around a node."""
        functions = (a for a in self.ancestors(node) if isinstance(a, Function))
        return next(functions, None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the innermost class around a node."""
        return next((a for a in self.ancestors(node) if isinstance(a, ast.ClassDef)), None)

    @cached_property
    def stores(self) -> dict[str, list[ast.Name]]:
        """Every place that binds or deletes a name, by that name."""
        stores: dict[str, list[ast.Name]] = {}
        for node in self.by_kind.get(ast.Name, ()):
            if not isinstance(node.ctx, ast.Load):
                stores.setdefault(node.id, []).append(node)
        return stores

    @cached_property
    def imports(self) -> dict[str, list[Import]]:
        """Every import of the file, by the name that it binds."""
        imports: dict[str, list[Import]] = {}
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                for alias in node.names:
                    entry = Import(module, alias.name, node, alias)
                    imports.setdefault(alias.asname or alias.name, []).append(entry)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    module = alias.name if alias.asname else alias.name.partition(".")[0]
                    entry = Import(module, "", node, alias)
                    imports.setdefault(alias.asname or module, []).append(entry)
        return imports

    def dotted(self, node: ast.AST | None) -> str:
        """Return what a name or attribute chain is called outside: ``torch.nn.init``.

        A name that is not imported stays as it is; empty for any other expression.
        """
        if isinstance(node, ast.Name):
            entries = self.imports.get(node.id)
            return entries[-1].dotted if entries else node.id
        if isinstance(node, ast.Attribute):
            left = self.dotted(node.value)
            return f"{left}.{node.attr}" if left else ""
        return ""

    def from_library(self, node: ast.AST | None) -> str:
        """Return the dotted name of something of transformers, else empty."""
        name = self.dotted(node)
        return name if name.startswith("transformers.") else ""

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The classes of the file by name; of two with one name, the last."""
        return {node.name: node for node in self.nodes if isinstance(node, ast.ClassDef)}

    @cached_property
    def ignored(self) -> Mapping[int, frozenset[str] | None]:
        """Lines with a comment ``samebits: ignore``, and the codes in it; None for all codes."""
        if "samebits:" not in self.text:
            return {}
        ignored: dict[int, frozenset[str] | None] = {}
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(self.text).readline))
        except (tokenize.TokenError, SyntaxError):
            return {}
        for token in tokens:
            match = _IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
            if match:
                codes = frozenset(re.split(r"[\s,]+", match[1].strip())) if match[1] else None
                ignored[token.start[0]] = codes
        return ignored


def _decoded(data: bytes) -> tuple[str, str]:
    """Return the text of a file and its encoding, which its first lines declare.

    The encoding is ``utf-8-sig`` for UTF-8 with a byte order mark.
    """
    if len(data) > _MAX_BYTES:
        message = f"not read: it has more than {_MAX_BYTES:,} bytes"
        raise UnreadableError(message)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding), encoding
    except (SyntaxError, UnicodeError, LookupError) as error:
        message = f"not read: its encoding is not the one that it declares ({_one_line(error)})"
        raise UnreadableError(message) from error


def _parsed(text: str) -> ast.Module:
    """Return the syntax tree. Raises UnreadableError for whatever Python's parser raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        message = f"not read: Python does not accept it ({_one_line(error)})"
        raise UnreadableError(message, error.lineno or 1, error.offset or 1) from error
    except (ValueError, RecursionError, MemoryError) as error:
        message = f"not read: Python does not accept it ({_one_line(error)})"
        raise UnreadableError(message) from error


def _one_line(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(str(text).split())[:200] or type(error).__name__
