"""Releases as a sentence names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.records.report import Report


def release(stack: str, report: Report) -> str:
    """Return the name of a stack; of a family such as ``5.x``, the release that it stands for."""
    return version(stack, report) if stack.endswith(".x") else stack


def version(stack: str, report: Report) -> str:
    """Return the release of transformers that a stack has."""
    listed = (entry.transformers for entry in report.stacks if entry.id == stack)
    return next(listed, None) or stack


def listed(stacks: list[str], report: Report) -> str:
    """Return several stacks in one phrase."""
    return ", ".join(release(stack, report) for stack in stacks)
