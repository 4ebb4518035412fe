"""Facts about a model's remote code: its files, its imports from transformers, its classes.

They are read from the syntax trees of the checkpoint's ``*.py`` files, which are not imported here,
so that they are available for a model that does not load.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from samebits_probe.cell.idioms import (
    OLD_CACHES,
    TRUTH_OF_CACHE,
    idioms,
    of_preparation,
    renamed_caches,
)
from samebits_probe.model import forks
from samebits_probe.model import source as source_digest
from samebits_probe.model.load import Source
from samebits_probe.process import own, symbols
from samebits_probe.process.own import REMOTE
from samebits_probe.process.paths import package_path

_CONFIGS = (
    "config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
_CUSTOM_GENERATE = "custom_generate/generate.py"
# both as in samebits/base/checkpoint.py
_MISSING_IS_CAUGHT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_KINDS = {
    ast.List: "list",
    ast.ListComp: "list",
    ast.Dict: "dict",
    ast.DictComp: "dict",
    ast.Tuple: "tuple",
    ast.Set: "set",
    ast.Call: "call",
    ast.Name: "name",
    ast.Attribute: "name",
}


class ImportedName(NamedTuple):
    """A name that an import statement imports from transformers."""

    owner: str
    name: str
    line: int
    guarded: bool


def of_source(source: Source) -> dict[str, Any]:
    """Return the part of the signal ``code`` that needs no forward; empty for stock models."""
    facts: dict[str, Any] = {
        "files": {},
        "imports": [],
        "classes": [],
        "idioms": [],
        "reads_version": False,
    }
    files = _code_files(source) if source.trust_remote_code else {}
    is_renamed = forks.cache_name() not in OLD_CACHES
    harmless = set() if forks.empty_cache_is_true() else {TRUTH_OF_CACHE}
    for name, path in (files | _package_files()).items():
        data = path.read_bytes()
        facts["files"][name] = hashlib.sha256(data).hexdigest()
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError):
            continue  # the load reports the error
        facts["imports"] += [_import_facts(name, imported) for imported in imports(tree)]
        facts["classes"] += [_class_facts(name, node) for node in _classes_in(tree)]
        renamed = renamed_caches(tree) if is_renamed else ()
        lines = [*idioms(tree), *of_preparation(tree), *renamed]
        shown = [idiom for idiom in lines if idiom.name not in harmless]
        facts["idioms"] += [{"file": name, **idiom._asdict()} for idiom in shown]
        facts["reads_version"] |= reads_version(tree)
    return facts


def _code_files(source: Source) -> dict[str, Path]:
    """Return name -> path of the remote code's files: in the checkpoint, and of loaded modules."""
    folder = _code_folder(source)
    files: dict[str, Path] = {}
    if folder is not None:
        paths = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*.py"))}
        files = {name: p for name, p in paths.items() if "/." not in f"/{name}"}
    names = {Path(name).name for name in files}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None) if name.startswith(f"{REMOTE}.") else None
        if file and Path(file).name not in {*names, "__init__.py"}:
            files[Path(file).name] = Path(file)
    return files


def _package_files() -> dict[str, Path]:
    """Return name -> path of the files of packages that the user names and the job imported.

    Of a package whose import failed no module is left; then it is all of its files.
    """
    return {
        package_path(str(path).replace("\\", "/")): path
        for package in own.packages()
        for path in _loaded_files(package) or _all_files(package)
    }


def _loaded_files(package: str) -> list[Path]:
    names = [name for name in sys.modules if name.partition(".")[0] == package]
    files = [getattr(sys.modules[name], "__file__", None) for name in sorted(names)]
    return [Path(file) for file in files if file and file.endswith(".py")]


def _all_files(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if spec is not None and not folders and spec.origin and spec.origin.endswith(".py"):
        return [Path(spec.origin)]
    return [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]


def _code_folder(source: Source) -> Path | None:
    """Return the folder of a checkpoint that names code of its own; None for any other."""
    folder = Path(source.where)
    if not folder.is_dir():
        from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415  folders need no hub

        path = try_to_load_from_cache(source.where, "config.json", revision=source.revision)
        if not isinstance(path, str):
            return None
        folder = Path(path).parent
    has_code = any(_has_auto_map(folder / name) for name in _CONFIGS)
    return folder if has_code or (folder / _CUSTOM_GENERATE).is_file() else None


def _has_auto_map(path: Path) -> bool:
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # the load reports a damaged file
    return isinstance(values, dict) and bool(values.get("auto_map"))


def imports(tree: ast.AST, *, guarded: bool = False) -> Iterator[ImportedName]:
    """Yield the names imported from transformers, also inside functions and branches."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.startswith("transformers.")]
            for owner, _, name in (n.rpartition(".") for n in names):
                yield ImportedName(owner, name, node.lineno, guarded)
        elif isinstance(node, ast.ImportFrom):
            owner = node.module or ""
            if node.level == 0 and owner.partition(".")[0] == "transformers":
                for alias in node.names:
                    yield ImportedName(owner, alias.name, node.lineno, guarded)
        elif isinstance(node, ast.Try):
            is_guarded = guarded or any(map(_catches_missing, node.handlers))
            yield from imports(ast.Module(node.body, []), guarded=is_guarded)
            handlers = [*node.handlers, *node.orelse, *node.finalbody]
            # an import in a handler is a fallback for the same name
            yield from imports(ast.Module(handlers, []), guarded=is_guarded)  # type: ignore[arg-type]
        else:
            yield from imports(node, guarded=guarded or isinstance(node, (ast.If, ast.IfExp)))


def _catches_missing(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(k is None or _dotted_name(k).rpartition(".")[2] in _MISSING_IS_CAUGHT for k in kinds)


def _import_facts(file: str, imported: ImportedName) -> dict[str, Any]:
    exists, value = resolve(imported.owner, imported.name)
    return {
        "symbol": symbols.symbol(imported.name, imported.owner, exists=exists),
        "file": file,
        "line": imported.line,
        "guarded": imported.guarded,
        "defined_in": place(value) if exists else None,
        "digest": source_digest.of_object(value) if exists else None,
    }


def resolve(owner: str, name: str) -> tuple[bool, Any]:
    """Return whether ``from owner import name`` works in this stack, and the imported object."""
    try:
        module = importlib.import_module(owner)
        if name == "*":
            return True, module
        if hasattr(module, name):
            return True, getattr(module, name)
        return True, importlib.import_module(f"{owner}.{name}")
    except Exception:  # noqa: BLE001  any exception means that the import fails
        return False, None


def place(value: Any) -> str | None:
    """Return the package path and line of a module, function or class; None for other values."""
    if inspect.isclass(value):
        location = source_digest.of_class(value)
        return None if location is None else f"{package_path(location[0])}:{location[1]}"
    if inspect.ismodule(value):
        file = getattr(value, "__file__", None)
        return package_path(file) if file else None
    code = getattr(inspect.unwrap(value) if callable(value) else value, "__code__", None)
    if not inspect.iscode(code):
        return None
    return f"{package_path(code.co_filename)}:{code.co_firstlineno}"


def reads_version(tree: ast.AST) -> bool:
    """Return True if the code reads a version, so that it may branch on the release."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = _dotted_name(node)
            if name.endswith(("metadata.version", "__version__")) and "torch" not in name:
                return True
        names = node.names if isinstance(node, ast.ImportFrom) else []
        if any("version" in alias.name.lower() for alias in names):
            return True
    return False


def _classes_in(tree: ast.AST) -> Iterator[ast.ClassDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node


def _class_facts(file: str, node: ast.ClassDef) -> dict[str, Any]:
    methods = [part for part in node.body if isinstance(part, _FUNCTIONS)]
    return {
        "name": node.name,
        "bases": [ast.unparse(base) for base in node.bases],
        "file": file,
        "line": node.lineno,
        "attributes": dict(_class_attributes(node)),
        "methods": {method.name: _parameter_names(method) for method in methods},
        "calls": {method.name: _called_names(method) for method in methods},
    }


def _class_attributes(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for part in node.body:
        targets = part.targets if isinstance(part, ast.Assign) else []
        if isinstance(part, ast.AnnAssign):
            targets = [part.target]
        value = getattr(part, "value", None)
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(value, ast.expr):
                yield target.id, kind(value)


def kind(value: ast.expr) -> str:
    """Return the kind of an expression, such as ``list``, ``bool``, ``None`` or ``name``."""
    if isinstance(value, ast.Constant):
        return "None" if value.value is None else type(value.value).__name__
    return _KINDS.get(type(value), "expression")


def _parameter_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = node.args
    names = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [arg.arg for arg in arguments.kwonlyargs]
    return names + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])


def _called_names(node: ast.AST) -> list[str]:
    calls = (_dotted_name(n.func) for n in ast.walk(node) if isinstance(n, ast.Call))
    return list(dict.fromkeys(call for call in calls if call))


def _dotted_name(node: ast.expr | None) -> str:
    """Return ``a.b.c`` for names and attributes; '' for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        prefix = _dotted_name(node.value)
        return f"{prefix}.{node.attr}" if prefix else ""
    if isinstance(node, ast.Call):  # super().__init__
        prefix = _dotted_name(node.func)
        return f"{prefix}()" if prefix else ""
    return ""
