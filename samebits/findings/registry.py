"""All rules, in the order of their codes, and their findings in one cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings import (
    attention,
    caches,
    configs,
    devices,
    generating,
    generation,
    imports,
    loading,
    processing,
    rotary,
    tokenizers,
    tokenizing,
    trainer,
    training,
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
    *tokenizing.RULES,
    *generating.RULES,
    *tokenizing.OF_CONTINUED,
    *processing.RULES,
    *training.RULES,
    *trainer.RULES,
    *usage.RULES,
    *devices.RULES,
)


def findings(case: Case) -> tuple[Finding, ...]:
    """Return the findings of all rules in one cell, in the order of the rules."""
    return tuple(
        Finding(
            code=rule.text.code,
            where=sighting.where,
            evidence=sighting.evidence,
            saver=sighting.saver,
        )
        for rule in RULES
        for sighting in rule.check(case)
    )


def texts(codes: Iterable[str]) -> tuple[RuleText, ...]:
    """Return the texts of the rules with these codes, in the order of the rules."""
    wanted = set(codes)
    return tuple(rule.text for rule in RULES if rule.text.code in wanted)
