"""What does a YAML file say, and on which line and column does it say so?

YAML reads an unquoted ``4.50`` as the number 4.5 and keeps the last of two equal keys in
silence. Both are seen here: every value comes with its place and its text as written.
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
"""The way to a value: keys of mappings and indices of lists."""


class Place(NamedTuple):
    """Line and column, both from 1; (0, 0) is the file as such."""

    line: int
    column: int


FILE = Place(0, 0)


class Problem(NamedTuple):
    """What is wrong at a place, and what to write instead."""

    place: Place
    text: str


@dataclass(frozen=True, kw_only=True)
class Yaml:
    """Plain data, and where each part of it stands."""

    data: object = None
    """dict, list, str, int, float, bool or None; None at the top only if there are problems."""
    keys: dict[Keys, Place]
    """Where the key of a value stands."""
    values: dict[Keys, Place]
    """Where a value begins."""
    raw: dict[Keys, str]
    """The text of each scalar as written, without quotes."""
    problems: tuple[Problem, ...] = ()

    def place(self, keys: Keys) -> Place:
        """Return where a value stands, by its key if it is a list or a mapping.

        What is not in the file stands where the nearest thing around it does.
        """
        while keys and keys not in self.values:
            keys = keys[:-1]
        value = self.values.get(keys, Place(1, 1))
        return value if keys in self.raw else self.keys.get(keys, value)


def read(path: Path) -> Yaml:
    """Read a file; one that cannot be read has a problem and no data."""
    try:
        with path.open("rb") as file:
            return parse(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        return _unreadable(FILE, f"there is no such file{_looked_in(path)}{_similar(path)}")
    except IsADirectoryError:
        return _unreadable(FILE, "this is a folder: name the file in it")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return _unreadable(FILE, f"cannot be read: {reason}")


def parse(content: bytes) -> Yaml:
    """Read bytes; those that are no YAML have a problem and no data."""
    if len(content) > MAX_BYTES:
        return _unreadable(FILE, f"is larger than {MAX_BYTES:,} bytes: this is no matrix file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _place_of(content[: error.start].decode("utf-8", "replace"))
        byte = content[error.start]
        return _unreadable(place, f"the byte 0x{byte:02x} is not UTF-8: save the file as UTF-8")
    control = Reader.NON_PRINTABLE.search(text)
    if control:
        place = _place_of(text[: control.start()])
        return _unreadable(place, f"the character {shown(control.group())} may not stand in YAML")
    return _parse_text(text)


def _parse_text(text: str) -> Yaml:
    loader = _Loader(text)
    walk = _Walk(loader)
    try:
        node = loader.get_single_node()
        data = None if node is None else walk.value(node, ())
    except MarkedYAMLError as error:
        return _unreadable(_place(error.problem_mark or error.context_mark), _syntax(error))
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError):
        # Escapes such as "\UFFFFFFFF" and directives such as %YAML 1.<5000 digits> end in a
        # plain ValueError of PyYAML.
        return _unreadable(_place(loader.get_mark()), "is not valid YAML here")
    if data is None:
        return _unreadable(Place(1, 1), "the file says nothing")
    return Yaml(
        data=data,
        keys=walk.keys,
        values=walk.values,
        raw=walk.raw,
        problems=tuple(sorted(set(walk.problems))),
    )


def _unreadable(place: Place, text: str) -> Yaml:
    return Yaml(keys={}, values={}, raw={}, problems=(Problem(place, text),))


def _looked_in(path: Path) -> str:
    """Return where a relative path was looked for: nox runs in the noxfile's folder."""
    return "" if path.is_absolute() else f" (seen from {Path.cwd()})"


def _similar(path: Path) -> str:
    try:
        names = [file.name for file in path.parent.iterdir() if file.suffix in (".yaml", ".yml")]
    except (OSError, ValueError):
        return ""
    return f": {nearest(path.name, names)}" if names else ""


def _place_of(before: str) -> Place:
    line = before.count("\n") + 1
    return Place(line, len(before) - (before.rfind("\n") + 1) + 1)


def _place(mark: Mark | None) -> Place:
    return Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)


def _syntax(error: MarkedYAMLError) -> str:
    if isinstance(error, _RefusedError):
        return str(error.problem)
    said = str(error.problem)
    if "'\\t'" in said:
        return "a tab stands here: indent with spaces"
    if "expected a single document" in str(error.context):
        return "a second document begins here: remove the line ---"
    context = f" {error.context}" if error.context else ""
    text = f"is not valid YAML:{context} {said}".replace("\n", " ")
    return re.sub(r"'?<(stream|block) end>'?", r"the end of the \1", text)


class _RefusedError(MarkedYAMLError):
    """Valid YAML that no file of ours needs."""

    def __init__(self, text: str, mark: Mark | None) -> None:
        super().__init__(None, None, text, mark)


class _Loader(yaml.SafeLoader):
    """A safe loader that ends at a depth, before Python's own stack does."""

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


# PyYAML follows YAML 1.1, where 1e-5 is a text; a config with rms_norm_eps: 1e-5 means a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)

_TAG = "tag:yaml.org,2002:"
_TEXTS = frozenset({f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value"})
"""A date stays as written: it is somebody's text, not a moment."""
_OTHERS = {f"{_TAG}{kind}": kind for kind in ("null", "bool", "int", "float")}

Pairs = dict[str, tuple[Node, Node]]


class _Walk:
    """Turns nodes into data and keeps what plain data forgets."""

    def __init__(self, loader: SafeConstructor) -> None:
        self.keys: dict[Keys, Place] = {}
        self.values: dict[Keys, Place] = {}
        self.raw: dict[Keys, str] = {}
        self.problems: list[Problem] = []
        self._loader = loader
        self._around: list[Node] = []
        self._visited = 0

    def value(self, node: Node, keys: Keys) -> object:
        """Return the data of a node; an alias is followed as often as it occurs."""
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
        self._around.pop()
        return data

    def _enter(self, node: Node) -> None:
        self._visited += 1
        if self._visited > MAX_VALUES:
            text = f"more than {MAX_VALUES:,} values, counting each use of an alias"
            raise _RefusedError(text, node.start_mark)
        if any(outer is node for outer in self._around):
            text = "an alias is used inside of what it names"
            raise _RefusedError(text, node.start_mark)
        if len(self._around) > MAX_DEPTH:
            text = f"aliases are nested deeper than {MAX_DEPTH}"
            raise _RefusedError(text, node.start_mark)
        self._around.append(node)

    def _list(self, node: SequenceNode, keys: Keys) -> list[object]:
        self._check_tag(node, "seq")
        return [self.value(item, (*keys, index)) for index, item in enumerate(node.value)]

    def _dict(self, node: Node, keys: Keys) -> dict[str, object]:
        self._check_tag(node, "map")
        data = {}
        for name, (key, value) in (self._inherited(node) | self._own(node)).items():
            self.keys[*keys, name] = _place(key.start_mark)
            data[name] = self.value(value, (*keys, name))
        return data

    def _own(self, node: Node) -> Pairs:
        """Return the pairs of a mapping itself; the last of equal keys, as YAML does."""
        own: Pairs = {}
        for key, value in node.value:
            if _is_merge(key):
                continue
            name = self._key(key)
            if name in own:
                line = own[name][0].start_mark.line + 1
                text = f"the key {shown(name)} is given twice, first on line {line}: remove one"
                self._say(key, text)
            own[name] = key, value
        return own

    def _inherited(self, node: Node) -> Pairs:
        """Return the pairs that merge keys bring; the first of several sources wins."""
        found: Pairs = {}
        merges = [value for key, value in node.value if _is_merge(key)]
        for merge in merges:
            sources = merge.value if isinstance(merge, SequenceNode) else [merge]
            for source in reversed(sources):
                found |= self._merge(source)
        return found

    def _merge(self, source: Node) -> Pairs:
        if not isinstance(source, MappingNode):
            self._say(source, "<< takes a mapping, or a list of mappings")
            return {}
        self._enter(source)
        pairs = self._inherited(source) | self._own(source)
        self._around.pop()
        return pairs

    def _key(self, key: Node) -> str:
        if not isinstance(key, ScalarNode):
            self._say(key, "a list or a mapping cannot be a key: write a text")
            return ""
        if key.tag == f"{_TAG}null":
            self._say(key, "a key is missing before the colon")
        elif key.tag in _OTHERS:
            said = "a switch (true or false)" if key.tag == f"{_TAG}bool" else "a number"
            self._say(key, f'the key {key.value} is {said} to YAML: quote it: "{key.value}"')
        elif key.tag not in _TEXTS:
            self._say_tag(key)
        return self._text(key)

    def _scalar(self, node: ScalarNode) -> object:
        if node.tag in _TEXTS:
            return self._text(node)
        if node.tag not in _OTHERS:
            self._say_tag(node)
            return self._text(node)
        try:
            data = self._loader.construct_object(node)
            str(data)  # 0xff… of any length is read, and can then be written nowhere
            return data
        except (ValueError, ArithmeticError, LookupError):
            kind = _OTHERS[node.tag]
            self._say(node, f"{shown(node.value)} cannot be read as {kind}: quote it")
            return node.value

    def _text(self, node: ScalarNode) -> str:
        text = str(node.value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._say(node, f"{shown(text)} holds half of a character (a surrogate): remove it")
        return text.encode("utf-8", "replace").decode("utf-8")

    def _check_tag(self, node: Node, kind: str) -> None:
        if node.tag != f"{_TAG}{kind}":
            self._say_tag(node)

    def _say_tag(self, node: Node) -> None:
        self._say(node, f"the tag {shown(node.tag)} is not known here: remove it")

    def _say(self, node: Node, text: str) -> None:
        self.problems.append(Problem(_place(node.start_mark), text))


def _is_merge(key: Node) -> bool:
    return bool(key.tag == f"{_TAG}merge")
