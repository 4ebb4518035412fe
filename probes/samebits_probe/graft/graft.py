"""The job of a graft: a model computes with pieces of the same model under another release.

Expects the job of a cell with ``graft``: role, prompt, what (``forward`` or ``decode``), forced
(row -> token ids, for a decode), expected (hash of each output of the cell's run) and result (a
path). A donor runs the prompt once and saves the pieces that can be transplanted. A patient gets
the donor's file and the differences that the comparison found, and searches for the pieces with
which its outputs get the donor's bytes. Both write files that samebits/records/graft.py reads,
completely or not at all.

Each set of pieces is put into the model in a forked child, so no attempt affects the next.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from samebits_probe.graft.bench import Bench, Output
from samebits_probe.graft.places import Places
from samebits_probe.graft.search import Search, Spent, grouped
from samebits_probe.graft.state import survey
from samebits_probe.graft.suspects import Suspect, Suspects
from samebits_probe.model import forks, heap, load
from samebits_probe.model.tensor import stored, tensor_hash
from samebits_probe.process import files, hashing, progress, threads
from samebits_probe.process.failure import PhaseFailed, answer_or_failure, phase
from samebits_probe.process.fork import Lost, refusal, run_in_fork
from samebits_wire import formats
from samebits_wire.jobs import DonorTask, GraftJob, PatientTask

Fact = dict[str, Any]

_MAX_TWIN_BYTES = 1 << 30
"""Bytes of parameters above which a model loaded with other options is not kept."""


def run(job: GraftJob) -> None:
    """Run the job of a donor or of a patient and write the results."""
    threads.use(int(job["threads"]))
    heap.fill_unwritten("a", job["cell"]["variant"]["device"])
    started = time.perf_counter()
    with torch.no_grad():
        results = answer_or_failure(lambda: _answer(job))
    results["seconds"] = round(time.perf_counter() - started, 4)
    write(job, results)


def _answer(job: GraftJob) -> Fact:
    question = job["task"]
    if question["role"] == "donor":
        return Donor(job, question).facts()
    return Patient(job, question).facts()


def write(job: GraftJob, results: Fact) -> None:
    """Write the file under a temporary name and rename it into place."""
    question = job["task"]
    head = {
        **hashing.head("donor" if question["role"] == "donor" else "graft", formats.GRAFT),
        "cell": job["cell"],
        "prompt": question["prompt"],
        "what": question["what"],
    }
    files.write_sealed(Path(question["result"]), {**head, **results})


class Donor(Bench[DonorTask]):
    """Saves the pieces that can be transplanted."""

    def facts(self) -> Fact:
        """Run the prompt and return everything that passed."""
        self.load()
        model = self.loaded.model
        state = survey(model, self._keep, self.question["weights"])
        name = f"{self.question['what']} {self.question['prompt']}"
        with phase(name), Places(model, self._keep) as places:
            outputs = self.outputs(model)
        return {
            "mismatch": self.mismatch(outputs),
            "outputs": [
                {"name": output.name, "rows": output.rows, "ref": self._keep(output.tensor)}
                for output in outputs
            ],
            "seen": places.seen,
            "state": state,
        }

    def _keep(self, tensor: torch.Tensor) -> Fact:
        return self.keeper.ref(tensor)


class Patient(Bench[PatientTask]):
    """Finds the donor's pieces with which this model computes the donor's bytes."""

    def facts(self) -> Fact:
        """Observe this model as it is, then try sets of suspects."""
        if reason := refusal(self.source.device):
            return {"mismatch": reason}
        self.load()
        self._deadline = time.monotonic() + float(self.question["seconds"])
        self._twins: dict[str, Any] = {}
        self._donor = files.read_sealed(Path(self.question["donor"]))
        self._numbers = self._read_numbers()
        model = self.loaded.model
        state = survey(model, _hash_fact, [pair[1] for pair in self.question["weights"]])
        observed = run_in_fork(lambda: self._look(model))
        if observed["mismatch"]:
            return {"mismatch": observed["mismatch"]}
        if observed["standing"]["same"] == observed["standing"]["of"]:
            return {"mismatch": "it has the reference's bytes already"}
        passed = self._seen_on_donors_kernel(state) | observed["seen"]
        suspects = Suspects(self._donor, state, passed, self.question, self.keeper.root)
        candidates = self._attributable(suspects)
        self._suspects = {suspect.name: suspect for suspect in candidates}
        self.tried: list[Fact] = [{"suspects": [], **observed["standing"]}]
        search = Search(self._try_set, int(self.question["budget"]))
        hint = frozenset(self.question["hint"])
        search.run(
            grouped([(suspect.kind, suspect.name) for suspect in candidates]),
            hint if hint <= self._suspects.keys() else frozenset(),
        )
        return {
            "mismatch": "",
            "suspects": [suspect.record() for suspect in candidates],
            "untried": suspects.untried,
            "tried": self.tried,
            "spent": search.spent,
        }

    def _attributable(self, suspects: Suspects) -> list[Suspect]:
        """Return the suspects without those whose effect is confused with that of a second load.

        A second load may place parameters elsewhere in memory, which changes bits by itself.
        """
        if not any(suspect.is_loaded for suspect in suspects.ordered):
            return suspects.ordered
        try:
            twin = self._load_twin({}, {})
            wrong = run_in_fork(lambda: self.mismatch(self.outputs(twin)))
        except Exception as reason:  # noqa: BLE001  a model that cannot be loaded twice is a result
            wrong = _first_line(reason)
        if not wrong:
            return suspects.ordered
        for suspect in suspects.ordered:
            if suspect.is_loaded:
                suspects.skip(suspect.name, f"after another load without changes, {wrong}")
        return [suspect for suspect in suspects.ordered if not suspect.is_loaded]

    def _look(self, model: Any) -> Fact:
        """Run as it is, then again with all places watched: watching must not change a bit."""
        plain = self.outputs(model)
        if wrong := self.mismatch(plain):
            return {"mismatch": wrong}
        return {**run_in_fork(lambda: self._observe(model)), "standing": self._standing(plain)}

    def _seen_on_donors_kernel(self, state: Fact) -> Fact:
        """Return what passes with the donor's attention implementation; {} if it is the same.

        Eager attention has no call whose mask could be exchanged; the donor's kernel has one.
        """
        donor_attention = self._donor["state"]["attention"]
        if donor_attention is None or donor_attention == state["attention"]:
            return {}
        try:
            twin = self._twin({"attn_implementation": donor_attention}, {})
            observed: Fact = run_in_fork(lambda: self._observe(twin))["seen"]
        except Exception:  # noqa: BLE001
            return {}  # the attempt with that kernel reports the failure
        return observed

    def _observe(self, model: Any) -> Fact:
        with Places(model, _hash_fact) as places:
            outputs = self.outputs(model)
        wrong = self.mismatch(outputs) if model is self.loaded.model else ""
        return {
            "mismatch": f"watching the modules changed the result: {wrong}" if wrong else "",
            "seen": places.seen,
        }

    def _try_set(self, names: frozenset[str]) -> bool | None:
        if time.monotonic() > self._deadline:
            raise Spent
        chosen = [suspect for name, suspect in self._suspects.items() if name in names]
        attempt: Fact = {"suspects": [suspect.name for suspect in chosen]}
        progress.tick("set", len(self.tried), int(self.question["budget"]))
        try:
            model = self._model_for(chosen)
            attempt |= run_in_fork(lambda: self._graft_and_run(model, chosen))
        except Exception as reason:  # noqa: BLE001  a set may stop the model from running
            attempt |= {
                "same": 0,
                "of": len(self.question["compared"]),
                "error": _first_line(reason),
            }
            attempt |= {"lost": True} if isinstance(reason, Lost) else {}
        self.tried.append(attempt)
        return (
            None if "error" in attempt else bool(attempt["same"] == attempt["of"] and attempt["of"])
        )

    def _graft_and_run(self, model: Any, chosen: list[Suspect]) -> Fact:
        """Put the suspects in, run, and return how many outputs have the donor's bytes."""
        by_place: dict[str, list[Fact]] = {}
        for suspect in chosen:
            suspect.put(model)
            by_place |= suspect.substitutes
        generate_options: Fact = {}
        if any(suspect.plain_cache for suspect in chosen):
            generate_options = {forks.cache_name(): transformers.DynamicCache()}
        with Places(model, None, by_place) as places:
            outputs = self.outputs(model, generate_options)
        idle = [
            s.name
            for s in chosen
            if s.substitutes and not any(places.used[p] for p in s.substitutes)
        ]
        return self._standing(outputs) | {"idle": idle}

    def _standing(self, outputs: list[Output]) -> Fact:
        donors_outputs = self._donor["outputs"]
        pairs = [
            (donors_outputs[donors_index], outputs[own_index] if own_index < len(outputs) else None)
            for donors_index, own_index in self.question["compared"]
        ]
        wrong = [
            (donors, output)
            for donors, output in pairs
            if output is None or donors["rows"] != output.rows
        ]
        numbers = [pair for pair in wrong if not self._is_layer(pair[0]["name"])]
        are_compared = any(not self._is_layer(donors["name"]) for donors, _ in pairs)
        return {
            "same": len(pairs) - len(wrong),
            "of": len(pairs),
            "first": wrong[0][0]["name"] if wrong else "",
            "max_abs": self._max_abs(numbers) if are_compared else None,
        }

    def _read_numbers(self) -> dict[str, torch.Tensor]:
        """Return the donor's logits; read here, as an attempt would blame its set for a failure."""
        outputs = [
            self._donor["outputs"][donors_index] for donors_index, _ in self.question["compared"]
        ]
        return {
            output["name"]: stored(self.keeper.root, output["ref"])
            for output in outputs
            if not self._is_layer(output["name"]) and output["ref"]["stored"]
        }

    def _is_layer(self, name: str) -> bool:
        return self.question["what"] == "forward" and name != "logits"

    def _max_abs(self, pairs: list[Any]) -> float | None:
        distances = [0.0]
        for donors, output in pairs:
            if (
                output is None
                or not donors["ref"]["stored"]
                or donors["ref"]["shape"] != list(output.tensor.shape)
            ):
                return None
            differences = (self._numbers[donors["name"]].double() - output.tensor.double()).abs()
            distances.append(float(differences.max()) if differences.numel() else 0.0)
        # max() ignores NaN
        return max(distances) if all(map(math.isfinite, distances)) else None

    def _model_for(self, chosen: list[Suspect]) -> Any:
        """Return the model, or one loaded with the options of the suspects."""
        options: Fact = {}
        fields: Fact = {}
        for suspect in chosen:
            options |= suspect.options
            fields |= suspect.fields
        if not options and not fields:
            return self.loaded.model
        return self._twin(options, fields)

    def _twin(self, options: Fact, fields: Fact) -> Any:
        key = json.dumps([options, fields], sort_keys=True)
        if key not in self._twins:
            if load.n_bytes(self.loaded.model) > _MAX_TWIN_BYTES:
                self._twins.clear()
            self._twins[key] = self._load_twin(options, fields)
        return self._twins[key]

    def _load_twin(self, options: Fact, fields: Fact) -> Any:
        try:
            model = load.loaded_with(self.loaded, self.source, options, fields)
        except (ValueError, ImportError) as error:
            if "attn_implementation" not in options or not forks.refuses_attention(str(error)):
                raise
            # the other release may have done what this one refuses, so it is tried all the same
            rest = {k: v for k, v in options.items() if k != "attn_implementation"}
            model = load.loaded_with(self.loaded, self.source, rest, fields)
            for module in model.modules():
                if hasattr(module, "config"):
                    module.config._attn_implementation = options["attn_implementation"]
        self.before(model)
        return model


def _hash_fact(tensor: torch.Tensor) -> Fact:
    return {
        "hash": tensor_hash(tensor),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
    }


def _first_line(error: Exception) -> str:
    text = str(error.failure["message"] if isinstance(error, PhaseFailed) else error)
    return text.strip().partition("\n")[0][:300]
