"""samebits.lock: its text, its mistakes, its updates."""

import json

import jsonschema
import pytest

from samebits import schemas
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
from samebits.records.lock import LockFile, RecordedTensor
from tests.support.locks import environment, machine, recorded

SCHEMA = jsonschema.Draft202012Validator(json.loads(schemas.render()["lock.schema.json"]))


def lock():
    of_tiny = with_model(LockFile(), "tiny/float32-default", recorded(), environment(), machine())
    newer = environment(transformers="5.2.0")
    other = recorded(environment=environment_key(newer))
    return with_model(of_tiny, "a/float32-default", other, newer, machine())


def test_what_is_written_is_read_and_fits_its_schema(tmp_path):
    path = tmp_path / "samebits.lock"
    write_lock(path, lock())
    assert read_lock(path) == read_lock(path)
    assert read_lock(path).models == lock().models
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
