"""What a chat template makes of conversations: text, ids, assistant masks, types of results.

The conversations are in data/conversations.json. The clock of templates stands still, as some of
them write today's date.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import transformers.utils

from samebits_probe.cell.outcomes import Outcomes, short_hash

SECONDS = 10.0
_DATA = Path(__file__).parent / "data" / "conversations.json"
_BATCH = ("user", "ends with the assistant")
"""Conversations that a template gets in one call."""
_GENERATION_TAG = "{% generation"
"""Begins the part of a template that the assistant mask covers."""


@cache
def conversations() -> list[dict[str, Any]]:
    """Return the conversations of the data file."""
    return list(json.loads(_DATA.read_text("utf-8"))["conversations"])


def facts(tokenizer: Any) -> dict[str, Any] | None:
    """Return the outcomes for every template and conversation; None without a template."""
    if not (templates := _templates(tokenizer)):
        return None
    outcomes = Outcomes(SECONDS)
    for name, template in templates.items():
        outcomes.add("template", name, [len(template), short_hash(template.encode())])
    marks = any(_GENERATION_TAG in t.replace("{%-", "{%") for t in templates.values())
    with _fixed_clock():
        for name, choice in _choices(tokenizer, templates).items():
            for conversation in conversations():
                _render(outcomes, tokenizer, name, choice, conversation, marks=marks)
            _batch(outcomes, tokenizer, name, choice, marks=marks)
            _types(outcomes, tokenizer, name, choice)
    return outcomes.record()


def _templates(tokenizer: Any) -> dict[str, str]:
    """Return name -> template; the only one of a tokenizer is the ``default``."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        return {str(name): str(text) for name, text in template.items()}
    return {"default": template} if isinstance(template, str) else {}


def _choices(tokenizer: Any, templates: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the ways to choose a template: as the release chooses one, or by name."""
    choices: dict[str, dict[str, Any]] = {"no name": {}}
    if isinstance(tokenizer.chat_template, dict):
        choices |= {name: {"chat_template": name} for name in templates}
    return choices


def _render(
    outcomes: Outcomes,
    tokenizer: Any,
    name: str,
    choice: dict[str, Any],
    conversation: dict[str, Any],
    *,
    marks: bool,
) -> None:
    case = f"{name}, {conversation['name']}"
    options = conversation.get("options", {}) | choice

    def apply(**arguments: Any) -> Any:
        # a template may write into the messages
        messages = json.loads(json.dumps(conversation["messages"]))
        return tokenizer.apply_chat_template(messages, **options, **arguments)

    # how a release cuts behind a continued message is its own affair, whatever the template
    operation = "continued text" if options.get("continue_final_message") else "rendered text"
    if outcomes.call(operation, case, lambda: apply(tokenize=False)) is None:
        return
    outcomes.call("ids", case, lambda: ids_of(apply(tokenize=True, return_dict=True)))
    if marks:
        outcomes.call(
            "assistant mask",
            case,
            lambda: apply(tokenize=True, return_dict=True, return_assistant_tokens_mask=True)[
                "assistant_masks"
            ],
        )


def _batch(
    outcomes: Outcomes, tokenizer: Any, name: str, choice: dict[str, Any], *, marks: bool
) -> None:
    """Encode two conversations of different lengths in one call, padded on the left."""
    case = f"{name}, two conversations, padded"
    outcomes.name_members(case, [f"{name}, {member}" for member in _BATCH])
    messages = {c["name"]: c["messages"] for c in conversations()}

    def apply(key: str, **arguments: Any) -> Any:
        encoding = tokenizer.apply_chat_template(
            json.loads(json.dumps([messages[member] for member in _BATCH])),
            return_dict=True,
            padding=True,
            tokenizer_kwargs={"padding_side": "left"},
            **choice,
            **arguments,
        )
        return [list(row) for row in encoding[key]]

    outcomes.call("ids", case, apply, "input_ids")
    if marks:
        outcomes.call(
            "assistant mask",
            case,
            lambda: apply("assistant_masks", return_assistant_tokens_mask=True),
        )


def ids_of(encoding: Any) -> list[int]:
    """Return the ids of an encoding as plain numbers."""
    return [int(i) for i in encoding["input_ids"]]


def _types(outcomes: Outcomes, tokenizer: Any, name: str, choice: dict[str, Any]) -> None:
    """Ask for the type of the result in each way to call, without what a default decides."""
    messages = conversations()[0]["messages"]
    batch = [messages, messages]
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "tokenize=False": (messages, {"tokenize": False}),
        "return_dict=False": (messages, {"return_dict": False}),
        "return_dict=True": (messages, {"return_dict": True}),
        "return_dict=False, tensors": (messages, {"return_dict": False, "return_tensors": "pt"}),
        "return_dict=True, tensors": (messages, {"return_dict": True, "return_tensors": "pt"}),
        "batch, tokenize=False": (batch, {"tokenize": False}),
        "batch, return_dict=False": (batch, {"return_dict": False}),
        "batch, return_dict=True": (batch, {"return_dict": True}),
    }
    for way, (argument, options) in ways.items():
        outcomes.call(
            "type",
            f"{name}, {way}",
            lambda argument, options: _type(
                tokenizer.apply_chat_template(argument, **choice, **options)
            ),
            argument,
            options,
        )


def _type(result: Any) -> str:
    """Return the type of a result, with that of its ids or of its first element."""
    if isinstance(result, (list, tuple)) and result:
        return f"{type(result).__name__} of {_type(result[0])}"
    if hasattr(result, "keys"):
        return f"{type(result).__name__} with {_type(result['input_ids'])}"
    shape = getattr(result, "shape", None)
    size = f" of {len(shape)} dimensions" if shape is not None else ""
    return f"{type(result).__name__}{size}"


class _FixedClock(datetime):
    """A clock that stands still, in the place of the one that templates ask."""

    @classmethod
    def now(cls, tz: Any = None) -> _FixedClock:
        """Return always the same moment."""
        return cls(2024, 7, 26, 12, 0, 0, tzinfo=tz)


@contextmanager
def _fixed_clock() -> Iterator[None]:
    module = getattr(transformers.utils, "chat_template_utils", None)
    if module is None or not hasattr(module, "datetime"):
        yield
        return
    with mock.patch.object(module, "datetime", _FixedClock):
        yield
