"""What ``transformers.pipeline(task, model=folder)`` answers for small made inputs.

Each call runs as users run it, once more with given outputs of the model, and once with the same ones in
float64. The result has the form of PipelinesSignal in samebits/questions/pipelines/records.py.
"""

from __future__ import annotations

import time
from types import CodeType
from typing import Any

import torch
import transformers

from samebits_probe.model.load import Source
from samebits_probe.model.tensor import dtype_name
from samebits_probe.process import consent, failure, progress
from samebits_probe.process.paths import package_path
from samebits_probe.questions.pipelines import batches, given, tasks, values
from samebits_probe.questions.pipelines.tasks import Call, Task

Facts = dict[str, Any]
_NO_TIME = "no time was left: raise budget: in matrix.yaml"
_SEED = 0


def facts(source: Source, names: list[str], seconds: float) -> Facts:
    """Return task -> what its pipeline answers; tasks that begin after ``seconds`` are left out."""
    end = time.perf_counter() + seconds
    answers = {}
    for i, name in enumerate(names, 1):
        progress.tick(name, i, len(names))
        is_over = time.perf_counter() > end
        if is_over:
            answers[name] = {"left_out": _NO_TIME}
            continue
        with tasks.TASKS[name].reads():
            answers[name] = _task(name, source, end)
    return answers


def _task(name: str, source: Source, end: float) -> Facts:
    try:
        transformers.pipelines.check_task(name)
    except KeyError as error:
        return {"absent": failure.in_one_line(error)}
    arguments = {k: v for k, v in source.arguments().items() if k != "subfolder"}
    try:
        torch.manual_seed(_SEED)
        pipe = transformers.pipeline(name, model=source.where, device="cpu", **arguments)
    except consent.NOT_ASKED as error:
        return {"left_out": failure.in_one_line(error)}
    except Exception as error:  # noqa: BLE001  an exception is one of the possible results
        return _raised(error)
    task = tasks.TASKS[name]
    cases = {}
    for case, call in task.calls.items():
        progress.beat()
        is_over = time.perf_counter() > end
        cases[case] = {"left_out": _NO_TIME} if is_over else _case(pipe, task, call)
    return {"dtype": dtype_name(pipe.model.dtype), "cases": cases}


def _case(pipe: Any, task: Task, call: Call) -> Facts:
    if call.made in tasks.CHATS and not _has_template(pipe):
        return {"left_out": "the checkpoint has no chat template"}
    own, fed = _answer(pipe, task, call, None)
    if "left_out" in own or "raised" in own:
        return own if "left_out" in own else {"own": own}
    if task.computes:
        return {"own": own, "fed": fed}
    answers = {"own": own, "fed": fed, "given": _answer(pipe, task, call, torch.float32)[0]}
    if call.is_batch:
        answers["one_by_one"] = batches.one_by_one(pipe, call)
    # generate() chooses in float32, whatever it is given
    exact = answers["given"] if task.generates else _answer(pipe, task, call, torch.float64)[0]
    return answers | {"exact": exact}


def _has_template(pipe: Any) -> bool:
    parts = (getattr(pipe, "processor", None), getattr(pipe, "tokenizer", None))
    return any(getattr(part, "chat_template", None) for part in parts)


def _answer(
    pipe: Any, task: Task, call: Call, dtype: torch.dtype | None
) -> tuple[Facts, Facts | None]:
    """Return the answer of a call or its exception, and what the model was fed first."""
    model = pipe.model
    of_tokens = task.generates and bool(getattr(model, "can_generate", lambda: False)())
    arguments = tasks.arguments_of(call, model)
    try:
        with given.watched(model, dtype, of_tokens=of_tokens) as watch:
            torch.manual_seed(_SEED)
            made = call.made(pipe)
            answer = pipe(**arguments) if made is None else pipe(made, **arguments)
    except consent.NOT_ASKED as error:
        return {"left_out": failure.in_one_line(error)}, None
    except Exception as error:  # noqa: BLE001  an exception is one of the possible results
        return _raised(error, type(pipe).__call__.__code__), None
    return {"fields": values.fields(answer)}, watch.fed


def _raised(error: Exception, entered: CodeType | None = None) -> Facts:
    """Return an exception, and the deepest line of transformers that led to it.

    An exception of the call itself has none: then it is the line of what was ``entered``.
    """
    at = failure.library_line(error)
    if not at and entered is not None:
        at = f"{package_path(entered.co_filename)}:{entered.co_firstlineno}"
    return {"raised": failure.in_one_line(error), "at": at}
