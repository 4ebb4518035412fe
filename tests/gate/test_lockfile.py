"""samebits.lock: its text, its mistakes, its updates."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from samebits import schemas
from samebits.gate.interpreter import pins
from samebits.gate.lockfile import (
    LockError,
    environment_key,
    lock_text,
    machine_key,
    read_lock,
    with_model,
    with_tensors,
    without_models,
    write_lock,
)
from samebits.records.lock import Environment, LockFile, RecordedTensor
from tests.support.locks import environment, machine, recorded

SCHEMA = jsonschema.Draft202012Validator(json.loads(schemas.render()["lock.schema.json"]))


def lock():
    of_tiny = with_model(LockFile(), "tiny/float32-default", recorded(), environment(), machine())
    newer = environment(transformers="5.2.0")
    other = recorded(environment=environment_key(newer))
    return with_model(of_tiny, "a/float32-default", other, newer, machine())


HOSTILE = {
    "a program": ("environments.*.python", "/bin/sh"),
    "another Python's digits": ("environments.*.python", "3.\u0661"),
    "an option after a version": ("environments.*.packages.torch", "2.13.0\n--index-url=http://x/"),
    "a marker after a version": ("environments.*.packages.torch", "2.13.0 ; x"),
    "an option as a name": ("environments.*.packages.--index-url=http://x", "1"),
    "two lines as a name": ("environments.*.packages.a\n--pre\nb", "1"),
    "two lines as a source": ("environments.*.sources.torch", "torch @ https://x/a\n--pre"),
    "a continued source": ("environments.*.sources.torch", "torch @ https://x/a\\"),
    "a secret in a source": ("environments.*.sources.torch", "torch @ https://x/${HF_TOKEN}"),
    "a file as a source": ("environments.*.sources.torch", "torch @ file:///x"),
    "an open address as a source": ("environments.*.sources.torch", "torch @ http://x/a"),
    "git without TLS as a source": ("environments.*.sources.torch", "torch @ git+git://x/a@b"),
    "a user in a source": ("environments.*.sources.torch", "torch @ https://me@x/a"),
    "a password in a source": ("environments.*.sources.torch", "torch @ git+https://me:pw@x/a@b"),
    "a password for ssh": ("environments.*.sources.torch", "torch @ git+ssh://git:pw@x/a@b"),
    "an option as a source": ("environments.*.sources.torch", "-r https://x/a"),
    "a file outside": ("models.*.files.a/../../../x", "0" * 16),
    "an absolute file": ("models.*.files./etc/x", "0" * 16),
    "colors as a machine": ("machines.*.cpu", "\x1b[2J"),
    "an address as a hub id": ("models.*.hub", "https://x/y"),
    "an option as a revision": ("models.*.revision", "--upload-pack=x"),
}


@pytest.mark.parametrize(("where", "value"), HOSTILE.values(), ids=HOSTILE)
def test_a_field_that_others_write_has_a_pattern(tmp_path, where, value):
    content = json.loads(lock_text(lock()))
    group, _, rest = where.partition(".*.")
    field, _, key = rest.partition(".")
    entry = next(iter(content[group].values()))
    if key:
        entry.setdefault(field, {})[key] = value
    else:
        entry[field] = value
    path = tmp_path / "samebits.lock"
    path.write_text(json.dumps(content))
    with pytest.raises(LockError, match=group):
        read_lock(path)


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_version_is_one_line_without_options_for_uv(name, version):
    try:
        text = pins(Environment(python="3.11", packages={name: version}))
    except ValidationError:
        return
    assert text == f"{name}=={version}\n"
    assert not name.startswith("-")
    assert not set(text.rstrip("\n")) & set(" \t\r\n\f\v\\;#@$[")
    assert len(text.splitlines()) == 1


@given(st.from_regex(r"[A-Za-z0-9._-]{1,9}( @ |\n| )?https://[!-~\n]{1,20}", fullmatch=True))
def test_a_source_is_one_address(text):
    try:
        environment = {"python": "3.11", "packages": {"a": "1"}, "sources": {"a": text}}
        (line,) = pins(Environment.model_validate(environment)).splitlines()
    except ValidationError:
        return
    assert line == text
    assert not {*" \n\\$"} & {*line.partition(" @ ")[2]}


@pytest.mark.parametrize(
    "address",
    [
        "https://download.pytorch.org/whl/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl",
        "git+https://github.com/o/n.git@0123abc#subdirectory=x",
        "git+ssh://git@github.com/o/n.git@0123abc",
        "https://index.example:8443/a.whl",
    ],
)
def test_a_public_address_is_a_source(address):
    line = f"torch @ {address}"
    made = Environment(python="3.11", packages={"torch": "2.13.0"}, sources={"torch": line})
    assert pins(made) == f"{line}\n"


def test_what_is_written_is_read_and_fits_its_schema(tmp_path):
    path = tmp_path / "samebits.lock"
    write_lock(path, lock())
    written = path.read_bytes()
    assert read_lock(path).models == lock().models
    write_lock(path, read_lock(path))
    assert path.read_bytes() == written
    SCHEMA.validate(json.loads(path.read_text("utf-8")))


def test_the_text_is_in_order_with_a_line_per_hash():
    text = lock_text(lock())
    assert list(json.loads(text)["models"]) == ["a/float32-default", "tiny/float32-default"]
    assert '     "short": "00000000000000aa"\n' in text
    assert text == lock_text(LockFile.model_validate(json.loads(text)))
    assert text.endswith("}\n")


def test_what_nothing_refers_to_is_left_out():
    smaller = without_models(lock(), {"a/float32-default"})
    content = json.loads(lock_text(smaller))
    assert list(content["environments"]) == [environment_key(environment())]
    assert list(content["machines"]) == [machine_key(machine())]
    empty = json.loads(lock_text(without_models(smaller, {"tiny/float32-default"})))
    assert empty == {"format": "samebits-lock", "format_version": 1, "hash_algorithm": "blake3"}


def test_a_gpu_makes_another_machine():
    assert machine_key(machine()) != machine_key(machine(gpus=("H200",)))


def test_tensors_are_kept_by_machine_until_their_form_changes():
    first, second = machine(), machine(fingerprint="f" * 16)
    scores = RecordedTensor(hash="a" * 16, dtype="float32", shape=(2,))
    made = with_tensors(LockFile(), {("t", "scores"): scores}, first)
    moved = scores.model_copy(update={"hash": "b" * 16})
    made = with_tensors(made, {("t", "scores"): moved}, second)
    assert made.tensors["t"]["scores"] == {machine_key(first): scores, machine_key(second): moved}
    wider = RecordedTensor(hash="c" * 16, dtype="float32", shape=(3,))
    made = with_tensors(made, {("t", "scores"): wider}, second)
    assert made.tensors["t"]["scores"] == {machine_key(second): wider}
    assert list(json.loads(lock_text(made))["machines"]) == [machine_key(second)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "samebits.lock:1:2: this is not valid JSON: take it from version control"),
        ("<<<<<<< HEAD\n", "marks of a merge"),
        ("[]", "this is no lock"),
        ('{"format": "samebits-lock", "format_version": 2}', "has format_version 2, and this"),
        ('{"models": {"a": {}}}', "models.a.variant: Field required"),
    ],
)
def test_a_lock_with_a_mistake(tmp_path, text, said):
    path = tmp_path / "samebits.lock"
    path.write_text(text)
    with pytest.raises(LockError) as caught:
        read_lock(path)
    assert said in str(caught.value)


def test_a_lock_that_is_not_there(tmp_path):
    with pytest.raises(LockError, match="is not there: samebits record MODEL writes it"):
        read_lock(tmp_path / "samebits.lock")


def test_a_lock_whose_entry_names_an_environment_that_it_lacks(tmp_path):
    content = json.loads(lock_text(lock()))
    gone = content["models"]["a/float32-default"]["environment"]
    del content["environments"][gone]
    path = tmp_path / "samebits.lock"
    path.write_text(json.dumps(content))
    with pytest.raises(LockError, match=f"a/float32-default.environment: .* no environment {gone}"):
        read_lock(path)
