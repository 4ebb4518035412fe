"""Suspects of a graft: each piece that donor and patient both have and that differs.

A suspect knows how it is put in: into the loaded model, by loading with other options, or each time
that the forward passes a place.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch

from samebits_probe.graft import places, state
from samebits_probe.model.tensor import stored
from samebits_wire.grafts import SuspectKind
from samebits_wire.jobs import PatientTask

Fact = dict[str, Any]

_PLACES = (
    ("positions", "position ids", (places.POSITIONS,)),
    ("rope", "rope's cos and sin", (places.ROPE, places.ROTARY)),
    ("mask", "attention mask", (places.MASK, places.ARGUMENT)),
    ("scale", "attention scale", (places.SCALE,)),
    ("call", "layout of the attention call", (places.LAYOUT,)),
    ("cache", "cache contents", (places.CACHE,)),
    ("head", "positions that the head computes", (places.HEAD,)),
)
"""Kind, name and places: the first place is taken that both sides pass equally often."""

_PLAIN_CACHE = "DynamicLayer"

_ORDER = get_args(SuspectKind)


class Suspect(NamedTuple):
    """One piece that differs, and how the donor's replaces it."""

    kind: str
    name: str
    what: str
    tensors: tuple[tuple[str, torch.Tensor], ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()
    scalings: tuple[tuple[str, float], ...] = ()
    memory: dict[str, Any] | None = None
    options: dict[str, Any] = {}  # noqa: RUF012  never written to
    fields: dict[str, Any] = {}  # noqa: RUF012
    substitutes: dict[str, list[Fact]] = {}  # noqa: RUF012
    plain_cache: bool = False

    @property
    def is_loaded(self) -> bool:
        """True if the model must be loaded again for it."""
        return bool(self.options or self.fields)

    def record(self) -> Fact:
        """Return the suspect as the answer records it."""
        return {"kind": self.kind, "name": self.name, "what": self.what}

    def put(self, model: Any) -> None:
        """Put in the parts that go into a loaded model."""
        for name, tensor in self.tensors:
            state.put_tensor(model, name, tensor)
        for name, value in self.attributes:
            state.put_attribute(model, name, value)
        for name, scaling in self.scalings:
            state.put_scaling(model, name, scaling)
        if self.memory is not None:
            state.put_memory(model, self.memory)


class Suspects:
    """Lists the suspects between a donor's file and the patient's state and passing values."""

    def __init__(
        self,
        donor: Fact,
        state: Fact,
        patients_seen: dict[str, list[Fact]],
        question: PatientTask,
        root: Path,
    ) -> None:
        self.untried: list[Fact] = [
            {"what": what, "reason": reason} for what, reason in question["untried"]
        ]
        self._donor, self._patients_state, self._patients_seen, self._question = (
            donor,
            state,
            patients_seen,
            question,
        )
        self._root = root
        self._suspects: list[Suspect] = []
        self._add_config_fields()
        self._add_weights()
        self._add_buffers()
        self._add_attributes()
        self._add_passing()
        self._add_implementations()
        self._add_kind_of_cache()
        self._add_memory()

    @property
    def ordered(self) -> list[Suspect]:
        """The suspects in the order of data flow, with unique names.

        The same pattern may name buffers in some layers and attributes in others.
        """
        in_order = sorted(self._suspects, key=lambda suspect: _ORDER.index(suspect.kind))
        times = Counter(suspect.name for suspect in in_order)
        return [s._replace(name=f"{s.kind} {s.name}") if times[s.name] > 1 else s for s in in_order]

    def skip(self, what: str, reason: str) -> None:
        """Record a suspect that is not tried."""
        self.untried.append({"what": what, "reason": reason})

    def _stored_tensor(self, ref: Fact) -> torch.Tensor:
        if not ref["stored"]:
            raise places.Unfit(f"{ref['dtype']}{ref['shape']} is too large to be transferred")
        return stored(self._root, ref)

    def _add_config_fields(self) -> None:
        for field, (donor_value, patient_value) in self._question["config"].items():
            what = f"{donor_value!r} in the reference, {patient_value!r} in the candidate"
            self._suspects.append(
                Suspect("config", f"config.{field}", what, fields={field: donor_value})
            )

    # --- what a loaded model holds --------------------------------------------------------------

    def _add_weights(self) -> None:
        donors, patients = self._donor["state"]["weights"], self._patients_state["weights"]
        pairs: list[tuple[str, Fact, float | None]] = [
            (name, donors[donors_name], None)
            for donors_name, name in self._question["weights"]
            if donors_name in donors and name in patients
        ]
        self._add_tensors("weight", pairs)

    def _add_buffers(self) -> None:
        donors, patients = self._donor["state"]["buffers"], self._patients_state["buffers"]
        paired: dict[str, tuple[str, float | None]] = {
            name: (name, None) for name in patients if name in donors
        }
        paired |= {
            name: (donors_name, scaling) for donors_name, name, scaling in self._question["buffers"]
        }
        weights = {name for _, name in self._question["weights"]}
        pairs = [
            (name, donors[donors_name], scaling)
            for name, (donors_name, scaling) in paired.items()
            if name in patients
            and donors_name in donors
            and name not in weights
            and (donors[donors_name]["hash"] != patients[name]["hash"] or scaling is not None)
        ]
        self._add_tensors("buffer", pairs)
        taken = {donors_name for donors_name, _ in paired.values()}
        for name in _patterns(name for name in donors if name not in taken):
            self.skip(f"buffer {name}", "this release has no such buffer")

    def _add_tensors(self, kind: str, pairs: list[tuple[str, Fact, float | None]]) -> None:
        """Add a suspect for each name; names that differ only in a number make one suspect."""
        facts = {name: (ref, scaling) for name, ref, scaling in pairs}
        for pattern, names in _patterns(facts).items():
            try:
                tensors = tuple((name, self._stored_tensor(facts[name][0])) for name in names)
            except places.Unfit as reason:
                self.skip(f"{kind} {pattern}", str(reason))
                continue
            fact = facts[names[0]][0]
            what = f"{fact['dtype']}{fact['shape']}"
            what += f", {len(names)} of them" if len(names) > 1 else ""
            scalings = tuple((n, s) for n in names if (s := facts[n][1]) is not None)
            what += ", with the factor on cos and sin" if scalings else ""
            self._suspects.append(Suspect(kind, pattern, what, tensors, scalings=scalings))

    def _add_attributes(self) -> None:
        donors, patients = self._donor["state"]["attributes"], self._patients_state["attributes"]
        changed = {
            name: value
            for name, value in donors.items()
            if name in patients and not _same_value(value, patients[name])
        }
        for pattern, names in _patterns(changed).items():
            try:
                values = [(name, self._stored_attribute(changed[name])) for name in names]
            except places.Unfit as reason:
                self.skip(f"attribute {pattern}", str(reason))
                continue
            sides = [changed[names[0]], patients[names[0]]]
            texts = [repr(v["plain"]) if "plain" in v else "a tensor" for v in sides]
            what = (
                f"{texts[0]} in the reference, {texts[1]} in the candidate"
                if texts[0] != texts[1]
                else texts[0]
            )
            self._suspects.append(Suspect("attribute", pattern, what, attributes=tuple(values)))

    def _stored_attribute(self, value: Fact) -> Any:
        return value["plain"] if "plain" in value else self._stored_tensor(value["tensor"])

    def _add_memory(self) -> None:
        donors, patients = self._donor["state"]["memory"], self._patients_state["memory"]
        moved = [n for n, place in donors.items() if n in patients and patients[n][0] != place[0]]
        if moved:
            what = f"{len(moved):,} parameters have a different alignment to 64 bytes"
            name = "place of the parameters in memory"
            self._suspects.append(Suspect("memory", name, what, memory=donors))

    def _add_implementations(self) -> None:
        for option, key, missing in (
            ("attn_implementation", "attention", None),
            ("experts_implementation", "experts", "eager"),
        ):
            patient_choice = self._patients_state[key]
            donor_choice = self._donor["state"][key] or missing  # before there was a choice, a loop
            if (
                patient_choice is not None
                and donor_choice is not None
                and patient_choice != donor_choice
            ):
                name = f"{key} implementation {donor_choice}"
                what = f"{donor_choice} in the reference, {patient_choice} in the candidate"
                self._suspects.append(
                    Suspect("implementation", name, what, options={option: donor_choice})
                )

    def _add_kind_of_cache(self) -> None:
        """Add the donor's plain cache, which every release accepts, as it needs no config."""
        sides = [seen.get(places.KIND, []) for seen in (self._donor["seen"], self._patients_seen)]
        if not all(sides) or sides[0] == sides[1]:
            return
        donor_kinds, patient_kinds = (", ".join(side[0]["kinds"]) for side in sides)
        what = f"{donor_kinds} in the reference, {patient_kinds} in the candidate"
        if donor_kinds == _PLAIN_CACHE:
            self._suspects.append(Suspect("cache", "kind of cache", what, plain_cache=True))
        else:
            self.skip("kind of cache", f"{what}; only a plain cache can be swapped")

    # --- what passes in a forward ---------------------------------------------------------------

    def _add_passing(self) -> None:
        for kind, name, where in _PLACES:
            reasons = []
            for place in where:
                donors = self._donor["seen"].get(place, [])
                patients = self._patients_seen.get(place, [])
                if not donors and not patients:
                    continue
                if not (reason := _unpaired(donors, patients)):
                    self._add_passed(kind, name, place, donors, patients)
                    break
                reasons.append(f"{place}: {reason}")
            else:
                if reasons:
                    self.skip(name, "; ".join(reasons))

    def _add_passed(
        self, kind: str, name: str, place: str, donors: list[Fact], patients: list[Fact]
    ) -> None:
        if len(donors) != len(patients):
            donors = donors[:1]  # the same each time, however often
            n = sum(not _same_parts(donors[0], passage) for passage in patients)
        else:
            n = sum(not _same_parts(a, b) for a, b in zip(donors, patients, strict=True))
        if not n:
            return
        try:
            substitutes = [
                {part: self._stored_part(value) for part, value in passage.items()}
                for passage in donors
            ]
        except places.Unfit as reason:
            self.skip(name, str(reason))
            return
        what = f"it differs {n:,} of the {len(patients):,} times that it is used"
        self._suspects.append(Suspect(kind, name, what, substitutes={place: substitutes}))

    def _stored_part(self, value: Any) -> Any:
        return self._stored_tensor(value) if isinstance(value, dict) and "hash" in value else value


def _unpaired(donors: list[Fact], patients: list[Fact]) -> str:
    """Return why the passing values of both sides cannot be paired; '' if they can.

    At least one side has values.
    """
    if not donors or not patients:
        return f"only {'this side' if patients else 'the reference'} has it"
    constant = all(_same_parts(donors[0], passage) for passage in donors)
    if len(donors) != len(patients) and not constant:
        return f"it is used {len(donors):,} times in the reference, {len(patients):,} times in the candidate"
    return ""


def _same_parts(donors: Fact, patients: Fact) -> bool:
    return donors.keys() == patients.keys() and all(
        _same_part(donors[k], patients[k]) for k in donors
    )


def _same_part(donors: Any, patients: Any) -> bool:
    if isinstance(donors, dict) and isinstance(patients, dict):
        return bool(donors["hash"] == patients["hash"])
    return bool(donors == patients)


def _same_value(donors: Fact, patients: Fact) -> bool:
    if "plain" in donors:
        return bool(donors == patients)
    return "tensor" in patients and bool(donors["tensor"]["hash"] == patients["tensor"]["hash"])


def _patterns(names: Any) -> dict[str, list[str]]:
    """Group names by their pattern with numbers as ``*``; a single name stays as it is."""
    by_pattern: dict[str, list[str]] = {}
    for name in names:
        by_pattern.setdefault(re.sub(r"(?<=\.)\d+(?=\.)", "*", name), []).append(name)
    return {key if len(members) > 1 else members[0]: members for key, members in by_pattern.items()}
