"""Lookup of names from exceptions: where this release defines them, and similar names.

Definitions are searched in the text of transformers' files, without importing them. Similar names
come from the object that lacks the name: a module, a class, a function's parameters, a table.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import transformers

MAX_PLACES = 6
MAX_SIMILAR = 5
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
    """Return the names in an exception and its causes, each once, the outermost first."""
    results: list[Symbol] = []
    for exception in _exception_chain(error):
        looked_up = _symbol_in(exception)
        if looked_up is not None and looked_up not in results:
            results.append(looked_up)
    return results


def _exception_chain(error: BaseException) -> Iterator[BaseException]:
    seen_ids: set[int] = set()
    exception: BaseException | None = error
    while exception is not None and id(exception) not in seen_ids:
        seen_ids.add(id(exception))
        yield exception
        exception = exception.__cause__ or (
            None if exception.__suppress_context__ else exception.__context__
        )


def _symbol_in(error: BaseException) -> Symbol | None:
    text = str(error)
    if isinstance(error, KeyError):
        return _missing_key(error)
    if isinstance(error, AttributeError):
        return _missing_attribute(error, text)
    if isinstance(error, TypeError):
        match = _NO_KEYWORD.search(text)
        return None if match is None else _unexpected_keyword(match["name"], match["owner"], error)
    if (match := _CANNOT_IMPORT.search(text)) is not None:
        return symbol(match["name"], match["owner"], exists=False)
    if (match := _NO_MODULE.search(text)) is not None:
        owner, _, name = match["owner"].rpartition(".")
        return symbol(name, owner or "sys.path", exists=False) if name else None
    return None


def symbol(name: str, owner: str, *, exists: bool) -> Symbol:
    """Return a name that a module of transformers has or lacks, with places if it lacks it."""
    result: Symbol = {"name": name, "owner": owner, "found": exists, "elsewhere": [], "similar": []}
    if exists:
        return result
    places = [p for p in (*defined_in(name), *_modules_named(name)) if p != owner]
    result["elsewhere"] = places[:MAX_PLACES]
    result["similar"] = similar(name, _module_names(owner))
    return result


def _missing_attribute(error: AttributeError, text: str) -> Symbol | None:
    if (match := _MODULE_LACKS.search(text)) is not None:
        return symbol(match["name"], match["owner"], exists=False)
    match = _NO_ATTRIBUTE.search(text)
    holder = getattr(error, "obj", None)
    name = getattr(error, "name", None) or (match["name"] if match else None)
    if name is None or (match is None and holder is None):
        return None
    owner = _owner_name(holder) if holder is not None else match["owner"] if match else ""
    if inspect.ismodule(holder):
        return symbol(name, owner, exists=False)
    places = [f"{owner}.{key}[{name!r}]" for key in _tables_holding(holder, name)]
    places += _classes_with_member(name) or defined_in(name)
    return {
        "name": name,
        "owner": owner,
        "found": False,
        "elsewhere": [p for p in places if p != f"{owner}.{name}"][:MAX_PLACES],
        "similar": similar(name, _attribute_names(holder)),
    }


def _owner_name(holder: Any) -> str:
    if inspect.ismodule(holder):
        return holder.__name__
    holder_class = holder if inspect.isclass(holder) else type(holder)
    module = holder_class.__module__
    if module.startswith("transformers_modules."):
        module = module.rpartition(".")[2]
    return (
        holder_class.__qualname__
        if module == "builtins"
        else f"{module}.{holder_class.__qualname__}"
    )


def _attribute_names(holder: Any) -> set[str]:
    if holder is None:
        return set()
    names = {*dir(type(holder)), *getattr(holder, "__dict__", {})}
    for registry in ("_parameters", "_buffers", "_modules"):  # of a torch module
        names |= set(getattr(holder, "__dict__", {}).get(registry) or ())
    return names


def _tables_holding(holder: Any, name: str) -> Iterator[str]:
    """Yield the attributes of an object that are dicts with ``name`` as a key."""
    for key, value in (getattr(holder, "__dict__", None) or {}).items():
        if isinstance(value, dict) and not key.startswith("__") and name in value:
            yield key


def _unexpected_keyword(name: str, owner: str, error: BaseException) -> Symbol:
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
    """Return the function that the raising line called by this qualified name; None if unknown."""
    first, *attributes = owner.split(".")
    frame = _last_frame(error)
    places = [] if frame is None else [frame.f_locals, frame.f_globals]
    modules = (m for n, m in list(sys.modules.items()) if n.startswith("transformers"))
    for names in (*places, *(getattr(m, "__dict__", {}) for m in modules)):
        value = names.get(first)
        for attribute in attributes:
            value = getattr(value, attribute, None)
        if callable(value):
            return value
    return None


def _missing_key(error: KeyError) -> Symbol | None:
    """Return the table that lacks the key, from the subscripts in the raising line."""
    key = error.args[0] if error.args else None
    frame = _last_frame(error)
    if not isinstance(key, str) or frame is None:
        return None
    for expression, table in _subscripted_tables(frame, _raising_line(error)):
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


def _raising_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].line or "") if frames else ""


def _subscripted_tables(frame: FrameType, line: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    try:
        tree = ast.parse(line.strip().rstrip(":") or "None")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Subscript):
            continue
        value = _evaluated(frame, node.value)
        if isinstance(value, Mapping):
            yield ast.unparse(node.value), value


def _evaluated(frame: FrameType, node: ast.expr) -> Any:
    """Return the value of a name or an attribute without calling code of the model."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return (getattr(_evaluated(frame, node.value), "__dict__", None) or {}).get(node.attr)
    return None


def _table_name(expression: str, table: Mapping[Any, Any]) -> str:
    name = expression.rpartition(".")[2]
    for module, module_object in sorted(sys.modules.items()):
        if (
            module.startswith("transformers.")
            and getattr(module_object, "__dict__", {}).get(name) is table
        ):
            return f"{module}.{name}"
    return expression


def _last_frame(error: BaseException) -> FrameType | None:
    trace, frame = error.__traceback__, None
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
    return frame


def similar(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that are spelled like ``name`` or contain it, best first."""
    candidates = sorted({n for n in names if not n.startswith("__")} - {name})
    close = difflib.get_close_matches(name, candidates, MAX_SIMILAR, 0.7)
    bare = name.strip("_")
    containing = [n for n in candidates if len(bare) > 4 and (bare in n or n.strip("_") == bare)]
    return list(dict.fromkeys((*close, *containing)))[:MAX_SIMILAR]


def _module_names(owner: str) -> set[str]:
    """Return the names that a module has, including those that it would import lazily."""
    if (module := sys.modules.get(owner)) is None:
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
    return _sorted_modules(
        _module_name(path) for path, text in _files_containing(name) if pattern.search(text)
    )


def _classes_with_member(name: str) -> list[str]:
    """Return the classes of transformers that define a method or attribute of that name.

    Classes of single models are left out, because many of them define the same name.
    """
    pattern = re.compile(
        rf"^    (?:async )?def {re.escape(name)}\b|^    {re.escape(name)} *[:=]", re.MULTILINE
    )
    members = []
    for path, text in _files_containing(name):
        if "models" in path.relative_to(_package_folder()).parts:
            continue
        for match in pattern.finditer(text):
            classes_before = re.findall(r"^class (\w+)", text[: match.start()], re.MULTILINE)
            if classes_before:
                members.append(f"{_module_name(path)}.{classes_before[-1]}.{name}")
    return _sorted_modules(members)


def _modules_named(name: str) -> list[str]:
    return _sorted_modules(_module_name(path) for path in _source_files() if path.stem == name)


def _sorted_modules(names: Iterable[str]) -> list[str]:
    """Return each name once, the library's own modules before those of single models."""
    return sorted(set(names), key=lambda m: (m.startswith("transformers.models."), m.count("."), m))


@cache
def _package_folder() -> Path:
    return Path(transformers.__file__).parent


@cache
def _source_files() -> tuple[Path, ...]:
    # dummy objects for packages that are not installed repeat the names of the real ones
    return tuple(
        p for p in sorted(_package_folder().rglob("*.py")) if not p.stem.startswith("dummy_")
    )


@cache
def _files_containing(name: str) -> tuple[tuple[Path, str], ...]:
    """Return the files of transformers whose text contains a name."""
    needle, files = name.encode(), []
    for path in _source_files():
        data = path.read_bytes()
        if needle in data:
            files.append((path, data.decode("utf-8", "replace")))
    return tuple(files)


def _module_name(path: Path) -> str:
    parts = path.relative_to(_package_folder().parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
