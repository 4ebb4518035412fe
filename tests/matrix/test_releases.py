"""Tests of the stacks added for releases between those of a matrix, with a fake resolver."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from samebits.base.errors import SelectionError, StackError
from samebits.matrix.plan import Selection, plan
from samebits.matrix.releases import scanned, widened
from samebits.matrix.spec import Matrix
from samebits.stacks.build import release_pattern
from tests.support.builders import model_spec, stack_spec

RELEASED = (
    *("4.47.1", "4.48.0", "4.48.3", "4.49.0", "4.51.2", "4.51.3", "4.57.6"),
    *("5.0.0", "5.1.0", "5.2.0", "5.3.0", "5.3.1", "5.23.0"),
)

TOKENIZERS = ("0.20.3", "0.21.0", "0.21.4", "0.22.0", "0.22.1", "0.22.2")


class Index:
    """A fake of uv's resolver that uses a list of releases."""

    def __init__(self, released=RELEASED, tokenizers=TOKENIZERS, own="0.22.2"):
        self.released = sorted(released, key=Version)
        self.tokenizers = tokenizers
        self.own = own
        self.requests = []

    def version(self, spec):
        pattern = release_pattern(spec.transformers).replace(".", r"\.").replace("*", ".*")
        fitting = [v for v in self.released if re.fullmatch(pattern, v)]
        if not fitting:
            raise StackError(f"stack {spec.id}: no resolution")
        return fitting[-1]

    def below(self, spec, version, oldest):
        self.requests.append((spec.id, version))
        low, high = Version(oldest), Version(version)
        return [v for v in self.released if low <= Version(v) < high][-1]

    def installed(self, spec, package):
        return self.own

    def newest(self, spec, requirement):
        asked = Requirement(requirement)
        fitting = [v for v in self.tokenizers if v in asked.specifier]
        return max(fitting, key=Version) if fitting else None


def matrix(*stacks, **more):
    return Matrix(
        path="matrix.yaml", stacks=stacks, reference=stacks[0].id, models=(model_spec(),), **more
    )


def family(*ids):
    return tuple(stack_spec(id) for id in ids)


def ids(matrix):
    return [spec.id for spec in matrix.stacks]


def test_the_newest_patch_of_every_minor_release_comes_in_between():
    index = Index()
    wide = widened(matrix(*family("4.48", "4.57", "5.2", "5.x")), index)
    assert ids(wide) == ["4.48", "4.49", "4.51", "4.57", "5.0", "5.1", "5.2", "5.3", "5.x"]
    added = [spec for spec in wide.stacks if spec.between]
    assert [spec.id for spec in added] == ["4.49", "4.51", "5.0", "5.1", "5.3"]
    assert {spec.transformers: index.version(spec) for spec in added}["4.51"] == "4.51.3"
    assert {id for id, _ in index.requests} == {"5.x"}  # whose torch and Python the others get


def test_two_neighbours_have_nothing_between_them():
    stacks = family("5.1", "5.2")
    assert ids(widened(matrix(*stacks), Index())) == ["5.1", "5.2"]
    assert ids(widened(matrix(*stacks[:1]), Index())) == ["5.1"]
    assert ids(widened(matrix(*family("4.48.0", "4.48")), Index())) == ["4.48.0", "4.48"]


def test_stacks_come_in_the_order_of_releases_whatever_they_are_called():
    stacks = stack_spec("new", "5.x"), stack_spec("old", "4.51"), stack_spec("5.0", "5.2")
    wide = widened(matrix(*stacks), Index())
    assert ids(wide) == ["old", "4.57", "transformers-5.0.0", "5.1", "5.0", "5.3", "new"]


def test_those_that_are_added_are_like_the_newest_stack_and_make_no_checkpoint():
    newest = stack_spec("5.x", torch="2.14.0", python="3.12", packages=("accelerate",))
    wide = widened(matrix(stack_spec("5.1"), newest), Index())
    (added,) = (spec for spec in wide.stacks if spec.id == "5.2")
    assert (added.torch, added.python, added.packages) == ("2.14.0", "3.12", ())
    assert [spec.id for spec in wide.stacks if not spec.between] == ["5.1", "5.x"]


def test_saves_and_loads_of_every_pair_are_left_out():
    before = matrix(*family("5.1", "5.x"))
    assert before.models[0].asks("crossings")
    assert not widened(before, Index()).models[0].asks("crossings")


def test_the_reference_stays_and_filters_know_what_was_added():
    wide = widened(matrix(*family("4.48", "5.x")), Index())
    assert wide.reference == "4.48"
    (row,) = plan(wide, Selection.parse(environments="5.1,5.2")).rows
    assert ([cell.stack for cell in row.cells], row.reference) == (["5.1", "5.2"], "5.1")


def test_a_stack_that_cannot_be_resolved_is_an_error():
    with pytest.raises(StackError, match="no resolution"):
        widened(matrix(*family("4.48", "6.x")), Index())


versions = st.builds("{}.{}.{}".format, st.integers(4, 6), st.integers(0, 12), st.integers(0, 3))


@st.composite
def drawn(draw, **options):
    """Return releases, those of the stacks, the widened matrix, and the version of each of its stacks."""
    released = draw(st.sets(versions, min_size=2))
    ends = draw(st.lists(st.sampled_from(sorted(released)), min_size=2, unique=True))
    ends.sort(key=Version)
    index = Index(released)
    stacks = tuple(stack_spec(f"s{n}", version) for n, version in enumerate(ends))
    wide = widened(matrix(*stacks), index, **options)
    return released, ends, wide, [index.version(spec) for spec in wide.stacks]


@given(drawn())
def test_no_minor_release_is_left_out_and_none_stands_twice(drawn):
    released, ends, wide, of_stacks = drawn
    stack_versions = [*map(Version, of_stacks)]
    low, high = Version(ends[0]), Version(ends[-1])
    inside = {v.release[:2] for v in map(Version, released) if low <= v <= high}
    assert {v.release[:2] for v in stack_versions} == inside
    assert stack_versions == sorted(stack_versions)
    added = [v.release[:2] for v, s in zip(stack_versions, wide.stacks, strict=True) if s.between]
    assert len(added) == len(set(added))
    assert not set(added) & {Version(end).release[:2] for end in ends}


def test_a_bug_of_one_patch_release_is_between_the_stacks_with_all_of_them():
    released = ("4.52.1", "4.52.3", "4.52.4", "4.53.0", "4.53.1")
    wide = widened(matrix(*family("4.52.1", "4.53")), Index(released), patches=True)
    assert ids(wide) == ["4.52.1", "4.52.3", "4.52.4", "4.53.0", "4.53"]
    added = {spec.id: spec.transformers for spec in wide.stacks if spec.between}
    assert added == {id: id for id in ("4.52.3", "4.52.4", "4.53.0")}
    alone = widened(matrix(*family("4.52.4")), Index(released), patches=True)
    assert ids(alone) == ["4.52.4"]


@given(drawn(patches=True))
def test_with_all_no_release_is_left_out_and_none_stands_twice(drawn):
    released, ends, _, of_stacks = drawn
    low, high = Version(ends[0]), Version(ends[-1])
    assert of_stacks == sorted((v for v in released if low <= Version(v) <= high), key=Version)


def test_a_scan_runs_the_newest_stack_with_the_releases_of_another_package():
    newest = stack_spec("5.x", packages=("peft", "tokenizers>=0.20"))
    scan = scanned(matrix(*family("4.48"), newest), "tokenizers", Index())
    assert ids(scan) == ["tokenizers-0.20.3", "tokenizers-0.21.4", "5.x"]
    assert scan.reference == "5.x"
    added = [spec for spec in scan.stacks if spec.between]
    assert {spec.transformers for spec in added} == {"5.23.0"}
    assert [spec.packages for spec in added] == [
        ("peft", "tokenizers==0.20.3"),
        ("peft", "tokenizers==0.21.4"),
    ]
    assert not scan.models[0].asks("crossings")


def test_a_scan_can_be_bounded_and_torch_is_the_stack_s_own_key():
    scan = scanned(matrix(*family("5.x")), "tokenizers>=0.21", Index())
    assert ids(scan) == ["tokenizers-0.21.4", "5.x"]
    scan = scanned(matrix(*family("5.x")), "tokenizers>=0.22", Index())
    assert ids(scan) == ["tokenizers-0.22.0", "tokenizers-0.22.1", "5.x"]
    scan = scanned(matrix(*family("5.x")), "torch<0.22", Index(own="0.22.2"))
    assert [(s.torch, s.packages) for s in scan.stacks if s.between] == [
        ("0.20.3", ()),
        ("0.21.4", ()),
    ]


def test_a_package_that_the_stack_does_not_have_is_scanned_from_its_newest_release_on():
    scan = scanned(matrix(*family("5.x")), "peft", Index(own=None))
    assert ids(scan) == ["peft-0.20.3", "peft-0.21.4", "peft-0.22.2"]
    assert scan.reference == "peft-0.22.2"


@pytest.mark.parametrize(
    ("scan", "message"),
    [
        ("transformers", "another package than transformers"),
        ("tokenizers>=9", "no release of tokenizers but 0.22.2 fits environment 5.x"),
        ("not a package", "not a package, such as tokenizers"),
    ],
)
def test_a_scan_that_varies_nothing_says_why(scan, message):
    with pytest.raises(SelectionError, match=message):
        scanned(matrix(*family("5.x")), scan, Index())
