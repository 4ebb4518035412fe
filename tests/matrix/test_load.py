"""Tests of loading matrix.yaml, with one test for each kind of mistake and its position."""

from pathlib import Path

import pytest
import yaml as pyyaml
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.base.errors import MatrixError
from samebits.matrix import load, yamltext
from samebits.matrix.spec import (
    Expected,
    Matrix,
    MatrixFile,
    ModelSpec,
    Prompt,
    Recipe,
    Rule,
    StackSpec,
)
from samebits.records.question import switches

PATH = Path("matrix.yaml")
ONE_MODEL = "models: {llama: {build: llama}}\n"


def read(text):
    content = text if isinstance(text, bytes) else text.encode()
    return load.parse(yamltext.parse(content), PATH)


def problems(text):
    with pytest.raises(MatrixError) as caught:
        read(text)
    return caught.value.problems


def problems_in(folder, text):
    with pytest.raises(MatrixError) as caught:
        load.parse(yamltext.parse(text.encode()), folder / "matrix.yaml")
    return [problem.removeprefix(f"{folder}/matrix.yaml:") for problem in caught.value.problems]


def stack(id, transformers=None, torch="2.13.0"):
    return StackSpec(id=id, transformers=transformers or id, torch=torch, python="3.11")


def test_defaults():
    matrix = read(ONE_MODEL)
    assert matrix.path == "matrix.yaml"
    assert [stack.id for stack in matrix.stacks] == ["4.48", "4.57", "5.2", "5.x"]
    assert {(stack.torch, stack.python) for stack in matrix.stacks} == {("2.13.0", "3.11")}
    assert matrix.reference == "4.48"
    (model,) = matrix.models
    assert model.build.architecture == "llama"
    assert [str(variant) for variant in model.variants] == ["float32-default"]
    assert (model.greedy, model.timeout, model.budget, model.own) == (12, 120, 600, ())
    assert model.prompts["short"] == Prompt(text="The capital of France is", length=9)
    assert model.prompts["long"].length == "past-window"
    assert [item.length for item in model.prompts["padded"].batch] == [5, 13]


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize(("key", "question"), [("save_load", "crossings"), ("usage", "usage")])
def test_whether_a_model_crosses_or_is_used_is_its_own_to_say(key, question, default):
    text = f"defaults: {{{key}: {str(default).lower()}}}\n"
    text += f"models: {{a: {{build: t5}}, b: {{build: t5, {key}: {str(not default).lower()}}}}}\n"
    assert [model.asks(question) for model in read(text).models] == [default, not default]
    assert all(model.asks(question) for model in read(ONE_MODEL).models)


def test_everything_that_can_be_said(tmp_path):
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "config.json").write_text("{}", encoding="utf-8")
    path = tmp_path / "matrix.yaml"
    path.write_text(
        """\
version: 1
environments: ["5.x", {id: old, transformers: "4.48.0", torch: "2.6", packages: [accelerate]}]
torch: "2.12.0"
python: "3.12"
reference: "5.x"
exclude-newer: 2026-11-20
defaults:
  dtypes: [float32, bfloat16]
  attention: eager
  devices: [cpu, "cuda:1"]
  prompts: {one: two words, ids: {ids: [1, 2]}}
  greedy: 0
  timeout: 2.5
  budget: 7.5
models:
  hubbed: {hub: org/name, revision: main, trust_remote_code: true, dtypes: float16, greedy: 3}
  ours: {path: ckpt, prompts: {p: {length: past-window}}, attention: [org/kernel], devices: cpu}
  t5: {build: {architecture: t5, config: {eps: 1e-5}, head: seq2seq-lm, seed: 3, environment: old}}
include: [{model: "*"}]
exclude: [{model: "t5*", variant: "bfloat16-*", environment: "5.x", reason: slow}]
expected:
  - model: [hubbed, "o*"]
    environment: old
    signal: [logits, "attention.*"]
    verdict: differs
    reason: known
    reference: https://example.org/1
  - {model: t5, environment: old, signal: whatever, verdict: failed, reason: known}
""",
        encoding="utf-8",
    )
    matrix = load.load(path)
    assert [stack.id for stack in matrix.stacks] == ["old", "5.x"]
    assert matrix.stack("old").torch == "2.6"
    assert matrix.stack("old").packages == ("accelerate",)
    assert matrix.stack("5.x").torch == "2.12.0"
    assert matrix.reference == "5.x"
    assert matrix.exclude_newer == "2026-11-20"
    hubbed, ours, t5 = matrix.models
    assert (hubbed.hub, hubbed.revision, hubbed.trust_remote_code) == ("org/name", "main", True)
    assert (hubbed.dtypes, hubbed.greedy, hubbed.timeout) == (("float16",), 3, 2.5)
    assert hubbed.budget == 7.5
    assert [str(v) for v in hubbed.variants] == ["float16-eager", "float16-eager-cuda1"]
    assert (ours.path, ours.attention, ours.greedy) == ("ckpt", ("org/kernel",), 0)
    assert ours.prompts == {"p": Prompt(length="past-window")}
    assert (t5.build.config, t5.build.auto, t5.build.head) == ({"eps": 1e-5}, False, "seq2seq-lm")
    assert t5.prompts == {"one": Prompt(text="two words"), "ids": Prompt(ids=(1, 2))}
    assert matrix.include == (Rule(),)
    assert matrix.exclude[0].model == ("t5*",)
    first, second = matrix.expected
    assert (first.model, first.signal) == (("hubbed", "o*"), ("logits", "attention.*"))
    assert (first.line, second.line) == (22, 28)


@pytest.mark.parametrize(
    ("ids", "sorted_ids"),
    [
        (["5.x", "5.23.0", "5.2", "4.57", "4.48"], ["4.48", "4.57", "5.2", "5.23.0", "5.x"]),
        (["4.100", "4.48"], ["4.48", "4.100"]),
        (["4.48", "4.48.3"], ["4.48.3", "4.48"]),
        (["5.2", "5", "4.x"], ["4.x", "5.2", "5"]),
    ],
    ids=str,
)
def test_stacks_are_oldest_first(ids, sorted_ids):
    assert [spec.id for spec in load.oldest_first(map(stack, ids))] == sorted_ids


def test_stacks_of_one_release_are_sorted_by_torch():
    new, old = stack("a", "5.2", "2.13.0"), stack("b", "5.2", "2.9.0")
    assert load.oldest_first([new, old]) == (old, new)


def test_what_looks_like_a_number_or_a_switch_is_a_text_where_a_text_is_meant():
    matrix = read(
        """\
environments: [4.48, 4.50, {transformers: 5.0, id: no, torch: 2.10, python: 3.10}]
reference: 4.50
models: {4.50: {hub: a/b, revision: 12345e7, group: 2024, prompts: {yes: 7, 1: {text: true}}}}
exclude: [{environment: 4.50, model: 4.50}]
"""
    )
    assert [spec.id for spec in matrix.stacks] == ["4.48", "4.50", "no"]
    assert matrix.reference == "4.50"
    last = matrix.stacks[-1]
    assert (last.transformers, last.torch, last.python) == ("5.0", "2.10", "3.10")
    (model,) = matrix.models
    assert (model.name, model.revision, model.group) == ("4.50", "12345e7", "2024")
    assert model.prompts == {"yes": Prompt(text="7"), "1": Prompt(text="true")}
    assert matrix.exclude == (Rule(stack=("4.50",), model=("4.50",)),)


@pytest.mark.parametrize("quote", ["", "'", '"'], ids=["bare", "single", "double"])
def test_a_number_or_a_switch_is_read_with_and_without_quotes(quote):
    def text(value):
        return f"{quote}{value}{quote}"

    (model,) = read(
        f"""\
version: {text(1)}
models:
  m:
    build: {{architecture: llama, seed: {text(3)}, gain: {text(0.5)}}}
    trust_remote_code: {text("true")}
    save_load: {text("False")}
    greedy: {text(7)}
    timeout: {text(2.5)}
    prompts: {{a: {{ids: [{text(1)}, 2]}}, b: {{length: {text(4)}}}}}
"""
    ).models
    assert (model.trust_remote_code, model.asks("crossings")) == (True, False)
    assert (model.greedy, model.timeout) == (7, 2.5)
    assert (model.build.seed, model.build.gain) == (3, 0.5)
    assert model.prompts == {"a": Prompt(ids=(1, 2)), "b": Prompt(length=4)}


def test_a_config_has_the_types_of_yaml():
    config = "{a: 1, b: 1e-5, c: true, d: null, e: '1', f: [4.50, {g: no}], 0: x}"
    (model,) = read(f"models: {{m: {{build: {{architecture: t5, config: {config}}}}}}}").models
    assert model.build.config == {
        "a": 1,
        "b": 1e-5,
        "c": True,
        "d": None,
        "e": "1",
        "f": [4.5, {"g": False}],
        "0": "x",
    }


def test_a_model_has_the_defaults_that_it_does_not_set():
    text = "defaults: {dtypes: float16, greedy: 3, samples: 9, relations: false}\n"
    text += (
        "models: {a: {build: t5}, b: {build: t5, greedy: 0, relations: true, dtypes: bfloat16}}\n"
    )
    a, b = read(text).models
    assert (a.dtypes, a.greedy, a.samples, a.asks("relations")) == (("float16",), 3, 9, False)
    assert (b.dtypes, b.greedy, b.samples, b.asks("relations")) == (("bfloat16",), 0, 9, True)
    assert ("relations" in a.own, "relations" in b.own) == (False, True)


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        ("all", [*switches()]),
        ("[]", []),
        ("training", ["training"]),
        ("[save_load, usage]", ["save_load", "usage"]),
        ("all, training: false", [name for name in switches() if name != "training"]),
        ("[], training: true", ["training"]),
    ],
)
def test_a_file_lists_the_questions_that_are_asked(value, asked):
    (model,) = read(f"defaults: {{questions: {value}}}\n{ONE_MODEL}").models
    assert [name for name, key in switches().items() if model.asks(key.name)] == asked
    assert not model.own


def test_a_model_lists_questions_of_its_own():
    text = "defaults: {questions: [usage]}\n"
    (model,) = read(f"{text}models: {{m: {{build: t5, questions: [relations]}}}}").models
    assert model.asks("relations")
    assert not model.asks("usage")
    assert model.own == ("relations",)


@pytest.mark.parametrize(
    "name",
    [
        "default",
        "flash_attention_4",
        "paged_eager",
        "sdpa_paged",
        "my_attention",
        "kernels-community/flash-attn2",
        "kernels-community/flash-attn@v1.0:varlen",
    ],
)
def test_attention_of_other_versions_and_makers_is_let_through(name):
    matrix = read(f'models: {{m: {{build: llama, attention: "{name}"}}}}')
    assert matrix.models[0].attention == (name,)


@pytest.mark.parametrize("key", ["expected", "include", "exclude", "defaults"])
def test_a_key_whose_entries_are_commented_out_is_left_out(key):
    assert read(f"{ONE_MODEL}{key}:\n  # - nothing\n") == read(ONE_MODEL)


OF_DEFAULTS = (
    *("dtypes", "attention", "devices", "prompts", "greedy", "inputs"),
    "questions",
    *switches(),
    "samples",
    "probes",
)
CHOICES = ", ".join(f'"{key}"' for key in OF_DEFAULTS[:12]) + " …"

MISTAKES = {
    "unknown key at the top": ("modles: {}\n", '1:1: unknown key "modles" at the top: did you mean "models"?'),
    "defaults at the top": (ONE_MODEL + "dtypes: [float32]\n", '2:1: unknown key "dtypes" at the top: write it under defaults:'),
    "unknown key in a model": ("models: {m: {build: llama, dtype: float32}}\n", '1:28: unknown key "dtype" in m: did you mean "dtypes"?'),
    "name in a model": ("models: {m: {build: llama, name: n}}\n", '1:28: unknown key "name" in m: choose from "hub", "revision", "path", "patch", "build", "class", "logits", "trust_remote_code", "group", "dtypes", "attention", "devices" …'),
    "unknown key in a stack": (ONE_MODEL + 'environments: [{transformer: "5.2", transformers: "5.2"}]\n', '2:17: unknown key "transformer" in environments: did you mean "transformers"?'),
    "unknown key in build": ("models: {m: {build: {architecture: t5, heads: x}}}\n", '1:40: unknown key "heads" in build: did you mean "head"?'),
    "unknown key in defaults": (ONE_MODEL + "defaults: {grady: 1}\n", '2:12: unknown key "grady" in defaults: did you mean "greedy"?'),
    "source in defaults": (ONE_MODEL + "defaults: {hub: a/b}\n", '2:12: unknown key "hub" in defaults: choose from ' + CHOICES),
    "unknown key in a prompt": (ONE_MODEL + "defaults: {prompts: {p: {txt: x, text: y}}}\n", '2:26: unknown key "txt" in p: did you mean "text"?'),
    "unknown key in a batch": (ONE_MODEL + "defaults: {prompts: {p: {batch: [{txt: x, text: y}]}}}\n", '2:35: unknown key "txt" in batch: did you mean "text"?'),
    "unknown key in a rule": (ONE_MODEL + "exclude: [{models: llama}]\n", '2:12: unknown key "models" in exclude: did you mean "model"?'),
    "unknown key in expected": (ONE_MODEL + "expected: [{model: llama, environment: '5.x', reason: r, signals: logits}]\n", '2:58: unknown key "signals" in expected: did you mean "signal"?'),
    "duplicate key": (ONE_MODEL + "torch: '2.12.0'\ntorch: '2.13.0'\n", '3:1: the key "torch" is already on line 2: remove one of the two'),
    "duplicate model": ("models:\n  a: {build: llama}\n  a: {build: t5}\n", '3:3: the key "a" is already on line 2: remove one of the two'),
    "bad version": (ONE_MODEL + "environments: ['>=4.48']\n", '2:16: transformers: ">=4.48" is not a version: write a release such as 4.48, or a family such as 4.48 or 5.x'),
    "version without a number": (ONE_MODEL + "environments: [latest]\n", '2:16: transformers: "latest" is not a version: write a release such as 4.48.0, or a family such as 4.48 or 5.x'),
    "bad torch": (ONE_MODEL + "torch: '2.13.0+cpu'\n", '2:8: torch: "2.13.0+cpu" is not a version: write a release such as 2.13.0, or a family such as 4.48 or 5.x'),
    "bad python": (ONE_MODEL + "python: '2.7'\n", '2:9: python: "2.7" is not a version of Python 3: write one such as 3.11'),
    "version of the form": (ONE_MODEL + "version: 2\n", '2:10: version: "2" is not a known version of this form: write version: 1'),
    "bad dtype": (ONE_MODEL + "defaults: {dtypes: [float32, flaot16]}\n", '2:30: dtypes: "flaot16" is not a dtype: did you mean "float16"?'),
    "dtype by nickname": (ONE_MODEL + "defaults: {dtypes: torch.bf16}\n", '2:20: dtypes: "torch.bf16" is not a dtype: did you mean "bfloat16"?'),
    "dtype of a wrong kind": (ONE_MODEL + "defaults: {dtypes: 16}\n", '2:20: dtypes: "16" is not a dtype: choose from "float64", "float32", "float16", "bfloat16"'),
    "dtype twice": (ONE_MODEL + "defaults: {dtypes: [float16, float16]}\n", '2:12: dtypes: "float16" is listed twice: remove one of the two'),
    "no dtypes": (ONE_MODEL + "defaults: {dtypes: []}\n", "2:12: dtypes: nothing is written here: write at least one, or remove the key"),
    "attention typo": (ONE_MODEL + "defaults: {attention: [flash_atention_2]}\n", '2:24: attention: "flash_atention_2" is not an attention implementation: did you mean "flash_attention_2"?'),
    "attention pattern": (ONE_MODEL + "defaults: {attention: ['*']}\n", '2:24: attention: "*" is not an attention implementation: choose from "default", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"'),
    "unknown question": (ONE_MODEL + "defaults: {questions: [usage, trainin]}\n", '2:31: questions: no question has the name "trainin": did you mean "training"?'),
    "unknown single question": (ONE_MODEL + "defaults: {questions: relation}\n", '2:23: questions: no question has the name "relation": did you mean "relations"?'),
    "list as a question": (ONE_MODEL + "defaults: {questions: [[usage]]}\n", '2:24: questions: no question has the name "[\'usage\']": did you mean "usage"?'),
    "questions as a mapping": (ONE_MODEL + "defaults: {questions: {usage: true}}\n", "2:12: questions: write all, or a list of questions such as [training, save_load]"),
    "bad device": (ONE_MODEL + "defaults: {devices: gpu}\n", '2:21: devices: "gpu" is not a device: did you mean "cuda"? (the second GPU is cuda:1)'),
    "greedy is no number": (ONE_MODEL + "defaults: {greedy: twelve}\n", '2:20: greedy: "twelve" is not a whole number: write one such as 12'),
    "fraction of a token": (ONE_MODEL + "defaults: {greedy: 2.5}\n", '2:20: greedy: "2.5" is not a whole number: write one such as 12'),
    "endless number of digits": (ONE_MODEL + f"defaults: {{greedy: 1{'0' * 5000}}}\n", '2:20: greedy: "10000000000000000000000000000000000000000000000000000000000…" is too large: write a smaller number'),
    "greedy is negative": (ONE_MODEL + "defaults: {greedy: -1}\n", '2:20: greedy: "-1" is out of range: write at least 0'),
    "timeout is no number": (ONE_MODEL + "defaults: {timeout: 2 min}\n", '2:21: timeout: "2 min" is not a number: write one such as 2.5'),
    "timeout is nothing": (ONE_MODEL + "defaults: {timeout: 0}\n", '2:21: timeout: "0" is out of range: write more than 0'),
    "budget is nothing": (ONE_MODEL + "defaults: {budget: 0}\n", '2:20: budget: "0" is out of range: write more than 0'),
    "timeout is endless": (ONE_MODEL + "defaults: {timeout: .inf}\n", '2:21: timeout: ".inf" is not a number: write one such as 2.5'),
    "stack without a name": (ONE_MODEL + "reference: no\n", '2:12: reference: "no" is not the id of an environment: choose from "4.48", "4.57", "5.2", "5.x"'),
    "unknown reference": (ONE_MODEL + "reference: '4.7'\n", '2:12: reference: "4.7" is not the id of an environment: did you mean "4.57"?'),
    "no models": ("version: 1\n", "1:1: models is missing: write models: and under it a name and its source"),
    "empty models": ("models: {}\n", "1:1: models: a model needs a name, and under it a source such as hub: org/name"),
    "models without a value": ("models:\n", "1:8: models: a model needs a name, and under it a source such as hub: org/name"),
    "models as a list": ("models: [{hub: a/b}]\n", "1:1: models: a model needs a name, and under it a source such as hub: org/name"),
    "no stacks": (ONE_MODEL + "environments: []\n", "2:1: environments: nothing is written here: write at least one, or remove the key"),
    "stacks without a value": (ONE_MODEL + "environments:\n", "2:14: environments: the value is missing: write one, or remove the key"),
    "stacks as a text": (ONE_MODEL + "environments: '5.x'\n", '2:15: environments: "5.x" is not a list: write it in brackets, as in [a, b]'),
    "stack without a version": (ONE_MODEL + "environments: [{id: old}]\n", "2:16: transformers is missing: write a version such as 4.48"),
    "stack id twice": (ONE_MODEL + "environments: ['5.2', '5.2']\n", '2:23: two environments have the name "5.2": give one of them an id, as in {id: old, transformers: ...}'),
    "bad stack id": (ONE_MODEL + "environments: [{id: a b, transformers: '5.2'}]\n", '2:21: id: "a b" is not a valid name: use up to 80 letters, digits, dots, underscores and dashes, and start with a letter or a digit'),
    "bad package": (ONE_MODEL + "environments: [{transformers: '5.2', packages: ['a b c']}]\n", '2:49: packages: "a b c" is not a requirement: write one such as accelerate>=1'),
    "package at an address": (ONE_MODEL + "environments: [{transformers: '5.2', packages: ['mine @ file:///mine']}]\n", '2:49: packages: "mine @ file:///mine" is a URL, whose content can change, so it cannot be locked: write a version such as mine==1.2'),
    "package with its own key": (ONE_MODEL + "environments: [{transformers: '5.2', packages: torch==2.6}]\n", '2:48: packages: "torch==2.6": the version of torch has a key of its own: write it after torch:'),
    "bad date": (ONE_MODEL + "exclude-newer: 2026-11-31\n", '2:16: exclude-newer: "2026-11-31" is not a date: write one such as 2026-11-20 or 2026-11-20T12:00:00Z'),
    "moment without zone": (ONE_MODEL + "exclude-newer: 2026-11-30T10:00:00\n", '2:16: exclude-newer: "2026-11-30T10:00:00" is not a date: write one such as 2026-11-20 or 2026-11-20T12:00:00Z'),
    "no file of a probe": ("models:\n  m: {build: t5, probes: [{}]}\n", "2:27: path is missing: write the file, such as probes.py"),
    "no source": ("models:\n  m: {dtypes: float32}\n", "2:3: m: the model has no source: write one of hub, path and build"),
    "setting without a value": ("models: {m: {build: llama, dtypes: }}\n", "1:35: dtypes: the value is missing: write one, or remove the key"),
    "two sources": ("models:\n  m: {hub: a/b, build: llama}\n", "2:3: m: the model has 2 sources, hub, build: keep one"),
    "source without a value": ("models: {m: {hub: }}\n", "1:18: hub: the value is missing: write one, or remove the key"),
    "model as a text": ("models: {m: org/name}\n", '1:13: m: "org/name" is not a model: write a mapping such as {hub: org/name}'),
    "hub is a folder": ("models: {m: {hub: ../ckpt}}\n", '1:19: hub: "../ckpt" looks like a folder: write path: instead of hub:'),
    "hub with a revision": ("models: {m: {hub: a/b@main}}\n", '1:19: hub: "a/b@main": write hub: "a/b" and revision: "main"'),
    "revision with control characters": ("models: {m: {hub: \"a/b@\\t\"}}\n", '1:19: hub: "a/b@\\t": write hub: "a/b" and revision: "\\t"'),
    "bad hub id": ("models: {m: {hub: a b}}\n", '1:19: hub: "a b" is not a hub id: write one such as org/name'),
    "revision without hub": ("models: {m: {build: llama, revision: main}}\n", "1:38: revision: only a model with hub: has a revision: remove the key"),
    "path that is not there": ("models: {m: {path: nope}}\n", '1:20: path: "nope" does not exist: write it relative to the matrix file'),
    "path in an unknown home": ("models: {m: {path: ~nobody-of-this-name/x}}\n", '1:20: path: "~nobody-of-this-name/x": the home folder is not known: write the path without ~'),
    "patch without path": ("models: {m: {build: llama, patch: a.diff}}\n", "1:35: patch: only a folder, path:, can be patched: remove the key"),
    "no patches": ("models: {m: {build: llama, patch: []}}\n", "1:28: patch: nothing is written here: write at least one, or remove the key"),
    "patch twice": ("models: {m: {build: llama, patch: [a.diff, a.diff]}}\n", '1:28: patch: "a.diff" is listed twice: remove one of the two'),
    "path with NUL": ('models: {m: {path: "a\\0b"}}\n', '1:20: path: "a\\x00b" has line breaks or control characters: remove them'),
    "architecture is missing": ("models: {m: {build: {seed: 1}}}\n", "1:14: architecture is missing: write a model_type such as llama"),
    "a head that is left open": ("models: {m: {build: {architecture: t5, head: auto}}}\n", "1:46: head: auto is for a recipe with auto: true"),
    "a variant of a config as it is written": ("models: {m: {build: {architecture: t5, config_variant: 2}}}\n", "1:56: config_variant: it is for a recipe with auto: true"),
    "unknown head": ("models: {m: {build: {architecture: t5, head: seq2seq}}}\n", '1:46: head: "seq2seq" is not a known value: did you mean "seq2seq-lm"?'),
    "unknown stack of a build": ("models: {m: {build: {architecture: t5, environment: '4.4'}}}\n", '1:53: environment: "4.4" is not the id of an environment: did you mean "4.48"?'),
    "trust as a text": ("models: {m: {hub: a/b, trust_remote_code: perhaps}}\n", '1:43: trust_remote_code: "perhaps" is neither true nor false: write one of the two'),
    "empty prompt": (ONE_MODEL + "defaults: {prompts: {p: {}}}\n", "2:22: p: the prompt is empty: write text, ids, length or batch"),
    "no prompts": (ONE_MODEL + "defaults: {prompts: {}}\n", "2:12: prompts: nothing is written here: write at least one, or remove the key"),
    "empty text": (ONE_MODEL + "defaults: {prompts: {p: ''}}\n", "2:25: text: nothing is written here: write at least one, or remove the key"),
    "empty ids": (ONE_MODEL + "defaults: {prompts: {p: {ids: []}}}\n", "2:26: ids: nothing is written here: write at least one, or remove the key"),
    "negative id": (ONE_MODEL + "defaults: {prompts: {p: {ids: [1, -1]}}}\n", '2:35: ids: "-1" is out of range: write at least 0'),
    "ids beside batch": (ONE_MODEL + "defaults: {prompts: {p: {ids: [1], batch: [x]}}}\n", "2:22: p: ids beside batch: write it in each input of the batch"),
    "batch in a batch": (ONE_MODEL + "defaults: {prompts: {p: {batch: [x, {batch: [y]}]}}}\n", "2:38: batch: a batch cannot contain a batch: write its inputs in the outer one"),
    "text beside batch in a batch": (ONE_MODEL + "defaults: {prompts: {p: {batch: [{text: x, batch: [y]}]}}}\n", "2:34: batch: text beside batch: write it in each input of the batch"),
    "bad length": (ONE_MODEL + "defaults: {prompts: {p: {length: window}}}\n", "2:34: length: write a number of tokens from 1 to 1000000, or past-window"),
    "length zero": (ONE_MODEL + "defaults: {prompts: {p: {length: 0}}}\n", "2:34: length: write a number of tokens from 1 to 1000000, or past-window"),
    "bad prompt name": (ONE_MODEL + "defaults: {prompts: {a/b: x}}\n", '2:22: prompts: "a/b" is not a valid name: use up to 80 letters, digits, dots, underscores and dashes, and start with a letter or a digit'),
    "names that differ in case": ("models: {a: {build: t5}, A: {build: t5}}\n", '1:26: "a" and "A" are the same folder on some machines: rename one of them'),
    "two variants of one name": ("models: {m: {build: t5, attention: [eager, eager-cuda], devices: [cpu, cuda]}}\n", '1:10: m: two variants have the name "float32-eager-cuda": remove one of them'),
    "model pattern": (ONE_MODEL + "exclude: [{model: [llama, lama*]}]\n", '2:27: "lama*" matches no model: did you mean "llama"?'),
    "stack pattern": (ONE_MODEL + "include: [{environment: '4.49'}]\n", '2:25: "4.49" matches no environment: did you mean "4.48"?'),
    "variant pattern": (ONE_MODEL + "exclude: [{variant: float16-*}]\n", '2:21: "float16-*" matches no variant: choose from "float32-default"'),
    "signal pattern": (ONE_MODEL + "expected: [{model: llama, environment: '5.x', signal: [logit], reason: r}]\n", '2:56: "logit" matches no signal: did you mean "logits"?'),
    "expected without a reason": (ONE_MODEL + "expected: [{model: llama, environment: '5.x'}]\n", "2:12: reason is missing: explain the difference"),
    "expected with an empty reason": (ONE_MODEL + "expected: [{model: llama, environment: '5.x', reason: ' '}]\n", "2:55: reason: the text is empty: write a sentence"),
    "expected without a model": (ONE_MODEL + "expected: [{environment: '5.x', reason: r}]\n", '2:12: model is missing: name the models, or write "*" for all'),
    "unknown verdict": (ONE_MODEL + "expected: [{model: llama, environment: '5.x', reason: r, verdict: fails}]\n", '2:67: verdict: "fails" is not a known value: did you mean "failed"?'),
    "verdict of a wrong kind": (ONE_MODEL + "expected: [{model: llama, environment: '5.x', reason: r, verdict: 1}]\n", '2:67: verdict: "1" is not a known value: choose from "differs", "diverged", "unstable", "failed", "not observed"'),
    "a verdict that passes by itself": (ONE_MODEL + "expected: [{model: llama, environment: '5.x', reason: r, verdict: rounding}]\n", '2:67: verdict: rounding passes without an entry, and whether a cell rounds depends on the CPU: remove this entry, or write the verdict that makes the run fail: differs, diverged, unstable, failed or "not observed"'),
    "a verdict of the machine": (ONE_MODEL + "expected: [{model: llama, environment: '5.x', reason: r, verdict: not finished}]\n", "2:67: verdict: a cell that does not finish lacks time or memory, which is not a known difference: remove this entry, and raise the model's timeout or give it more memory"),
    "list as a text": (ONE_MODEL + "reference: ['5.x']\n", "2:1: reference: a list is not a text: write one"),
    "no list": (ONE_MODEL + "expected: {model: llama}\n", "2:1: expected: a mapping is not a list: write it in brackets, as in [a, b]"),
    "not a mapping": ("- a\n", "1:1: the file is not a mapping: start with models: and write the models under it"),
    "empty file": ("", "1:1: the file is empty: write models: and under it a model"),
    "package by a URL": ("models: {m: {build: llama, packages: 'm @ https://x.org/m.whl'}}\n", '1:38: packages: "m @ https://x.org/m.whl" is a URL, whose content can change: write a version such as m==1.2, a folder such as ./m, or git+https://… and @ and the 40 digits of a commit'),
    "package by a branch": ("models: {m: {build: llama, packages: ['m @ git+https://x.org/m@main']}}\n", '1:39: packages: "m @ git+https://x.org/m@main" is a URL, whose content can change: write a version such as m==1.2, a folder such as ./m, or git+https://… and @ and the 40 digits of a commit'),
    "package of the stack": ("models: {m: {build: llama, packages: [x, torch>=2]}}\n", '1:42: packages: "torch>=2": every environment has its own torch, which packages of a model never change: remove this line, or change the environments'),
    "package by an address of two lines": ('models: {m: {build: llama, packages: ["m @ git+https://x.org/m@' + 40 * "a" + '\\n--index-url=http://y.org/@' + 40 * "a" + '"]}}\n', '1:39: packages: "m @ git+https://x.org/m@aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…" has line breaks or control characters: remove them'),
    "package by a marker of two lines": ("models: {m: {build: llama, packages: [\"m; python_version > '3\\n--pre'\"]}}\n", '1:39: packages: "m; python_version > \'3\\n--pre\'" has line breaks or control characters: remove them'),
    "package with a variable": ("models: {m: {build: llama, packages: ['m @ git+https://x.org/${HF_TOKEN}@" + 40 * "a" + "']}}\n", '1:39: packages: "m @ git+https://x.org/${HF_TOKEN}@aaaaaaaaaaaaaaaaaaaaaaaaa…" has a backslash or a variable, which no requirement needs: remove it'),
    "package of a stack in two lines": (ONE_MODEL + "environments: [{transformers: '5.2', packages: [\"a; python_version > '3\\n--pre'\"]}]\n", '2:49: packages: "a; python_version > \'3\\n--pre\'" has line breaks or control characters: remove them'),
    "no package": ("models: {m: {build: llama, packages: '== 1'}}\n", '1:38: packages: "== 1" is not a requirement: write one such as my-models>=1.2, or a folder such as ./my-models'),
    "no folder of a package": ("models: {m: {build: llama, packages: [./nowhere]}}\n", '1:39: packages: "./nowhere" does not exist: write it relative to the matrix file'),
    "import with dashes": ("models: {m: {build: llama, import: my-models}}\n", '1:36: import: "my-models" is not the name of a module: write it as after import in Python, such as my_models'),
    "import of a file": ("defaults: {import: [a, my/models.py]}\n" + ONE_MODEL, '1:24: import: "my/models.py" is not the name of a module: write it as after import in Python, such as my.models'),
    "field name of import": ("models: {m: {build: llama, imports: a}}\n", '1:28: unknown key "imports" in m: did you mean "import"?'),
    "class with a dot": ("models: {m: {build: llama, class: pkg.module.Name}}\n", '1:35: class: "pkg.module.Name" does not name a class in a module: write pkg.module:Name'),
    "output in words": ("models: {m: {build: llama, logits: the pooler}}\n", '1:36: logits: "the pooler" is not the name of an output: write a name such as pooler_output, encoder.last_hidden_state, or 2[0] in a tuple'),
    "class of all models": (ONE_MODEL + "defaults: {class: 'a:B'}\n", '2:12: unknown key "class" in defaults: choose from ' + CHOICES),
    "dtype of from_pretrained": ("models: {m: {build: llama, load: {torch_dtype: bfloat16}}}\n", "1:48: torch_dtype: another key sets it: remove it here, and write beside load: dtypes: [bfloat16]"),
    "revision of from_pretrained": ("models: {m: {hub: a/b, load: {revision: main}}}\n", "1:41: revision: another key sets it: remove it here, and write beside load: revision: main"),
    "device of from_pretrained": ("models: {m: {hub: a/b, load: {device_map: auto}}}\n", "1:43: device_map: another key sets it: remove it here, and write beside load: devices: [cpu]"),
    "state dict of from_pretrained": ("models: {m: {hub: a/b, load: {state_dict: {}}}}\n", "1:31: state_dict: it cannot be set, as the weights are those of the checkpoint: remove it"),
    "infinite argument": ("models: {m: {hub: a/b, load: {x: [.inf]}}}\n", "1:31: x: a number that is not finite cannot be passed on: write another one"),
    "attention twice": ("models: {m: {hub: a/b, attention: [eager], load: {attn_implementation: sdpa}}}\n", "1:72: attn_implementation: attention: is set, too, and chooses the same thing: remove one of the two"),
    "attention twice by defaults": ("defaults: {load: {attn_implementation: sdpa}}\nmodels: {m: {hub: a/b, attention: [eager]}}\n", "1:40: attn_implementation: attention: is set, too, and chooses the same thing: remove one of the two"),
    "subfolder of what is built": ("models: {m: {build: llama, load: {subfolder: a}}}\n", "1:46: subfolder: a checkpoint that is built has no subfolder: remove it"),
    "syntax": ("models: [\n", "2:1: this is not valid YAML: while parsing a flow node expected the node content, but found the end of the stream"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(mistake):
    text, line = MISTAKES[mistake]
    assert problems(text) == [f"matrix.yaml:{line}"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("a/b", "a/b"),
        ("..", ".."),
        ("a|b", "a|b"),
        ("a\nb", r"a\nb"),
        ("<b>x", r"\x3cb>x"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\u202eb", r"a\u202eb"),
        ("a" * 81, "a" * 59 + "…"),
        ("", ""),
        ("a,b", "a,b"),
        ("-a", "-a"),
    ],
    ids=range(11),
)
def test_bad_model_names_are_shown_escaped(written, shown):
    text = pyyaml.safe_dump({"models": {written: {"build": "llama"}}}, width=1000)
    (line,) = problems(text)
    assert f'models: "{shown}" is not a valid name' in line


def test_all_problems_at_once_in_the_order_of_the_file():
    lines = problems(
        """\
environments: ["4.48", 4.5O]
models:
  a/b: {build: llama}
  two: {hub: x/y, build: t5, dtypes: half}
  gone: {path: nope, dtypes: half}
expected:
  - {model: tow, environment: "4.48", reason: x}
  - {model: two, environment: "4.48"}
  - {model: two, environment: "4.48", signal: logit, reason: x}
torhc: "2.13.0"
"""
    )
    places = [line.split(": ")[0].removeprefix("matrix.yaml:") for line in lines]
    assert places == ["1:24", "3:3", "4:38", "5:16", "5:30", "7:13", "8:5", "9:47", "10:1"]


def test_a_mistake_does_not_call_for_others():
    assert len(problems("environments: [4.5O, '5.x']\nreference: '4.50'\n" + ONE_MODEL)) == 1
    text = "models: {m: {build: llama, dtype: float16}}\nexclude: [{variant: float16-*}]\n"
    assert len(problems(text)) == 1


@pytest.mark.parametrize(
    ("made", "written", "words"),
    [
        ("ckpt/x", "ckpt", "contains no config.json"),
        ("ckpt", "ckpt", "is a file"),
        ("ckpt/x", "cktp", 'did you mean "ckpt"?'),
        ("x", "x" * 5000, "cannot be read"),
    ],
    ids=["no config", "file", "nearest", "too long"],
)
def test_bad_path(tmp_path, made, written, words):
    file = tmp_path / made
    file.parent.mkdir(exist_ok=True)
    file.touch()
    path = tmp_path / "matrix.yaml"
    path.write_text(f"models: {{m: {{path: {written}}}}}", encoding="utf-8")
    with pytest.raises(MatrixError, match="path: ") as caught:
        load.load(path)
    (line,) = caught.value.problems
    assert line.startswith(f"{path}:1:20: path: ")
    assert words in line


def test_a_path_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config.json").touch()
    assert read("models: {m: {path: ~/}}").models[0].path == str(tmp_path)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(MatrixError, match="the file does not exist"):
        load.load(tmp_path / "matrix.yaml")
    with pytest.raises(MatrixError, match="this is a folder"):
        load.load(tmp_path)


def test_a_path_that_a_terminal_would_act_on_is_escaped():
    with pytest.raises(MatrixError) as caught:
        load.parse(yamltext.parse(b""), Path("\x1b[31m"))
    assert caught.value.problems[0].startswith(r'"\x1b[31m":1:1: ')


def outcome(content):
    """Return a Matrix or the problems; any other exception fails the test."""
    try:
        return load.parse(yamltext.parse(content), PATH)
    except MatrixError as error:
        problems_found = error.problems
    assert problems_found
    for line in problems_found:
        assert line.isprintable()
        assert line.startswith("matrix.yaml:")
        assert "pydantic" not in line
        assert "https://errors." not in line
    return problems_found


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace"))
)
def test_any_bytes_are_a_matrix_or_problems(content):
    outcome(content)


KEYS = ["m"]
for form in (MatrixFile, StackSpec, ModelSpec, Prompt, Recipe, Expected):
    KEYS += [field.alias or name for name, field in form.model_fields.items()]
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["", "4.48", "5.x", "m", "float32", "cpu", "llama", "a/b", "*", "\0", "10**400"]
    )
    | st.text(max_size=5)
)
trees = st.recursive(
    scalars | st.just(10**400),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)
sections = st.dictionaries(st.sampled_from(list(MatrixFile.model_fields)), trees, max_size=5)
entries = st.dictionaries(st.sampled_from(KEYS), trees, max_size=4)
files = st.fixed_dictionaries(
    {"models": st.dictionaries(st.sampled_from(["m", "a/b"]), entries, max_size=2)},
    optional={
        "defaults": entries,
        "environments": st.lists(entries | trees, max_size=3),
        "expected": st.lists(entries, max_size=2),
        "include": st.lists(entries, max_size=2),
        "version": trees,
        "reference": trees,
    },
)


@settings(max_examples=150, deadline=None)
@given(sections | files)
def test_any_data_is_a_matrix_or_problems(data):
    outcome(pyyaml.safe_dump(data, allow_unicode=True).encode("utf-8", "replace"))


versions = st.from_regex(r"\A[45]\.([0-9]{1,2}|x)\Z")


@settings(max_examples=50, deadline=None)
@given(
    st.lists(versions, min_size=1, max_size=5, unique=True),
    st.lists(
        st.sampled_from(["float64", "float32", "float16", "bfloat16"]), min_size=1, unique=True
    ),
)
def test_what_is_sound_is_read(stacks, dtypes):
    data = {"environments": stacks, "models": {"m": {"build": "llama", "dtypes": dtypes}}}
    matrix = outcome(pyyaml.safe_dump(data).encode())
    assert isinstance(matrix, Matrix)
    assert {stack.id for stack in matrix.stacks} == set(stacks)
    assert matrix.reference == matrix.stacks[0].id
    assert [variant.dtype for variant in matrix.models[0].variants] == dtypes


written_versions = st.from_regex(r"\A[0-9]{1,3}(\.[0-9]{1,3}){0,2}(\.x)?\Z")


@settings(max_examples=200, deadline=None)
@given(st.lists(written_versions, min_size=1, max_size=4, unique=True), written_versions)
def test_a_version_without_quotes_is_the_same_as_with_them(stacks, torch):
    def file(quote):
        quoted = [f"{quote}{version}{quote}" for version in (*stacks, torch)]
        return (
            f"environments: [{', '.join(quoted[:-1])}]\ntorch: {quoted[-1]}\nreference: {quoted[0]}\n"
            f"models: {{m: {{build: {{architecture: t5, environment: {quoted[0]}}}}}}}\n"
            f"exclude: [{{environment: {quoted[0]}}}]\n"
        )

    matrix = outcome(file("").encode())
    assert isinstance(matrix, Matrix)
    assert {stack.id for stack in matrix.stacks} == set(stacks)
    assert {stack.torch for stack in matrix.stacks} == {torch}
    assert matrix.exclude == (Rule(stack=(stacks[0],)),)
    assert matrix == outcome(file("'").encode()) == outcome(file('"').encode())


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a model, a patch for it, and a patch for another model."""
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "config.json").write_text("{}\n", encoding="utf-8")
    diff = "--- a/config.json\n+++ b/config.json\n@@ -1 +1 @@\n-{}\n+[]\n"
    (tmp_path / "good.diff").write_text(diff, encoding="utf-8")
    (tmp_path / "bad.diff").write_text(diff.replace("{}", "3"), encoding="utf-8")
    return tmp_path


def model_with(folder, patch):
    path = folder / "matrix.yaml"
    path.write_text(f"models:\n  m: {{path: ckpt, patch: {patch}}}\n", encoding="utf-8")
    return load.load(path).models[0]


def test_a_patch_or_several(folder):
    (folder / "next.diff").write_text(
        "--- a/config.json\n+++ b/config.json\n@@ -1 +1 @@\n-[]\n+3\n", encoding="utf-8"
    )
    assert model_with(folder, "good.diff").patch == ("good.diff",)
    assert model_with(folder, "[good.diff, next.diff]").patch == ("good.diff", "next.diff")


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("bad.diff", '2:26: patch: "bad.diff" does not apply: hunk 1 of "config.json" (line 1): '),
        ("[good.diff, bad.diff]", '2:38: patch: "bad.diff" does not apply: hunk 1'),
        ("[good.diff, god.diff]", '2:38: patch: "god.diff" does not exist: did you mean "good.diff"?'),
        ("none.txt", '2:26: patch: "none.txt" does not exist: write it relative to the matrix file'),
        ("ckpt", '2:26: patch: "ckpt" cannot be read: '),
        ("ckpt/config.json", '2:26: patch: "config.json" changes nothing that can be patched'),
        ("3", '2:26: patch: "3" does not exist: write it relative to the matrix file'),
    ],
)  # fmt: skip
def test_a_patch_that_does_not_apply_is_a_mistake_in_the_file(folder, patch, message):
    with pytest.raises(MatrixError) as caught:
        model_with(folder, patch)
    (problem,) = caught.value.problems
    assert f"matrix.yaml:{message}" in problem


def test_code_in_packages():
    text = """
defaults: {packages: one, import: one, load: {output_router_logits: true}}
models:
  own: {hub: a/b, packages: [my-models>=1.2], import: [my_models, more.parts], class: "my.m:M",
        load: {variant: fp16, num_labels: 3, add_pooling_layer: false, attn_implementation: sdpa}}
  shared: {hub: a/c}
"""
    own, shared = read(text).models
    assert own.packages == ("my-models>=1.2",)
    assert own.imports == ("my_models", "more.parts")
    assert own.model_class == "my.m:M"
    assert own.load == {
        "variant": "fp16",
        "num_labels": 3,
        "add_pooling_layer": False,
        "attn_implementation": "sdpa",
    }
    assert (shared.packages, shared.imports, shared.model_class) == (("one",), ("one",), None)
    assert shared.load == {"output_router_logits": True}


def test_a_package_in_a_folder_needs_a_build_file(tmp_path):
    text = "models: {m: {build: llama, packages: [./mine, ./one.txt]}}\n"
    folder = tmp_path / "mine"
    folder.mkdir()
    (tmp_path / "one.txt").touch()
    fault = (
        '"./mine" contains no pyproject.toml: write the folder of a package that pip can install'
    )
    assert problems_in(tmp_path, text) == [f"1:39: packages: {fault}"]
    (folder / "pyproject.toml").touch()
    assert problems_in(tmp_path, text) == [
        '1:47: packages: "./one.txt" is neither a folder nor a wheel: write one of them'
    ]


def test_a_subfolder_of_a_folder_is_part_of_the_path(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    text = "models: {m: {path: model, load: {subfolder: fp16}}}\n"
    assert problems_in(tmp_path, text) == [
        "1:45: subfolder: a folder is named whole: remove subfolder, and write path: model/fp16"
    ]


SHA = "0123456789abcdef0123456789abcdef01234567"


def test_a_source_of_transformers_is_an_environment_with_a_name():
    listed = (
        f'["5.15", ../transformers, "clone@{SHA}", {{id: mine, transformers: ./a.whl, base: 5.16}}]'
    )
    stacks = read(f"environments: {listed}\nmodels: {{m: {{hub: a/b}}}}\n").stacks
    assert [spec.id for spec in stacks] == ["5.15", "transformers", SHA[:10], "mine"]
    assert all(Path(spec.transformers.partition("@")[0]).is_absolute() for spec in stacks[1:])
    assert (stacks[2].transformers.endswith(f"@{SHA}"), stacks[3].base) == (True, "5.16")


def test_a_release_runs_in_its_own_environment():
    text = 'environments: [{transformers: "5.15", base: "5.14"}]\nmodels: {m: {hub: a/b}}\n'
    assert "5.15 is a release" in problems(text)[0]
