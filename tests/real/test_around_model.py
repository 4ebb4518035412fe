"""What users do around a model, on real stacks: every finding is provoked, and none where it is not."""

import re

import pytest

from samebits.questions.usage.records import signals_of
from samebits.reports import document
from tests.support.pages import beside_models

pytestmark = pytest.mark.long  # for changes of questions/usage and questions/relations

MATRIX = """
environments: ["4.48", "4.57", "5.2", "5.x"]
defaults:
  dtypes: [float32]
  greedy: 0
  questions: [usage]
  prompts: {short: {length: 9}}
models:
  llama: {build: {architecture: llama, config: {
    vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 2,
    num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 128, eos_token_id: null}}}
  mistral: {build: {architecture: mistral, config: {
    vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 2,
    num_attention_heads: 4, num_key_value_heads: 2, sliding_window: 8,
    max_position_embeddings: 128, eos_token_id: null}}}
  eager: {attention: [eager], build: {architecture: gpt2, config: {
    vocab_size: 99, n_embd: 48, n_layer: 2, n_head: 4, n_positions: 64, eos_token_id: null}}}
  bert: {build: {architecture: bert, head: masked-lm, config: {
    vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 2,
    num_attention_heads: 4}}}
  unused: {usage: false, build: {architecture: gpt2, config: {
    vocab_size: 99, n_embd: 48, n_layer: 2, n_head: 4, n_positions: 64, eos_token_id: null}}}
"""
SDPA, SLIDING = ("llama", "mistral"), ("mistral",)
TEXT = ("llama", "mistral", "eager")
EVERY = (*TEXT, "bert")
MET = {
    "4.48": {
        "SB902": SDPA,
        "SB903": TEXT,
        "SB905": ("eager",),
        "SB906": TEXT,
        # what the reference alone raises is listed for it: prompt lookup has no end
        "SB932": TEXT,
    },
    "4.57": {
        "SB901": SDPA,
        "SB903": TEXT,
        "SB904": SLIDING,
        "SB906": TEXT,
        "SB907": TEXT,
        "SB908": TEXT,
        "SB910": EVERY,
        # with return_dict: false in its config a forward asks a tuple for a field
        "SB932": SDPA,
        # torchscript=True makes a load of 4.48 return tuples, and is dropped since; a load in bfloat16 has float32 in
        # its config there
        "SB960": EVERY,
    },
    "5.2": {
        "SB901": SDPA,
        "SB903": TEXT,
        "SB904": SLIDING,
        "SB907": TEXT,
        "SB908": TEXT,
        "SB909": EVERY,
        "SB910": EVERY,
        "SB911": EVERY,
        "SB932": SDPA,
        "SB960": EVERY,
    },
    "5.x": {
        # a window is read there as the number of one device
        "SB894": ("mistral",),
        "SB901": SDPA,
        "SB903": TEXT,
        "SB904": SLIDING,
        "SB905": TEXT,
        "SB908": TEXT,
        "SB909": EVERY,
        "SB910": EVERY,
        "SB911": EVERY,
        "SB932": TEXT,
        "SB960": EVERY,
        "SB954": ("llama",),
    },
}
"""Stack -> finding -> the models that show it; no others do."""


@pytest.fixture(scope="module")
def usage(report):
    return {
        (row.model, stack): found for row in report.rows for stack, found in signals_of(row).items()
    }


@pytest.mark.parametrize("stack", MET)
def test_each_stack_is_named_for_what_it_answers_and_for_nothing_else(report, stack):
    (found,) = [one.findings for one in report.stacks if one.id == stack]
    assert {finding.code: finding.models for finding in found} == MET[stack]


def test_cells_have_neither_the_findings_nor_a_worse_verdict(report):
    cells = [cell for row in report.rows for cell in row.cells]
    assert all(cell.verdict.passes for cell in cells)
    found = [(cell.cell.model, f.code) for cell in cells for f in cell.findings]
    # the SlidingWindowCache of 4.48 loses a position when it is exactly full, which is so in step four
    # 4.48 saves the names of a norm that the checkpoint has, and later releases their own
    # from 4.57 on set_decoder() hands the decoder to the decoder that there is
    misplaced = {(m, "SB946") for m in SDPA}
    # 5.0 took parallelize() from GPT-2
    gone = ("eager", "SB959")
    # 5.x refuses BERT's mask for each pair of tokens
    refused = ("bert", "SB931")
    assert {*found} == {("mistral", "SB916"), ("bert", "SB311"), gone, refused} | misplaced
    assert len(found) == 2 + 3 * len(misplaced) + found.count(gone) + found.count(refused)
    assert found.count(gone) == sum(stack >= "5" for stack in MET)
    refusing = [cell for cell in cells if any(f.code == refused[1] for f in cell.findings)]
    assert [cell.cell.stack for cell in refusing] == [stack for stack in MET if stack >= "5"]


def test_a_cache_of_a_window_that_forgets_is_found_where_it_does_and_nowhere_else(report, usage):
    (cell,) = [
        c.cell for r in report.rows for c in r.cells if "SB916" in {f.code for f in c.findings}
    ]
    assert (cell.model, cell.stack) == ("mistral", "4.48")
    assert usage["mistral", "4.48"].static.agrees("float32")
    agree = [
        call.agrees("float32")
        for (_, stack), observed in usage.items()
        if stack != "4.48"
        for call in (observed.caches or {}).values()
    ]
    assert agree
    assert all(agree)


def test_nothing_is_tried_of_a_model_that_is_not_to_be_used(usage):
    assert not any(model == "unused" for model, _ in usage)


def test_what_has_no_meaning_is_said_with_a_reason(usage):
    for stack in MET:
        skips = dict(usage["bert", stack].skips)
        assert skips.pop("generation") == "BertForMaskedLM does not generate from token ids"
        assert set(skips.values()) == {"BertForMaskedLM is no causal language model"}
        assert usage["llama", stack].skips == {}


def test_attention_maps_come_by_eager_alone(usage):
    given = [usage["llama", stack].attentions.given for stack in MET]
    assert given == ["tensors", "None", "an empty tuple", "an empty tuple"]
    assert all("ValueError" in usage["llama", s].attentions.set_in_config for s in MET if s > "4.5")
    assert all(usage["eager", stack].attentions.logits_changed is False for stack in MET)


def test_packed_sequences_are_apart_without_a_mask_and_a_cache_alone(usage):
    for stack in MET:
        packed = usage["llama", stack].packed
        alone, *others = (packed.sees(way, "float32") for way in packed.ways)
        assert (alone, others) == (stack == "4.48", [True, True])
        near = packed.ways[0].from_alone < 1e-4
        assert near == (stack != "4.48")


def test_a_sliding_layer_keeps_one_position_less_than_its_window(usage):
    held = {stack: usage["mistral", stack].cache for stack in MET}
    assert {stack: found.layers[0].keys for stack, found in held.items()} == {
        "4.48": 40,
        "4.57": 7,
        "5.2": 7,
        "5.x": 7,
    }
    assert {found.seq_length for found in held.values()} == {40}


def test_positions_handed_to_generate_stand_still_and_then_advance(usage):
    fed = {stack: usage["llama", stack].position_ids.fed for stack in MET}
    assert fed["4.48"] == fed["4.57"] == (4, 4, 4, 4)
    assert fed["5.2"] == fed["5.x"] == (4, 5, 6, 7)


def test_the_report_says_it_once_and_in_few_lines(report):
    documents = document.render(report)
    section = beside_models(documents).partition("## API checks")[2].partition("\n## ")[0]
    assert 500 < len(section.encode()) < 7000
    assert documents["api-checks.md"].count("**Remedy.**") == 15
    pages = {name: text for name, text in documents.items() if name.startswith("models/")}
    assert "SB916" in pages.pop("models/mistral.md")
    named = {code for text in pages.values() for code in re.findall("SB9[0-9]+", text)}
    # SB946 is of the model's class, and names SB931; SB932 stands in what to do about a model that rounds
    assert named == {"SB931", "SB932", "SB946", "SB959"}
