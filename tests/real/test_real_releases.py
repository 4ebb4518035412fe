"""uv's own resolver knows which releases lie between two stacks."""

import os

from samebits.matrix.releases import widened
from samebits.matrix.spec import Matrix
from samebits.stacks.build import StackBuilder
from samebits.stacks.installer import Installer
from tests.support.builders import model_spec, stack_spec


def test_the_releases_between_two_stacks_are_those_of_the_index(tmp_path):
    stacks = stack_spec("4.56"), stack_spec("5.2")
    matrix = Matrix(path="m.yaml", stacks=stacks, reference="4.56", models=(model_spec(),))
    builder = StackBuilder(tmp_path, Installer(os.environ))
    wide = widened(matrix, builder)
    found = {spec.id: builder.version(spec) for spec in wide.stacks}
    assert found == {
        "4.56": "4.56.2",
        "4.57": "4.57.6",
        "5.0": "5.0.0",
        "5.1": "5.1.0",
        "5.2": "5.2.0",
    }
