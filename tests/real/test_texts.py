"""Tokenizers and chat templates over real releases: published regressions are named, twins are not."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from samebits.findings.case import Case
from samebits.findings.registry import findings
from samebits.records.tokenizer import TokenizerSignal
from samebits.stacks.environment import probe_environment
from tests.support.builders import Memory, sound
from tests.support.chat_templates import PLAIN, TOOLS
from tests.support.tokenizer_kinds import added, byte_level, template, write

ROOT = Path(__file__).parents[2]
ASK = """
import json, logging, sys
sys.path.insert(0, sys.argv[1])
from samebits_probe.cell import backend, chat, texts, tokenizer
from samebits_probe.model.load import Source, load_tokenizer
logging.disable(logging.WARNING)
for name, folder in json.loads(sys.argv[2]).items():
    source = Source(folder, None, False, "float32", "default", "cpu")
    loaded = load_tokenizer(source)
    facts = tokenizer.facts(source, {})
    facts["parts"] = backend.facts(loaded, source)
    facts["conversations"] = chat.facts(loaded)
    facts["corpus"] = texts.facts(loaded, source)
    print(json.dumps([name, facts]))
"""
"""Asks for what the phase ``tokenizer`` observes of some folders, without their models."""

DIGITS = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}
CASED = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": False,
}
NAMED = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": TOOLS}]

PLANTED = {
    "llama-over-byte-level": (("byte-level", "LlamaTokenizerFast"), {}, {"SB801"}),
    "qwen2-without-nfc": (
        ("byte-level", "Qwen2TokenizerFast"),
        {"model_type": "qwen2"},
        {"SB806", "SB815"},
    ),
    "llama-2": (("metaspace", "LlamaTokenizer"), {}, {"SB806", "SB815"}),
    "xlm-roberta": (
        ("unigram", "XLMRobertaTokenizer"),
        {"model_type": "xlm-roberta"},
        {"SB806", "SB811"},
    ),
    "roberta-over-wordpiece": (
        ("wordpiece", "RobertaTokenizer"),
        {"model_type": "roberta"},
        {"SB806", "SB812", "SB815"},
    ),
    "gemma-over-llama-2": (
        ("metaspace", "GemmaTokenizer"),
        {"model_type": "gemma"},
        {"SB806", "SB817"},
    ),
}
"""Name -> arguments and options of ``write``, and the findings of the newest release."""

CLEAN = {
    "byte-level": (("byte-level",), {"chat_template": TOOLS}),
    "metaspace": (("metaspace",), {"chat_template": PLAIN}),
    "unigram": (("unigram",), {"model_type": "t5"}),
    "wordpiece": (("wordpiece",), {"model_type": "bert"}),
    "with-bos": (("byte-level",), {"parts": {"post_processor": template(("<s>", 1))}}),
    "added-tokens": (
        ("byte-level",),
        {
            "parts": {
                "added_tokens": added(("<unk>", "<s>", "</s>", "<pad>"))
                + added(
                    ("<think>", "Paris"), first=len(byte_level()["model"]["vocab"]), special=False
                )
                + added(
                    ("<|im_end|>",),
                    first=len(byte_level()["model"]["vocab"]) + 2,
                    lstrip=True,
                    rstrip=True,
                )
            }
        },
    ),
    "gpt2": (("byte-level", "GPT2Tokenizer"), {"model_type": "gpt2", "slow_files": True}),
    "granite": (
        ("byte-level", "GPT2Tokenizer"),
        {"model_type": "granite", "parts": {"pre_tokenizer": DIGITS}},
    ),
    "deepseek": (
        ("byte-level", "LlamaTokenizerFast"),
        {"model_type": "deepseek_v3", "add_bos_token": False},
    ),
    "bert": (("wordpiece", "BertTokenizer"), {"model_type": "bert", "slow_files": True}),
    "bert-cased": (
        ("wordpiece", "BertTokenizer"),
        {"model_type": "bert", "do_lower_case": False, "parts": {"normalizer": CASED}},
    ),
    "distilbert": (("wordpiece", "DistilBertTokenizer"), {"model_type": "distilbert"}),
    "named-templates": (("byte-level",), {"chat_template": NAMED}),
}
"""Name -> arguments and options of ``write``; all releases make the same of their texts."""

REFUSED_BY_4 = {"gpt2": {"SB818"}, "granite": {"SB818"}}
"""4.x's GPT2TokenizerFast raises for a list of words, unless add_prefix_space is set."""
KNOWN = {"SB802", "SB807", "SB808", "SB809", "SB813", "SB826"}
"""Findings of every tokenizer of some kind, which other tests are about."""


@pytest.fixture(scope="module")
def tokenizers(stacks, tmp_path_factory):
    """Return stack -> name -> what that release makes of a tokenizer."""
    root = tmp_path_factory.mktemp("tokenizers")
    for name, (arguments, options, *_) in (PLANTED | CLEAN).items():
        write(root / name, *arguments, **options)
    write(root / "jinja-folder", "byte-level")
    (root / "jinja-folder" / "chat_template.jinja").write_text(PLAIN)
    more = root / "jinja-folder" / "additional_chat_templates"
    more.mkdir()
    (more / "tool_use.jinja").write_text(TOOLS)
    folders = json.dumps({path.name: str(path) for path in sorted(root.iterdir())})
    env = probe_environment(os.environ, needs_hub=False, modules_cache=str(root / "modules"))
    observed = {}
    for stack, built in stacks.items():
        command = [built.python, "-c", ASK, str(ROOT / "probes"), folders]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stderr
        lines = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
        observed[stack] = {name: TokenizerSignal.model_validate(facts) for name, facts in lines}
    return observed


def found(tokenizers, name, reference="4.48", candidate="5.x"):
    case = Case(
        capture=sound(Memory(), candidate, tokenizer=tokenizers[candidate][name]),
        reference=sound(Memory(), reference, tokenizer=tokenizers[reference][name]),
    )
    return findings(case)


@pytest.mark.parametrize("name", PLANTED)
def test_a_published_regression_is_found_and_named(tokenizers, name):
    assert {finding.code for finding in found(tokenizers, name)} - KNOWN == PLANTED[name][2]


@pytest.mark.parametrize("name", CLEAN)
def test_a_tokenizer_that_releases_read_alike_is_not_accused(tokenizers, name):
    assert {finding.code for finding in found(tokenizers, name)} <= KNOWN
    backwards = {finding.code for finding in found(tokenizers, name, "5.x", "4.48")}
    assert backwards - REFUSED_BY_4.get(name, set()) <= KNOWN


@pytest.mark.parametrize("name", [*PLANTED, *CLEAN])
def test_a_release_has_no_finding_against_itself(tokenizers, name):
    for stack in tokenizers:
        assert found(tokenizers, name, stack, stack) == ()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("qwen2-without-nfc", "normalizer"),
        ("llama-2", "pre_tokenizer"),
        ("roberta-over-wordpiece", "normalizer"),
        ("gemma-over-llama-2", "normalizer"),
    ],
)
def test_the_part_that_is_read_otherwise_is_named(tokenizers, name, part):
    evidence = [
        line
        for finding in found(tokenizers, name)
        if finding.where.endswith("of the corpus")
        for line in finding.evidence
    ]
    assert f"the part that gives something else is the {part}" in evidence
    assert any(line.startswith(f"tokenizer.json: {part} ") for line in evidence)


def test_templates_in_a_folder_are_missed_where_a_release_does_not_read_it(tokenizers):
    (finding,) = (
        f for f in found(tokenizers, "jinja-folder", "5.x", "4.48") if f.code not in KNOWN
    )
    assert (finding.code, finding.where) == ("SB819", "named chat templates")
    assert finding.evidence[1].endswith("has the templates default")


@pytest.mark.parametrize("name", ["byte-level", "metaspace"])
def test_a_continued_message_is_cut_otherwise_by_one_release_whatever_the_template(
    tokenizers, name
):
    """4.48 finds a message without text at the very end, and raises for an image at the end."""
    for reference, candidate in (("4.48", "5.x"), ("5.x", "4.48")):
        (finding,) = (f for f in found(tokenizers, name, reference, candidate) if f.code == "SB826")
        assert finding.where == "continued text: no name, continued, nothing written yet"
        assert "differs in 2 of 3 cases" in finding.evidence[0]
        assert any("an image behind the text" in line for line in finding.evidence)


def test_a_capture_of_a_corpus_stays_small(tokenizers):
    for signal in tokenizers["5.x"].values():
        assert len(signal.corpus.model_dump_json()) < 250_000
        assert not signal.corpus.left_out.keys() - {"slow class"}
