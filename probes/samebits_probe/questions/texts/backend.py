"""The parts of a fast tokenizer: as this release built them, and as tokenizer.json has them.

Each part is a short JSON text. Vocabulary and merges are a size and a hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from operator import itemgetter
from typing import Any

from tokenizers import Tokenizer

from samebits_probe.cell.outcomes import plain, short_hash
from samebits_probe.cell.written import file_of
from samebits_probe.model.load import Source

STAGES = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_PARTS = (*STAGES, "model", "added_tokens")
_OF_IDS = ("normalizer", "pre_tokenizer", "model")
"""Parts that decide the ids of a text, special tokens left out."""
_MAX_TEXT = 80
"""Characters of a text inside a part, such as the table of a Precompiled normalizer."""
_MAX_LIST = 40
_MAX_PART = 2000
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def backend_of(tokenizer: Any) -> Any:
    """Return the object of the library tokenizers; None for a class in Python."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    return getattr(tokenizer, "backend_tokenizer", None)


def facts(tokenizer: Any, source: Source) -> dict[str, Any]:
    """Return the parts that this release uses, and those of the file."""
    return {"built": _built(backend_of(tokenizer)), "declared": _declared(source)}


def as_declared(backend: Any, source: Source) -> Iterator[tuple[str, Any]]:
    """Yield a copy of a backend with parts as tokenizer.json has them, by the names of these parts.

    The parts are those that this release built otherwise: each alone, then two of them, then all.
    It is one object, which changes with each step.
    """
    path = file_of(source, "tokenizer.json")
    built, declared = _built(backend), _declared(source)
    changed = [name for name in _OF_IDS if declared and built[name] != declared[name]]
    if path is None or not changed:
        return
    copy, file = Tokenizer.from_str(backend.to_str()), Tokenizer.from_file(str(path))
    copy.no_truncation()
    copy.no_padding()
    for size in range(1, len(changed) + 1):
        for names in combinations(changed, size):
            for name in changed:
                setattr(copy, name, getattr(file if name in names else backend, name))
            yield ", ".join(names), copy


def _built(backend: Any) -> dict[str, str]:
    if backend is None:
        return {}
    whole = {name: _state(getattr(backend, name)) for name in (*STAGES, "model")}
    whole["added_tokens"] = [
        {"id": number, "content": token.content, **{flag: getattr(token, flag) for flag in _FLAGS}}
        for number, token in sorted(backend.get_added_tokens_decoder().items())
    ]
    return _parts(whole)


def _state(component: Any) -> Any:
    """Return a component as JSON; None if there is none."""
    return None if component is None else json.loads(component.__getstate__())


def _declared(source: Source) -> dict[str, str]:
    if (path := file_of(source, "tokenizer.json")) is None:
        return {}
    try:
        return _parts(json.loads(path.read_text("utf-8")))
    except ValueError:
        return {}


def _parts(whole: dict[str, Any]) -> dict[str, str]:
    parts = {name: whole.get(name) for name in _PARTS}
    model = parts["model"]
    if isinstance(model, dict):
        parts["model"] = model | {
            name: _summary(entries)
            for name in ("vocab", "merges")
            if (entries := model.get(name)) is not None
        }
    return {name: _text(part) for name, part in parts.items()}


def _summary(entries: Any) -> dict[str, Any]:
    """Return size and hash of a vocabulary, or of merges, which have two forms in JSON."""
    if isinstance(entries, dict):
        entries = sorted(entries.items(), key=itemgetter(1))
    lines = (e if isinstance(e, str) else f"{e[0]} {e[1]}" for e in entries)
    return {"size": len(entries), "hash": short_hash(plain("\n".join(lines)).encode())}


def _text(part: Any) -> str:
    text = plain(json.dumps(_shortened(part), ensure_ascii=False, sort_keys=True))
    return text if len(text) <= _MAX_PART else f"{text[:_MAX_PART]} {short_hash(text.encode())}"


def _shortened(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _shortened(value) for name, value in part.items()}
    if isinstance(part, list):
        if len(part) <= _MAX_LIST:
            return [_shortened(value) for value in part]
        return {"size": len(part), "hash": short_hash(json.dumps(part).encode())}
    if isinstance(part, str) and len(part) > _MAX_TEXT:
        return {"characters": len(part), "hash": short_hash(plain(part).encode())}
    return part
