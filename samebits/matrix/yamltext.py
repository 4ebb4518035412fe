"""The text of matrix.yaml as plain data, and the line and column of each part of it.

Every scalar stays the text that was written, so ``4.50`` is a version and never the number 4.5. Only
below ``build: config:``, ``build: tokenizer: parts:`` and ``config:``, ``build: processor:``, and
``inputs: NAME: arguments:`` scalars have YAML's types, because a config and an argument of a model need them.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.error import Mark, MarkedYAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import Reader

from samebits.base.errors import nearest, shown

MAX_BYTES = 1_000_000
MAX_DEPTH = 60
MAX_VALUES = 50_000

Keys = tuple[str | int, ...]
"""The path to a value: keys of mappings and indices of lists."""

Pairs = dict[str, tuple[Node, Node]]
"""The pairs of a mapping by the text of the key, merge keys (<<) included."""


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
    """Plain data, and the nodes that have the position of each part of it."""

    data: object = None
    """dict, list, str or None, and int, float or bool in a config; None at the top only if there
    are problems."""
    problems: tuple[Problem, ...] = ()
    root: Node | None = None
    pairs: dict[Node, Pairs] = field(default_factory=dict)

    def place(self, keys: Keys) -> Place:
        """Return the position of a value; that of its key if it is a list or a mapping.

        A value that is not in the file has the position of the nearest part that contains it.
        """
        key, value = self._nodes(keys)
        return _place((value if key is None or isinstance(value, ScalarNode) else key).start_mark)

    def place_of_key(self, keys: Keys) -> Place:
        """Return the position of the last of the keys."""
        key, value = self._nodes(keys)
        return _place((key or value).start_mark)

    def node(self, keys: Keys) -> Node:
        """Return the node of a value."""
        return self._nodes(keys)[1]

    def with_part(self, keys: Keys, part: Yaml, key: str) -> Yaml:
        """Return this file with a key of another one in the mapping at ``keys``.

        What is below the key has its position in the other file.
        """
        data = copy.deepcopy(self.data)
        inner: Any = data
        for name in keys:
            inner = inner[name]
        assert isinstance(part.data, dict)
        assert part.root is not None
        inner[key] = part.data[key]
        node = self._nodes(keys)[1]
        grafted = {**self.pairs[node], key: part.pairs[part.root][key]}
        return replace(self, data=data, pairs={**self.pairs, **part.pairs, node: grafted})

    def _nodes(self, keys: Keys) -> tuple[Node | None, Node]:
        """Return the nodes of a key and its value; an item of a list has no key."""
        assert self.root is not None
        pair: tuple[Node | None, Node] = (None, self.root)
        for key in keys:
            node = pair[1]
            if isinstance(node, MappingNode) and key in self.pairs[node]:
                pair = self.pairs[node][str(key)]
            elif isinstance(node, SequenceNode) and isinstance(key, int) and key < len(node.value):
                pair = None, node.value[key]
            else:
                break
        return pair


_START = ": samebits init writes one for your models, and samebits check MODEL needs none"


def read(path: Path) -> Yaml:
    """Read a file; if it cannot be read, the result has a problem and no data."""
    try:
        with path.open("rb") as file:
            return parse(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        # nox runs in the noxfile's folder, which need not be that of the shell
        folder = "" if path.is_absolute() else f" in {Path.cwd()}"
        hint = _similar_names(path) or _START
        return _unreadable(FILE, f"the file does not exist{folder}{hint}")
    except IsADirectoryError:
        return _unreadable(FILE, "this is a folder: add the name of a file in it")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return _unreadable(FILE, f"the file cannot be read: {reason}")


def parse(content: bytes) -> Yaml:
    """Parse bytes; if they are not YAML, the result has a problem and no data."""
    if len(content) > MAX_BYTES:
        return _unreadable(FILE, f"the file is larger than {MAX_BYTES:,} bytes: is it a matrix?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _place_after(content[: error.start].decode("utf-8", "replace"))
        byte = content[error.start]
        return _unreadable(place, f"the byte 0x{byte:02x} is not UTF-8: save the file as UTF-8")
    match = Reader.NON_PRINTABLE.search(text)
    if match:
        place = _place_after(text[: match.start()])
        character = shown(match.group())
        return _unreadable(place, f"YAML does not allow the character {character}: remove it")
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
        return _unreadable(_place(loader.get_mark()), "this is not valid YAML")
    if data is None:
        return _unreadable(Place(1, 1), "the file is empty: write models: and under it a model")
    return Yaml(
        data=data,
        problems=tuple(sorted(set(converter.problems))),
        root=node,
        pairs=converter.pairs,
    )


def _unreadable(place: Place, text: str) -> Yaml:
    return Yaml(problems=(Problem(place, text),))


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
        return "YAML does not allow a tab here: indent with spaces"
    if "expected a single document" in str(error.context):
        return "a second document starts here: remove the line ---"
    context = f" {error.context}" if error.context else ""
    text = f"this is not valid YAML:{context} {problem}".replace("\n", " ")
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
            text = f"lists and mappings are nested deeper than {MAX_DEPTH}: flatten them"
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
_NULL = f"{_TAG}null"
_TEXTS = frozenset({f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value"})
"""Tags of values that are texts also in a config; a date is one of them."""
_TYPES = {f"{_TAG}{kind}": kind for kind in ("bool", "int", "float")}


class _NodeConverter:
    """Converts YAML nodes to plain data, and records the pairs of mappings and the problems."""

    def __init__(self, loader: _Loader) -> None:
        self.pairs: dict[Node, Pairs] = {}
        self.problems: list[Problem] = []
        self._loader = loader
        self._open_nodes: list[Node] = []
        self._visited = 0

    def value(self, node: Node, keys: Keys) -> object:
        """Return the data of a node; an alias is resolved each time that it occurs."""
        self._enter(node)
        data: object
        if isinstance(node, ScalarNode):
            data = self._scalar(node, is_typed=_is_typed(keys))
        elif isinstance(node, SequenceNode):
            self._check_tag(node, f"{_TAG}seq")
            data = [self.value(item, (*keys, index)) for index, item in enumerate(node.value)]
        else:
            self._check_tag(node, f"{_TAG}map")
            pairs = self._all_pairs(node)
            data = {name: self.value(value, (*keys, name)) for name, (_, value) in pairs.items()}
        self._open_nodes.pop()
        return data

    def _enter(self, node: Node) -> None:
        self._visited += 1
        if self._visited > MAX_VALUES:
            text = f"there are more than {MAX_VALUES:,} values, counting each use of an alias"
            raise _RefusedError(text, node.start_mark)
        if any(outer is node for outer in self._open_nodes):
            text = "an alias is used inside the value that it names: remove it"
            raise _RefusedError(text, node.start_mark)
        if len(self._open_nodes) > MAX_DEPTH:
            text = f"aliases are nested deeper than {MAX_DEPTH}: flatten them"
            raise _RefusedError(text, node.start_mark)
        self._open_nodes.append(node)

    def _all_pairs(self, node: Node) -> Pairs:
        """Return the pairs of a mapping and of those that it merges (<<).

        Of equal keys, its own wins, then that of the first source. Of two equal keys that are its
        own the last wins, as in YAML, and there is a problem.
        """
        if node in self.pairs:
            return self.pairs[node]
        merged: Pairs = {}
        own: Pairs = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                sources = value.value if isinstance(value, SequenceNode) else [value]
                for source in reversed(sources):
                    merged |= self._merged_pairs(source)
                continue
            name = self._key(key)
            if name in own:
                line = own[name][0].start_mark.line + 1
                text = f"the key {shown(name)} is already on line {line}: remove one of the two"
                self._report(key, text)
            own[name] = key, value
        self.pairs[node] = merged | own
        return self.pairs[node]

    def _merged_pairs(self, source: Node) -> Pairs:
        if not isinstance(source, MappingNode):
            self._report(source, "<< needs a mapping, or a list of mappings")
            return {}
        self._enter(source)
        pairs = self._all_pairs(source)
        self._open_nodes.pop()
        return pairs

    def _key(self, key: Node) -> str:
        if not isinstance(key, ScalarNode):
            self._report(key, "a list or a mapping cannot be a key: write a text")
            return ""
        if key.tag == _NULL:
            self._report(key, "the key before the colon is missing: write one")
        elif key.tag not in _TEXTS and key.tag not in _TYPES:
            self._report_tag(key)
        return self._text(key)

    def _scalar(self, node: ScalarNode, *, is_typed: bool) -> object:
        if node.tag == _NULL:
            return None
        if node.tag not in _TEXTS and node.tag not in _TYPES:
            self._report_tag(node)
        if not is_typed or node.tag not in _TYPES:
            return self._text(node)
        try:
            data = self._loader.construct_object(node)
            str(data)  # raises for a hexadecimal number with too many digits to print
            return data
        except (ValueError, ArithmeticError, LookupError):
            kind = _TYPES[node.tag]
            text = f"{shown(node.value)} cannot be read as {kind}: quote it if it is a text"
            self._report(node, text)
            return node.value

    def _text(self, node: ScalarNode) -> str:
        text = str(node.value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._report(node, f"{shown(text)} has half of a character (a surrogate): remove it")
        return text.encode("utf-8", "replace").decode("utf-8")

    def _check_tag(self, node: Node, tag: str) -> None:
        if node.tag != tag:
            self._report_tag(node)

    def _report_tag(self, node: Node) -> None:
        self._report(node, f"the tag {shown(node.tag)} is not supported: remove it")

    def _report(self, node: Node, text: str) -> None:
        self.problems.append(Problem(_place(node.start_mark), text))


_OF_A_RECIPE = (("build", "config"), ("build", "processor"))
"""Keys of a recipe whose values go into config.json and preprocessor_config.json."""
_OF_A_TOKENIZER = (("build", "tokenizer", "parts"), ("build", "tokenizer", "config"))
"""Keys of a recipe whose values go into tokenizer.json and tokenizer_config.json."""


def _is_typed(keys: Keys) -> bool:
    """Return True below ``config:`` of ``build:``, ``load:``, ``arguments:`` of inputs, and the like."""
    if keys[:1] == ("models",):
        settings = keys[2:]
        if settings[:2] in _OF_A_RECIPE or settings[:3] in _OF_A_TOKENIZER:
            return True
    elif keys[:1] == ("defaults",):
        settings = keys[1:]
    elif keys[:1] == ("inputs",):  # a file of inputs alone
        settings = keys
    else:
        return False
    return settings[:1] == ("load",) or (
        settings[:1] == ("inputs",) and settings[2:3] == ("arguments",)
    )
