"""What a tokenizer has of what its files state: every key of tokenizer_config.json as an attribute.

The result is ``attributes`` and ``unlike`` of TokenizerSignal in samebits/records/tokenizer.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from samebits_probe.cell import written
from samebits_probe.cell.written import ABSENT, file_of, is_same, stated, text_of
from samebits_probe.model.load import Source

CONFIG = "tokenizer_config.json"
_TOKENS = "added_tokens_decoder"
_ALWAYS = (
    *("is_fast", "padding_side", "truncation_side", "model_max_length", "model_input_names"),
    *("clean_up_tokenization_spaces", "split_special_tokens", "add_bos_token", "add_eos_token"),
    *("add_prefix_space", "vocab_size"),
)
"""Attributes that are observed whether or not a file states them."""
_EXTRA = ("additional_special_tokens", "extra_special_tokens")
"""4.x and 5.x have the further special tokens under one of these names each."""
_NOT_KEPT = {
    *("tokenizer_class", "processor_class", "auto_map", "name_or_path", "transformers_version"),
    *("tokenizer_file", "special_tokens_map_file", "vocab_file", "merges_file", "_commit_hash"),
    *("backend", "is_local", "local_files_only", "use_fast", "__type", _TOKENS),
}
"""Keys that name classes and places; the class of a tokenizer is recorded beside."""
_MAX_UNLIKE = 20


class Attribute(NamedTuple):
    """A key that a file states, and what the tokenizer has."""

    key: str
    stated: Any
    there: Any


def facts(tokenizer: Any, source: Source) -> dict[str, Any]:
    """Return what the tokenizer has of every key, and what it has otherwise than stated."""
    attributes = [*_attributes(tokenizer, source)]
    named = {name: _there(tokenizer, name) for name in _ALWAYS}
    named |= {each.key: each.there for each in attributes if not each.key.startswith(_TOKENS)}
    return {
        "attributes": {key: text_of(value) for key, value in named.items()},
        "unlike": dict([*_unlike(attributes).items()][:_MAX_UNLIKE]),
    }


def lost(tokenizer: Any, source: Source, folder: Path, reload: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys that the tokenizer has as stated, and that of its copy in ``folder`` has not."""
    keys = written.json_of(folder / CONFIG)
    names = stated(source, CONFIG)
    if all(is_same(value, keys.get(name, ABSENT)) for name, value in names.items()):
        return
    before = _unlike([*_attributes(tokenizer, source)])
    after = _unlike([*_attributes(reload(), source)])
    yield CONFIG, {key: value for key, value in after.items() if key not in before}


def _unlike(attributes: list[Attribute]) -> dict[str, tuple[str, str]]:
    return {
        each.key: (text_of(each.stated), text_of(each.there))
        for each in attributes
        if not is_same(each.stated, each.there)
    }


def _attributes(tokenizer: Any, source: Source) -> Iterator[Attribute]:
    keys = stated(source, "special_tokens_map.json") | stated(source, CONFIG)
    tokens = keys.get(_TOKENS) or {}
    if file_of(source, "chat_template.jinja") is not None:
        keys.pop("chat_template", None)  # the file comes before the key
    for key, value in keys.items():
        if key not in _NOT_KEPT:
            yield _attribute(tokenizer, key, value)
    yield from _added_tokens(tokenizer, tokens)
    for content, number in stated(source, "added_tokens.json").items():
        yield Attribute(f"added_tokens.{content}", number, tokenizer.get_vocab().get(content))


def _attribute(tokenizer: Any, key: str, value: Any) -> Attribute:
    if key in _EXTRA and isinstance(value, list):
        special = {str(token) for token in tokenizer.all_special_tokens}
        contents = [_content(token) for token in value]
        return Attribute(key, contents, [token for token in contents if token in special])
    if key in _EXTRA and isinstance(value, dict):
        # each is an attribute of its name, and in 5.x of no list
        named = {name: _there(tokenizer, name) for name in value}
        return Attribute(key, {name: _content(token) for name, token in value.items()}, named)
    if key == "chat_template" and isinstance(value, list):
        value = {named["name"]: named["template"] for named in value}
    return Attribute(key, _content(value), _there(tokenizer, key))


def _content(value: Any) -> Any:
    """Return the text of a token that is stated with its flags; every other value as it is."""
    return value["content"] if isinstance(value, dict) and "content" in value else value


def _there(tokenizer: Any, key: str) -> Any:
    """Return an attribute; the argument of that name which the tokenizer keeps if it has none."""
    try:
        value = getattr(tokenizer, key)
    except Exception:  # noqa: BLE001  an attribute of another release, or one that cannot be read
        return _plain(tokenizer.init_kwargs.get(key, ABSENT))
    return ABSENT if callable(value) else _plain(value)


def _plain(value: Any) -> Any:
    """Return tokens as their texts; every other value as it is."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if hasattr(value, "lstrip") and hasattr(value, "content") else value


def _added_tokens(tokenizer: Any, tokens: dict[str, dict[str, Any]]) -> Iterator[Attribute]:
    """Yield added tokens with the flags that are stated of them."""
    own = tokenizer.added_tokens_decoder if tokens else {}
    for number, flags in tokens.items():
        token = own.get(int(number))
        has = {name: getattr(token, name, None) for name in flags} if token else ABSENT
        yield Attribute(f"{_TOKENS}.{number}", flags, has)
