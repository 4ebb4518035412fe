"""Checks of the files that matrix.yaml names: a model's folder, its patches and its inputs."""

from __future__ import annotations

import ast
import json
import zipfile
from collections.abc import Collection
from pathlib import Path

import numpy as np

from samebits.base.errors import PatchError, nearest, shown
from samebits.base.patches import patched_files
from samebits_wire.vocabularies import has_no_model

_BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


def bad_folder(base: Path, path: str) -> str | None:
    """Return what is wrong with a model's folder, in words, or None.

    ``base`` is the folder of matrix.yaml.
    """
    try:
        folder = base / path
        if not folder.exists():
            return f"{shown(path)} does not exist{_hint(folder)}"
        if not folder.is_dir():
            return f"{shown(path)} is a file: write the folder that contains config.json"
        if not (folder / "config.json").exists() and not has_no_model(folder):
            return f"{shown(path)} contains no config.json: write the folder of a checkpoint"
    except (OSError, ValueError, RuntimeError) as error:
        return f"{shown(path)} cannot be read: {getattr(error, 'strerror', None) or error}"
    return None


def bad_patch(base: Path, folder: Path, names: tuple[str, ...]) -> str | None:
    """Return what is wrong with the last patch, applied after those before it, or None."""
    try:
        patches = [base / name for name in names]
        if not patches[-1].exists():
            return f"{shown(names[-1])} does not exist{_hint(patches[-1])}"
        patched_files(folder, patches)
    except PatchError as error:
        return str(error)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"{shown(names[-1])} cannot be read: {reason}"
    return None


def bad_package(base: Path, path: str) -> str | None:
    """Return what is wrong with the folder or file of a package, in words, or None."""
    try:
        package = base / path
        if not package.exists():
            return f"{shown(path)} does not exist{_hint(package)}"
        if package.is_dir() and not any((package / name).is_file() for name in _BUILD_FILES):
            return (
                f"{shown(path)} contains no pyproject.toml: write the folder of a package that pip "
                "can install"
            )
        if package.is_file() and not package.name.endswith((".whl", ".tar.gz")):
            return f"{shown(path)} is neither a folder nor a wheel: write one of them"
    except (OSError, ValueError, RuntimeError) as error:
        return f"{shown(path)} cannot be read: {getattr(error, 'strerror', None) or error}"
    return None


def _hint(path: Path) -> str:
    names = [path.name for path in path.parent.iterdir()] if path.parent.is_dir() else []
    suggestion = nearest(path.name, names)
    is_typo = suggestion.startswith("did")
    return f": {suggestion}" if is_typo else ": write it relative to the matrix file"


ARRAYS = (".npz", ".safetensors")
"""Suffixes of files of named arrays."""
_KINDS = {"f": (2, 4, 8), "i": (1, 2, 4, 8), "u": (1,), "b": (1,)}
"""Kinds of numpy dtypes that a file of inputs may have -> their bytes."""
_STORED_DTYPES = frozenset({"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"})
_MAX_HEADER = 100 << 20


def bad_arrays(base: Path, name: str, declared: Collection[str] = ()) -> str | None:
    """Return what is wrong with a file of named arrays, in words, or None.

    ``declared`` are the arguments that are written beside the file.
    """
    path = base / name
    try:
        if path.suffix not in ARRAYS:
            return _other_file(name)
        if not path.is_file():
            return f"{shown(name)} does not exist{_hint(path)}"
        dtypes = _npz_dtypes(path) if path.suffix == ".npz" else _safetensors_dtypes(path)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return f"{shown(name)} cannot be read as {path.suffix}: {reason}: write it again"
    if not dtypes:
        return f"{shown(name)} has no array: write one for each argument of forward"
    twice = sorted(dtypes.keys() & set(declared))
    if twice:
        return f"{shown(twice[0])} is an array of {shown(name)} and under arguments: remove one"
    faults = (_bad_array(name, array, dtype) for array, dtype in dtypes.items())
    return next((fault for fault in faults if fault), None)


def _other_file(name: str) -> str:
    if ".py" in name:
        return f"{shown(name)} is no file of arrays: write {{function: {name}, trust: true}}"
    if name.endswith((".npy", ".pt", ".pth", ".pkl", ".bin")):
        hint = "which has no names, or runs code when it is read"
        return f"{shown(name)} is a file {hint}: save it with numpy.savez or safetensors"
    return (
        f"{shown(name)} is neither .npz nor .safetensors: save it with numpy.savez or safetensors"
    )


def _npz_dtypes(path: Path) -> dict[str, str]:
    """Return array -> numpy's name of its dtype, from the headers alone; nothing is unpickled."""
    dtypes = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0
                if version != (1, 0):
                    read = np.lib.format.read_array_header_2_0
                dtype = read(file)[2]
            dtypes[name.removesuffix(".npy")] = dtype.str
    return dtypes


def _safetensors_dtypes(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MAX_HEADER:
            raise ValueError("its header is too long")
        header = json.loads(file.read(length))
    return {name: entry["dtype"] for name, entry in header.items() if name != "__metadata__"}


def _bad_array(name: str, array: str, dtype: str) -> str | None:
    if not array.isidentifier():
        return (
            f"{shown(name)}: the array {shown(array)} has no name that an argument can have: save it "
            "by name, as in numpy.savez(path, embeddings=array)"
        )
    if dtype in _STORED_DTYPES:
        return None
    if dtype[1:2] == "O":
        return (
            f"{shown(name)}: the array {shown(array)} holds Python objects, which only pickle reads, "
            "and pickle can run code: save it as numbers"
        )
    if dtype[1:2] in _KINDS and dtype[2:].isdigit() and int(dtype[2:]) in _KINDS[dtype[1:2]]:
        return None
    return (
        f"{shown(name)}: the array {shown(array)} has the dtype {shown(dtype)}: save it as float32, "
        "int64 or bool"
    )


_PARAMETERS = 3
"""config, seed, torch."""


def bad_function(base: Path, text: str) -> str | None:
    """Return what is wrong with ``inputs.py:make``, in words, or None; the file is not run."""
    name, colon, function = text.rpartition(":")
    if not colon or not name.endswith(".py") or not function.isidentifier():
        example = f"{text}:make" if text.endswith(".py") else "inputs.py:make"
        return f"{shown(text)} is no function of a file: write {example}"
    path = base / name
    try:
        if not path.is_file():
            return f"{shown(name)} does not exist{_hint(path)}"
        tree = ast.parse(path.read_bytes(), filename=name)
    except SyntaxError as error:
        return f"{shown(name)} is not Python: line {error.lineno}: {error.msg}"
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"{shown(name)} cannot be read: {reason}"
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if function not in functions:
        return f"{shown(name)} has no function {shown(function)}: {nearest(function, functions)}"
    node = functions[function]
    if not _takes_three(node.args):
        line = f"def {function}(config, seed, torch):"
        return (
            f"{name}:{node.lineno}: {function} is called with (config, seed, torch): write {line}"
        )
    return None


def _takes_three(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    needed = positional - len(arguments.defaults)
    if any(default is None for default in arguments.kw_defaults):
        return False
    return needed <= _PARAMETERS and (positional >= _PARAMETERS or arguments.vararg is not None)
