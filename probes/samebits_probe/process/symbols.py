"""A name that an exception speaks of, looked up in the stack itself: where is it now?

Places are found in the text of transformers' files, without importing them; names that are
spelled alike are those of what was asked: a module, a class, a function's parameters, a table.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

MOST_PLACES = 6
MOST_SIMILAR = 5
_CANNOT_IMPORT = re.compile(
    r"cannot import name '(?P<name>\w+)' from '(?P<owner>transformers[\w.]*)'"
)
_NO_MODULE = re.compile(r"No module named '(?P<owner>transformers[\w.]*)'")
_NO_ATTRIBUTE = re.compile(r"'(?P<owner>\w+)' object has no attribute '(?P<name>\w+)'")
_MODULE_LACKS = re.compile(
    r"module '?(?P<owner>transformers[\w.]*)'? has no attribute '?(?P<name>\w+)'?"
)
_NO_KEYWORD = re.compile(
    r"(?P<owner>[\w.<>]+)\(\) got an unexpected keyword argument '(?P<name>\w+)'"
)

Symbol = dict[str, Any]


def symbols(error: BaseException) -> list[Symbol]:
    """Return what an exception and those behind it speak of, each once, the outermost first."""
    found: list[Symbol] = []
    for one in _chain(error):
        made = _symbol_of(one)
        if made is not None and made not in found:
            found.append(made)
    return found


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _symbol_of(error: BaseException) -> Symbol | None:
    text = str(error)
    if isinstance(error, KeyError):
        return _of_key(error)
    if isinstance(error, AttributeError):
        return _of_attribute(error, text)
    if isinstance(error, TypeError):
        said = _NO_KEYWORD.search(text)
        return None if said is None else _of_keyword(said["name"], said["owner"], error)
    if (said := _CANNOT_IMPORT.search(text)) is not None:
        return symbol(said["name"], said["owner"], found=False)
    if (said := _NO_MODULE.search(text)) is not None:
        owner, _, name = said["owner"].rpartition(".")
        return symbol(name, owner or "sys.path", found=False) if name else None
    return None


def symbol(name: str, owner: str, *, found: bool) -> Symbol:
    """Return a name that a module of transformers has or lacks; what is there needs no places."""
    made: Symbol = {"name": name, "owner": owner, "found": found, "elsewhere": [], "similar": []}
    if found:
        return made
    places = [p for p in (*defined_in(name), *_modules_named(name)) if p != owner]
    made["elsewhere"] = places[:MOST_PLACES]
    made["similar"] = similar(name, _names_of_module(owner))
    return made


def _of_attribute(error: AttributeError, text: str) -> Symbol | None:
    said = _MODULE_LACKS.search(text)
    if said is not None:
        return symbol(said["name"], said["owner"], found=False)
    said = _NO_ATTRIBUTE.search(text)
    held = getattr(error, "obj", None)
    name = getattr(error, "name", None) or (said["name"] if said else None)
    if name is None or (said is None and held is None):
        return None
    owner = _owner_of(held) if held is not None else said["owner"] if said else ""
    if inspect.ismodule(held):
        return symbol(name, owner, found=False)
    places = [f"{owner}.{key}[{name!r}]" for key in _tables_with(held, name)]
    places += _methods_named(name) or defined_in(name)
    return {
        "name": name,
        "owner": owner,
        "found": False,
        "elsewhere": [p for p in places if p != f"{owner}.{name}"][:MOST_PLACES],
        "similar": similar(name, _names_of(held)),
    }


def _owner_of(held: Any) -> str:
    if inspect.ismodule(held):
        return held.__name__
    kind = held if inspect.isclass(held) else type(held)
    module = kind.__module__
    if module.startswith("transformers_modules."):
        module = module.rpartition(".")[2]
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _names_of(held: Any) -> set[str]:
    if held is None:
        return set()
    names = {*dir(type(held)), *getattr(held, "__dict__", {})}
    for registry in ("_parameters", "_buffers", "_modules"):  # of a torch module
        names |= set(getattr(held, "__dict__", {}).get(registry) or ())
    return names


def _tables_with(held: Any, name: str) -> Iterator[str]:
    """Yield the attributes of an object that are tables and have ``name`` as a key."""
    for key, value in (getattr(held, "__dict__", None) or {}).items():
        if isinstance(value, dict) and not key.startswith("__") and name in value:
            yield key


def _of_keyword(name: str, owner: str, error: BaseException) -> Symbol:
    function = _callee(owner, error)
    try:
        parameters = list(inspect.signature(function).parameters) if function else []
    except (TypeError, ValueError):
        parameters = []
    module = getattr(function, "__module__", None) or ""
    if module.startswith("transformers_modules."):
        module = module.rpartition(".")[2]
    return {
        "name": name,
        "owner": f"{module}.{owner}()".lstrip("."),
        "found": False,
        "elsewhere": [],
        "similar": similar(name, parameters) or [p for p in parameters if p != "self"][:8],
    }


def _callee(owner: str, error: BaseException) -> Any:
    """Return the function of a qualified name that the raising line called, if it can be found."""
    head, *rest = owner.split(".")
    frame = _last_frame(error)
    places = [] if frame is None else [frame.f_locals, frame.f_globals]
    modules = (m for n, m in list(sys.modules.items()) if n.startswith("transformers"))
    for names in (*places, *(getattr(m, "__dict__", {}) for m in modules)):
        value = names.get(head)
        for part in rest:
            value = getattr(value, part, None)
        if callable(value):
            return value
    return None


def _of_key(error: KeyError) -> Symbol | None:
    """Return the table that the raising line looked in, read from its names and attributes."""
    key = error.args[0] if error.args else None
    frame = _last_frame(error)
    if not isinstance(key, str) or frame is None:
        return None
    for expression, table in _tables_of(frame, _line_of(error)):
        if key not in table:
            names = [k for k in table if isinstance(k, str)]
            return {
                "name": key,
                "owner": _table_name(expression, table),
                "found": False,
                "elsewhere": [],
                "similar": similar(key, names) or sorted(names)[:8],
            }
    return None


def _line_of(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].line or "") if frames else ""


def _tables_of(frame: FrameType, line: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    try:
        tree = ast.parse(line.strip().rstrip(":") or "None")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Subscript):
            continue
        value = _value(frame, node.value)
        if isinstance(value, Mapping):
            yield ast.unparse(node.value), value


def _value(frame: FrameType, node: ast.expr) -> Any:
    """Return what a name or an attribute stands for, without calling anything of the model's."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return (getattr(_value(frame, node.value), "__dict__", None) or {}).get(node.attr)
    return None


def _table_name(expression: str, table: Mapping[Any, Any]) -> str:
    name = expression.rpartition(".")[2]
    for module, held in sorted(sys.modules.items()):
        if module.startswith("transformers.") and getattr(held, "__dict__", {}).get(name) is table:
            return f"{module}.{name}"
    return expression


def _last_frame(error: BaseException) -> FrameType | None:
    trace, frame = error.__traceback__, None
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
    return frame


def similar(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that are spelled like ``name``, or hold it, best first."""
    known = sorted({n for n in names if not n.startswith("__")} - {name})
    close = difflib.get_close_matches(name, known, MOST_SIMILAR, 0.7)
    bare = name.strip("_")
    holding = [n for n in known if len(bare) > 4 and (bare in n or n.strip("_") == bare)]
    return list(dict.fromkeys((*close, *holding)))[:MOST_SIMILAR]


def _names_of_module(owner: str) -> set[str]:
    """Return the names that a module has, those that it would import when asked too."""
    module = sys.modules.get(owner)
    if module is None:
        return set()
    try:
        return set(dir(module))
    except Exception:  # noqa: BLE001  a lazy module may fail to list itself
        return set(vars(module))


def defined_in(name: str) -> list[str]:
    """Return the modules of transformers that define a name at their top level."""
    pattern = re.compile(
        rf"^(?:class|def|async def) {re.escape(name)}\b|^{re.escape(name)} *[:=]", re.MULTILINE
    )
    return _ordered(_module(path) for path, text in _texts(name) if pattern.search(text))


def _methods_named(name: str) -> list[str]:
    """Return the classes of transformers that define a method or attribute of that name.

    Those of single models are left out: every one of them has its own.
    """
    pattern = re.compile(
        rf"^    (?:async )?def {re.escape(name)}\b|^    {re.escape(name)} *[:=]", re.MULTILINE
    )
    found = []
    for path, text in _texts(name):
        if "models" in path.relative_to(_root()).parts:
            continue
        for match in pattern.finditer(text):
            before = re.findall(r"^class (\w+)", text[: match.start()], re.MULTILINE)
            if before:
                found.append(f"{_module(path)}.{before[-1]}.{name}")
    return _ordered(found)


def _modules_named(name: str) -> list[str]:
    return _ordered(_module(path) for path in _paths() if path.stem == name)


def _ordered(found: Iterable[str]) -> list[str]:
    """Return each once, the library's own modules before those of single models."""
    return sorted(set(found), key=lambda m: (m.startswith("transformers.models."), m.count("."), m))


@cache
def _root() -> Path:
    return Path(transformers.__file__).parent


@cache
def _paths() -> tuple[Path, ...]:
    # stand-ins for what needs a package that is not installed define every name once more
    return tuple(p for p in sorted(_root().rglob("*.py")) if not p.stem.startswith("dummy_"))


@cache
def _texts(name: str) -> tuple[tuple[Path, str], ...]:
    """Return the files of transformers whose text holds a name."""
    wanted, found = name.encode(), []
    for path in _paths():
        data = path.read_bytes()
        if wanted in data:
            found.append((path, data.decode("utf-8", "replace")))
    return tuple(found)


def _module(path: Path) -> str:
    parts = path.relative_to(_root().parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
