"""One run of a cell: loads a model in this stack, observes all signals and writes the capture.

A job holds: cell, run (``a`` or ``b``), model (source, prompts, greedy), store (root, limit,
wanted hashes), slots (how many jobs share this machine), budget and the capture's path. The capture
is written whole or not at all, in the format of samebits/records/capture.py. An exception of the
model is part of the capture; only one before or in the load ends the cell.

Phases come in order of importance: first the signals that verdicts depend on, then those that
explain. Before each phase the capture is written with the status ``unfinished``, so that a run that
is killed leaves its observations. Steps that need the model as it was loaded run in children that
are forked before the first prompt and wait for their turn (process.fork.Apart).
"""

from __future__ import annotations

import random
import time
import traceback
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from samebits_probe.cell import code as remote_code
from samebits_probe.cell import integrity, rope, weights
from samebits_probe.cell import tokenizer as tokenizer_facts
from samebits_probe.cell.evidence import Evidence
from samebits_probe.model import attention, decode, feed, forks, fresh, heap, layers, load
from samebits_probe.model.checkpoint import Checkpoint, NoCheckpoint
from samebits_probe.model.choice import DoesNotApply, NotFed
from samebits_probe.model.executed import Executed
from samebits_probe.model.refusal import refusals
from samebits_probe.model.state import hashes
from samebits_probe.model.tensor import Keeper, NotHashable, dtype_name, tensor_hash
from samebits_probe.process import files, fork, memory, progress
from samebits_probe.process.failure import PhaseFailed, Unknown, describe, phase, without_folders
from samebits_probe.relations import relations
from samebits_probe.usage import usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits_probe.model.inputs import Inputs

FORMAT_VERSION = 3
_MAX_FRESH_MODEL_BYTES = 4 << 30
"""Bytes of parameters above which no second model is made next to the first."""
HOOKS_CHANGE_LOGITS = (
    "a forward without hooks on the layers gives different logits than one with hooks: either "
    "watching changes the result, or every forward gives another one"
)
ONLY_LOGITS_COMPARED = "of a forward's outputs only the logits, or the first tensor, are compared"
_USAGE_FORWARDS = 60
"""Cost of the usage phase, in plain forwards."""
_FIRST_TOKEN_FORWARDS = 10
"""Cost of one token that is decoded and watched, in plain forwards."""
_SEEDS = {"a": 31, "b": 32}
"""Run -> seed of every random generator; neither is the seed of a load."""


def run(job: dict[str, Any]) -> None:
    """Run one cell once and write its capture."""
    try:
        _run(job)
    except Exception as error:  # noqa: BLE001  a defect of the probe is reported like any failure
        traceback.print_exc()
        failed = {"status": "failed", "failure": describe("probe", error)}
        write_capture(Path(job["capture"]), job, failed)


def _run(job: dict[str, Any]) -> None:
    torch.set_num_threads(int(job["threads"]))
    heap_fill = heap.fill_unwritten(job["run"], job["cell"]["variant"]["device"])
    seed_generators(job["run"])
    cell = Cell(job, heap_fill)
    write_capture(Path(job["capture"]), job, cell.observe())


def seed_generators(run: str) -> None:
    """Seed all generators differently in each run, so that unseeded random numbers differ.

    Both runs are forks of one process and would otherwise share the states of its generators. This
    is called again after the load, which uses the same seed in both runs.
    """
    seed = _SEEDS[run]
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def write_capture(
    path: Path, job: dict[str, Any], outcome: dict[str, Any], *, lasting: bool = True
) -> None:
    """Write a capture atomically; if ``lasting``, flush it to the disk."""
    capture = {
        "format": "samebits-capture",
        "format_version": FORMAT_VERSION,
        "cell": job["cell"],
        "run": job["run"],
        **outcome,
    }
    files.write_sealed(path, capture, lasting=lasting)


class ModelInFork(NamedTuple):
    """A forked child that holds the model as it was loaded, and a folder for its files."""

    child: fork.Apart
    folder: TemporaryDirectory[str]

    def answer(self, argument: str) -> Any:
        """Return the observations of the child."""
        with self.folder:
            return self.child.answer(argument)

    def forget(self) -> None:
        """Kill the child without using it."""
        with self.folder:
            self.child.forget()


class Cell:
    """Observes one model on one stack, loaded once, signal by signal."""

    def __init__(self, job: dict[str, Any], heap_fill: str = "") -> None:
        self.job = job
        variant = job["cell"]["variant"]
        self.source = load.Source.of(job["model"], variant)
        store = job["store"]
        self.keeper = Keeper(store["root"], store["limit"], store["wanted"])
        self.signals: dict[str, Any] = {}
        self.skips: list[dict[str, str]] = []
        self.failures: list[dict[str, Any]] = []
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.effect = "not checked"
        self.slots = int(job.get("slots", 1))
        self._heap_fill = heap_fill
        self._started = time.perf_counter()
        self._model_forks: dict[str, ModelInFork] = {}

    def observe(self) -> dict[str, Any]:
        """Return the content of the capture, whether the model worked or not."""
        progress.begin("load")
        try:
            self._load_model()
        except Unknown as reason:
            return self._outcome("absent", absent=str(reason))
        except PhaseFailed as failed:
            return self._outcome("failed", failure=failed.failure)
        for phase_name, observe_phase in self._phases().items():
            with self._timed(phase_name):
                observe_phase()
        return self._outcome("complete")

    def _phases(self) -> dict[str, Callable[[], None]]:
        """Return the phases after the load, in order of importance."""
        return {
            "weights": torch.no_grad()(self._observe_state),
            "forward": torch.no_grad()(self._observe_forwards),
            "greedy": torch.no_grad()(self._observe_greedy),
            "tokenizer": self._observe_tokenizer,
            "integrity": self._observe_integrity,
            "evidence": torch.no_grad()(self._observe_eager),
            "first token": torch.no_grad()(self._observe_first_token),
            "usage": self._observe_usage,
            "invariants": torch.no_grad()(self._observe_invariants),
        }

    def _begin_phase(self, phase: str) -> None:
        """Begin a phase, and write an unfinished capture in case the run ends in this phase."""
        progress.begin(phase)
        interruption = {"phase": phase, "reason": "the run was still going on"}
        outcome = self._outcome("unfinished", unfinished=interruption)
        with suppress(OSError):  # writing the complete capture will raise the same error
            write_capture(Path(self.job["capture"]), self.job, outcome, lasting=False)

    def _load_model(self) -> None:
        try:
            with self._timed("load"):
                self.loaded = load.load(self.source)
        finally:
            self._observe_remote_code()
        self.signals["load"] = self.loaded.facts
        self.signals["config"] = load.effective_config(self.loaded.model.config)

    def _observe_state(self) -> None:
        """Observe the loaded tensors, before a prompt may have changed them."""
        self._begin_phase("weights")
        with self._recorded_failures("weights"):
            self._observe_weights()
        with self._recorded_failures("buffers", "inv_freq"):
            self._observe_buffers()
        with self._recorded_failures():
            self._reduce_twin_to_hashes()
        self._fork_untouched_model()

    @contextmanager
    def _recorded_failures(self, *signals: str) -> Iterator[None]:
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
            self._skip(signal, reason)

    def _outcome(self, status: str, **more: Any) -> dict[str, Any]:
        return {
            "status": status,
            "failures": self.failures,
            "heap": self._heap_fill,
            "probe_effect": self.effect,
            "forks": forks.TAKEN,
            "skips": self.skips,
            "signals": self.signals,
            "seconds": self.seconds,
            "counts": self.counts,
            "slots": self.slots,
            **more,
        }

    def _observe_remote_code(self) -> None:
        """Read the model's remote code, even if the load failed; the load may download it."""
        if self.job["run"] != "a":
            return
        try:
            with self._timed("code"):
                self.signals["code"] = remote_code.of_source(self.source)
        except Exception as error:  # noqa: BLE001  the instrument failed, not the model
            self._skip_broken_instrument("code", error)

    def _observe_tokenizer(self) -> None:
        """Observe the tokenizer, if there is one; only in run a, as run b would give the same."""
        if self.job["run"] != "a" or self.loaded.tokenizer is None:
            return
        self._begin_phase("tokenizer")
        try:
            facts = tokenizer_facts.facts(self.source, self.job["model"]["prompts"])
        except Exception as error:  # noqa: BLE001  the instrument failed, not the model
            self._skip_broken_instrument("tokenizer", error)
        else:
            self.signals["tokenizer"] = facts

    def _observe_weights(self) -> None:
        with phase("trace weights"):
            try:
                checkpoint = Checkpoint.find(self.source.where, self.source.revision)
            except NoCheckpoint as reason:
                checkpoint = None
                self._skip("weights: origin", str(reason))
            self.signals["weights"] = weights.weights(
                self.loaded.model,
                checkpoint,
                self.keeper,
                self.job["run"],
                lambda: self.twin,
                lambda: self.reloaded,
                lambda name, reason: self._skip(f"tensor weights {name}", reason),
            )

    def _observe_buffers(self) -> None:
        model = self.loaded.model
        persistent = set(model.state_dict(keep_vars=True))
        with phase("buffers"):
            buffers: dict[str, Any] = {}
            for name, buffer in model.named_buffers():
                if buffer.is_meta:
                    continue
                try:
                    ref = self.keeper.ref(buffer)
                except NotHashable as reason:
                    self._skip(f"tensor buffers {name}", str(reason))
                    continue
                buffers[name] = {
                    "ref": ref,
                    "persistent": name in persistent,
                    "fresh": fresh.against(self.twin, name, ref["hash"]),
                    "unwritten": heap.holds_pattern(buffer, self.job["run"]),
                }
            self.signals["buffers"] = buffers
            self.signals["inv_freq"] = rope.inv_freq(model, self.keeper, self.twin)
            if not self.signals["inv_freq"]:
                self._skip("inv_freq", "no buffer of the model holds rotary frequencies")

    @cached_property
    def twin(self) -> fresh.Fresh | None:
        """A fresh model from the same config; None, with a skip, if it cannot be made."""
        model = self.loaded.model
        if reason := self._too_large() or self._no_room(1):
            self._skip("fresh model", reason, "cost")
            return None
        try:
            return fresh.Fresh(load.fresh_twin(model, self.loaded.config, self.source))
        except Exception as error:  # noqa: BLE001  not every class can be made from its config
            self._skip("fresh model", f"{type(error).__name__}: {error}")
            return None

    def _reduce_twin_to_hashes(self) -> None:
        """Drop the fresh model, but keep the hashes of tensors that are compared later."""
        if self.twin is None:
            return
        is_compared = self.job["run"] == "a" and {"weights", "buffers"} <= self.signals.keys()
        names = (
            integrity.tensors_compared_with_fresh(self.loaded.model, self.signals)
            if is_compared
            else ()
        )
        self.twin.keep_hashes_only(names)
        load.trim_heap(self.loaded.model)

    def _too_large(self) -> str:
        """Return why no second model is made next to the first; '' if one is."""
        size = load.n_bytes(self.loaded.model)
        too_large = size > _MAX_FRESH_MODEL_BYTES
        return f"it would need another {size / 2**30:.1f} GiB" if too_large else ""

    def _no_room(self, times: float) -> str:
        """Return why memory for ``times`` the model's size is missing; '' if there is enough."""
        needs = int(times * load.n_bytes(self.loaded.model))
        reason = memory.shortage(needs, self.slots)
        return f"{reason}: {memory.remedy(self.slots)}" if reason else ""

    def _no_time(self, n_forwards: float, more: float = 0.0) -> str:
        """Return why ``n_forwards`` and ``more`` seconds exceed the budget; '' if they fit."""
        budget = float(self.job.get("budget", float("inf")))
        used, forward_seconds = time.perf_counter() - self._started, progress.board().longest
        needs = n_forwards * forward_seconds + more
        if used + needs <= budget:
            return ""
        return (
            f"it takes about {needs:.0f} s (forwards of up to {forward_seconds:.2g} s each), "
            f"and {used:.0f} s of the budget of {budget:.0f} s are used: "
            "raise budget: in matrix.yaml to have it"
        )

    @cached_property
    def reloaded(self) -> dict[str, str]:
        """Hashes by name after a load with another seed; {} if there is no memory for one."""
        if reason := self._no_room(2):
            self._skip("second load", reason, "cost")
            return {}
        model, _ = load.from_pretrained(
            type(self.loaded.model), self.source, integrity.SEED, "load with another seed"
        )
        return hashes(model)

    def _fork_untouched_model(self) -> None:
        """Fork children that keep the model as loaded, for the phases integrity and usage.

        Where no child can be forked, integrity is observed now, without changing the model.
        """
        if self.job["run"] != "a":
            return
        functions: dict[str, Callable[[Path, str], Any]] = {}
        load_facts = self._load_facts()
        if load_facts is not None:
            functions["integrity"] = lambda saved, argument: integrity.integrity(
                load_facts, saved, argument
            )
        if self._wants_usage():
            functions["usage"] = lambda saved, argument: usage.usage(
                self.loaded, saved, float(argument)
            )
        if reason := fork.refusal(self.source.device):
            if load_facts is not None:
                with self._instrument("integrity"):
                    self.signals["integrity"] = integrity.integrity(load_facts, Path(), reason)
            if "usage" in functions:
                self._skip("usage", reason)
            return
        folder = Path(self.job["capture"]).parent
        folder.mkdir(parents=True, exist_ok=True)
        for name, function in functions.items():
            with self._instrument(name):
                saved = TemporaryDirectory(prefix=f".{name}-", dir=folder)
                self._model_forks[name] = ModelInFork(_forked(function, Path(saved.name)), saved)

    def _wants_usage(self) -> bool:
        """Return True if the job requests the usage phase and the model is not too large for it."""
        size = load.n_bytes(self.loaded.model)
        if self.job["model"].get("usage") and size > usage.MOST_BYTES:
            reason = f"thirty forwards and a save of {size / 2**30:.1f} GiB would take too long"
            self._skip("usage", reason, "cost")
            return False
        return bool(self.job["model"].get("usage"))

    def _load_facts(self) -> integrity.LoadFacts | None:
        if not {"weights", "buffers"} <= self.signals.keys():
            self._skip("integrity", "weights and buffers were not observed")
            return None
        return integrity.LoadFacts(
            self.loaded,
            self.source,
            self.job["run"],
            self.signals,
            self.twin,
            lambda: self.reloaded,
            self._first_inputs,
        )

    def _observe_integrity(self) -> None:
        """Check the load in a forked child; only in run a, as run b would give the same."""
        if "integrity" not in self._model_forks:
            return
        self._begin_phase("integrity")
        no_second_load = self._too_large() or self._no_room(2.5)
        if no_second_load:
            self._skip("integrity: second load", no_second_load, "cost")
        self._run_in_fork("integrity", no_second_load)

    def _observe_usage(self) -> None:
        """Run the usage checks in a forked child, which has the model as it was loaded."""
        if "usage" not in self._model_forks:
            return
        if reason := self._no_room(1) or self._no_time(_USAGE_FORWARDS):
            self._skip("usage", reason, "cost")
            self._model_forks.pop("usage").forget()
            return
        self._begin_phase("usage")
        seconds_left = (
            float(self.job.get("budget", float("inf"))) - time.perf_counter() + self._started
        )
        self._run_in_fork("usage", str(seconds_left))

    def _run_in_fork(self, name: str, argument: str) -> None:
        with self._instrument(name):
            self.signals[name] = self._model_forks.pop(name).answer(argument)

    def _first_inputs(self) -> Inputs | None:
        """Return the first prompt that applies."""
        return next(iter(self._prompts().values()), None)

    def _observe_forwards(self) -> None:
        facts = self.signals["forward"] = {}
        seed_generators(self.job["run"])
        dtypes: dict[str, int] = self.signals["load"]["activation_dtypes"]
        for name in self.job["model"]["prompts"]:
            phase_name = f"forward {name}"
            self._begin_phase(phase_name)
            with self._recorded_failures(phase_name), phase(phase_name):
                try:
                    inputs = self._inputs(name)
                    facts[name] = self._forward(name, inputs, dtypes)
                except NotFed as reason:
                    self._skip(f"forward {name}", str(reason), why="inputs")
                    continue
                except DoesNotApply as reason:
                    self._skip(f"prompt {name}", str(reason))
                    continue
                if self.job["run"] == "a":
                    self._observe_attention(name, inputs, facts[name])

    @cached_property
    def _feed(self) -> feed.Feed:
        dtype = getattr(torch, self.source.dtype)
        return feed.Feed(self.job["model"], dtype, self.source.device)

    def _inputs(self, name: str) -> Inputs:
        return self._feed.inputs(name, self.loaded.tokenizer)

    def _forward(self, name: str, inputs: Inputs, dtypes: dict[str, int]) -> dict[str, Any]:
        """Run a prompt with hooks on the layers and without; the logits are those without hooks.

        A hook can change the path: torch's TransformerEncoderLayer takes its fast path only without
        hooks. The observed layers are then not those that computed the logits.
        """
        with (
            refusals(self.loaded.model.forward, inputs.kwargs),
            layers.recorded(self.loaded.model) as outputs,
            progress.forward(inputs.kwargs, "layers watched", times=2),
        ):
            watched = layers.logits_of(self.loaded.model(**inputs.kwargs))
        with progress.forward(inputs.kwargs, "plain", plain=True):
            result = self.loaded.model(**inputs.kwargs)
        logits = layers.logits_of(result)
        for unobserved in _other_tensors(result, logits):
            if all(skip["what"] != f"output {unobserved}" for skip in self.skips):
                self._skip(f"output {unobserved}", ONLY_LOGITS_COMPARED)
        if not _equal_bytes(watched, logits):
            self._skip(f"hidden_states {name}", HOOKS_CHANGE_LOGITS)
            outputs = []
        for _, tensor in outputs:
            dtypes[dtype_name(tensor.dtype)] = dtypes.get(dtype_name(tensor.dtype), 0) + 1
        width = inputs.kwargs["input_ids"].shape[1] if inputs.real_rows else None
        return {
            "inputs": {key: self.keeper.ref(value) for key, value in inputs.kwargs.items()},
            "text": inputs.text,
            "real_rows": inputs.real_rows,
            "logits": None if logits is None else self.keeper.ref(logits),
            "logits_padded": logits is not None and _has_padded_axis(logits, width),
            "hidden_states": [
                {
                    "name": name,
                    "ref": self.keeper.ref(tensor),
                    "padded": _has_padded_axis(tensor, width),
                }
                for name, tensor in outputs
            ],
        }

    def _observe_attention(self, name: str, inputs: Inputs, facts: dict[str, Any]) -> None:
        """Watch the same forward once more, and record whether watching changed its bits."""
        model = self.loaded.model
        signal = self.signals.setdefault("attention", self._attention_facts())
        try:
            with (
                self._evidence.recording(name),
                attention.Watch(model, self._evidence.keep) as watch,
                self._recorded_functions(),
                progress.forward(inputs.kwargs, "attention watched", times=10),
            ):
                result = model(**inputs.kwargs)
        except Exception as error:  # noqa: BLE001  the instrument failed, not the model
            self._skip_broken_instrument(f"attention.kernel {name}", error)
            return
        signal["calls"][name] = watch.calls
        logits = layers.logits_of(result)
        if logits is None or facts["logits"] is None:
            return
        same = tensor_hash(logits) == facts["logits"]["hash"]
        self.effect = "none" if same and self.effect != "changed the bits" else "changed the bits"

    @cached_property
    def _evidence(self) -> Evidence:
        evidence = Evidence(self.loaded.model, self.keeper)
        self.signals["evidence"] = evidence.signal
        return evidence

    @contextmanager
    def _recorded_functions(self) -> Iterator[None]:
        """Record the functions that the first prompt's forward executes."""
        signal = self.signals.get("code")
        if signal is None or "executed" in signal:
            yield
            return
        with Executed() as executed:
            yield
        try:
            signal["executed"] = executed.functions()
        except Exception as error:  # noqa: BLE001  the instrument failed, not the model
            self._skip_broken_instrument("code: executed", error)

    def _observe_eager(self) -> None:
        """Run the prompts with eager attention; late, because it loads another model."""
        if "evidence" not in self.signals:
            return
        self._begin_phase("evidence")
        evidence = self._evidence
        prompts = {n: i for n, i in self._prompts().items() if n in self.signals["forward"]}
        resolved = getattr(self.loaded.model.config, "_attn_implementation", None)
        reason = "" if resolved == "eager" else self._no_room(2)
        if reason := reason or self._no_time(len(prompts), self.seconds["load"]):
            self._skip("evidence: eager", reason, "cost")
            evidence.skip("eager", reason)
            return
        evidence.eager(self.source, prompts)

    def _attention_facts(self) -> dict[str, Any]:
        resolved = getattr(self.loaded.model.config, "_attn_implementation", None)
        return {
            "requested": self.source.attention,
            "resolved": resolved if isinstance(resolved, str) else None,
            "calls": {},
        }

    def _observe_greedy(self) -> None:
        steps, model = int(self.job["model"]["greedy"]), self.loaded.model
        if steps <= 0:
            return self._skip("greedy", "no tokens were requested")
        if not self._generates():
            return self._skip("greedy", f"{type(model).__name__} does not generate")
        facts = self.signals["greedy"] = {}
        for name in self.job["model"]["prompts"]:
            phase_name = f"greedy {name}"
            self._begin_phase(phase_name)
            with self._recorded_failures(phase_name), phase(phase_name):
                try:
                    inputs = self._inputs(name)
                    facts.update(self._generate(name, inputs, steps))
                except NotFed as reason:
                    self._skip(f"greedy {name}", str(reason), why="inputs")
                except DoesNotApply:
                    continue  # the forward recorded the reason
        return None

    def _observe_first_token(self) -> None:
        """Watch how one token of each prompt is decoded; late, as generate() may leave a state."""
        if self.job["run"] != "a" or not self.signals.get("greedy"):
            return
        if reason := self._no_time(_FIRST_TOKEN_FORWARDS * len(self.signals["greedy"])):
            self._skip("first token", reason, "cost")
            return
        self._begin_phase("first token")
        decoded = self.signals["greedy"].keys()
        prompts = {n: i for n, i in self._prompts().items() if {n, f"{n}[0]"} & decoded}
        try:
            first_tokens = decode.first_token(self.loaded.model, prompts)
        except Exception as error:  # noqa: BLE001  the instrument failed, not the model
            self._skip_broken_instrument("first token", error)
        else:
            self.signals["first_token"] = first_tokens

    def _prompts(self) -> dict[str, Inputs]:
        """Return the inputs of every prompt that applies."""
        return dict(self._feed.all(self.loaded.tokenizer))

    def _generates(self) -> bool:
        """Return True for heads that predict the next token and classes with generate().

        The head is checked because can_generate of 4.48 is also true for masked language models.
        """
        can_generate = getattr(self.loaded.model, "can_generate", lambda: False)
        return self.loaded.head in {"causal-lm", "seq2seq-lm"} and bool(can_generate())

    def _generate(self, name: str, inputs: Inputs, steps: int) -> dict[str, Any]:
        kwargs = {k: v for k, v in inputs.kwargs.items() if k != "decoder_input_ids"}
        with (
            refusals(self.loaded.model.forward, inputs.kwargs, whole=False),
            progress.forwards(steps, kwargs),
        ):
            output = self.loaded.model.generate(
                **kwargs, max_new_tokens=steps, **decode.GREEDY_LOGITS
            )
        count = len(output.scores)
        rows = output.sequences.shape[0]
        rows_by_name = {}
        for row in range(rows):
            ids = self._until_end(output.sequences[row, -count:].tolist())
            steps_kept = range(len(ids))
            rows_by_name[name if rows == 1 else f"{name}[{row}]"] = {
                "ids": ids,
                "top2": [_top2(output.scores[step][row]) for step in steps_kept],
                "text": self._text(ids),
                "logits": self.keeper.ref(torch.stack([output.logits[s][row] for s in steps_kept])),
            }
        return rows_by_name

    def _until_end(self, ids: list[int]) -> list[int]:
        """Return the ids up to and including the first end token; a batch pads the rest."""
        end = self.loaded.model.generation_config.eos_token_id
        ends = {end} if isinstance(end, int) else set(end or ())
        last = next((i for i, token in enumerate(ids) if token in ends), len(ids))
        return ids[: last + 1]

    def _text(self, ids: list[int]) -> str | None:
        tokenizer = self.loaded.tokenizer
        return None if tokenizer is None else str(tokenizer.decode(ids))

    def _observe_invariants(self) -> None:
        """Check the relations that must hold inside a cell; only in run a."""
        options = self.job["model"].get("invariants")
        if options is None or self.job["run"] != "a":
            return
        size, dtype = load.n_bytes(self.loaded.model), getattr(torch, self.source.dtype)
        n, times = relations.cost(size, dtype, options)
        reason = relations.too_large(size, options)
        reason = reason or self._no_room(times) or self._no_time(n, self.seconds["load"])
        if reason:
            self._skip("invariants", reason, "cost")
            return
        self._begin_phase("invariants")
        try:
            model = self._untouched_model()
            self.signals["invariants"] = relations.invariants(
                model, self.loaded.head, model.config, options
            )
        except Exception as error:  # noqa: BLE001  the instrument failed, not the model
            self._skip_broken_instrument("invariants", error)

    def _untouched_model(self) -> Any:
        """Return a newly loaded model, because an earlier prompt may have scaled the rope."""
        if reason := self._too_large():
            self._skip("invariants: model loaded anew", reason, "cost")
            return self.loaded.model
        model, _ = load.from_pretrained(type(self.loaded.model), self.source, seed=0)
        return model

    @contextmanager
    def _instrument(self, what: str) -> Iterator[None]:
        """Turn an exception of an instrument inside into a skip."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  the instrument failed, not the model
            self._skip_broken_instrument(what, error)

    def _skip_broken_instrument(self, what: str, error: Exception) -> None:
        """Record a skip because the instrument failed."""
        self._skip(what, without_folders(f"{type(error).__name__}: {error}"), "instrument")

    def _skip(self, what: str, reason: str, why: str = "plain") -> None:
        entry = {"what": what, "reason": reason}
        self.skips.append(entry if why == "plain" else entry | {"why": why})

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started, forwards = time.perf_counter(), progress.board().forwards
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - started, 4)
            if n := progress.board().forwards - forwards:
                self.counts[name] = n


def _forked(function: Callable[[Path, str], Any], saved: Path) -> fork.Apart:
    return fork.Apart(lambda argument: function(saved, argument))


def _other_tensors(result: Any, logits: torch.Tensor | None) -> list[str]:
    """Return the names of a forward's output tensors other than the compared one.

    An encoder's last hidden state is left out, as it is among the layers.
    """
    outputs = result.items() if hasattr(result, "items") else ()
    return [
        name
        for name, value in outputs
        if isinstance(value, torch.Tensor)
        and value is not logits
        and name not in {"loss", "encoder_last_hidden_state"}
    ]


def _equal_bytes(watched: torch.Tensor | None, plain: torch.Tensor | None) -> bool:
    """Return True if two forwards returned the same bytes, or neither returned a tensor."""
    if watched is None or plain is None:
        return watched is plain
    return tensor_hash(watched) == tensor_hash(plain)


def _has_padded_axis(tensor: torch.Tensor, width: int | None) -> bool:
    """Return True if dimension 1 is the padded token axis of ``width`` positions."""
    return width is not None and tensor.ndim >= 2 and tensor.shape[1] == width


def _top2(scores: torch.Tensor) -> list[list[float]]:
    values, ids = torch.topk(scores.float(), 2)
    return [[int(i), float(v)] for i, v in zip(ids, values, strict=True)]
