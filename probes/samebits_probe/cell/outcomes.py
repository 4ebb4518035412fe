"""Results of calls by operation and case, small enough for a capture: an equal value is stored once.

A long value keeps its beginning and a hash of each further block, so that the host can name the
first place where two of them differ.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from samebits_probe.process import progress
from samebits_wire.folders import without_folders

MAX_ITEMS = 64
MAX_CHARACTERS = 256
BLOCK = 64
"""Items, or characters, that one hash covers; samebits/questions/texts/records.py has the same number."""
_MAX_MESSAGE = 200
_HASH_LENGTH = 16
_UNKNOWN_ARGUMENT = "unexpected keyword argument"


class Clock:
    """The processor time that some calls have together; a busy machine leaves out no more than an idle one."""

    def __init__(self, seconds: float) -> None:
        self._end = time.process_time() + seconds

    @property
    def is_over(self) -> bool:
        """True if no further call is to begin."""
        return time.process_time() > self._end


class Outcomes:
    """What calls returned or raised, by operation and case."""

    def __init__(self, seconds: float) -> None:
        """Allow all calls together this many seconds of the processor; later ones are left out, with the reason."""
        self._clock = Clock(seconds)
        self._seconds = seconds
        self._values: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}
        self._operations: dict[str, dict[str, int]] = {}
        self._left_out: dict[str, str] = {}
        self._inputs: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}

    def call(self, operation: str, case: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call, record what is returned or raised, and return it; None if it raised.

        An operation that the release or the class does not have is left out.
        """
        if operation in self._left_out:
            return None
        if self._clock.is_over:
            self.leave_out(operation, f"the calls before it took more than {self._seconds:.0f} s")
            return None
        progress.beat()
        try:
            result = function(*arguments)
        except NotImplementedError as error:
            self.leave_out(operation, in_words(error))
        except TypeError as error:
            if _UNKNOWN_ARGUMENT in str(error):
                self.leave_out(operation, in_words(error))
            else:
                self._put(operation, case, raised(error))
        except Exception as error:  # noqa: BLE001  an exception is one of the possible results
            self._put(operation, case, raised(error))
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # how Rust code of an extension ends
                raise
            self._put(operation, case, raised(error))
        else:
            self.add(operation, case, result)
            return result
        return None

    def add(self, operation: str, case: str, result: Any) -> None:
        """Record a result: a text, a list, or a number."""
        self._put(operation, case, _value(result))

    def leave_out(self, operation: str, reason: str) -> None:
        """Record why an operation is not observed, and forget what it gave before."""
        self._left_out[operation] = reason
        self._operations.pop(operation, None)

    def name_input(self, case: str, text: str) -> None:
        """Record the input of a case that is made from the tokenizer itself."""
        self._inputs[case] = plain(text)

    def name_members(self, case: str, texts: list[str]) -> None:
        """Record the names of the texts that a case is made of."""
        self._members[case] = texts

    def record(self) -> dict[str, Any]:
        """Return the record for the capture."""
        return {
            "operations": self._operations,
            "values": self._values,
            "left_out": self._left_out,
            "inputs": self._inputs,
            "members": self._members,
        }

    def _put(self, operation: str, case: str, value: dict[str, Any]) -> None:
        number = self._numbers.setdefault(json.dumps(value, sort_keys=True), len(self._values))
        if number == len(self._values):
            self._values.append(value)
        self._operations.setdefault(operation, {})[case] = number


def plain(text: str) -> str:
    r"""Return a text that UTF-8 can encode: a lone surrogate becomes ``\udXXX``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def short_hash(data: bytes) -> str:
    """Return the first digits of a hash."""
    return hashlib.sha256(data).hexdigest()[:_HASH_LENGTH]


def _value(result: Any) -> dict[str, Any]:
    if isinstance(result, str):
        text = plain(result)
        rest = text[MAX_CHARACTERS:]
        parts = [rest[i : i + BLOCK] for i in range(0, len(rest), BLOCK)]
        return _sized({"text": text[:MAX_CHARACTERS]}, len(text), parts)
    items = _plain_items(result if isinstance(result, (list, tuple)) else [result])
    tail = items[MAX_ITEMS:]
    parts = [json.dumps(tail[i : i + BLOCK]) for i in range(0, len(tail), BLOCK)]
    return _sized({"items": items[:MAX_ITEMS]}, len(items), parts)


def _sized(value: dict[str, Any], size: int, blocks: list[str]) -> dict[str, Any]:
    if not blocks:
        return value | {"size": size}
    return value | {"size": size, "blocks": [short_hash(block.encode()) for block in blocks]}


def _plain_items(items: Any) -> list[Any]:
    return [_plain_item(item) for item in items]


def _plain_item(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        return _plain_items(item)
    return item if item is None or isinstance(item, (bool, int)) else plain(str(item))


def raised(error: BaseException) -> dict[str, Any]:
    """Return the facts of a call that raises."""
    return {"raised": type(error).__name__, "message": _first_line(error)}


def in_words(error: BaseException) -> str:
    """Return type and first line of an exception."""
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    """Return the first line of an exception's message that has text, without folders."""
    return plain(without_folders(str(error)).strip().partition("\n")[0][:_MAX_MESSAGE])
