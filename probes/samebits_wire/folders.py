"""Removal of this machine's folders from messages: captures go into reports that are published."""

from __future__ import annotations

import re

PART = r"[^\s/'\":,;()<>|\\\x00-\x1f]"
_ABSOLUTE = re.compile(
    rf"""
    (?P<address> \b (?!file:) [A-Za-z][A-Za-z0-9+.-]* :// [^\s'"<>]* )
    | (?P<quote> ['"] ) (?P<quoted> (?:/[^/'"\n]+){{2,}}/? ) (?P=quote)  # it may hold spaces
    | (?: file:// | (?<![\w.~…/]) | (?<=\\[nrt]) | (?<=(?<![\w-])-[IL]) )
      (?P<plain> (?:/{PART}+){{2,}}/? )
    | (?<!\w) (?P<windows> [A-Za-z]: (?:\\[^\s\\'":,;()<>|]+){{2,}} )
    """,
    re.VERBOSE,
)
_HOMES = {"home", "Users"}
_LIBRARY = re.compile(r"/(?:site-packages|dist-packages|lib/python3\.\d+)/")


def without_folders(text: str) -> str:
    """Return ``text`` with the folders of absolute paths left out; addresses stay as they are.

    Of a path in a library two parts stay: ``…/utils/__init__.py`` tells more than the file's name.
    """
    return _ABSOLUTE.sub(_cut, text)


def _cut(path_match: re.Match[str]) -> str:
    if path_match["address"] is not None:
        return path_match["address"]
    if path_match["windows"] is not None:
        return f"…\\{path_match['windows'].rpartition(chr(92))[2]}"
    quote, path = path_match["quote"] or "", path_match["quoted"] or path_match["plain"]
    parts = path.strip("/").split("/")
    if len(parts) == 2 and parts[0] in _HOMES:
        return f"{quote}…{quote}"
    kept = parts[-2:] if _LIBRARY.search(path) else parts[-1:]
    return f"{quote}…/{'/'.join(kept)}{quote}"
