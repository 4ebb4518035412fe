"""Addresses of what changed upstream between two stacks."""

import pytest

from samebits.records.report import StackReport
from samebits.reports.sections.releases import upstream
from tests.support.builders import bare_report


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("5.15.1", "v5.15.1"),
        ("5.16.0.dev0+git.decba1d2ea", "decba1d2ea"),
        ("5.16.0.dev0+git.decba1d2ea.dirty.60e0ecd08c", ""),
        ("5.16.0.dev0+files.60e0ecd08c", ""),
    ],
)
def test_a_checkout_is_named_by_its_commit_if_upstream_can_have_it(version, name):
    stacks = (StackReport(id="a", transformers="5.14.0"), StackReport(id="b", transformers=version))
    address = upstream(bare_report(["a", "b"]).model_copy(update={"stacks": stacks}), "a", "b")
    assert address.rpartition("/")[2] == (f"v5.14.0...{name}" if name else "")
