"""What no report may say: the tokens and passwords of its user, and where their home is.

An exception of a model, a log or a package index can speak of either, and reports are published.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    M = TypeVar("M", bound=BaseModel)

_SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL", re.IGNORECASE)
_WORDS = ("/ISSUE.md", "/expected.json")
"""Names of what a capsule says about itself."""

_SHORTEST = 8
"""Characters of a secret; a shorter one would be found in many a harmless word."""


class Redaction:
    """Takes out of texts and records what one environment holds of secrets."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._names = dict(_secrets(environ))
        home = environ.get("HOME", "").rstrip("/")
        parts = [re.escape(text) for text in sorted(self._names, key=len, reverse=True)]
        if home.count("/") >= 1 and len(home) > 1:
            self._names[home] = "~"
            parts.append(rf"(?<![\w.-]){re.escape(home)}(?![\w.-])")
        self._pattern = re.compile("|".join(parts)) if parts else None

    def text(self, text: str) -> str:
        """Return ``text`` with ``(HF_TOKEN)`` where the token was, and ``~`` for the home."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._names[found[0]], text)

    def file(self, path: str, content: str | bytes) -> str | bytes:
        """Return a file of the report with its text redacted; checkpoints and scripts as they ran."""
        if isinstance(content, str):
            return self.text(content)
        if not path.endswith(_WORDS):
            return content
        return self.text(content.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )

    def record(self, record: M) -> M:
        """Return the record with every text in it redacted, which is itself where none has to be."""
        if self._pattern is None:
            return record
        # a secret may be escaped in JSON, a text that holds none is the same in both
        written = record.model_dump_json(ensure_ascii=False)
        escaped = any(json.dumps(text, ensure_ascii=False)[1:-1] != text for text in self._names)
        # looking for each is many times as fast as the pattern, and hardly ever finds one
        if not escaped and not any(text in written for text in self._names):
            return record
        changed = self._value(record)
        assert isinstance(changed, type(record))
        return changed

    def _value(self, value: object) -> object:
        if type(value) is str:
            return self.text(value)
        if isinstance(value, BaseModel):
            fields = {name: self._value(getattr(value, name)) for name in type(value).model_fields}
            return value.model_copy(update=fields)
        if isinstance(value, (list, tuple)):
            return type(value)(self._value(item) for item in value)
        if isinstance(value, dict):
            return {self._value(key): self._value(item) for key, item in value.items()}
        return value


def _secrets(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Return each secret with what stands in its place."""
    for name, value in environ.items():
        if _SECRET.search(name) and len(value) >= _SHORTEST and "/" not in value:
            yield value, f"({name})"
        if "://" in value and "@" in value:
            yield from ((word, f"({name})") for word in _credentials(value))
    for path in _token_files(environ):
        try:
            token = path.read_text("utf-8").strip()
        except (OSError, ValueError):
            continue
        if len(token) >= _SHORTEST:
            yield token, "(HF_TOKEN)"


def _credentials(text: str) -> Iterator[str]:
    """Return the passwords in the addresses that stand in ``text``, spelled either way."""
    for word in text.split():
        try:
            password = urlsplit(word).password
        except ValueError:
            continue
        if password and len(password) >= _SHORTEST:
            yield from {password, unquote(password)}


def _token_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Return where huggingface_hub keeps the token of a login."""
    if path := environ.get("HF_TOKEN_PATH"):
        yield Path(path)
    if home := environ.get("HF_HOME"):
        yield Path(home) / "token"
    if home := environ.get("HOME"):
        yield Path(home) / ".cache" / "huggingface" / "token"
