"""Prompts are texts where a model has a tokenizer: both stacks feed the ids that it makes."""

import json
import shutil

import pytest

from samebits.matrix.plan import Selection

WORDS = [
    "[UNK]",
    "The",
    "capital",
    "of",
    "France",
    "is",
    "Once",
    "upon",
    "a",
    "time",
    ",",
    "there",
    "was",
    "cat",
    "named",
    "Whiskers",
    ".",
]


@pytest.fixture
def folder(tmp_path, planted):
    made = tmp_path / "worded"
    shutil.copytree(planted("none"), made)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: index for index, word in enumerate(WORDS)},
            "unk_token": "[UNK]",
        },
    }
    (made / "tokenizer.json").write_text(json.dumps(tokenizer))
    (made / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"})
    )
    (tmp_path / "matrix.yaml").write_text(
        'environments: ["4.48", "5.x"]\n'
        "defaults: {greedy: 0, questions: [relations, save_load, usage], prompts: {short: The capital of France is}}\n"
        "models:\n  worded: {path: worded, trust_remote_code: true}\n"
        "  newer: {path: newer, trust_remote_code: true}\n"
    )
    newer = tmp_path / "newer"
    shutil.copytree(made, newer)
    told = {"tokenizer_class": "TokenizersBackend", "unk_token": "[UNK]"}
    (newer / "tokenizer_config.json").write_text(json.dumps(told))
    return tmp_path


def test_the_text_is_fed_as_its_tokens(folder, run_in):
    report = run_in(folder, selection=Selection.parse(models="worded"))
    assert report.exit_code == 0, report.reasons
    (path,) = folder.glob(".samebits/captures/worded/*/4.48/*/a.json")
    forward = json.loads(path.read_text())["signals"]["forward"]["short"]
    assert forward["text"] == "The capital of France is"
    assert forward["inputs"]["input_ids"]["shape"] == [1, 5]
    stored = folder / ".samebits" / "tensors" / forward["inputs"]["input_ids"]["hash"][:2]
    (data,) = stored.glob(f"{forward['inputs']['input_ids']['hash']}.bin")
    ids = [int.from_bytes(data.read_bytes()[i : i + 8], "little") for i in range(0, 40, 8)]
    assert ids == [WORDS.index(word) for word in ["The", "capital", "of", "France", "is"]]
    seen = report.rows[0].tokenizers
    assert [s.class_name for s in seen.values()] == ["PreTrainedTokenizerFast", "TokenizersBackend"]
    assert [s.texts["short"].ids for s in seen.values()] == [tuple(ids)] * 2
    found = {finding.code: finding for finding in report.rows[0].cells[1].findings}
    assert found.keys() == {"SB210", "SB931"}
    # the planted class names no embeddings, which 5.x finds by itself
    assert "get_input_embeddings" in found["SB931"].evidence[0]
    assert found["SB210"].evidence[0] == "4.48: writes special_tokens_map.json"
    said = {stack.id: {finding.code for finding in stack.findings} for stack in report.stacks}
    assert said["4.48"] == set()
    assert {code for code in said["5.x"] if code.startswith("SB8")} == {"SB802", "SB809", "SB829"}


def test_a_tokenizer_that_5_saved_is_named_where_4_does_not_know_its_class(folder, run_in):
    report = run_in(folder, selection=Selection.parse(models="newer"))
    (row,) = report.rows
    old, new = row.cells
    assert (old.verdict, old.failure.phase) == ("failed", "tokenizer")
    found = {finding.code: finding for finding in old.findings}
    assert found.keys() == {"SB810", "SB931"}
    # the planted class names no embeddings, which 5.x finds by itself
    assert "get_input_embeddings" in found["SB931"].evidence[0]
    # the model is fed by tokenizer.json, and compared
    signals = {s.signal: s.outcome for cell in (old, new) for s in cell.signals}
    assert (signals["inputs"], signals["weights"]) == ("identical", "identical")
