"""The job that runs one cell on every rung of the precision ladder: native dtype, float32, float64.

Expects the job of a cell with ``ladder``: result (a path), forced (row -> token ids), rounded
(tensor -> dtype), tables (compute them again in float64), float32 (compute that rung of a large model too), decodes and own_decodes (which prompts to
decode on all rungs and in the own dtype, None for all), again (what to compute once more with all
tensors aligned in memory, such as ``forward short``) and observed (the logits of that in the cell's
run). Writes the file that samebits/records/ladder.py reads, completely or not at all.

On each rung all prompts run on a copy of the model, in the order of the cell's run: state that an
earlier prompt leaves (such as a rope that stays stretched) is part of the difference. Decoding is
generate() with forced tokens. Discrete choices then cannot make two sides diverge, and the release
still makes the cache, the mask and the positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from samebits_probe.model import (
    alignment,
    decode,
    determinism,
    heap,
    layers,
    load,
    outputs,
    precision,
    probing,
    raised,
)
from samebits_probe.model.feed import Feed
from samebits_probe.model.inputs import Inputs, each_row_twice, in_dtype, may_repeat_rows, n_rows
from samebits_probe.model.tensor import Keeper, NotHashable
from samebits_probe.process import files, fork, memory, progress, threads
from samebits_probe.process.failure import PhaseFailed, Unknown, describe, in_one_line, in_words
from samebits_probe.process.hashing import head
from samebits_wire import formats
from samebits_wire.jobs import LadderJob, ProbeFile

_COPY_SPARE = 1.25
"""Free memory in sizes of a promoted copy below which it shares the large parameters of its model."""
_SMALL_COPY = 256 << 20
"""Bytes of a copy in float64 up to which the float32 rung costs too little to be left out."""
_REASON_LENGTH = 300
_WATCHED_COST = 10
"""Cost limit of a forward in float64 with every operation seen by Python, in plain forwards."""
_WATCHED_STEPS = 3
"""Steps of a decode that are watched besides the last: the prefill and two with the cache."""
_MAX_CHOICES = 512
"""Choices of one forward that are kept: enough for every router, and a limit on endless loops."""

Facts = dict[str, Any]


def run(job: LadderJob) -> None:
    """Run one cell on all rungs and write the results."""
    threads.use(int(job["threads"]))
    heap.fill_unwritten("a", job["cell"]["variant"]["device"])
    started = time.perf_counter()
    results: Facts = {"rungs": {}, "aligned": [], "not_decoded": [], "failure": None}
    try:
        ladder = Ladder(job)
        results["rungs"] = ladder.climb()
        results["not_decoded"] = ladder.not_decoded()
        results["aligned"] = ladder.aligned(results["rungs"]["own"])
    except Unknown as reason:
        results["failure"] = describe("load", LookupError(str(reason)))
    except PhaseFailed as failed:
        results["failure"] = failed.failure
    except Exception as error:  # noqa: BLE001  a cell that ran before and fails now is a result
        results["failure"] = describe("ladder", error)
    results["seconds"] = round(time.perf_counter() - started, 4)
    record = {**head("ladder", formats.LADDER), "cell": job["cell"], **results}
    files.write_sealed(Path(job["task"]["result"]), record)


class Ladder:
    """One model, and its copies in higher precision."""

    def __init__(self, job: LadderJob) -> None:
        self.job = job
        variant, model = job["cell"]["variant"], job["model"]
        self.source = load.Source.of(model, variant)
        self.keeper = Keeper(job["store"]["root"], job["store"]["limit"], [])
        progress.begin("load")
        self.loaded = load.load(self.source)
        slots = int(job.get("slots", 1))
        needs = int(_COPY_SPARE * self._copy_bytes)
        self._shares = bool(memory.shortage(needs, slots))
        if self._shares:
            # a copy that does not fit would end the job and lose its results
            memory.require(raised.working_bytes(self.loaded.model, torch.float64), slots)

    def climb(self) -> Facts:
        """Return the results of every rung; the native one is last, as it may leave state."""
        progress.begin("float64")
        rungs = {"float64": self._promoted(torch.float64)}
        refused = rungs["float64"]["refused"]
        if self.source.dtype != "float32" and (refused or self._needs_float32()):
            progress.begin("float32")
            rungs["float32"] = self._promoted(torch.float32)
        # where rounding is as large as the numbers, everything is within it
        if refused and determinism.CHAOTIC not in refused.values():
            progress.begin("noise")
            rungs["noise"] = self._noise()
        progress.begin(f"own {self.source.dtype}")
        rungs["own"] = self._rung(self.loaded.model, nullcontext())
        return rungs

    def _needs_float32(self) -> bool:
        """Return False if float64 alone decides most differences, and the rung costs much."""
        asked = self.job["task"]
        return asked["float32"] or bool(asked["probe_files"]) or self._copy_bytes <= _SMALL_COPY

    def not_decoded(self) -> list[str]:
        """Return the prompts that are not decoded in the own dtype, as their decodes are known."""
        prompts = [name for name, _ in self._prompts(None)]
        return [name for name in prompts if not self._decodes(name, None)]

    def _decodes(self, prompt: str, dtype: torch.dtype | None) -> bool:
        """Return True if a prompt is to be decoded on the rung in ``dtype``, None for the own."""
        asked = self.job["task"]
        if dtype is not None:
            return asked["decodes"] is None or prompt in asked["decodes"]
        if asked["own_decodes"] is None or prompt in asked["own_decodes"]:
            return True
        return f"decode {prompt}" in asked["again"] and bool(self._off)

    @cached_property
    def _off(self) -> int:
        """Number of tensors that the load did not align."""
        return alignment.n_off(self.loaded.model)

    def aligned(self, native: Facts) -> list[Facts]:
        """Return the results of each computation that is repeated with all tensors aligned.

        Each runs before as it is, unless it has given the bits of the cell's run already: a change
        there comes from state that prompts leave, not from places in memory. Where all tensors are
        aligned already, the native rung is the answer.
        """
        answers: list[Facts] = [
            {"what": what, "off": self._off, "repeats": True, "refs": {}, "refused": ""}
            for what in self.job["task"]["again"]
        ]
        if not self._off:
            return [
                answer | {"refs": self._unaligned(native, answer["what"])} for answer in answers
            ]
        answers = [
            _attempted(answer, lambda what: {"repeats": self._repeats(native, what)})
            for answer in answers
        ]
        return [
            _attempted(answer, lambda what: {"refs": self._realigned(what)}) for answer in answers
        ]

    def _unaligned(self, native: Facts, what: str) -> Facts:
        """Return the logits of the native rung, or of the cell's run if the rung left them out."""
        observed: Facts = self.job["task"]["observed"].get(what, {})
        return _rows_of_prompt(native, *what.split(" ", 1)) or observed

    def _repeats(self, native: Facts, what: str) -> bool:
        """Return True if the native rung's logits are those of the cell's run, or come again."""
        before = _rows_of_prompt(native, *what.split(" ", 1))
        observed: Facts = self.job["task"]["observed"].get(what, {})
        # the cell's run fed the model other prompts before, so no state has an effect
        if observed and _hashes(before) == _hashes(observed):
            return True
        return bool(self._rerun(what) == before)

    def _realigned(self, what: str) -> Facts:
        alignment.align(self.loaded.model)
        return self._rerun(what)

    def _rerun(self, what: str) -> Facts:
        """Return the logits of ``forward short``, or of each row of ``decode short``."""
        kind, prompt = what.split(" ", 1)
        inputs = dict(self._prompts(None))[prompt]
        with torch.no_grad():
            if kind == "decode":
                return self._decode(self.loaded.model, prompt, inputs, None, twice=False)
            # as on the rung: a hook can choose the path
            with (
                layers.recorded(self.loaded.model),
                progress.forward(inputs.kwargs, f"forward {prompt}, aligned", plain=True),
            ):
                logits = outputs.logits_of(self.loaded.model(**inputs.kwargs))
        return {} if logits is None else {prompt: self.keeper.ref(logits)}

    def _promoted(self, dtype: torch.dtype) -> Facts:
        """Return the results of a copy in ``dtype``, in which the code also gets only ``dtype``."""
        twin = self._copy(dtype)
        native = getattr(torch, self.source.dtype)
        probes = self._probes(twin, dtype)
        rung = _with_probes(self._rung(twin, precision.arithmetic_in(dtype, native), dtype), probes)
        with torch.no_grad(), precision.arithmetic_in(dtype, native):
            chaotic = dtype == torch.float64 and self._chaotic(twin)
        return _empty_rung(determinism.CHAOTIC) if chaotic else rung

    def _probes(self, model: Any, dtype: torch.dtype) -> list[Facts]:
        """Return what the user's probes return on a copy as it was made, each in a child."""
        native = getattr(torch, self.source.dtype)
        arguments = probing.ProbeArguments(
            self.loaded,
            self.source,
            model,
            lambda: {name: dict(inputs.kwargs) for name, inputs in self._prompts(dtype)},
        )

        def run(file: ProbeFile, function: str) -> Facts:
            watch = Watch(dtype)
            with torch.no_grad(), precision.arithmetic_in(dtype, native), watch:
                parts = probing.results(file, function, arguments)
            refs = {path: self.keeper.ref(tensor) for path, tensor in parts.tensors.items()}
            return {"tensors": refs, "facts": parts.facts, "leaks": sorted(watch.leaks)}

        answers: list[Facts] = []
        for file in self.job["task"]["probe_files"]:
            for function in file["functions"]:
                answer: Facts = {"file": file["name"], "refused": {}}
                with _refusal_noted(answer["refused"], probing.phase_of(file, function)):
                    probing.begin(file, function, arguments, _WATCHED_COST)
                    if reason := fork.refusal(self.source.device):
                        raise fork.NoAnswer(reason)
                    answer |= fork.run_in_fork(partial(run, file, function))
                answers.append(answer)
        return answers

    @cached_property
    def _copy_bytes(self) -> int:
        return int(sum(p.numel() for p in self.loaded.model.parameters()) * torch.float64.itemsize)

    def _chaotic(self, twin: Any) -> bool:
        """Return True if the first prompt is chaotic; tried last, as it may leave state."""
        if (first_prompt := next(iter(self._prompts(torch.float64)), None)) is None:
            return False

        def forward() -> torch.Tensor | None:
            with progress.forward(first_prompt[1].kwargs, "chaos", times=_WATCHED_COST):
                return outputs.logits_of(twin(**first_prompt[1].kwargs))

        try:
            return determinism.chaotic(twin, forward)
        except Exception:  # noqa: BLE001  the rung has its results already
            return False

    def _copy(self, dtype: torch.dtype) -> Any:
        rounded = self.job["task"]["rounded"]
        twin = precision.copy_in(dtype, self.loaded.model, rounded, shares=self._shares)
        if dtype == torch.float64 and self.job["task"]["tables"]:
            precision.compute_again(twin)
        return twin

    def _noise(self) -> Facts:
        """Return the float32 rung again, with each row fed twice and all sums in another order."""
        twin = self._copy(torch.float32)
        with precision.Reordered():
            arithmetic = precision.arithmetic_in(torch.float32, torch.float32)
            return self._rung(twin, arithmetic, torch.float32, twice=True)

    def _rung(
        self, model: Any, mode: Any, dtype: torch.dtype | None = None, *, twice: bool = False
    ) -> Facts:
        rung = _empty_rung()
        started = time.perf_counter()
        watch = Watch(dtype)
        prompts = list(self._prompts(dtype))
        with torch.no_grad(), mode:
            for name, inputs in prompts:
                with _refusal_noted(rung["refused"], f"forward {name}"), watch:
                    rung["forward"][name] = self._forward(model, name, inputs, watch, twice=twice)
            for name, inputs in prompts:
                if not self._decodes(name, dtype):
                    continue
                decode_watch = None if dtype is None else watch  # the own dtype has no leaks
                with _refusal_noted(rung["refused"], f"decode {name}"):
                    rung["decode"].update(
                        self._decode(model, name, inputs, decode_watch, twice=twice)
                    )
        rung["leaks"] = sorted(watch.leaks)
        rung["seconds"] = round(time.perf_counter() - started, 4)
        return rung

    def _prompts(self, dtype: torch.dtype | None) -> Iterator[tuple[str, Inputs]]:
        """Yield the inputs of the cell, with floats in the rung's dtype."""
        feed = Feed(self.job["model"], getattr(torch, self.source.dtype), self.source.device)
        for name, inputs in feed.all(self.loaded.tokenizer, self.loaded.model):
            yield name, inputs._replace(kwargs=in_dtype(inputs.kwargs, dtype))

    def _forward(
        self, model: Any, name: str, inputs: Inputs, watch: Watch, *, twice: bool
    ) -> Facts:
        watch.choices = []
        twice = twice and may_repeat_rows(inputs.kwargs)
        kwargs = each_row_twice(inputs.kwargs) if twice else inputs.kwargs
        with (
            layers.recorded(model) as layer_outputs,
            progress.forward(kwargs, f"forward {name}", times=_WATCHED_COST, plain=True),
        ):
            result = model(**kwargs)
        choices, watch.choices = watch.choices, None
        logits, others = outputs.logits_of(result), outputs.without_logits(result)
        rows = n_rows(inputs.kwargs)
        if twice:
            logits = _second_half(logits, rows)
            layer_outputs = [(name, _second_half(tensor, rows)) for name, tensor in layer_outputs]
            others = {name: _second_half(tensor, rows) for name, tensor in others.items()}
        with precision.real_dtypes():
            return self._refs(logits, layer_outputs, others, choices or [])

    def _refs(
        self,
        logits: Any,
        layer_outputs: list[layers.LayerOutput],
        others: dict[str, torch.Tensor],
        choices: Any,
    ) -> Facts:
        return {
            "logits": None if logits is None else self.keeper.ref(logits),
            "outputs": self._output_refs(others),
            "hidden_states": [
                {"name": name, "ref": self.keeper.ref(tensor)} for name, tensor in layer_outputs
            ],
            "choices": [
                {
                    "op": op,
                    "scores": self.keeper.ref(scores),
                    "chosen": self.keeper.ref(chosen),
                    "margin": self.keeper.ref(gap),
                }
                for op, scores, chosen, gap in choices
            ],
        }

    def _output_refs(self, others: dict[str, torch.Tensor]) -> Facts:
        refs = {}
        for name, tensor in others.items():
            with suppress(NotHashable):
                refs[name] = self.keeper.ref(tensor)
        return refs

    def _decode(
        self, model: Any, name: str, inputs: Inputs, watch: Watch | None, *, twice: bool
    ) -> Facts:
        """Return the logits of every step by row, [steps, vocabulary], with forced tokens."""
        kwargs = {k: v for k, v in inputs.kwargs.items() if k != "decoder_input_ids"}
        rows, twice = n_rows(kwargs), twice and may_repeat_rows(kwargs)
        names = [name if rows == 1 else f"{name}[{row}]" for row in range(rows)]
        ids = [self.job["task"]["forced"].get(row, []) for row in names]
        if not all(ids):
            return {}
        steps = max(map(len, ids))
        with (
            _at_steps(watch, steps) as begin,
            progress.forwards(steps, kwargs, f"decode {name}", times=_WATCHED_COST),
        ):
            output = model.generate(
                **(each_row_twice(kwargs) if twice else kwargs),
                max_new_tokens=steps,
                **decode.GREEDY_LOGITS,
                logits_processor=decode.forcing(ids * 2 if twice else ids, begin),
            )
        first = rows if twice else 0
        with precision.real_dtypes():
            return {
                row: self.keeper.ref(
                    torch.stack([step[first + i] for step in output.logits[: len(ids[i])]])
                )
                for i, row in enumerate(names)
            }


def _attempted(answer: Facts, compute: Callable[[str], Facts]) -> Facts:
    if answer["refused"]:
        return answer
    try:
        return answer | compute(answer["what"])
    except Exception as error:  # noqa: BLE001  it ran before: no memory, or a defect of ours
        refused = in_words(error)[:_REASON_LENGTH]
        return answer | {"repeats": None, "refs": {}, "refused": refused}


def _hashes(rows: Facts) -> dict[str, str]:
    return {row: ref["hash"] for row, ref in rows.items()}


def _rows_of_prompt(rung: Facts, kind: str, prompt: str) -> Facts:
    """Return a rung's logits of one prompt, or of every decoded row of it."""
    if kind == "decode":
        rows = rung["decode"].items()
        return {row: ref for row, ref in rows if row == prompt or row.startswith(f"{prompt}[")}
    logits = rung["forward"].get(prompt, {}).get("logits")
    return {} if logits is None else {prompt: logits}


def _empty_rung(refused: str = "") -> Facts:
    return {
        "forward": {},
        "decode": {},
        "probes": {},
        "refused": {"model": refused} if refused else {},
        "leaks": [],
        "seconds": 0.0,
    }


def _with_probes(rung: Facts, answers: list[Facts]) -> Facts:
    """Return a rung with what probes returned on it, by the name of their file."""
    leaks = {*rung["leaks"], *(leak for answer in answers for leak in answer.get("leaks", ()))}
    probes: dict[str, Facts] = {}
    for answer in answers:
        rung["refused"] |= answer["refused"]
        parts = probes.setdefault(answer["file"], {"tensors": {}, "facts": {}})
        for kind, by_name in parts.items():
            by_name.update(answer.get(kind, {}))
    return rung | {"probes": probes, "leaks": sorted(leaks)}


@contextmanager
def _refusal_noted(refused: dict[str, str], what: str) -> Iterator[None]:
    """Record an exception under ``what``: an operation that refuses a precision is a result."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        refused[what] = in_one_line(error, _REASON_LENGTH)


def _second_half(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the second half of an output with repeated rows, or all of one without rows."""
    return tensor[rows:] if tensor.ndim and tensor.shape[0] == 2 * rows else tensor


@contextmanager
def _at_steps(watch: Watch | None, steps: int) -> Iterator[Callable[[int], None]]:
    """Watch the steps of a decode that differ in kind: the first ones, and the last of ``steps``.

    The caller must call the yielded function before each step but the first, with its number. A
    watched operation goes through Python, which takes most of a small model's decode. The steps in
    between repeat the same operations.
    """
    with ExitStack() as watched:

        def begin(step: int) -> None:
            watched.close()
            if watch is not None and (step < _WATCHED_STEPS or step == steps - 1):
                watched.enter_context(watch)

        begin(0)
        yield begin


class Watch(precision.Leaks):
    """Lists operations that return a smaller float than the rung's, and every discrete choice.

    A choice is what top-k or argmax took, with its margin over the first score not taken.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__(precision.smaller_than(dtype))
        self.choices: list[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]] | None = None

    def look(self, func: Any, args: Any, kwargs: Facts, result: Any) -> None:
        """Note ``func`` if it returns a smaller float or chooses."""
        super().look(func, args, kwargs, result)
        if self.choices is not None and len(self.choices) < _MAX_CHOICES:
            self._note_choice(func, args, kwargs, result)

    def _note_choice(self, func: Any, args: Any, kwargs: Facts, result: Any) -> None:
        assert self.choices is not None
        if func is torch.ops.aten.topk.default:
            scores, k = args[0], args[1]
            dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
            largest = args[3] if len(args) > 3 else kwargs.get("largest", True)
            chosen = result[1].movedim(dim, -1)
            distance = margin(scores, k, dim, largest=largest)
            self.choices.append(("topk", scores.movedim(dim, -1).clone(), chosen, distance))
        elif func is torch.ops.aten.argmax.default and len(args) > 1 and args[1] is not None:
            scores, dim = args[0], args[1]
            chosen = result.reshape(*scores.movedim(dim, -1).shape[:-1], 1)
            if scores.is_floating_point():
                distance = margin(scores, 1, dim, largest=True)
                self.choices.append(("argmax", scores.movedim(dim, -1).clone(), chosen, distance))


def margin(scores: torch.Tensor, k: int, dim: int, *, largest: bool) -> torch.Tensor:
    """Return, by row, the distance between the last score taken and the first one not taken.

    Infinite where all are taken.
    """
    scores = scores.movedim(dim, -1).double()
    if scores.shape[-1] <= k:
        return torch.full(scores.shape[:-1], float("inf"), dtype=torch.float64)
    values = torch.topk(scores if largest else -scores, k + 1, dim=-1).values
    return values[..., k - 1] - values[..., k]
