"""The JavaScript libraries that the pages load, as their npm packages have them.

``python -m bench.vendor [FOLDER]`` fetches them again with ``npm pack`` and writes
samebits/reports/html/assets/vendor/, or another folder with a vendor.json. That file pins the packages and the SHA-256 of
each file; tests/bench/test_vendor.py hashes the files again.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from hashlib import sha256, sha512
from pathlib import Path
from typing import NamedTuple

VENDOR = Path(__file__).parents[1] / "samebits" / "reports" / "html" / "assets" / "vendor"
MANIFEST = "vendor.json"


class Package(NamedTuple):
    """One npm package at one version."""

    name: str
    version: str
    integrity: str
    """SHA-512 of the tarball as the npm registry publishes it."""
    licence: str
    """SPDX identifier."""
    files: dict[str, tuple[str, str]]
    """Name of the file in assets/vendor -> its path in the tarball, and its SHA-256."""


def packages(folder: Path) -> list[Package]:
    """Return the packages that a folder pins."""
    entries = json.loads((folder / MANIFEST).read_text("utf-8"))["packages"]
    return [
        Package(**{**entry, "files": {name: tuple(of) for name, of in entry["files"].items()}})
        for entry in entries
    ]


def contents(package: Package, folder: Path) -> dict[str, bytes]:
    """Return the files of a package, fetched with npm into ``folder``.

    Raises:
        ValueError: the tarball or a file of it has another hash than the pinned one.

    """
    command = ["npm", "pack", "--silent", "--ignore-scripts", f"{package.name}@{package.version}"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    tarball = folder / f"{package.name}-{package.version}.tgz"
    digest = base64.b64encode(sha512(tarball.read_bytes()).digest()).decode()
    _check(tarball.name, f"sha512-{digest}", package.integrity)
    with tarfile.open(tarball) as archive:
        files = {name: _member(archive, path) for name, (path, _) in package.files.items()}
    for name, content in files.items():
        _check(name, sha256(content).hexdigest(), package.files[name][1])
    return files


def _member(archive: tarfile.TarFile, path: str) -> bytes:
    file = archive.extractfile(f"package/{path}")
    if file is None:
        raise ValueError(f"{archive.name!r} holds no file {path}")
    return file.read()


def _check(name: str, digest: str, pinned: str) -> None:
    if digest != pinned:
        raise ValueError(f"{name} has the hash {digest}, but vendor.json pins {pinned}")


def main(arguments: Sequence[str]) -> int:
    """Fetch all packages and write their files; none is written if one has another hash."""
    target = Path(arguments[0]) if arguments else VENDOR
    with tempfile.TemporaryDirectory() as folder:
        fetched = [contents(package, Path(folder)) for package in packages(target)]
    for files in fetched:
        for name, content in files.items():
            (target / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
