"""SB1xx: rules for names and inherited methods that a release renamed, moved or removed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from samebits.base.finding_pages import finding_page
from samebits.findings.case import Case
from samebits.findings.rule import RAISED, Rule, Sighting, of_exception
from samebits.lint.names import mask_of, releases_without
from samebits.records.code import ImportFact

_KWARGS_NAMES = frozenset({"LossKwargs", "TransformersKwargs"})
_MASKS = "masking_utils"
_FROM = r"from '(?P<module>transformers[\w.]*)'|No module named '(?P<missing>transformers[\w.]*)'"


def _raised_name(case: Case) -> str | None:
    """Return the name whose import from transformers raised the cell's exception."""
    imported = case.raised(
        "ImportError|ModuleNotFoundError", r"cannot import name '(\w+)' from 'tr"
    )
    if imported:
        return imported[1]
    missing_module = case.raised("ModuleNotFoundError", r"No module named '(transformers[\w.]*)'")
    return missing_module[1].rpartition(".")[2] if missing_module else None


def _missing_imports(case: Case) -> list[ImportFact]:
    """Return unguarded imports of names that this stack lacks; empty if the model runs.

    Python stops at the first one. This list has those after it, too.
    """
    if case.failure is None:
        return []
    return [fact for fact in case.imports if not fact.symbol.found and not fact.guarded]


def _sighting(case: Case, fact: ImportFact) -> Sighting:
    lines = [f"{fact.symbol.owner} of this release has no {fact.symbol.name}"]
    if fact.symbol.elsewhere:
        lines.append(f"it is in {', '.join(fact.symbol.elsewhere)}")
    elif fact.symbol.similar:
        lines.append(f"similar names there: {', '.join(fact.symbol.similar)}")
    is_raised = _raised_name(case) in (fact.symbol.name, fact.symbol.owner.rpartition(".")[2])
    lines += case.exception_lines() if is_raised else ("not reached yet: the load fails before it",)
    return Sighting(f"{fact.file}:{fact.line}", tuple(lines))


def _imports_of(names: frozenset[str], case: Case) -> Iterator[Sighting]:
    facts = [fact for fact in _missing_imports(case) if fact.symbol.name in names]
    yield from (_sighting(case, fact) for fact in facts)
    raised_name = _raised_name(case)
    reported = {part for f in facts for part in (f.symbol.name, f.symbol.owner.rpartition(".")[2])}
    if raised_name in names - reported:
        yield Sighting(case.raised_at(), case.exception_lines())


def _loss_kwargs(case: Case) -> Iterator[Sighting]:
    return _imports_of(_KWARGS_NAMES, case)


def _removed_names(case: Case) -> Iterator[Sighting]:
    instead = finding_page("SB102").instead
    for where, evidence, *_ in _imports_of(frozenset(instead) | {_MASKS}, case):
        names = (name for name in instead if any(re.search(rf"\b{name}\b", e) for e in evidence))
        advice = tuple(f"instead of {name}: {instead[name]}" for name in names)
        yield Sighting(where, (*evidence, *advice))
    yield from _listed_names(case)


def _listed_names(case: Case) -> Iterator[Sighting]:
    """Find the import of a name or module without advice that samebits lint knows to be missing in releases."""
    name = _raised_name(case)
    if name is None or name in {*finding_page("SB102").instead, *_KWARGS_NAMES, _MASKS}:
        return
    raised = case.raised("ImportError|ModuleNotFoundError", _FROM)
    module = raised and (raised["module"] or raised["missing"])
    mask = mask_of(module, name if raised["module"] else "*") if raised and module else None
    if mask is not None:
        has_no = f"{module} has no {name}" if raised and raised["module"] else f"no {module}"
        advice = f"{has_no} in {releases_without(mask)}"
        fallback = "import it in a try, with a fallback in `except ImportError`"
        yield Sighting(case.raised_at(), (*case.exception_lines(), advice, fallback))


def _no_generation_mixin(case: Case) -> Iterator[Sighting]:
    """Find a head class without GenerationMixin in a cell that does not generate."""
    reasons = [skip.reason for skip in case.capture.skips if skip.why == "no generation"]
    if not reasons:
        return
    load = case.capture.signals.load
    for fact in case.classes:
        bases = {base.rpartition(".")[2] for base in fact.bases}
        is_head = load is not None and fact.name == load.model_class and "CausalLM" in fact.name
        is_model = any(base.endswith("PreTrainedModel") for base in bases)
        if is_head and is_model and "GenerationMixin" not in bases:
            declared = f"class {fact.name}({', '.join(fact.bases)})"
            yield Sighting(
                f"{fact.file}:{fact.line}",
                (f"{declared} does not derive from GenerationMixin", *reasons),
            )


_WITH_CODES = frozenset(
    {"__init__", "forward", "prepare_inputs_for_generation", "tie_weights", "_pad"}
)
"""Methods whose arguments other rules name."""


def _refused_argument(case: Case) -> Iterator[Sighting]:
    """Find an own method that refuses what the library passes to the method that it overrides."""
    match = case.raised("TypeError", r"(\w+)\.(\w+)\(\) got an unexpected keyword argument '(\w+)'")
    if match is None or match[2] in _WITH_CODES or any(f.own for f in case.frames[-1:]):
        return
    for fact in case.classes:
        if fact.name == match[1] and match[2] in fact.methods:
            yield Sighting(f"{fact.file}:{fact.line}", case.exception_lines())


RULES = (
    Rule("SB101", _loss_kwargs, explains=RAISED),
    Rule("SB102", _removed_names, explains=RAISED),
    Rule("SB103", _no_generation_mixin),
    of_exception(
        "SB104",
        "AttributeError",
        r"has no attribute '(get_head_mask|get_extended_attention_mask|invert_attention_mask"
        r"|create_extended_attention_mask_for_decoder|_extract_past_from_model_output"
        r"|_validate_model_class|_autoset_attn_implementation|_temporary_reorder_cache|_get_cache"
        r"|_get_initial_cache_position|_prepare_encoder_decoder_kwargs_for_generation)'",
    ),
    of_exception(
        "SB105",
        "TypeError|ValueError",
        r"unexpected keyword argument '(dtype|use_flash_attention_2|load_in_8bit|load_in_4bit"
        r"|use_auth_token)'",
    ),
    Rule("SB113", _refused_argument, explains=RAISED),
)
