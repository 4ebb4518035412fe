"""Redaction of reports: tokens, passwords and the folders of the user's machine are removed.

Exceptions of models, logs and package indexes may contain them, and reports are published.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel

from samebits_wire.folders import PART, without_folders

if TYPE_CHECKING:
    M = TypeVar("M", bound=BaseModel)

_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|AUTH(?!OR)|AUTHORI[SZ]|CONNECTION_?STRING"
    r"|(?:^|_)(?:KEYS?|PAT|SAS|PWD)(?:_|$)",
    re.IGNORECASE,
)
"""Names of variables that hold a secret."""
_PLACE = re.compile(r"_(?:PATH|FILE|DIR|FOLDER|HOME|SOCK|URL|URI|ENDPOINT)$", re.IGNORECASE)
"""Names of variables that say where a secret is, and do not hold it."""
_IN_ADDRESS = re.compile(
    r"""(?i)
    (?<=://) (?!git@) (?! (?<=abfss://) [^\s/@:]*@ ) [^\s/@:'"<>]* (?: : (?!\d+/) [^\s'"<>]* )? @
    | (?<=[?&;]) (?P<name> (?:[\w.%-]*[-_.])? (?:sig|signature|token|key|secret|password|credential)s? =)
      [^&\s'"<>]+
    """,
    re.VERBOSE,
)
"""The user and password of an address (abfss:// has a container there), and the value of a signature or key in its query."""
_CAPSULE_TEXTS = ("/ISSUE.md", "/expected.json")
"""Files of a capsule that are redacted; its scripts and checkpoint must stay as they ran."""

_MIN_SECRET = 8
"""Minimal length of a secret; a shorter one would match inside harmless words."""

_MAYBE_ABSOLUTE = (
    # Each begins with one character, which re looks for a hundred times as fast as for a condition.
    # In JSON the slash may follow an escaped line feed, and a backslash is doubled.
    re.compile(
        rf"""/ (?: (?<![\w.~…/\\]/) | (?<=\\[nrtbf"\\]/) | (?<=\\u[0-9a-f]{{4}}/)
                 | (?<=file:///) | (?<=-[IL]/) ) {PART}+/""",
        re.VERBOSE,
    ),
    re.compile(r"""/(?<=["']/)[^/'"]+/"""),
    re.compile(r":(?<=[A-Za-z]:)\\\\"),
)
"""Patterns of which one matches the JSON of a record that has an absolute path."""


class Redaction:
    """Redacts the secrets of one environment in texts and records."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._replacements = dict(_secrets(environ))
        home = environ.get("HOME", "").rstrip("/")
        parts = [re.escape(text) for text in sorted(self._replacements, key=len, reverse=True)]
        if home.count("/") >= 1 and len(home) > 1:
            self._replacements[home] = "~"
            parts.append(rf"(?<![\w.-]){re.escape(home)}(?![\w.-])")
        self._pattern = re.compile("|".join(parts)) if parts else None

    def text(self, text: str) -> str:
        """Return ``text`` with ``(HF_TOKEN)`` where the token was, and ``~`` for the home."""
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._replacements[match[0]], text)
        return without_credentials(text)

    def published(self, text: str) -> str:
        """Return ``text`` as it may be published: without secrets and folders, except ``~``."""
        return without_folders(self.text(text))

    def file(self, path: str, content: str | bytes) -> str | bytes:
        """Return a file of the report with its text redacted; checkpoints and scripts unchanged."""
        if isinstance(content, str):
            return self.text(content)
        if not path.endswith(_CAPSULE_TEXTS):
            return content
        return self.published(content.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )

    def record(self, record: M) -> M:
        """Return the record with every text in it redacted; the same object if none has to be."""
        dumped = record.model_dump_json(ensure_ascii=False)
        # a secret with characters that JSON escapes cannot be searched for in the dump
        is_escaped = any(
            json.dumps(text, ensure_ascii=False)[1:-1] != text for text in self._replacements
        )
        # searching for each secret is many times as fast as the pattern, and rarely finds one
        has_secret = is_escaped or any(text in dumped for text in self._replacements)
        patterns = (*_MAYBE_ABSOLUTE, _IN_ADDRESS)
        if not has_secret and not any(pattern.search(dumped) for pattern in patterns):
            return record
        redacted = self._value(record)
        assert isinstance(redacted, type(record))
        return redacted

    def _value(self, value: object) -> object:
        if type(value) is str:
            return self.published(value)
        if isinstance(value, BaseModel):
            fields = {name: self._value(getattr(value, name)) for name in type(value).model_fields}
            return value.model_copy(update=fields)
        if isinstance(value, (list, tuple)):
            return type(value)(self._value(item) for item in value)
        if isinstance(value, dict):
            return {self._value(key): self._value(item) for key, item in value.items()}
        return value


def without_credentials(text: str) -> str:
    """Return ``text`` without users, passwords, keys and signatures in its addresses."""
    return _IN_ADDRESS.sub(lambda match: f"{match['name']}…" if match["name"] else "", text)


def _secrets(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each secret with its replacement."""
    for name, value in environ.items():
        if _SECRET.search(name) and _is_secret(name, value):
            # a message may quote one line of a key
            lines = {value, *(line.strip() for line in value.splitlines())}
            yield from ((line, f"({name})") for line in lines if len(line) >= _MIN_SECRET)
        if "://" in value and "@" in value:
            yield from ((word, f"({name})") for word in _credentials(value))
    for path in _token_files(environ):
        try:
            token = path.read_text("utf-8").strip()
        except (OSError, ValueError):
            continue
        if len(token) >= _MIN_SECRET:
            yield token, "(HF_TOKEN)"


def _is_secret(name: str, value: str) -> bool:
    """Return True unless a value is an address or a path, or of too few characters."""
    is_place = bool(_PLACE.search(name)) and value.startswith(("/", "~", "."))
    if len(value) < _MIN_SECRET or is_place or re.match(r"[\w+.-]+://", value):
        return False
    return "/" not in value or not os.path.exists(value)  # noqa: PTH110  a value may be no path


def _credentials(text: str) -> Iterator[str]:
    """Yield the passwords in the URLs in ``text``, both as written and percent-decoded."""
    for word in text.split():
        try:
            password = urlsplit(word).password
        except ValueError:
            continue
        if password and len(password) >= _MIN_SECRET:
            yield from {password, unquote(password)}


def _token_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths where huggingface_hub stores the token of a login."""
    if path := environ.get("HF_TOKEN_PATH"):
        yield Path(path)
    if home := environ.get("HF_HOME"):
        yield Path(home) / "token"
    if home := environ.get("HOME"):
        yield Path(home) / ".cache" / "huggingface" / "token"
