"""Failures inside a stack as data: type, message, phase, traceback and frames."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from samebits_probe.process import consent, own, symbols
from samebits_probe.process.paths import is_of_probes, is_of_torch, package_path
from samebits_wire.folders import without_folders

_OF_MODELS = re.compile(r"/transformers(_modules)?/")
"""Files of the library, and of models with code of their own."""


class PhaseFailed(Exception):  # noqa: N818  carries a failure out of the phase it happened in
    """A phase of a cell raised; :attr:`failure` is its entry in the capture."""

    def __init__(self, failure: dict[str, Any]) -> None:
        super().__init__(failure["message"])
        self.failure = failure


class Unknown(Exception):  # noqa: N818  a release that does not know a model is a result
    """The transformers release does not know a model or a feature; the message is the reason."""


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Turn any exception inside into :class:`PhaseFailed` with the phase's name."""
    try:
        with consent.kept_in_view():
            yield
    except (PhaseFailed, Unknown):
        raise
    except Exception as error:
        raise PhaseFailed(describe(name, error)) from error


def answer_or_failure(answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a job answers, or its failure; a defect of a probe is reported like any other."""
    try:
        return answer()
    except Unknown as reason:
        return {"failure": describe("load", LookupError(str(reason)))}
    except PhaseFailed as failed:
        return {"failure": failed.failure}
    except Exception as error:  # noqa: BLE001  see above
        traceback.print_exc()
        return {"failure": describe("probe", error)}


def describe(name: str, error: BaseException) -> dict[str, Any]:
    """Return an exception in the form of a capture, without this machine's folders."""
    error = _behind(error)
    frames = _frames(error)
    error_class = type(error)
    message = without_folders(f"{_reported(error)}{error}")
    return {
        "phase": name,
        "type": error_class.__name__
        if error_class.__module__ == "builtins"
        else f"{error_class.__module__}.{error_class.__qualname__}",
        "message": message,
        "traceback": _traceback(frames, error_class.__name__, message),
        "frames": frames,
        "symbols": _looked_up_symbols(error),
    }


def _frames(error: BaseException) -> list[dict[str, Any]]:
    return [
        {
            "file": package_path(frame.filename.replace("\\", "/")),
            "line": frame.lineno or 0,
            "function": frame.name,
            "code": frame.line or "",
            "own": own.is_own_file(frame.filename.replace("\\", "/")),
        }
        for frame in _calls(error)
        if not _is_of_samebits(frame.filename.replace("\\", "/"))
    ]


def _behind(error: BaseException) -> BaseException:
    """Return the exception that a tokenizer's load raised where the release asks for protobuf in its place.

    Its ``except`` clause names an exception of protobuf, and looking that up raises where protobuf is not installed,
    whatever was raised before (``import_protobuf_decode_error`` in transformers/tokenization_utils_base.py).
    """
    is_advice = _frame_in(error, "import_protobuf_decode_error") is not None
    return error.__context__ if is_advice and error.__context__ is not None else error


def _reported(error: BaseException) -> str:
    """Return what 5.x only logs of a load that it refuses, as a line; its exception points to *the above report*.

    See ``log_state_dict_report`` in transformers/utils/loading_report.py.
    """
    if (frame := _frame_in(error, "log_state_dict_report")) is None:
        return ""
    variables = frame.f_locals
    keys = getattr(variables.get("loading_info"), "mismatched_keys", None)
    # 5.0 has the shapes in a variable of their own
    if not (mismatches := sorted(keys or variables.get("mismatched_shapes") or (), key=str)):
        return ""
    name, stored, expected = mismatches[0]
    more = f" (and {len(mismatches) - 1} more)" if len(mismatches) > 1 else ""
    return f"size mismatch for {name}: {[*stored]} in the checkpoint, {[*expected]} in the model{more}\n"


def _frame_in(error: BaseException, function: str) -> FrameType | None:
    """Return the frame that raised an exception, if it is of a function of this name."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1] if frames and frames[-1].f_code.co_name == function else None


def _calls(error: BaseException) -> Iterator[traceback.FrameSummary]:
    """Yield the calls that led to an exception; those of its cause too, where it repeats the cause's words.

    huggingface_hub wraps what a config's validator raises: the line at fault is then in the cause.
    """
    yield from traceback.extract_tb(error.__traceback__)
    cause = error.__cause__
    if cause is not None and str(cause) and str(cause) in str(error):
        yield from _calls(cause)


def _is_of_samebits(path: str) -> bool:
    """Return True for frames of the probes, and of the import system between them and a package."""
    return (
        is_of_probes(path) or path.startswith("<frozen importlib") or "/importlib/__init__" in path
    )


def _looked_up_symbols(error: BaseException) -> list[dict[str, Any]]:
    """Look up the names in an exception's message; [] if the lookup itself raises."""
    try:
        return symbols.symbols(error)
    except Exception:  # noqa: BLE001  a failed lookup must not hide the original exception
        return []


def _traceback(frames: list[dict[str, Any]], class_name: str, message: str) -> str:
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        lines.append(f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}')
        if frame["code"]:
            lines.append(f"    {frame['code']}")
    lines.append(f"{class_name}: {message}")
    return "\n".join(lines)


def library_line(error: BaseException) -> str:
    """Return ``FILE:LINE`` of the deepest call in transformers that led to an exception; '' without one."""
    frames = reversed(_frames(_behind(error)))
    files = (f"{f['file']}:{f['line']}" for f in frames if f["file"].startswith("transformers/"))
    return next(files, "")


def in_words(error: BaseException) -> str:
    """Return class and message of an exception, without folders."""
    return without_folders(f"{type(error).__name__}: {error}")


def in_one_line(error: BaseException, limit: int = 200) -> str:
    """Return class and message of an exception in one line, without folders, cut to a limit."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {without_folders(text)}"[:limit]


def raised(error: BaseException, limit: int = 200) -> str:
    """Return :func:`in_one_line` and the place, for an exception that may be raised in one release alone."""
    return f"{in_one_line(error, limit)}{place(error)}"


def place(error: BaseException) -> str:
    """Return `` (at FILE:LINE in FUNCTION)``, the deepest line outside torch; '' if it is not of transformers or of the model."""
    calls = [call for call in _calls(error) if not is_of_torch(call.filename)]
    if not calls or not _OF_MODELS.search(calls[-1].filename):
        return ""
    last = calls[-1]
    return f" (at {package_path(last.filename)}:{last.lineno} in {last.name})"
