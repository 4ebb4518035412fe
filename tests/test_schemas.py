"""Tests that the published schemas are current, and that they accept what the reader accepts."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from samebits import schemas
from samebits.base.errors import MatrixError
from samebits.matrix import load, yamltext

ROOT = Path(__file__).parent.parent
RENDERED = schemas.render()
MATRIX = jsonschema.Draft202012Validator(json.loads(RENDERED["matrix.schema.json"]))
ONE = "models: {llama: {build: llama}}\n"


def test_the_folder_holds_what_is_generated():
    published = {path.name: path.read_text("utf-8") for path in schemas.FOLDER.glob("*.json")}
    assert published == RENDERED, "run: python -m samebits.schemas"


def test_write(tmp_path):
    schemas.write(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(RENDERED)
    assert (tmp_path / "new" / "matrix.schema.json").read_bytes().endswith(b"}\n")


@pytest.mark.parametrize("name", RENDERED)
def test_form(name):
    schema = json.loads(RENDERED[name])
    jsonschema.Draft202012Validator.check_schema(schema)
    assert list(schema)[:3] == ["$schema", "title", "description"]
    assert '"$id"' not in RENDERED[name]
    for form in [schema, *schema["$defs"].values()]:
        if "properties" in form:
            assert form["additionalProperties"] is False


def test_every_field_of_the_matrix_is_described():
    forms = [MATRIX.schema, *MATRIX.schema["$defs"].values()]
    for form in forms:
        assert form["description"]
        assert all(field["description"] for field in form["properties"].values())


SOUND = {
    "least": ONE,
    "commented out": ONE + "expected:\ndefaults:\n",
    "stacks": ONE + "environments: ['4.48', {id: new, transformers: 5.x, packages: accelerate}]\n",
    "one for many": ONE + "defaults: {dtypes: float32, attention: eager, devices: 'cuda:1'}\n",
    "prompts": ONE + "defaults: {prompts: {a: x, b: {ids: [1]}, c: {batch: [x, {length: 3}]}}}\n",
    "length": ONE + "defaults: {prompts: {a: {text: x, length: past-window}}, timeout: 2.5}\n",
    "hub": "models: {m: {hub: org/name, revision: main, group: g, trust_remote_code: true}}\n",
    "build": "models: {m: {build: {architecture: t5, config: {a: {b: 1}}, head: base, gain: 2}}}\n",
    "rules": ONE + "include: [{}]\nexclude: [{model: llama, reason: r}]\n",
    "expected": ONE
    + "expected: [{model: [llama], environment: ['5.x'], verdict: failed, reason: r}]\n",
    "bare version": ONE
    + "environments: [4.50, {transformers: 5, id: 5.0}]\ntorch: 2.10\npython: 3.10\n",
    "bare pattern": ONE
    + "environments: [4.50]\nreference: 4.50\nexclude: [{environment: [4.50]}]\n",
    "mask": ONE + "defaults: {inputs: {a: {arguments: {x: {shape: [2, 9], mask: left 3}, "
    "y: {shape: [2, 9], mask: [left 3, ones]}}}}}\n",
    "moment": ONE + "exclude-newer: '2026-11-20T10:00:00Z'\n",
}

MISTAKES = {
    "unknown key": ONE + "modles: {}\n",
    "no models": "version: 1\n",
    "empty models": "models: {}\n",
    "bad version": ONE + "environments: [latest]\n",
    "bad python": ONE + "python: '2.7'\n",
    "other version": ONE + "version: 2\n",
    "no stacks": ONE + "environments: []\n",
    "bad stack id": ONE + "environments: [{id: a/b, transformers: '5.2'}]\n",
    "bad dtype": ONE + "defaults: {dtypes: flaot32}\n",
    "dtype twice": ONE + "defaults: {dtypes: [float32, float32]}\n",
    "no dtypes": ONE + "defaults: {dtypes: []}\n",
    "bad device": ONE + "defaults: {devices: gpu}\n",
    "negative greedy": ONE + "defaults: {greedy: -1}\n",
    "no timeout": ONE + "defaults: {timeout: 0}\n",
    "no source": "models: {m: {dtypes: float32}}\n",
    "two sources": "models: {m: {hub: a/b, build: t5}}\n",
    "null setting": "models: {m: {build: t5, dtypes: }}\n",
    "name of a model": "models: {m: {build: t5, name: n}}\n",
    "null source": "models: {m: {hub: }}\n",
    "revision without hub": "models: {m: {build: t5, revision: main}}\n",
    "model as a text": "models: {m: org/name}\n",
    "bad model name": "models: {a/b: {build: t5}}\n",
    "bad hub": "models: {m: {hub: ../x}}\n",
    "no architecture": "models: {m: {build: {seed: 1}}}\n",
    "unknown head": "models: {m: {build: {architecture: t5, head: x}}}\n",
    "empty prompt": ONE + "defaults: {prompts: {p: {}}}\n",
    "mixed prompt": ONE + "defaults: {prompts: {p: {text: x, batch: [y]}}}\n",
    "nested batch": ONE + "defaults: {prompts: {p: {batch: [{batch: [y]}]}}}\n",
    "empty batch": ONE + "defaults: {prompts: {p: {batch: []}}}\n",
    "no reason": ONE + "expected: [{model: llama, environment: '5.x'}]\n",
    "unknown verdict": ONE
    + "expected: [{model: llama, environment: '5.x', reason: r, verdict: x}]\n",
    "bad date": ONE + "exclude-newer: tomorrow\n",
}


def data(text):
    """Read YAML as an editor does, with dates as texts."""
    return yaml.load(text, Loader=yaml.BaseLoader if "exclude-newer" in text else yaml.SafeLoader)


@pytest.mark.parametrize("name", SOUND)
def test_schema_and_reader_accept(name):
    MATRIX.validate(data(SOUND[name]))
    load.parse(yamltext.parse(SOUND[name].encode()), Path("matrix.yaml"))


@pytest.mark.parametrize("name", MISTAKES)
def test_schema_and_reader_refuse(name):
    assert not MATRIX.is_valid(data(MISTAKES[name]))
    with pytest.raises(MatrixError):
        load.parse(yamltext.parse(MISTAKES[name].encode()), Path("matrix.yaml"))


@pytest.mark.parametrize("name", ["matrix.yaml", "zoo.yaml", "tests/custom/matrix.yaml"])
def test_a_matrix_of_this_repository(name):
    MATRIX.validate(data((ROOT / name).read_text("utf-8")))
    load.load(ROOT / name)


def test_numbers_of_a_report_may_be_infinite():
    report = json.loads(RENDERED["report.schema.json"])
    seconds = jsonschema.Draft202012Validator(report["properties"]["seconds"])
    assert seconds.is_valid("Infinity")
    assert seconds.is_valid(1.5)
    assert not seconds.is_valid("long")
