"""What does a model compute when it is given pieces of what another release made of it?

Expects the job of a cell with ``graft``: role, prompt, what (``forward`` or ``decode``), forced
(row -> token ids, for a decode), expected (hash of each output that the cell's own run gave) and
result (a path). A donor runs the prompt once and leaves what can be given; a patient, which
is told the donor's file and what the comparison says differs, finds out with which of it its own
outputs get the donor's bytes. Both write the files that samebits/records/graft.py reads, whole or not at all.

Each set of pieces is put into the model in a forked child, so no try leaves a trace on the next.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import transformers

from samebits_probe.graft import state as graft_state
from samebits_probe.graft.bench import Bench, Output
from samebits_probe.graft.places import Places
from samebits_probe.graft.search import Search, Spent, grouped
from samebits_probe.graft.suspects import Suspect, Suspects
from samebits_probe.model import forks, heap, load
from samebits_probe.model.tensor import stored, tensor_hash
from samebits_probe.process import files, progress
from samebits_probe.process.failure import PhaseFailed, Unknown, describe, phase
from samebits_probe.process.fork import Lost, apart, refusal

FORMAT_VERSION = 3
# History of FORMAT_VERSION:
# 1: first.
# 2: it bears a seal.
# 3: a set whose run was lost.

Fact = dict[str, Any]

_TWINS_LIMIT = 1 << 30
"""Bytes of parameters above which a model that is loaded otherwise is not kept for the next set."""


def run(job: Fact) -> None:
    """Run the job of a donor or of a patient and write what came of it."""
    torch.set_num_threads(int(job["threads"]))
    heap.fill_unwritten("a", job["cell"]["variant"]["device"])
    started = time.perf_counter()
    try:
        with torch.no_grad():
            told = _ROLES[job["graft"]["role"]](job).facts()
    except Unknown as reason:
        told = {"failure": describe("load", LookupError(str(reason)))}
    except PhaseFailed as failed:
        told = {"failure": failed.failure}
    except Exception as error:  # noqa: BLE001  a defect of a probe is reported like any failure
        traceback.print_exc()
        told = {"failure": describe("probe", error)}
    told["seconds"] = round(time.perf_counter() - started, 4)
    write(job, told)


def write(job: Fact, told: Fact) -> None:
    """Write a file aside and rename it into place."""
    asked = job["graft"]
    head = {
        "format": "samebits-donor" if asked["role"] == "donor" else "samebits-graft",
        "format_version": FORMAT_VERSION,
        "cell": job["cell"],
        "prompt": asked["prompt"],
        "what": asked["what"],
    }
    files.write_sealed(Path(asked["result"]), {**head, **told})


class Donor(Bench):
    """Leaves what can be given."""

    def facts(self) -> Fact:
        """Run the prompt and return all that passed."""
        self.load()
        model = self.loaded.model
        state = graft_state.survey(model, self._keep, self.asked["weights"])
        name = f"{self.asked['what']} {self.asked['prompt']}"
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


class Patient(Bench):
    """Tries which of the donor's pieces give it the donor's bytes."""

    def facts(self) -> Fact:
        """Look at itself, then try sets of suspects."""
        if reason := refusal(self.source.device):
            return {"mismatch": reason}
        self.load()
        self._deadline = time.monotonic() + float(self.asked["seconds"])
        self._twins: dict[str, Any] = {}
        self._donor = files.read_sealed(Path(self.asked["donor"]))
        self._numbers = self._read_numbers()
        model = self.loaded.model
        state = graft_state.survey(model, _hashed, [pair[1] for pair in self.asked["weights"]])
        seen = apart(lambda: self._look(model))
        if seen["mismatch"]:
            return {"mismatch": seen["mismatch"]}
        if seen["standing"]["same"] == seen["standing"]["of"]:
            return {"mismatch": "it has the reference's bytes already"}
        passed = self._seen_otherwise(state) | seen["seen"]
        suspects = Suspects(self._donor, state, passed, self.asked, self.keeper.root)
        found = self._without_confused(suspects)
        self._known = {suspect.name: suspect for suspect in found}
        self.tried: list[Fact] = [{"suspects": [], **seen["standing"]}]
        search = Search(self._restores, int(self.asked["budget"]))
        hint = frozenset(self.asked["hint"])
        search.run(
            grouped([(suspect.kind, suspect.name) for suspect in found]),
            hint if hint <= self._known.keys() else frozenset(),
        )
        return {
            "mismatch": "",
            "suspects": [suspect.told() for suspect in found],
            "untried": suspects.untried,
            "tried": self.tried,
            "spent": search.spent,
            "forks": forks.TAKEN,
        }

    def _without_confused(self, suspects: Suspects) -> list[Suspect]:
        """Return the suspects, without those whose effect cannot be told from loading once more.

        A second load may lay parameters elsewhere in memory, which changes bits by itself.
        """
        if not any(suspect.is_loaded for suspect in suspects.found):
            return suspects.found
        try:
            twin = self._loaded_with({}, {})
            wrong = apart(lambda: self.mismatch(self.outputs(twin)))
        except Exception as reason:  # noqa: BLE001  what cannot be loaded twice is a result
            wrong = _first_line(reason)
        if not wrong:
            return suspects.found
        for suspect in suspects.found:
            if suspect.is_loaded:
                suspects.skip(suspect.name, f"loaded once more with nothing changed, {wrong}")
        return [suspect for suspect in suspects.found if not suspect.is_loaded]

    def _look(self, model: Any) -> Fact:
        """Run as it is, then once more to see what passes: watching must not change a bit."""
        plain = self.outputs(model)
        if wrong := self.mismatch(plain):
            return {"mismatch": wrong}
        seen = apart(lambda: self._watched(model))
        return {**seen, "standing": self._standing(plain)}

    def _seen_otherwise(self, state: Fact) -> Fact:
        """Return what passes where attention is computed as the donor does it, {} if that is so anyway.

        Attention by hand has no call whose mask could be exchanged; put on the donor's kernel it has.
        """
        theirs = self._donor["state"]["attention"]
        if theirs is None or theirs == state["attention"]:
            return {}
        try:
            twin = self._model_with({"attn_implementation": theirs}, {})
            seen: Fact = apart(lambda: self._watched(twin))["seen"]
        except Exception:  # noqa: BLE001
            return {}  # that it cannot be put on that kernel is said where it is tried
        return seen

    def _watched(self, model: Any) -> Fact:
        with Places(model, _hashed) as places:
            outputs = self.outputs(model)
        wrong = self.mismatch(outputs) if model is self.loaded.model else ""
        return {"mismatch": f"watching changed it: {wrong}" if wrong else "", "seen": places.seen}

    def _restores(self, names: frozenset[str]) -> bool | None:
        if time.monotonic() > self._deadline:
            raise Spent
        chosen = [suspect for name, suspect in self._known.items() if name in names]
        told: Fact = {"suspects": [suspect.name for suspect in chosen]}
        progress.tick("set", len(self.tried), int(self.asked["budget"]))
        try:
            model = self._model(chosen)
            told |= apart(lambda: self._operated(model, chosen))
        except Exception as reason:  # noqa: BLE001  what does not run with the set put in is a result
            told |= {"same": 0, "of": len(self.asked["compared"]), "error": _first_line(reason)}
            told |= {"lost": True} if isinstance(reason, Lost) else {}
        self.tried.append(told)
        return None if "error" in told else bool(told["same"] == told["of"] and told["of"])

    def _operated(self, model: Any, chosen: list[Suspect]) -> Fact:
        """Put the suspects in, run, and say how much of the donor's bytes comes out."""
        given: dict[str, list[Fact]] = {}
        for suspect in chosen:
            suspect.put(model)
            given |= suspect.given
        more: Fact = {}
        if any(suspect.plain_cache for suspect in chosen):
            more = {"past_key_values": transformers.DynamicCache()}
        with Places(model, None, given) as places:
            outputs = self.outputs(model, more)
        idle = [s.name for s in chosen if s.given and not any(places.used[p] for p in s.given)]
        return self._standing(outputs) | {"idle": idle}

    def _standing(self, outputs: list[Output]) -> Fact:
        theirs = self._donor["outputs"]
        pairs = [
            (theirs[there], outputs[here] if here < len(outputs) else None)
            for there, here in self.asked["compared"]
        ]
        wrong = [(one, mine) for one, mine in pairs if mine is None or one["rows"] != mine.rows]
        numbers = [pair for pair in wrong if not self._is_layer(pair[0]["name"])]
        are_compared = any(not self._is_layer(one["name"]) for one, _ in pairs)
        return {
            "same": len(pairs) - len(wrong),
            "of": len(pairs),
            "first": wrong[0][0]["name"] if wrong else "",
            "max_abs": self._apart(numbers) if are_compared else None,
        }

    def _read_numbers(self) -> dict[str, torch.Tensor]:
        """Return the donor's logits; here, as what fails in a try is told of the set that is tried."""
        outputs = [self._donor["outputs"][there] for there, _ in self.asked["compared"]]
        return {
            one["name"]: stored(self.keeper.root, one["ref"])
            for one in outputs
            if not self._is_layer(one["name"]) and one["ref"]["stored"]
        }

    def _is_layer(self, name: str) -> bool:
        return self.asked["what"] == "forward" and name != "logits"

    def _apart(self, pairs: list[Any]) -> float | None:
        """Return the largest distance in logits; None if it is not to be had."""
        found = [0.0]
        for one, mine in pairs:
            if (
                mine is None
                or not one["ref"]["stored"]
                or one["ref"]["shape"] != list(mine.tensor.shape)
            ):
                return None
            there = self._numbers[one["name"]].double()
            apart = (there - mine.tensor.double()).abs()
            found.append(float(apart.max()) if apart.numel() else 0.0)
        # max() passes over NaN
        return max(found) if all(map(math.isfinite, found)) else None

    def _model(self, chosen: list[Suspect]) -> Any:
        """Return the model, or one that was loaded as the suspects say."""
        options: Fact = {}
        fields: Fact = {}
        for suspect in chosen:
            options |= suspect.options
            fields |= suspect.fields
        if not options and not fields:
            return self.loaded.model
        return self._model_with(options, fields)

    def _model_with(self, options: Fact, fields: Fact) -> Any:
        key = json.dumps([options, fields], sort_keys=True)
        if key not in self._twins:
            if (
                sum(p.numel() * p.element_size() for p in self.loaded.model.parameters())
                > _TWINS_LIMIT
            ):
                self._twins.clear()
            self._twins[key] = self._loaded_with(options, fields)
        return self._twins[key]

    def _loaded_with(self, options: Fact, fields: Fact) -> Any:
        try:
            model = load.loaded_with(self.loaded, self.source, options, fields)
        except (ValueError, ImportError) as error:
            if "attn_implementation" not in options or not forks.refuses_attention(str(error)):
                raise
            # what a release refuses may still be what the other one did: it is tried all the same
            rest = {k: v for k, v in options.items() if k != "attn_implementation"}
            model = load.loaded_with(self.loaded, self.source, rest, fields)
            for module in model.modules():
                if hasattr(module, "config"):
                    module.config._attn_implementation = options["attn_implementation"]
        self.before(model)
        return model


_ROLES: dict[str, type[Donor | Patient]] = {"donor": Donor, "patient": Patient}


def _hashed(tensor: torch.Tensor) -> Fact:
    return {
        "hash": tensor_hash(tensor),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
    }


def _first_line(error: Exception) -> str:
    text = str(error.failure["message"] if isinstance(error, PhaseFailed) else error)
    return text.strip().partition("\n")[0][:300]
