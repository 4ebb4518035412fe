"""SB4xx: rules for input and output embeddings that share memory, or should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.case import weights_of
from samebits.findings.rule import Rule, Sighting, raised
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.capture import Capture


_NO_KEYS = "'list' object has no attribute 'keys'"


def _declared_as_list(case: Case) -> Iterator[Sighting]:
    has_raised = case.raised("AttributeError", _NO_KEYS) is not None
    evidence = case.exception_lines() if has_raised else _save_error(case)
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
    if trip is None or trip.outcome != "save failed" or _NO_KEYS not in trip.reason:
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
    return {alias for facts in weights_of(capture).values() for alias in facts.aliases}


def _untied(case: Case) -> Iterator[Sighting]:
    """Find two tensors that share memory in the reference and not in the candidate."""
    if case.reference is None:
        return
    aliases, weights = _ties(case.capture), weights_of(case.capture)
    for name, facts in weights_of(case.reference).items():
        for alias in facts.aliases:
            has_both = name in weights and alias in weights
            if has_both and alias not in aliases and name not in aliases:
                same = weights[name].ref.hash == weights[alias].ref.hash
                same_bytes = "they hold the same bytes, until one is trained" if same else ""
                shared = f"{alias} shares its memory with {name} in {case.reference.cell.stack}"
                separate = f"here it is a tensor of its own, {weights[alias].origin}"
                yield Sighting(alias, tuple(filter(None, (shared, separate, same_bytes))))


RULES = (
    Rule(
        RuleText(
            code="SB401",
            name="_tied_weights_keys is a list",
            kind="crash",
            looks_for="AttributeError: 'list' object has no attribute 'keys', of the cell or of a save "
            "in the same stack, with a class of the model that declares a list, or raised where "
            "weights are tied",
            cause="5.0 reads _tied_weights_keys as a dict from the tied name to its source: when it "
            "loads, if the config asks for ties, and whenever it saves.",
            remedy="Declare the dict. 4.x reads only its keys, so one form serves both.",
            example='_tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}',
            releases="5.0.0 and later",
            references=(
                "https://github.com/huggingface/transformers/issues/44861",
                "transformers/modeling_utils.py",
            ),
        ),
        _declared_as_list,
    ),
    Rule(
        RuleText(
            code="SB402",
            name="__init__ does not end with post_init()",
            kind="crash",
            looks_for="AttributeError for all_tied_weights_keys",
            cause="5.x collects the tied names in post_init(), and loading reads them.",
            remedy="Call self.post_init() at the end of every PreTrainedModel's __init__.",
            example="self.post_init()",
            releases="5.0.0 and later",
            references=("https://github.com/huggingface/transformers/issues/43883",),
        ),
        _no_post_init,
    ),
    Rule(
        RuleText(
            code="SB403",
            name="an overridden tie_weights does not take the new arguments",
            kind="crash",
            looks_for="TypeError: tie_weights() got an unexpected keyword argument",
            cause="5.x calls tie_weights(missing_keys=…, recompute_mapping=…).",
            remedy="Take and pass on whatever comes.",
            example="def tie_weights(self, *args, **kwargs):\n    super().tie_weights(*args, **kwargs)",
            releases="5.0.0 and later",
            references=("transformers/modeling_utils.py, tie_weights",),
        ),
        raised("TypeError", r"tie_weights\(\) got an unexpected keyword argument"),
    ),
    Rule(
        RuleText(
            code="SB404",
            name="embeddings that were tied are two tensors now",
            kind="silent",
            looks_for="two names that share memory in the reference and do not here",
            cause="4.x ties input and output embeddings of any model whose config does not say "
            "otherwise, and leaves tie_word_embeddings out of the config.json that it saves, as true "
            "is its default; 5.x ties what _tied_weights_keys names, and only where the config says "
            "tie_word_embeddings.",
            remedy="Do both: declare _tied_weights_keys as a dict, which 4.x reads as well, and write "
            "tie_word_embeddings into config.json.",
            example='_tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}\n'
            '{"tie_word_embeddings": true}  # config.json',
            releases="5.0.0 and later",
            references=("transformers/modeling_utils.py, tie_weights",),
        ),
        _untied,
    ),
)
