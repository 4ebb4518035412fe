"""What the phases of one run share: the model, its inputs, and the capture that they fill.

A phase observes, skips with a reason, or fails; a session records which. Before each phase the
capture is written with the status ``unfinished``, so that a run that is killed leaves its
observations.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from samebits_probe.cell import config_use, integrity
from samebits_probe.cell.capture import write_capture
from samebits_probe.cell.evidence import Evidence
from samebits_probe.cell.phase import InFork
from samebits_probe.model import feed, fresh, load, small, unrun
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.leftover import Leftover, seed
from samebits_probe.model.state import everything, hashes
from samebits_probe.model.tensor import Keeper, NotHashable, OnMetaDevice
from samebits_probe.process import fork, memory, progress, settings
from samebits_probe.process.failure import PhaseFailed, describe, in_words
from samebits_wire.folders import without_folders
from samebits_wire.jobs import CellJob

MAX_FRESH_MODEL_BYTES = 4 << 30
"""Bytes of parameters above which no second model is made next to the first."""
NOT_ASKED = "--quick does not ask for it"
MIN_LEAN_BYTES = 64 << 20
"""Bytes of parameters from which on a fresh model is first made without them: the first use of the
meta device imports much, which takes 1 s in 4.48."""
_SEEDS = {"a": 31, "b": 32}
"""Run -> seed of every random generator; neither is the seed of a load."""


def seed_generators(run: str) -> None:
    """Seed all generators differently in each run, so that unseeded random numbers differ.

    Both runs are forks of one process and would otherwise share the states of its generators. This
    is called again after the load, which uses the same seed in both runs.
    """
    seed(_SEEDS[run])


class ModelInFork(NamedTuple):
    """A forked child that holds the model as it was loaded, and a folder for its files."""

    child: fork.ForkedChild
    folder: TemporaryDirectory[str]

    def answer(self, argument: str) -> Any:
        """Return the observations of the child."""
        with self.folder:
            return self.child.answer(argument)

    def forget(self) -> None:
        """Kill the child without using it."""
        with self.folder:
            self.child.forget()


class Session:
    """One model on one stack in one run, and what has been observed of it."""

    loaded: load.Loaded
    untouched: Leftover
    """The model before its first prompt; in run a."""

    def __init__(self, job: CellJob, heap_fill: str = "") -> None:
        self.job = job
        self.source = load.Source.of(job["model"], job["cell"]["variant"])
        store = job["store"]
        self.keeper = Keeper(store["root"], store["limit"], store["wanted"])
        self.signals: dict[str, Any] = {}
        self.skips: list[dict[str, Any]] = []
        self.failures: list[dict[str, Any]] = []
        self.load_failure: dict[str, Any] | None = None
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.effect = "not checked"
        self.slots = int(job.get("slots", 1))
        self.is_apart = False
        """True to run a plain forward beside each one that is watched, not only beside the first of
        each kind of inputs."""
        self.first_tokens: dict[str, dict[str, Any]] = {}
        """Prompt -> what the greedy decode saw of the first token after the prefill."""
        self.model_forks: dict[str, ModelInFork] = {}
        self.spare_tokenizer: Any = None
        """A tokenizer beside the model's own, for calls, which change its settings; a load takes seconds."""
        self.calls: unrun.Calls | None = None
        """Which modules the prompts call; from the first prompt on, in run a."""
        self.probes_at_the_end = False
        """True if the user's probes run in this process, after everything else."""
        self.started = time.perf_counter()
        self.settings = settings.Watch()
        self.config_reads = config_use.Reads()
        self._heap_fill = heap_fill
        self._reloaded: dict[str, str] | None = None

    @property
    def is_run_a(self) -> bool:
        """True in the run that also observes what explains; run b would give the same."""
        return bool(self.job["run"] == "a")

    @property
    def is_short(self) -> bool:
        """True in a run that only shows whether it agrees with run a."""
        return bool(self.job.get("short"))

    # what a phase records

    def begin(self, phase: str) -> None:
        """Begin a phase, and write a capture in case the run ends in this phase."""
        progress.begin(phase)
        if self.load_failure is not None:
            outcome = self.outcome("failed", failure=self.load_failure)
        else:
            interruption = {"phase": phase, "reason": "the run was still going on"}
            outcome = self.outcome("unfinished", unfinished=interruption)
        with suppress(OSError):  # writing the complete capture will raise the same error
            write_capture(Path(self.job["capture"]), self.job, outcome, lasting=False)

    def options(self, question: str) -> Any:
        """Return the options of a question for the cell; None if it has none here.

        Run b has none, as it would give the same.
        """
        return (self.job["model"].get("questions") or {}).get(question) if self.is_run_a else None

    def answer(self, question: str, record: Any) -> None:
        """Record what a question observed, as its record in samebits/questions/ has it."""
        self.signals.setdefault("answers", {})[question] = record

    def skip(self, what: str, reason: str, why: str = "plain", paste: str = "") -> None:
        """Record why something is not observed; ``why`` is a kind of samebits' Skip record."""
        entry: dict[str, Any] = {
            "what": what,
            "reason": reason,
            **({"paste": paste} if paste else {}),
        }
        self.skips.append(entry if why == "plain" else entry | {"why": why})

    def leaves_out(self, what: str, reason: str) -> bool:
        """Skip what costs too much, and return True; False where there is no reason to."""
        if reason:
            self.skip(what, reason, "cost")
        return bool(reason)

    def skip_broken_instrument(self, what: str, error: Exception) -> None:
        """Record a skip because of an exception, which the other release may not raise."""
        # what a child raised has its type in its text
        text = without_folders(str(error)) if isinstance(error, fork.NoAnswer) else in_words(error)
        self.skip(what, text, "instrument")
        if not isinstance(error, fork.Lost):  # a child that died, which may be the machine
            self.skips[-1]["raised"] = True

    def skip_tensor(self, signal: str, name: str, reason: NotHashable) -> None:
        """Record a skip of one tensor of a signal."""
        why = "meta device" if isinstance(reason, OnMetaDevice) else "plain"
        self.skip(f"tensor {signal} {name}", str(reason), why)
        self.skips[-1] |= {"tensor": name, "tensor_of": signal}

    def observe_tensors(
        self,
        signal: str,
        tensors: dict[str, torch.Tensor],
        prompt: str = "",
        hashes: dict[str, str] | None = None,
    ) -> None:
        """Record tensors of a signal by name: of a prompt, or with '' of the model as loaded.

        The name '' is that of the only tensor of a prompt. A tensor that has no plain bytes is
        left out, with a skip. ``hashes`` are those that are known, by name.
        """
        hashes = hashes or {}
        refs = {
            name: self.tensor_ref(signal, name, tensor, hashes.get(name, ""))
            for name, tensor in tensors.items()
        }
        recorded = self.signals.setdefault("named", {}).setdefault(signal, {})
        recorded.setdefault(prompt, {}).update({name: ref for name, ref in refs.items() if ref})

    def tensor_ref(
        self, signal: str, name: str, tensor: torch.Tensor, digest: str = ""
    ) -> dict[str, Any] | None:
        """Return the record of one tensor of a signal; None, with a skip, if it has no bytes."""
        try:
            return self.keeper.ref(tensor, digest=digest)
        except NotHashable as reason:
            self.skip_tensor(signal, name, reason)
            return None

    @contextmanager
    def recorded_failures(self, *signals: str) -> Iterator[None]:
        """Record an exception inside as a failure, and the missing ``signals`` as skips."""
        try:
            yield
        except PhaseFailed as failed:
            failure = failed.failure
        except Exception as error:  # noqa: BLE001  a defect of the probe is reported like a failure
            traceback.print_exc()
            failure = describe("probe", error)
        else:
            return
        self.failures.append(failure)
        first = failure["message"].strip().partition("\n")[0]
        reason = f"failed in phase {failure['phase']}: {failure['type']}: {first}"
        for signal in signals:
            self.skip(signal, reason)

    @contextmanager
    def instrument(self, what: str) -> Iterator[None]:
        """Turn an exception of an instrument inside into a skip."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  the instrument failed, not the model
            self.skip_broken_instrument(what, error)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Record the seconds and the forwards of a phase."""
        started, forwards = time.perf_counter(), progress.board().forwards
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - started, 4)
            if n := progress.board().forwards - forwards:
                self.counts[name] = n

    def outcome(self, status: str, **more: Any) -> dict[str, Any]:
        """Return the content of the capture as far as it is known."""
        return {
            "status": status,
            "failures": self.failures,
            "heap": self._heap_fill,
            "probe_effect": self.effect,
            "skips": self.skips,
            "signals": self.signals,
            "seconds": self.seconds,
            "counts": self.counts,
            "slots": self.slots,
            **more,
        }

    # what a phase may cost

    @property
    def no_reload(self) -> str:
        """Why the model is not loaded again for what only explains; '' if it is."""
        return "" if self.job["model"].get("reloads", True) else NOT_ASKED

    def too_large(self) -> str:
        """Return why no second model is made next to the first; '' if one is."""
        size = load.n_bytes(self.loaded.model)
        too_large = size > MAX_FRESH_MODEL_BYTES and not self.job["model"].get("large")
        return f"it would need another {size / 2**30:.1f} GiB" if too_large else ""

    def oversized(self, limit: int, options: Any, reason: str) -> str:
        """Return a reason, with the model's size in it, if that is above a limit and not insisted on; else ''."""
        size = load.n_bytes(self.loaded.model)
        is_asked = size <= limit or options.get("large")
        return "" if is_asked else reason.format(f"{size / 2**30:.1f} GiB")

    def no_room(self, times: float) -> str:
        """Return why memory for ``times`` the model's size is missing; '' if there is enough."""
        reason = memory.shortage(int(times * load.n_bytes(self.loaded.model)), self.slots)
        return f"{reason}: {memory.remedy(self.slots)}" if reason else ""

    def too_dear(self, copies: float, n_forwards: float) -> str:
        """Return why the model, or the made one that stands in for it, is not asked; '' if it is."""
        if small.stands_in(self.loaded.model, self.job["model"]):
            return self.no_time(0, small.SECONDS)
        return self.no_room(copies) or self.no_time(n_forwards)

    def untouched_model(self, what: str, reason: str) -> Any:
        """Return a newly loaded model; the first one, with a skip of ``what``, if a reason forbids it."""
        if self.leaves_out(f"{what}: model loaded anew", reason):
            return self.loaded.model
        return load.from_pretrained(type(self.loaded.model), self.source, seed=0)[0]

    @property
    def seconds_left(self) -> float:
        """Seconds of the budget that are left; infinite without a budget."""
        return float(self.job.get("budget", float("inf"))) - time.perf_counter() + self.started

    def no_time(self, n_forwards: float, more: float = 0.0) -> str:
        """Return why ``n_forwards`` and ``more`` seconds exceed the budget; '' if they fit."""
        budget = float(self.job.get("budget", float("inf")))
        used = time.perf_counter() - self.started
        forward_seconds = progress.board().settled
        needs = n_forwards * forward_seconds + more
        if used + needs <= budget:
            return ""
        return (
            f"it takes about {needs:.0f} s (forwards of up to {forward_seconds:.2g} s each), "
            f"and {used:.0f} s of the budget of {budget:.0f} s are used: "
            "raise budget: in matrix.yaml to have it"
        )

    # inputs

    @cached_property
    def _feed(self) -> feed.Feed:
        return feed.Feed(self.job["model"], getattr(torch, self.source.dtype), self.source.device)

    def inputs(self, prompt: str) -> Inputs:
        """Return what is fed for a prompt.

        Raises:
            NotFed: samebits cannot make what the model's forward takes.
            DoesNotApply: the prompt has no meaning for this model.

        """
        return self._feed.inputs(prompt, self.loaded.tokenizer, self.loaded.model)

    def prompts(self) -> dict[str, Inputs]:
        """Return the inputs of every prompt that applies; without those whose tokenizer raises.

        The forward of such a prompt has its exception.
        """
        made: dict[str, Inputs] = {}
        for name in self._feed.names:
            with suppress(Exception):
                made[name] = self.inputs(name)
        return made

    def answered(self) -> dict[str, Inputs]:
        """Return the inputs of every prompt that forward answered."""
        forwards = self.signals.get("forward", {})
        return {name: inputs for name, inputs in self.prompts().items() if name in forwards}

    # other models than the loaded one

    @cached_property
    def twin(self) -> fresh.Fresh | None:
        """A fresh model from the same config; None, with a skip, if it cannot be made.

        A short run makes none: it does not say where values come from.
        """
        if self.is_short:
            return None
        model = self.loaded.model
        # a constructor may read the values of parameters, which raises
        with suppress(Exception):
            is_large = load.n_bytes(model) >= MIN_LEAN_BYTES
            if is_large and not self.no_room(load.largest_share(model)):
                buffers = load.fresh_buffers(model, self.loaded.config, self.source)
                return fresh.Fresh(buffers, self._whole_twin)
        tensors = self._whole_twin()
        return None if tensors is None else fresh.Fresh(tensors)

    def _whole_twin(self) -> dict[str, torch.Tensor] | None:
        """Return the tensors of a whole fresh model; None, with a skip, if it cannot be made."""
        model = self.loaded.model
        if self.leaves_out("fresh model", self.too_large() or self.no_room(1)):
            return None
        try:
            return load.fresh_twin(model, self.loaded.config, self.source)
        except Exception as error:  # noqa: BLE001  not every class can be made from its config
            self.skip("fresh model", f"{type(error).__name__}: {error}")
            self.skips[-1]["raised"] = True
            return None

    def reloaded(self, known: dict[str, str]) -> dict[str, str]:
        """Return hashes by name after a load with another seed; {} if there is no memory for one.

        ``known`` holds hashes of the loaded model's tensors, which is as the load left it.
        """
        if self._reloaded is None:
            self._reloaded = self._reload(known)
        return self._reloaded

    def _reload(self, known: dict[str, str]) -> dict[str, str]:
        if self.leaves_out("second load", self.no_room(2)):
            return {}
        model, _ = load.from_pretrained(
            type(self.loaded.model), self.source, integrity.SEED, "load with another seed"
        )
        return hashes(model, everything(self.loaded.model), known)

    def known_hashes(self) -> dict[str, str]:
        """Return name -> hash of the tensors that the signals weights and buffers have so far."""
        hashes_so_far = {
            name: facts["ref"]["hash"] for name, facts in self.signals.get("buffers", {}).items()
        }
        for name, facts in self.signals.get("weights", {}).get("tensors", {}).items():
            hashes_so_far |= dict.fromkeys((name, *facts["aliases"]), facts["ref"]["hash"])
        return hashes_so_far

    def fork_model(self, name: str, function: InFork) -> None:
        """Fork a child that keeps the model as it is now; :meth:`run_in_fork` uses it."""
        folder = Path(self.job["capture"]).parent
        folder.mkdir(parents=True, exist_ok=True)
        with self.instrument(name):
            saved = TemporaryDirectory(prefix=f".{name}-", dir=folder)
            child = fork.ForkedChild(lambda argument: function(Path(saved.name), argument))
            self.model_forks[name] = ModelInFork(child, saved)

    def run_in_fork(self, name: str, argument: str) -> Any:
        """Return what the child that was forked for a phase observes; None, with a skip, if it fails."""
        answer = None
        with self.instrument(name):
            answer = self.model_forks.pop(name).answer(argument)
        return answer

    # what several phases observe together

    @cached_property
    def evidence(self) -> Evidence:
        """The signal ``evidence``, which the forward and the eager phase fill."""
        evidence = Evidence(self.loaded.model, self.keeper)
        self.signals["evidence"] = evidence.signal
        return evidence
