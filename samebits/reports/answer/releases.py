"""Releases as a sentence names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.records.report import Report


def release(stack: str, report: Report) -> str:
    """Return the name of a stack; of a family such as ``5.x``, and of a checkout, the version that it stands for."""
    has = version(stack, report)
    return has if stack.endswith(".x") or "+" in has else stack


def version(stack: str, report: Report) -> str:
    """Return the release of transformers that a stack has."""
    listed = (entry.transformers for entry in report.stacks if entry.id == stack)
    return next(listed, None) or stack


def listed(stacks: list[str], report: Report) -> str:
    """Return several stacks in one phrase."""
    return ", ".join(release(stack, report) for stack in stacks)
