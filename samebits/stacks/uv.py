"""How uv is called: in which folder, with which settings, and what its output says.

uv obeys settings that it finds in the current folder or above it. A downloaded checkpoint may have
some, which would choose where packages come from. So uv runs in a folder of samebits' own, unless the
project of matrix.yaml has settings.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from uv import find_uv_bin

from samebits.base.checkpoint import folder_of_model, read_small
from samebits.base.errors import StackMachineError

_OWN_FOLDER = Path(__file__).with_name("uv_settings")
_OWN_SETTINGS = "uv.toml"
_PROJECT = "pyproject.toml"
_CONFIG = "config.json"
_DROPPED = frozenset(
    [
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "PYTHONHOME",
        "UV_PROJECT",
        "UV_WORKING_DIR",
        "UV_WORKING_DIRECTORY",
        "UV_ENV_FILE",
        "UV_REQUIRE_HASHES",
        "UV_NO_VERIFY_HASHES",
    ]
)
"""Variables that choose another environment or folder, or how hashes are checked."""
_PATHS = frozenset(
    [
        "UV_FIND_LINKS",
        "UV_INDEX",
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "UV_EXTRA_INDEX_URL",
        "UV_CACHE_DIR",
        "UV_CONFIG_FILE",
        "UV_CONSTRAINT",
        "UV_BUILD_CONSTRAINT",
        "UV_OVERRIDE",
        "UV_EXCLUDE",
        "UV_PYTHON_INSTALL_DIR",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ]
)
"""Variables whose values may have paths relative to the user's folder."""
_NO_SOLUTION = "no solution found"
_OFFLINE = "network was disabled"
_OTHER_HASH = "hash mismatch"


def program() -> str:
    """Return uv's program: that of the package uv, else the one on the PATH."""
    try:
        return find_uv_bin()
    except FileNotFoundError as error:
        if (path := shutil.which("uv")) is not None:
            return path
        msg = "uv, which makes the environments, is not installed: pip install uv"
        raise StackMachineError(msg) from error


def command(project: Path | None, *words: str) -> list[str]:
    """Return a command of uv with the settings of a project's folder, if they count."""
    return [program(), "--directory", str(settings_folder(project)), *words]


def settings_folder(project: Path | None) -> Path:
    """Return the folder in which uv runs: the project's if its settings count, else samebits' own.

    They count if they lie in that very folder and no model lies there or above. Beside them any
    config.json is a model's; above them, where it may be another program's, it has to say so.
    """
    if project is None:
        return _OWN_FOLDER
    folder = project.resolve()
    if not _has_settings(folder) or (folder / _CONFIG).exists():
        return _OWN_FOLDER
    return folder if folder_of_model(folder) is None else _OWN_FOLDER


def _has_settings(folder: Path) -> bool:
    if (folder / _OWN_SETTINGS).is_file():
        return True
    try:
        content = tomllib.loads(read_small(folder / _PROJECT).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    tool = content.get("tool")
    return isinstance(tool, dict) and "uv" in tool


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return uv's environment variables: with pip's find-links, and with absolute paths."""
    env = {name: value for name, value in environ.items() if name not in _DROPPED}
    if "PIP_FIND_LINKS" in env:
        # uv ignores pip's settings, and a CPU build of torch is often available only there
        env.setdefault("UV_FIND_LINKS", env["PIP_FIND_LINKS"])
    return env | {name: _absolute(env[name]) for name in _PATHS & env.keys()}


def _absolute(value: str) -> str:
    """Return a list of paths and addresses with absolute paths; uv runs in another folder."""
    if value and Path(value).exists():  # an empty path is the current folder
        return str(Path(value).absolute())
    words = re.split(r"([\s,]+)", value)
    return "".join(str(Path(w).absolute()) if w.strip() and Path(w).exists() else w for w in words)


def locked_lines(pylock: str) -> list[str]:
    """Return the lines of a lock from what ``uv pip compile --format pylock.toml`` printed.

    A line has a package, the SHA-256 of each file that fits this machine, and where they come from:
    ``idna==3.20 --hash=sha256:…  # from https://files.pythonhosted.org``. A package from git has its
    commit, and one from a file its path, which the caller replaces.

    Raises:
        StackMachineError: it has another form.

    """
    try:
        return [_line(package) for package in tomllib.loads(pylock).get("packages", [])]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StackMachineError(f"uv printed a lock of an unknown form: {error!r}") from error


def _line(package: Mapping[str, Any]) -> str:
    name = package["name"]
    if (vcs := package.get("vcs")) is not None:
        part = f"#subdirectory={vcs['subdirectory']}" if vcs.get("subdirectory") else ""
        return f"{name} @ {vcs['type']}+{vcs['url']}@{vcs['commit-id']}{part}"
    for key in ("archive", "directory"):
        if (source := package.get(key)) is not None:
            return f"{name} @ {source.get('url') or source['path']}"
    files = package.get("wheels") or [package["sdist"]]
    hashes = sorted({file["hashes"]["sha256"] for file in files})  # uv computes missing ones
    options = "".join(f" --hash=sha256:{digest}" for digest in hashes)
    sources = sorted({_source(file) for file in files})
    return f"{name}=={package['version']}{options}  # from {', '.join(sources)}"


def _source(file: Mapping[str, Any]) -> str:
    """Return where a file comes from, without credentials and without a path of this machine."""
    address = urlsplit(file.get("url", ""))
    if address.scheme not in ("http", "https"):
        return "a local folder"
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"


def last_words(process: subprocess.CompletedProcess[str]) -> str:
    """Return what uv printed before it failed, or which signal ended it."""
    if output := without_colors(process.stderr or process.stdout):
        return output
    code = process.returncode
    if code < 0:
        return f"uv was ended by signal {-code} ({signal.strsignal(-code)}) and printed nothing"
    return f"uv ended with exit code {code} and printed nothing"


def is_about_packages(output: str) -> bool:
    """Return True if no set of packages fits; any other failure is one of machine or network."""
    text = " ".join(output.casefold().split())
    return _NO_SOLUTION in text and _OFFLINE not in text


def is_about_hashes(output: str) -> bool:
    """Return True if an index gave another file than the lock has."""
    return _OTHER_HASH in output.casefold()


def without_colors(text: str) -> str:
    """Return what a program printed without its codes for colors."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()
