"""All rules, and what they say of one cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings import (
    attention,
    caches,
    configs,
    generation,
    imports,
    loading,
    rotary,
    tokenizers,
    tying,
    usage,
)
from samebits.records.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.findings.case import Case
    from samebits.findings.rule import Rule
    from samebits.records.finding import RuleText

RULES: tuple[Rule, ...] = (
    *imports.RULES,
    *configs.RULES,
    *loading.RULES,
    *tying.RULES,
    *rotary.RULES,
    *attention.RULES,
    *caches.RULES,
    *generation.RULES,
    *tokenizers.RULES,
    *usage.RULES,
)


def findings(case: Case) -> tuple[Finding, ...]:
    """Return what every rule saw in one cell, in the order of the rules."""
    return tuple(
        Finding(code=rule.text.code, where=seen.where, evidence=seen.evidence)
        for rule in RULES
        for seen in rule.check(case)
    )


def texts(codes: Iterable[str]) -> tuple[RuleText, ...]:
    """Return what the rules of these codes say of every finding alike, in the order of the rules."""
    spoke = set(codes)
    return tuple(rule.text for rule in RULES if rule.text.code in spoke)
