"""SB4xx: rules for input and output embeddings that share memory, or should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from samebits.compare.describe import some
from samebits.compare.phases import STORED
from samebits.compare.weights import is_loaded
from samebits.findings.case import Case
from samebits.findings.rule import COMPUTED, RAISED, Check, Rule, Sighting, of_exception
from samebits.records.capture import Capture, WeightFacts
from samebits.records.provenance import Provenance

_ONE_NAME = "config.json asks for no tied embeddings, and this release then ties nothing"
_NOT_NAMED = "this release's own class does not name the tie, whatever the config says"
_SCALED = frozenset({"longt5", "mt5", "pop2piano", "switch_transformers", "t5", "udop", "umt5"})
"""Types whose ``tie_word_embeddings`` also multiplies what the head reads by ``d_model**-0.5``."""
NO_KEYS = "'list' object has no attribute 'keys'"
"""The exception of a list of ties, in a load and in a save."""


def _declared_as_list(case: Case) -> Iterator[Sighting]:
    has_raised = case.raised("AttributeError", NO_KEYS) is not None
    evidence = _save_error(case) or (case.exception_lines() if has_raised else ())
    if not evidence:
        return
    for fact in case.classes:
        if fact.attributes.get("_tied_weights_keys") == "list":
            what = f"class {fact.name} declares _tied_weights_keys as a list"
            yield Sighting(f"{fact.file}:{fact.line}", (what, *evidence))
            return
    frame = case.frame(own=False)
    if has_raised and frame is not None and "tied" in f"{frame.function} {frame.code}":
        yield Sighting(case.raised_at(), evidence)


def _save_error(case: Case) -> tuple[str, ...]:
    """Return the error of a save for a model that loads.

    Loading does not read the declaration if the config ties no weights.
    """
    integrity = case.capture.signals.integrity
    trip = integrity.round_trip if integrity is not None else None
    if trip is None or trip.outcome != "save failed" or NO_KEYS not in trip.reason:
        return ()
    return (f"save_pretrained: {trip.reason}",)


def _no_post_init(case: Case) -> Iterator[Sighting]:
    if not case.raised("AttributeError", r"has no attribute 'all_tied_weights_keys'"):
        return
    lacking = [
        fact
        for fact in case.classes
        if "__init__" in fact.methods
        and any("PreTrained" in base for base in fact.bases)
        and "self.post_init" not in fact.calls.get("__init__", ())
    ]
    names = [f"class {f.name} ({f.file}:{f.line}) never calls self.post_init()" for f in lacking]
    where = f"{lacking[0].file}:{lacking[0].line}" if lacking else case.raised_at()
    yield Sighting(where, (*names, *case.exception_lines()))


def _ties(capture: Capture) -> set[str]:
    """Return the names of tensors that share the memory of another one."""
    return {alias for facts in capture.signals.tensors.values() for alias in facts.aliases}


def _untied(case: Case) -> Iterator[Sighting]:
    """Find two tensors that share memory in the reference and not in the candidate."""
    if case.reference is None:
        return
    aliases, weights = _ties(case.capture), case.capture.signals.tensors
    for name, facts in case.reference.signals.tensors.items():
        for alias in facts.aliases:
            has_both = name in weights and alias in weights
            if has_both and alias not in aliases and name not in aliases:
                same = weights[name].ref.hash == weights[alias].ref.hash
                if not same and _are_stored({name, *facts.aliases}, weights[name], weights[alias]):
                    continue  # the checkpoint has both: no tie is lost
                same_bytes = (
                    "both have the same bytes, until one of them is trained" if same else ""
                )
                shared = f"{alias} shares its memory with {name} in {case.reference.cell.stack}"
                separate = f"here it is a separate tensor, {weights[alias].origin}"
                lacks = _missing(case, [n for n in (name, alias) if is_loaded(weights[n])])
                lines = (shared, separate, same_bytes, *lacks)
                yield Sighting(alias, tuple(filter(None, lines)))


def _missing(case: Case, stored: list[str]) -> Iterator[str]:
    """Yield which of the two things that 5.x needs for a tie the model lacks, as far as its files show it.

    A class of 4.x may tie a bias by itself. A config.json that wants embeddings apart is then no mistake: the one
    that ties them would change what 4.x loads.
    """
    lacks_one = (
        f"the state_dict that was saved has only {stored[0]}" if stored[:1] == stored else ""
    )
    if _are_apart(case.capture):
        if lacks_one:
            yield f"{_ONE_NAME}: {lacks_one}"
        return
    kinds = [fact.attributes.get("_tied_weights_keys") for fact in case.classes]
    if case.classes and "dict" not in kinds:
        yield "no class of the model declares _tied_weights_keys as a dict"
    config = case.capture.signals.config
    if config is not None and config.get("tie_word_embeddings") is not True:
        yield "the config, as this release loads it, does not say tie_word_embeddings=true"
    elif config is not None and not case.classes and lacks_one:
        yield f"{_NOT_NAMED}: {lacks_one}"


def _are_apart(capture: Capture) -> bool:
    """Return True if config.json states that embeddings are not tied."""
    field = (capture.signals.config_use or {}).get("tie_word_embeddings")
    return field is not None and field.written is False


def _are_stored(names: set[str], *weights: WeightFacts) -> bool:
    """Return True if all tensors are loaded, and none shares its memory with one that has another name.

    T5 of 5.0 to 5.2 gives ``shared`` the memory of ``lm_head``: that is no second tensor of the checkpoint.
    """
    return all(facts.origin == "loaded" and names.issuperset(facts.aliases) for facts in weights)


def _tied_apart(*, is_stated: bool) -> Check:
    """Return a check for tied names under which the checkpoint has different tensors, of which one is left out.

    ``is_stated``: whether config.json states the tie, which the checkpoint then contradicts.
    """

    def check(case: Case) -> Iterator[Sighting]:
        fields = _stated_ties(case.capture)
        if bool(fields) is not is_stated:
            return
        model_type = (case.capture.signals.config or {}).get("model_type")
        factor = f"where the config of {model_type} ties, its head's input is multiplied by d_model**-0.5"
        scaled = (factor,) if model_type in _SCALED else ()
        for name, tensor, unnamed in _left_out(case):
            if not unnamed:
                yield Sighting(name, (*_left_out_lines(name, tensor), *fields, *scaled))

    return check


def _tied_by_layer(case: Case) -> Iterator[Sighting]:
    """Find a tie of other tensors than embeddings that leaves out one, as the checkpoint lacks some tied names.

    4.57 saves the shared heads of MM Grounding DINO under the name of one of their owners. From 5.0 on tensors of one
    tie stay apart only where the checkpoint has each of their names.
    """
    for name, tensor, unnamed in _left_out(case):
        if unnamed:
            lacks = f"the checkpoint has no {some(unnamed)}, which the tie has, too"
            yield Sighting(name, (*_left_out_lines(name, tensor), lacks))
    if case.reference is not None:
        yield from _tied_elsewhere(case, case.reference)


def _tied_elsewhere(case: Case, reference: Capture) -> Iterator[Sighting]:
    """Find a name of a stored tensor, which keeps one name alone, that is another tensor in the candidate.

    5.24 keeps the decoder's heads of MM Grounding DINO, and ties those that compute to the first one.
    """
    weights, vocabularies = case.weights(), {*_vocabularies(case.capture.signals.config)}
    owners = {name: own for own, facts in weights.items() for name in (own, *facts.aliases)}
    for first, facts in reference.signals.tensors.items():
        group = (first, *facts.aliases)
        if facts.ref.shape[:1] in vocabularies:
            continue
        alone = [n for n in group if n in weights and _is_alone(weights[n])]
        for name, owner in ((n, owners[n]) for n in group if n in owners):
            apart = [n for n in alone if weights[n].ref.hash != weights[owner].ref.hash]
            if owner not in group and apart:
                lines = (
                    f"{name} shares its memory with {owner}",
                    f"in {reference.cell.stack} with {apart[0]}, of which the checkpoint has other bytes",
                )
                yield Sighting(name, lines)


def _is_alone(facts: WeightFacts) -> bool:
    return facts.origin == "loaded" and not facts.aliases


def _left_out(case: Case) -> Iterator[tuple[str, Provenance, list[str]]]:
    """Yield what a tie leaves out, with the tied names that the checkpoint lacks if no vocabulary is tied.

    Such a name of embeddings is no loss: the one that ``tie_word_embeddings`` switches is the head.
    """
    tensors = dict(case.tensors())
    vocabularies = {*_vocabularies(case.capture.signals.config)}
    unnamed: dict[str, list[str]] = {}
    for name, facts in case.weights().items():
        group = [name, *facts.aliases]
        if facts.ref.shape[:1] not in vocabularies:
            lacking = sorted(n for n in group if n in tensors and _is_unnamed(tensors[n]))
            unnamed |= dict.fromkeys(group, lacking)
    for name, tensor in tensors.items():
        if tensor.source == "tied" and tensor.ignored:
            yield name, tensor, unnamed.get(name, [])


def _is_unnamed(tensor: Provenance) -> bool:
    return tensor.source == "tied" and not tensor.ignored


def _vocabularies(config: Mapping[str, Any] | None) -> Iterator[tuple[int, ...]]:
    """Yield the sizes of vocabularies that a config and its parts state."""
    for name, value in (config or {}).items():
        if isinstance(value, Mapping):
            yield from _vocabularies(value)
        elif name.endswith("vocab_size") and isinstance(value, int):
            yield (value,)


def _left_out_lines(name: str, tensor: Provenance) -> tuple[str, str]:
    stored = tensor.stored_as or name
    what = f"the checkpoint has {stored}, with other bytes than the tensor that is loaded"
    return what, f"{name} is {tensor.detail}"


def _stated_ties(capture: Capture) -> list[str]:
    """Return what config.json states of ties, of the model and of its parts."""
    used = capture.signals.config_use or {}
    return [
        f"config.json states {path}: true"
        for path, field in used.items()
        if path.rpartition(".")[2] == "tie_word_embeddings" and field.written is True
    ]


RULES = (
    Rule("SB401", _declared_as_list, explains=RAISED),
    Rule("SB402", _no_post_init, explains=RAISED),
    of_exception("SB403", "TypeError", r"tie_weights\(\) got an unexpected keyword argument"),
    Rule("SB404", _untied, explains=STORED),
    Rule("SB405", _tied_apart(is_stated=False), explains=STORED),
    Rule("SB406", _tied_apart(is_stated=True), explains=STORED),
    Rule("SB407", _tied_by_layer, explains=STORED | COMPUTED),
)
