"""The job that traces one prompt of one cell: it runs the prompt without and with a trace.

Expects the job of a cell with ``trace``: prompt, what (``forward`` or ``decode``), look (numbers of
operations to look at closely) and result (a path); for a decode also new_tokens (as many as the
cell generates), forced (row -> token ids) and steps (after which it stops). Writes the file that
samebits/records/trace.py reads, completely or not at all.

For an operation in ``look`` the bytes of inputs and outputs are kept. The operation also runs again
on copies of its inputs: in the same layout, and contiguous in fresh memory.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from samebits_probe.model import heap, load, outputs, precision
from samebits_probe.model.decode import GREEDY
from samebits_probe.model.feed import Feed
from samebits_probe.model.inputs import Inputs, n_rows
from samebits_probe.model.tensor import Keeper, NotHashable
from samebits_probe.process import files, hashing, memory, progress, threads
from samebits_probe.process.failure import answer_or_failure, phase
from samebits_probe.trace.trace import Trace, tensors_in
from samebits_probe.trace.values import digest
from samebits_wire import formats
from samebits_wire.jobs import TraceJob

Fact = dict[str, Any]

_TRACED_COST = 50
"""Cost of a forward with every operation hashed, in plain forwards of a small model."""
_MAX_CALLERS = 6
"""Calling functions of an operation whose source is recorded."""
_MAX_CONSTRUCTORS = 2
"""Modules around an operation of which the source of the constructor is recorded."""


def run(job: TraceJob) -> None:
    """Trace one prompt and write the result."""
    threads.use(int(job["threads"]))
    heap.fill_unwritten("a", job["cell"]["variant"]["device"])
    with torch.no_grad():
        write(job, answer_or_failure(lambda: Traced(job).facts()))


def write(job: TraceJob, facts: Fact) -> None:
    """Write a trace under a temporary name and rename it into place."""
    path = Path(job["task"]["result"])
    head = {
        **hashing.head("trace", formats.TRACE),
        "cell": job["cell"],
        "prompt": job["task"]["prompt"],
        "what": job["task"]["what"],
        "rung": job["task"].get("rung", "own"),
    }
    files.write_sealed(path, {**head, **facts})


class Traced:
    """One model, loaded once, and the prompt to trace."""

    def __init__(self, job: TraceJob) -> None:
        variant, model, store = job["cell"]["variant"], job["model"], job["store"]
        self.job = job
        self.source = load.Source.of(model, variant)
        self.keeper = Keeper(store["root"], store["limit"], [])
        self.looks: dict[int, Fact] = {}
        self._in_float64 = job["task"].get("rung") == "float64"

    def facts(self) -> Fact:
        """Run the prompt twice and return the trace."""
        progress.begin("load")
        self.loaded = load.load(self.source)
        progress.begin("trace")
        if not self._in_float64:
            return self._traced()
        copied = 8 * sum(p.numel() for p in self.loaded.model.parameters())
        memory.require(copied, int(self.job.get("slots", 1)))
        progress.tick("float64", allowance=progress.moving(copied))
        with phase("promote"):
            twin = precision.promoted_copy(self.loaded.model)
        self.loaded = self.loaded._replace(model=twin)
        with precision.promotion():
            return self._traced()

    def _prompts(self) -> Inputs:
        """Return the inputs of the prompt, after what comes before it."""
        feed = Feed(self.job["model"], getattr(torch, self.source.dtype), self.source.device)
        dtype = torch.float64 if self._in_float64 else None
        return feed.run_before(self.loaded, self.loaded.model, self.job["task"], dtype)

    def _traced(self) -> Fact:
        inputs = self._prompts()
        started = time.perf_counter()
        plain = self._run(inputs, None)
        plain_done = time.perf_counter()
        looked_at = set(self.job["task"].get("look") or ())
        trace = Trace(
            self.loaded.model,
            inputs.kwargs,
            _pads(inputs),
            self._look(looked_at) if looked_at else None,
            coarse=self._in_float64,
        )
        trace.values.scaled = bool(self.job["task"].get("scaled"))
        self._trace = trace
        with phase(f"trace {self.job['task']['prompt']}"), trace:
            traced = self._run(inputs, trace)
        traced_done = time.perf_counter()
        facts = trace.facts()
        chains = {n for look in self.looks.values() for n in look["chain"]}
        return {
            **facts,
            "real_rows": inputs.real_rows,
            "effect": "none" if _same_bytes(plain, traced) else "changed the bits",
            "seconds": {
                "plain": round(plain_done - started, 4),
                "traced": round(traced_done - plain_done, 4),
                "hashing": round(time.perf_counter() - traced_done, 4),
            },
            "looks": {str(index): look for index, look in self.looks.items()},
            "texts": {str(n): text for n, text in trace.texts(chains).items()},
        }

    def _run(self, inputs: Inputs, trace: Trace | None) -> list[torch.Tensor]:
        if self.job["task"]["what"] == "decode":
            return self._decode(inputs, trace)
        with progress.forward(
            inputs.kwargs,
            "plain" if trace is None else "traced",
            times=_TRACED_COST,
            plain=trace is None,
        ):
            result = self.loaded.model(**inputs.kwargs)
        logits = outputs.logits_of(result)
        if trace is not None:
            trace.mark("logits", logits)
        return [] if logits is None else [logits]

    def _decode(self, inputs: Inputs, trace: Trace | None) -> list[torch.Tensor]:
        """Generate the tokens that the reference chose, and mark each step's logits."""
        kwargs = {k: v for k, v in inputs.kwargs.items() if k != "decoder_input_ids"}
        name = self.job["task"]["prompt"]
        forced = self.job["task"]["forced"]
        rows = n_rows(kwargs)
        ids = [forced[name if rows == 1 else f"{name}[{row}]"] for row in range(rows)]
        forcing = _Forced(ids, self.job["task"]["steps"], trace)
        steps = self.job["task"]["steps"]
        label = "plain decode" if trace is None else "traced decode"
        with suppress(_Enough), progress.forwards(steps, kwargs, label, times=_TRACED_COST):
            self.loaded.model.generate(
                **kwargs,
                # as many as the cell generates: the size of a cache may depend on it
                max_new_tokens=self.job["task"]["new_tokens"],
                **GREEDY,
                logits_processor=[forcing],
            )
        return forcing.logits

    # --- a closer look -------------------------------------------------------------------------

    def _look(self, looked_at: set[int]) -> Any:
        def look(index: int, func: Any, args: Any, kwargs: Any) -> None:
            if index not in looked_at:
                return
            if func is not None:
                self.looks[index] = self._operation_facts(func, args, kwargs)
            elif index in self.looks:
                self.looks[index]["outputs"] = [self._stored_ref(t) for t in tensors_in(args)]

        return look

    def _operation_facts(self, func: Any, args: Any, kwargs: Fact) -> Fact:
        return {
            "inputs": [
                {
                    **self._stored_ref(tensor),
                    "strides": list(tensor.stride()),
                    "aligned": _offset_from_boundary(tensor),
                    "whole": self._trace.values.digest(tensor, None),
                }
                for tensor in tensors_in((args, kwargs))
            ],
            "fresh": self._rerun(func, args, kwargs, _contiguous_copy),
            "same_layout": self._rerun(func, args, kwargs, _copy_in_layout),
            "chain": [
                *self._trace.chain()[:_MAX_CALLERS],
                *self._trace.constructors()[:_MAX_CONSTRUCTORS],
            ],
        }

    def _rerun(self, func: Any, args: Any, kwargs: Fact, copy_tensor: Any) -> list[Fact] | None:
        """Run an operation on copies of its inputs and return the contents of its outputs."""
        try:
            args, kwargs = tree_map_only(torch.Tensor, copy_tensor, (args, kwargs))
            result = func(*args, **kwargs)
        except Exception:  # noqa: BLE001  an operation may refuse another layout
            return None
        return [self._trace.values.fact(tensor) for tensor in tensors_in(result)]

    def _stored_ref(self, tensor: torch.Tensor) -> Fact:
        try:
            return self.keeper.ref(tensor)
        except NotHashable as reason:
            return {"hash": "", "dtype": "", "shape": [], "stored": False, "note": str(reason)}


class _Enough(Exception):  # noqa: N818  the only way to stop generate() at a step
    """The requested steps are done."""


class _Forced:
    """A logits processor that forces tokens in generate() and marks the logits of each step."""

    def __init__(self, ids: list[list[int]], steps: int, trace: Trace | None) -> None:
        self.logits: list[torch.Tensor] = []
        self._ids = ids
        self._steps = steps
        self._trace = trace
        if trace is not None:
            trace.step("step 0")

    def __call__(self, _input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        step = len(self.logits)
        self.logits.append(scores.clone())
        if self._trace is not None:
            self._trace.mark("logits", scores)
            self._trace.step(f"step {step + 1}")
        if step + 1 == self._steps:
            raise _Enough
        forced = torch.full_like(scores, float("-inf"))
        for row, tokens in enumerate(self._ids):
            forced[row, tokens[min(step, len(tokens) - 1)]] = 0.0
        return forced


def _pads(inputs: Inputs) -> torch.Tensor | None:
    mask = inputs.kwargs.get("attention_mask")
    return None if mask is None or inputs.real_rows is None else mask == 0


def _same_bytes(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return [digest(t, None) for t in first] == [digest(t, None) for t in second]


def _contiguous_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy, which the allocator aligns to 64 bytes."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _copy_in_layout(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the strides of the tensor."""
    with suppress(RuntimeError):
        copy = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
        return copy.copy_(tensor.detach())
    return tensor.detach().clone()


def _offset_from_boundary(tensor: torch.Tensor) -> int:
    """Return the offset in bytes of the first element from a 64-byte boundary."""
    with suppress(RuntimeError):
        return int(tensor.data_ptr() % 64)
    return 0
