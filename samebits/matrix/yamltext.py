"""A YAML parser that returns the line, column and raw text of every value.

Plain YAML reads an unquoted ``4.50`` as the number 4.5, and of two equal keys it silently keeps
the last. The positions and raw texts make it possible to report both mistakes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml
from yaml.error import Mark, MarkedYAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import Reader

from samebits.base.errors import nearest, shown

if TYPE_CHECKING:
    from yaml.constructor import SafeConstructor

MAX_BYTES = 1_000_000
MAX_DEPTH = 60
MAX_VALUES = 50_000

Keys = tuple[str | int, ...]
"""The path to a value: keys of mappings and indices of lists."""


class Place(NamedTuple):
    """Line and column, both counted from 1; (0, 0) is the file as a whole."""

    line: int
    column: int


FILE = Place(0, 0)


class Problem(NamedTuple):
    """A mistake at a place, and what to write instead."""

    place: Place
    text: str


@dataclass(frozen=True, kw_only=True)
class Yaml:
    """Plain data, and the position of each part of it."""

    data: object = None
    """dict, list, str, int, float, bool or None; None at the top only if there are problems."""
    keys: dict[Keys, Place]
    """The position of a value's key."""
    values: dict[Keys, Place]
    """The position where a value begins."""
    raw: dict[Keys, str]
    """The text of each scalar as written, without quotes."""
    problems: tuple[Problem, ...] = ()

    def place(self, keys: Keys) -> Place:
        """Return the position of a value; that of its key if it is a list or a mapping.

        A value that is not in the file has the position of the nearest part that contains it.
        """
        while keys and keys not in self.values:
            keys = keys[:-1]
        value = self.values.get(keys, Place(1, 1))
        return value if keys in self.raw else self.keys.get(keys, value)


def read(path: Path) -> Yaml:
    """Read a file; if it cannot be read, the result has a problem and no data."""
    try:
        with path.open("rb") as file:
            return parse(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        return _unreadable(
            FILE, f"there is no such file{_search_folder(path)}{_similar_names(path)}"
        )
    except IsADirectoryError:
        return _unreadable(FILE, "this is a folder: name the file in it")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return _unreadable(FILE, f"cannot be read: {reason}")


def parse(content: bytes) -> Yaml:
    """Parse bytes; if they are not YAML, the result has a problem and no data."""
    if len(content) > MAX_BYTES:
        return _unreadable(FILE, f"is larger than {MAX_BYTES:,} bytes: this is no matrix file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _place_after(content[: error.start].decode("utf-8", "replace"))
        byte = content[error.start]
        return _unreadable(place, f"the byte 0x{byte:02x} is not UTF-8: save the file as UTF-8")
    match = Reader.NON_PRINTABLE.search(text)
    if match:
        place = _place_after(text[: match.start()])
        return _unreadable(place, f"the character {shown(match.group())} may not stand in YAML")
    return _parse_text(text)


def _parse_text(text: str) -> Yaml:
    loader = _Loader(text)
    converter = _NodeConverter(loader)
    try:
        node = loader.get_single_node()
        data = None if node is None else converter.value(node, ())
    except MarkedYAMLError as error:
        return _unreadable(_place(error.problem_mark or error.context_mark), _syntax(error))
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError):
        # PyYAML raises a plain ValueError for escapes such as "\UFFFFFFFF" and directives such as
        # %YAML 1.<5000 digits>
        return _unreadable(_place(loader.get_mark()), "is not valid YAML here")
    if data is None:
        return _unreadable(Place(1, 1), "the file says nothing")
    return Yaml(
        data=data,
        keys=converter.keys,
        values=converter.values,
        raw=converter.raw,
        problems=tuple(sorted(set(converter.problems))),
    )


def _unreadable(place: Place, text: str) -> Yaml:
    return Yaml(keys={}, values={}, raw={}, problems=(Problem(place, text),))


def _search_folder(path: Path) -> str:
    """Return the folder in which a relative path was searched: nox runs in the noxfile's folder."""
    return "" if path.is_absolute() else f" (seen from {Path.cwd()})"


def _similar_names(path: Path) -> str:
    try:
        names = [file.name for file in path.parent.iterdir() if file.suffix in (".yaml", ".yml")]
    except (OSError, ValueError):
        return ""
    return f": {nearest(path.name, names)}" if names else ""


def _place_after(before: str) -> Place:
    line = before.count("\n") + 1
    return Place(line, len(before) - (before.rfind("\n") + 1) + 1)


def _place(mark: Mark | None) -> Place:
    return Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)


def _syntax(error: MarkedYAMLError) -> str:
    if isinstance(error, _RefusedError):
        return str(error.problem)
    problem = str(error.problem)
    if "'\\t'" in problem:
        return "a tab stands here: indent with spaces"
    if "expected a single document" in str(error.context):
        return "a second document begins here: remove the line ---"
    context = f" {error.context}" if error.context else ""
    text = f"is not valid YAML:{context} {problem}".replace("\n", " ")
    return re.sub(r"'?<(stream|block) end>'?", r"the end of the \1", text)


class _RefusedError(MarkedYAMLError):
    """Valid YAML with a feature that a matrix file does not need."""

    def __init__(self, text: str, mark: Mark | None) -> None:
        super().__init__(None, None, text, mark)


class _Loader(yaml.SafeLoader):
    """A safe loader with a maximal depth below Python's recursion limit."""

    _depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # not in its stubs
            text = f"lists and mappings are nested deeper than {MAX_DEPTH}"
            raise _RefusedError(text, mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


# PyYAML follows YAML 1.1, where 1e-5 is a text; in rms_norm_eps: 1e-5 a number is meant.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)

_TAG = "tag:yaml.org,2002:"
_TEXTS = frozenset({f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value"})
"""Tags of values that stay text; a date is one of them."""
_SCALAR_KINDS = {f"{_TAG}{kind}": kind for kind in ("null", "bool", "int", "float")}

_Pairs = dict[str, tuple[Node, Node]]


class _NodeConverter:
    """Converts YAML nodes to plain data, and records positions, raw texts and problems."""

    def __init__(self, loader: SafeConstructor) -> None:
        self.keys: dict[Keys, Place] = {}
        self.values: dict[Keys, Place] = {}
        self.raw: dict[Keys, str] = {}
        self.problems: list[Problem] = []
        self._loader = loader
        self._open_nodes: list[Node] = []
        self._visited = 0

    def value(self, node: Node, keys: Keys) -> object:
        """Return the data of a node; an alias is resolved each time that it occurs."""
        self._enter(node)
        self.values[keys] = _place(node.start_mark)
        self.raw.pop(keys, None)
        if isinstance(node, ScalarNode):
            self.raw[keys] = node.value
            data = self._scalar(node)
        elif isinstance(node, SequenceNode):
            data = self._list(node, keys)
        else:
            data = self._dict(node, keys)
        self._open_nodes.pop()
        return data

    def _enter(self, node: Node) -> None:
        self._visited += 1
        if self._visited > MAX_VALUES:
            text = f"more than {MAX_VALUES:,} values, counting each use of an alias"
            raise _RefusedError(text, node.start_mark)
        if any(outer is node for outer in self._open_nodes):
            text = "an alias is used inside of what it names"
            raise _RefusedError(text, node.start_mark)
        if len(self._open_nodes) > MAX_DEPTH:
            text = f"aliases are nested deeper than {MAX_DEPTH}"
            raise _RefusedError(text, node.start_mark)
        self._open_nodes.append(node)

    def _list(self, node: SequenceNode, keys: Keys) -> list[object]:
        self._check_tag(node, "seq")
        return [self.value(item, (*keys, index)) for index, item in enumerate(node.value)]

    def _dict(self, node: Node, keys: Keys) -> dict[str, object]:
        self._check_tag(node, "map")
        data = {}
        for name, (key, value) in (self._inherited_pairs(node) | self._own_pairs(node)).items():
            self.keys[*keys, name] = _place(key.start_mark)
            data[name] = self.value(value, (*keys, name))
        return data

    def _own_pairs(self, node: Node) -> _Pairs:
        """Return the pairs written in a mapping; of equal keys the last wins, as in YAML."""
        pairs: _Pairs = {}
        for key, value in node.value:
            if _is_merge(key):
                continue
            name = self._key(key)
            if name in pairs:
                line = pairs[name][0].start_mark.line + 1
                text = f"the key {shown(name)} is given twice, first on line {line}: remove one"
                self._report(key, text)
            pairs[name] = key, value
        return pairs

    def _inherited_pairs(self, node: Node) -> _Pairs:
        """Return the pairs added by merge keys (<<); the first of several sources wins."""
        pairs: _Pairs = {}
        merges = [value for key, value in node.value if _is_merge(key)]
        for merge in merges:
            sources = merge.value if isinstance(merge, SequenceNode) else [merge]
            for source in reversed(sources):
                pairs |= self._merge(source)
        return pairs

    def _merge(self, source: Node) -> _Pairs:
        if not isinstance(source, MappingNode):
            self._report(source, "<< takes a mapping, or a list of mappings")
            return {}
        self._enter(source)
        pairs = self._inherited_pairs(source) | self._own_pairs(source)
        self._open_nodes.pop()
        return pairs

    def _key(self, key: Node) -> str:
        if not isinstance(key, ScalarNode):
            self._report(key, "a list or a mapping cannot be a key: write a text")
            return ""
        if key.tag == f"{_TAG}null":
            self._report(key, "a key is missing before the colon")
        elif key.tag in _SCALAR_KINDS:
            kind = "a switch (true or false)" if key.tag == f"{_TAG}bool" else "a number"
            self._report(key, f'the key {key.value} is {kind} to YAML: quote it: "{key.value}"')
        elif key.tag not in _TEXTS:
            self._report_tag(key)
        return self._text(key)

    def _scalar(self, node: ScalarNode) -> object:
        if node.tag in _TEXTS:
            return self._text(node)
        if node.tag not in _SCALAR_KINDS:
            self._report_tag(node)
            return self._text(node)
        try:
            data = self._loader.construct_object(node)
            str(data)  # raises for a hexadecimal number with too many digits to print
            return data
        except (ValueError, ArithmeticError, LookupError):
            kind = _SCALAR_KINDS[node.tag]
            self._report(node, f"{shown(node.value)} cannot be read as {kind}: quote it")
            return node.value

    def _text(self, node: ScalarNode) -> str:
        text = str(node.value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._report(node, f"{shown(text)} holds half of a character (a surrogate): remove it")
        return text.encode("utf-8", "replace").decode("utf-8")

    def _check_tag(self, node: Node, kind: str) -> None:
        if node.tag != f"{_TAG}{kind}":
            self._report_tag(node)

    def _report_tag(self, node: Node) -> None:
        self._report(node, f"the tag {shown(node.tag)} is not known here: remove it")

    def _report(self, node: Node, text: str) -> None:
        self.problems.append(Problem(_place(node.start_mark), text))


def _is_merge(key: Node) -> bool:
    return bool(key.tag == f"{_TAG}merge")
