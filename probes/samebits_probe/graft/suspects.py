"""What of a donor could make the difference to a patient: each thing that both have and that differs.

A suspect knows how it is put in: into the loaded model, by loading it otherwise, or each time
that a place is passed in the forward.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from samebits_probe.graft import places, state
from samebits_probe.model.tensor import stored

if TYPE_CHECKING:
    from pathlib import Path

    import torch

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
"""Kind, name, and the places where it passes: the first that both sides have as often is taken."""

_PLAIN_CACHE = "DynamicLayer"

_ORDER = (
    "config",
    "weight",
    "buffer",
    "attribute",
    "positions",
    "rope",
    "mask",
    "scale",
    "implementation",
    "call",
    "cache",
    "head",
    "memory",
)
"""Kinds in the order in which data flows: what is at the root of a difference comes first."""


class Suspect(NamedTuple):
    """Something that differs, and how the donor's is put in its place."""

    kind: str
    name: str
    what: str
    tensors: tuple[tuple[str, torch.Tensor], ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()
    scalings: tuple[tuple[str, float], ...] = ()
    memory: dict[str, Any] | None = None
    options: dict[str, Any] = {}  # noqa: RUF012  never written to
    fields: dict[str, Any] = {}  # noqa: RUF012
    given: dict[str, list[Fact]] = {}  # noqa: RUF012
    plain_cache: bool = False

    @property
    def is_loaded(self) -> bool:
        """True if the model must be loaded again for it."""
        return bool(self.options or self.fields)

    def told(self) -> Fact:
        """Return what a reader is told."""
        return {"kind": self.kind, "name": self.name, "what": self.what}

    def put(self, model: Any) -> None:
        """Put in what a loaded model can be given."""
        for name, tensor in self.tensors:
            state.put_tensor(model, name, tensor)
        for name, value in self.attributes:
            state.put_attribute(model, name, value)
        for name, scaling in self.scalings:
            state.put_scaling(model, name, scaling)
        if self.memory is not None:
            state.put_memory(model, self.memory)


class Suspects:
    """Lists the suspects between a donor's file and what the patient saw of itself."""

    def __init__(
        self, donor: Fact, mine: Fact, seen: dict[str, list[Fact]], asked: Fact, root: Path
    ) -> None:
        self.untried: list[Fact] = [
            {"what": what, "reason": reason} for what, reason in asked["untried"]
        ]
        self._donor, self._mine, self._seen, self._asked = donor, mine, seen, asked
        self._root = root
        self._all: list[Suspect] = []
        self._fields()
        self._weights()
        self._buffers()
        self._attributes()
        self._passing()
        self._implementations()
        self._kind_of_cache()
        self._memory()

    @property
    def found(self) -> list[Suspect]:
        """The suspects, those at the root of a difference first, each under a name of its own.

        A pattern may be that of buffers in some layers and of attributes in others.
        """
        ordered = sorted(self._all, key=lambda suspect: _ORDER.index(suspect.kind))
        times = Counter(suspect.name for suspect in ordered)
        return [s._replace(name=f"{s.kind} {s.name}") if times[s.name] > 1 else s for s in ordered]

    def skip(self, what: str, reason: str) -> None:
        """Note a suspect that is not tried."""
        self.untried.append({"what": what, "reason": reason})

    def _value(self, ref: Fact) -> torch.Tensor:
        if not ref["stored"]:
            msg = f"{ref['dtype']}{ref['shape']} is too large to be handed over"
            raise places.Unfit(msg)
        return stored(self._root, ref)

    def _fields(self) -> None:
        for field, (there, here) in self._asked["config"].items():
            what = f"{there!r} there and {here!r} here"
            self._all.append(Suspect("config", f"config.{field}", what, fields={field: there}))

    # --- what a loaded model holds --------------------------------------------------------------

    def _weights(self) -> None:
        theirs, mine = self._donor["state"]["weights"], self._mine["weights"]
        pairs: list[tuple[str, Fact, float | None]] = [
            (here, theirs[there], None)
            for there, here in self._asked["weights"]
            if there in theirs and here in mine
        ]
        self._tensors("weight", pairs)

    def _buffers(self) -> None:
        theirs, mine = self._donor["state"]["buffers"], self._mine["buffers"]
        paired = {here: (there, scaling) for there, here, scaling in self._asked["buffers"]}
        paired = {name: (name, None) for name in mine if name in theirs} | paired
        weights = {here for _, here in self._asked["weights"]}
        pairs = [
            (here, theirs[there], scaling)
            for here, (there, scaling) in paired.items()
            if here in mine
            and there in theirs
            and here not in weights
            and (theirs[there]["hash"] != mine[here]["hash"] or scaling is not None)
        ]
        self._tensors("buffer", pairs)
        taken = {there for there, _ in paired.values()}
        for name in _patterns(name for name in theirs if name not in taken):
            self.skip(f"buffer {name}", "this side has no such buffer")

    def _tensors(self, kind: str, pairs: list[tuple[str, Fact, float | None]]) -> None:
        """Add a suspect for each name, those that differ in a number alone as one."""
        named = {name: (ref, scaling) for name, ref, scaling in pairs}
        for pattern, names in _patterns(named).items():
            try:
                tensors = tuple((name, self._value(named[name][0])) for name in names)
            except places.Unfit as reason:
                self.skip(f"{kind} {pattern}", str(reason))
                continue
            first = named[names[0]][0]
            what = f"{first['dtype']}{first['shape']}"
            what += f", {len(names)} of them" if len(names) > 1 else ""
            scalings = tuple((n, s) for n in names if (s := named[n][1]) is not None)
            what += ", with the factor on cos and sin" if scalings else ""
            self._all.append(Suspect(kind, pattern, what, tensors, scalings=scalings))

    def _attributes(self) -> None:
        theirs, mine = self._donor["state"]["attributes"], self._mine["attributes"]
        changed = {
            name: value
            for name, value in theirs.items()
            if name in mine and not _same(value, mine[name])
        }
        for pattern, names in _patterns(changed).items():
            try:
                held = [(name, self._attribute(changed[name])) for name in names]
            except places.Unfit as reason:
                self.skip(f"attribute {pattern}", str(reason))
                continue
            told = [changed[names[0]], mine[names[0]]]
            words = [repr(v["plain"]) if "plain" in v else "a tensor" for v in told]
            what = f"{words[0]} there and {words[1]} here" if words[0] != words[1] else words[0]
            self._all.append(Suspect("attribute", pattern, what, attributes=tuple(held)))

    def _attribute(self, value: Fact) -> Any:
        return value["plain"] if "plain" in value else self._value(value["tensor"])

    def _memory(self) -> None:
        theirs, mine = self._donor["state"]["memory"], self._mine["memory"]
        moved = [n for n, place in theirs.items() if n in mine and mine[n][0] != place[0]]
        if moved:
            what = f"{len(moved):,} parameters lie otherwise behind a 64-byte boundary"
            name = "place of the parameters in memory"
            self._all.append(Suspect("memory", name, what, memory=theirs))

    def _implementations(self) -> None:
        for option, key, missing in (
            ("attn_implementation", "attention", None),
            ("experts_implementation", "experts", "eager"),
        ):
            mine = self._mine[key]
            theirs = self._donor["state"][key] or missing  # before there was a choice, a loop
            if mine is not None and theirs is not None and mine != theirs:
                name = f"{key} implementation {theirs}"
                what = f"{theirs} there and {mine} here"
                self._all.append(Suspect("implementation", name, what, options={option: theirs}))

    def _kind_of_cache(self) -> None:
        """Add the plain cache of the donor, which every release can be handed: it needs no config."""
        sides = [found.get(places.KIND, []) for found in (self._donor["seen"], self._seen)]
        if not all(sides) or sides[0] == sides[1]:
            return
        there, here = (", ".join(side[0]["kinds"]) for side in sides)
        what = f"{there} there and {here} here"
        if there == _PLAIN_CACHE:
            self._all.append(Suspect("cache", "kind of cache", what, plain_cache=True))
        else:
            self.skip("kind of cache", f"{what}; only a plain one is put in")

    # --- what passes in a forward ---------------------------------------------------------------

    def _passing(self) -> None:
        for kind, name, where in _PLACES:
            reasons = []
            for place in where:
                theirs = self._donor["seen"].get(place, [])
                mine = self._seen.get(place, [])
                reason = _unpaired(theirs, mine)
                if not reason:
                    self._passed(kind, name, place, theirs, mine)
                    break
                reasons.append(f"{place}: {reason}")
            else:
                told = [reason for reason in reasons if not reason.endswith(_NEITHER)]
                if told:
                    self.skip(name, "; ".join(told))

    def _passed(
        self, kind: str, name: str, place: str, theirs: list[Fact], mine: list[Fact]
    ) -> None:
        if len(theirs) != len(mine):
            theirs = theirs[:1]  # the same each time, however often
            n = sum(not _alike(theirs[0], one) for one in mine)
        else:
            n = sum(not _alike(a, b) for a, b in zip(theirs, mine, strict=True))
        if not n:
            return
        try:
            given = [{part: self._part(value) for part, value in one.items()} for one in theirs]
        except places.Unfit as reason:
            self.skip(name, str(reason))
            return
        what = f"it differs {n:,} of the {len(mine):,} times that it is used"
        self._all.append(Suspect(kind, name, what, given={place: given}))

    def _part(self, value: Any) -> Any:
        return self._value(value) if isinstance(value, dict) and "hash" in value else value


_NEITHER = "neither side has it"


def _unpaired(theirs: list[Fact], mine: list[Fact]) -> str:
    """Return why what passes on both sides cannot be paired; '' if it can."""
    if not theirs and not mine:
        return _NEITHER
    if not theirs or not mine:
        return f"only {'this side' if mine else 'the reference'} has it"
    constant = all(_alike(theirs[0], one) for one in theirs)
    if len(theirs) != len(mine) and not constant:
        return f"it passes {len(theirs):,} times there and {len(mine):,} times here"
    return ""


def _alike(one: Fact, other: Fact) -> bool:
    return one.keys() == other.keys() and all(_same_part(one[k], other[k]) for k in one)


def _same_part(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return bool(one["hash"] == other["hash"])
    return bool(one == other)


def _same(one: Fact, other: Fact) -> bool:
    if "plain" in one:
        return bool(one == other)
    return "tensor" in other and bool(one["tensor"]["hash"] == other["tensor"]["hash"])


def _patterns(names: Any) -> dict[str, list[str]]:
    """Return the names by what they share when their numbers are left out; a lone one as it is."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(re.sub(r"(?<=\.)\d+(?=\.)", "*", name), []).append(name)
    return {key if len(same) > 1 else same[0]: same for key, same in found.items()}
