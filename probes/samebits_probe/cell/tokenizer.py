"""Facts about a model's tokenizer in this release: class, special tokens, ids, results of calls.

They come from a tokenizer that is loaded only for this. Calls change settings of the object, and
the tokenizer for the prompts must stay as it was loaded.
"""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers

from samebits_probe.cell import attributes, written
from samebits_probe.model.load import Source, load_tokenizer
from samebits_probe.process.failure import in_one_line
from samebits_wire.folders import without_folders

FIXED = "Hello world 12345 naïve"
"""A text with a capital, digits and a letter outside ASCII."""
BOXES = "boxes"
"""Argument of the call of tokenizers of pages: a box for each word."""
_CHAT = [{"role": "user", "content": FIXED}]
_SPECIAL = ("bos", "eos", "pad", "unk", "sep", "cls", "mask")
_METHODS = (
    "encode_plus",
    "batch_encode_plus",
    "build_inputs_with_special_tokens",
    "prepare_for_model",
    "as_target_tokenizer",
    "additional_special_tokens",
    "create_token_type_ids_from_sequences",
)


def takes(tokenizer: Any, name: str) -> bool:
    """Return True if the call of a tokenizer names an argument."""
    return name in inspect.signature(type(tokenizer).__call__).parameters


def boxes_of(number: int) -> list[list[int]]:
    """Return a box for each of so many words, side by side."""
    return [[20 * i, 10, 20 * i + 15, 30] for i in range(number)]


def facts(tokenizer: Any, prompts: dict[str, Any], source: Source) -> dict[str, Any]:
    """Return the facts about an object that was loaded for this."""
    texts = {"fixed": FIXED} | {n: p["text"] for n, p in prompts.items() if p.get("text")}
    has_template = getattr(tokenizer, "chat_template", None) is not None
    chat = _call_result(lambda: tokenizer.apply_chat_template(_CHAT)) if has_template else None
    ids = tokenizer(FIXED, add_special_tokens=False)["input_ids"][:2]
    wrote = _written(tokenizer, source)
    return {
        "class_name": type(tokenizer).__name__,
        "padding_side": str(tokenizer.padding_side),
        "declared_padding_side": tokenizer.init_kwargs.get("padding_side"),
        "special": _special_ids(tokenizer),
        "texts": {name: _encoded(tokenizer, text) for name, text in texts.items()},
        "gives": list(tokenizer(FIXED)),
        "chat": chat,
        "batch": _call_result(lambda: tokenizer.decode([ids, ids])),
        "methods": {name: hasattr(tokenizer, name) for name in _METHODS},
        **attributes.facts(tokenizer, source),
        "saved_class": _saved_class(wrote),
        "written": wrote,
        "knows_backend": hasattr(transformers, "TokenizersBackend"),
    }


def _special_ids(tokenizer: Any) -> dict[str, int]:
    ids = {name: getattr(tokenizer, f"{name}_token_id", None) for name in _SPECIAL}
    return {name: int(token) for name, token in ids.items() if isinstance(token, int)}


def _encoded(tokenizer: Any, text: str) -> dict[str, Any]:
    return {
        "text": text,
        "ids": [int(i) for i in tokenizer(text)["input_ids"]],
        "bare": [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]],
    }


def _call_result(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"type": type(call()).__name__}
    except Exception as error:  # noqa: BLE001  an exception is one of the possible results
        first_line = without_folders(str(error)).partition("\n")[0]
        return {"raised": f"{type(error).__name__}: {first_line}"}


def _saved_class(wrote: dict[str, Any]) -> str | None:
    keys = wrote["files"].get(attributes.CONFIG, {}).get("keys", {})
    name = json.loads(keys.get("tokenizer_class", "null"))
    return name if isinstance(name, str) else None


def _written(tokenizer: Any, source: Source) -> dict[str, Any]:
    """Return what a save writes; a tokenizer that cannot be saved is a result."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            tokenizer.save_pretrained(folder)
        except Exception as error:  # noqa: BLE001  whatever it is
            return {"files": {}, "raised": in_one_line(error)}

        def reload() -> Any:
            return load_tokenizer(source.at(name))

        return written.of_folder(folder, lambda: attributes.lost(tokenizer, source, folder, reload))
