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
                same_bytes = (
                    "both have the same bytes, until one of them is trained" if same else ""
                )
                shared = f"{alias} shares its memory with {name} in {case.reference.cell.stack}"
                separate = f"here it is a separate tensor, {weights[alias].origin}"
                yield Sighting(alias, tuple(filter(None, (shared, separate, same_bytes))))


RULES = (
    Rule(
        RuleText(
            code="SB401",
            name="_tied_weights_keys is a list",
            kind="crash",
            looks_for="AttributeError: 'list' object has no attribute 'keys', raised while the "
            "model loads or is saved, if a class of the model declares _tied_weights_keys as a "
            "list or if the failing line ties weights",
            cause="Since 5.0 _tied_weights_keys is a dict: name of the tied tensor -> name of "
            "its source. A list, the form of 4.x, raises AttributeError: always when the model is "
            "saved, and when it is loaded if config.tie_word_embeddings is true. Affected: custom "
            "models with the list of 4.x.",
            remedy="Declare a dict. 4.x only iterates over the names, so the dict works in all "
            "releases.",
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
            name="`__init__` does not call `post_init()`",
            kind="crash",
            looks_for="AttributeError for all_tied_weights_keys",
            cause="Since 5.0 post_init() collects the tied names in all_tied_weights_keys, "
            "and from_pretrained reads them. A model whose __init__ does not call post_init() "
            "raises AttributeError while it loads. Affected: custom models without this call, "
            "which 4.x accepts.",
            remedy="Call self.post_init() at the end of the __init__ of every class that "
            "derives from PreTrainedModel.",
            example="self.post_init()",
            releases="5.0.0 and later",
            references=("https://github.com/huggingface/transformers/issues/43883",),
        ),
        _no_post_init,
    ),
    Rule(
        RuleText(
            code="SB403",
            name="a custom `tie_weights` does not accept the new arguments",
            kind="crash",
            looks_for="TypeError: tie_weights() got an unexpected keyword argument",
            cause="5.x calls `tie_weights(missing_keys=…, recompute_mapping=…)`. A custom "
            "tie_weights(self) does not accept these arguments and raises TypeError while the "
            "model loads. Affected: custom models that override tie_weights.",
            remedy="Accept all arguments and pass them on.",
            example="def tie_weights(self, *args, **kwargs):\n    super().tie_weights(*args, **kwargs)",
            releases="5.0.0 and later",
            references=("transformers/modeling_utils.py, tie_weights",),
        ),
        raised("TypeError", r"tie_weights\(\) got an unexpected keyword argument"),
    ),
    Rule(
        RuleText(
            code="SB404",
            name="embeddings that were tied are now two tensors",
            kind="silent",
            looks_for="two names that share memory in the reference and do not share it in this "
            "release",
            cause="4.x ties input and output embeddings unless the config says "
            "tie_word_embeddings=false. As true is its default, the config.json that it saves "
            "does not contain the field. 5.x ties only what _tied_weights_keys names, and only if "
            "the config says tie_word_embeddings=true. Otherwise the head is a tensor of its own: "
            "random, if the checkpoint does not contain it. Affected: custom models that rely on "
            "get_output_embeddings() and on the default of 4.x.",
            remedy="Declare _tied_weights_keys as a dict, which 4.x accepts too, and write "
            "tie_word_embeddings into config.json. Both are needed.",
            example='_tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}\n'
            '{"tie_word_embeddings": true}  # config.json',
            releases="5.0.0 and later",
            references=("transformers/modeling_utils.py, tie_weights",),
        ),
        _untied,
    ),
)
