"""A setting that a release dropped is named with the line that read it; one that it still reads is not."""

import pytest

from tests.real.conftest import NEW, OLD

MATRIX = """\
environments: ["4.48", "5.x"]
defaults: {greedy: 2, questions: [], prompts: {short: {length: 9}}}
models:
  relative: {build: {architecture: bert, head: masked-lm, config: &tiny {vocab_size: 64, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 2, max_position_embeddings: 32, position_embedding_type: relative_key}}}
  absolute: {build: {architecture: bert, head: masked-lm, config: {<<: *tiny, position_embedding_type: absolute, hidden_act: relu}}}
"""


@pytest.fixture(scope="module")
def found(cells):
    return {
        name: {finding.code: finding for finding in cells[name, NEW].findings}
        for name in ("relative", "absolute")
    }


def test_what_bert_no_longer_reads_explains_the_difference(found, cells):
    finding = found["relative"]["SB212"]
    assert finding.where == "position_embedding_type"
    assert f"{OLD} reads it in models/bert/modeling_bert.py:" in finding.evidence[1]
    explained = {explanation.code for explanation in cells["relative", NEW].explained_by}
    assert "SB212" in explained


def test_a_setting_that_both_read_is_not_named(found, cells):
    assert cells["absolute", NEW].verdict in ("identical", "rounding")
    assert found["absolute"].keys() & {"SB211", "SB212"} == set()
