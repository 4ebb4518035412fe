"""Paths of source files without the folders of this machine."""

from __future__ import annotations


def package_path(path: str) -> str:
    """Return a file's path starting at its package, without the folders of this machine."""
    for marker in ("/site-packages/", "/transformers_modules/"):
        if marker in path:
            return path.rsplit(marker, 1)[1]
    return path.rsplit("/", 1)[-1]
