"""Tests of samebits.capsules.script: complete, pinned, and safe against hostile names."""

import ast
import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import tomllib
from unittest.mock import MagicMock

import pytest

from samebits.capsules.script import Expectation, Installed, Subject, script
from samebits.records.capsule import Fed, Question, Seen, script_name
from samebits.records.ids import Variant
from samebits.records.tensor import TensorRef

PACKAGES = {"numpy": "2.4.6", "torch": "2.13.0+cpu", "transformers": "4.48.3", "filelock": "3.1"}
OLD = Installed("4.48", "3.11", PACKAGES)
HOSTILE = 'a"""\'\\n`rm -rf`\nimport os; os.abort()  # \u202e {x} %s'
IDS = Fed(rows=((41, 7, 99),))
MASK = Fed(rows=((0, 1, 1),))
FORWARD = Question(kind="forward", prompt="short", feed={"input_ids": IDS})
QUESTIONS = {
    "forward": FORWARD,
    "padded": FORWARD.model_copy(
        update={"feed": {"input_ids": IDS, "attention_mask": MASK}, "real": ((1, 3),)}
    ),
    "after another": FORWARD.model_copy(update={"before": ({"input_ids": IDS},)}),
    "a sound": Question(
        kind="forward", feed={"input_values": Fed(seed="short:input_values", shape=(1, 16))}
    ),
    "generate": Question(kind="generate", prompt="short", feed={"input_ids": IDS}, steps=8),
    "buffer": Question(kind="buffer", tensor=HOSTILE),
    "parameter": Question(kind="parameter", tensor="model.norm.weight"),
}
REF = TensorRef(hash="1" * 64, dtype="float32", shape=(1, 3, 113))
SEES = {
    "bits": Seen(ref=REF, sha256="3" * 64),
    "an exception": Seen(error="KeyError", message=HOSTILE),
    "other bits": Seen(unstable=True),
}


def subject(question=FORWARD, **changed):
    fields = {"model": "llama", "variant": Variant(dtype="float32", attention="default")}
    return Subject(**{**fields, "question": question, "model_class": "LlamaForCausalLM", **changed})


def expectation(sees="bits", other=None):
    return Expectation(
        SEES[sees],
        other or Seen(ref=REF.model_copy(update={"hash": "2" * 64}), sha256="4" * 64),
        "5.x",
        "AVX2",
    )


def constants(text):
    """Return the names that a script assigns literals to."""
    values = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign):
            try:
                values[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return values


def metadata(text):
    """Return the inline metadata, read as PEP 723 defines it."""
    (block,) = re.findall(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$", text)
    lines = block[0].splitlines(keepends=True)
    return tomllib.loads("".join(line[2:] if line.startswith("# ") else line[1:] for line in lines))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("sees", SEES)
@pytest.mark.parametrize("zeros", [None, "model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("files", [{}, {"config.json": "a" * 64}])
def test_every_script_compiles_and_uses_only_what_it_imports(question, sees, zeros, files):
    text = script(subject(QUESTIONS[question], zeros=zeros, files=files), OLD, expectation(sees))
    compile(text, "script", "exec")
    tree = ast.parse(text)
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    modules = {"hashlib", "math", "os", "subprocess", "sys", "torch", "traceback", "transformers"}
    modules |= {"json", "tempfile"}
    assert imported == used & (modules | {"Path"})
    assert ("write_weights" in used) == (zeros is not None)


def test_a_trial_only_measures():
    text = script(subject(), OLD)
    assert "__main__" not in text
    assert "EXPECTED" not in constants(text)


def test_a_script_has_the_threads_of_the_cell():
    for threads in (1, 4):
        question = FORWARD.model_copy(update={"threads": threads})
        text = script(subject(question), OLD)
        compile(text, "script", "exec")
        assert f"torch.set_num_threads({threads})" in text
        assert ("torch.use_deterministic_algorithms(True, warn_only=True)" in text) == (threads > 1)


def test_the_header_pins_every_package_to_a_release():
    header_values = metadata(script(subject(), OLD, expectation()))
    assert header_values["requires-python"] == "==3.11.*"
    assert header_values["dependencies"] == [
        "torch==2.13.0",
        "transformers==4.48.3",
        "filelock==3.1",
        "numpy==2.4.6",
    ]


@pytest.mark.parametrize(
    ("hashes", "ends"),
    [
        ("a a b", "as expected"),
        ("a b c", "unexpected: different bits for the same content of uninitialised memory"),
        ("a a a", "unexpected: the same bits both times"),
    ],
)
def test_other_bits_over_the_same_memory_are_no_matter_of_memory(hashes, ends):
    tree = ast.parse(script(subject(), OLD, expectation("other bits")))
    (main,) = (node for node in tree.body if isinstance(node, ast.If))
    body = ast.Module(
        [n for n in main.body if "print" not in ast.unparse(n) or "as exp" in ast.unparse(n)], []
    )
    answers, output = iter(hashes.split()), []

    class Sys:
        argv = ("script",)

        @staticmethod
        def exit(text):
            output.append(text)
            raise SystemExit

    scope = {"sys": Sys, "filled": lambda byte: next(answers), "print": output.append}
    with contextlib.suppress(SystemExit):
        exec(compile(body, "main", "exec"), scope)  # noqa: S102
    assert output == [ends]


def main_of(text, scope):
    """Run what a script does when it is started, and return what it prints and how it ends."""
    tree = ast.parse(text)
    kept = [n for n in tree.body if getattr(n, "name", "") == "changed_files"]
    names = ("FILES", "EXPECTED", "OTHER")
    kept += [n for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id in names]
    kept += [n for n in tree.body if isinstance(n, ast.If)]
    output = []
    scope = {
        "sys": sys,
        "hashlib": hashlib,
        "print": lambda *t: output.append(" ".join(map(str, t))),
    } | scope
    release = MagicMock(__version__="5.0.0")
    scope |= {"transformers": release, "torch": release, "__name__": "__main__"}
    try:
        exec(compile(ast.Module(kept, []), "main", "exec"), scope)  # noqa: S102
    except SystemExit as end:
        return [*output, str(end.code)]
    return output


@pytest.mark.parametrize("bits", ["3" * 64, "5" * 64])
@pytest.mark.parametrize("change", ["", "changed", "missing"])
def test_a_file_that_is_changed_or_missing_is_named_and_no_cpu_blamed(tmp_path, bits, change):
    config = tmp_path / "config.json"
    config.write_text("{}")
    known = {"config.json": hashlib.sha256(b"{}").hexdigest()}
    text = script(subject(files=known), OLD, expectation())
    if change == "changed":
        config.write_text("{ }")
    elif change == "missing":
        config.unlink()
    scope = {"CHECKPOINT": tmp_path, "measure": MagicMock(), "sha256": lambda _: bits}
    output = main_of(text, scope)
    if change == "missing":
        assert output[-1] == f"missing: {config}; copy the whole folder of this script"
        return
    assert ("changed since the measurement: config.json" in output) == bool(change)
    ends = "as expected" if bits == "3" * 64 else "unexpected bits: they also depend on the CPU"
    if change and bits != "3" * 64:
        ends = "unexpected bits, changed since the measurement: config.json"
    assert output[-1].startswith(ends)


def test_an_exact_python_stays_exact():
    assert "==3.11.4" in script(subject(), OLD._replace(python="3.11.4"))


def test_long_locks_are_wrapped_and_still_toml():
    many = PACKAGES | {f"a-package-with-a-name-{i}": f"{i}.0.1" for i in range(60)}
    text = script(subject(), OLD._replace(packages=many))
    assert max(map(len, text.splitlines())) <= 90
    assert len(metadata(text)["dependencies"]) == len(many)


def test_what_is_fed_is_literal():
    fed = {"input_ids": Fed(rows=((1,) * 40, (2,) * 40)), "attention_mask": MASK}
    text = script(subject(FORWARD.model_copy(update={"feed": fed})), OLD, expectation())
    assert constants(text)["INPUT_IDS"] == [[1] * 40, [2] * 40]
    assert constants(text)["ATTENTION_MASK"] == [[0, 1, 1]]
    assert max(map(len, text.splitlines())) <= 100


def test_the_dtype_is_asked_for_in_the_words_of_the_release():
    assert "torch_dtype=torch.float32" in script(subject(), OLD)
    new = OLD._replace(packages=PACKAGES | {"transformers": "5.23.0"})
    assert " CHECKPOINT, dtype=torch.float32\n" in script(subject(), new)


def test_a_hub_model_is_referred_to_with_its_revision():
    text = script(subject(hub=f"o/{HOSTILE}", revision="abc", trust_remote_code=True), OLD)
    assert constants(text)["CHECKPOINT"] == f"o/{HOSTILE}"
    assert 'revision="abc"' in text
    assert "trust_remote_code=True" in text
    assert "Path" not in text


def test_a_hostile_message_stays_a_string():
    text = script(subject(), OLD, expectation("an exception"))
    assert constants(text)["MESSAGE"] == HOSTILE
    assert "os.abort" not in {
        ast.unparse(n.func) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)
    }


def test_zeros_are_a_safetensors_file_of_the_header(tmp_path):
    text = script(subject(zeros="model.safetensors"), OLD)
    (function,) = [n for n in ast.parse(text).body if getattr(n, "name", "") == "write_weights"]
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [5], "data_offsets": [24, 34]},
    }
    (tmp_path / "stand-in.json").write_text(json.dumps(header, indent=1))
    scope = {"CHECKPOINT": tmp_path, "json": json, "os": os, "tempfile": tempfile}
    exec(compile(ast.Module([function], []), "zeros", "exec"), scope)  # noqa: S102
    scope["write_weights"]()
    scope["write_weights"]()  # as the other stack's script does
    raw = (tmp_path / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    assert json.loads(raw[8:end]) == header
    assert raw[end:] == bytes(34)
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "stand-in.json"}


def test_a_class_that_is_no_name_is_refused():
    with pytest.raises(AssertionError):
        script(subject(model_class="X(); import os"), OLD)


@pytest.mark.parametrize(("stack", "name"), [("4.48", "4.48.py"), ("torch", "stack-torch.py")])
def test_no_script_can_be_imported_in_place_of_a_package(stack, name):
    assert script_name(stack) == name
    assert not name.removesuffix(".py").isidentifier()


def test_a_script_expects_the_hash_that_it_can_compute():
    """BLAKE3, by which samebits knows tensors, is not in the standard library."""
    found = constants(script(subject(), OLD, expectation()))
    assert (found["EXPECTED"], found["OTHER"]) == ("3" * 64, "4" * 64)


def test_the_scripts_hash_is_the_one_that_a_trial_observes():
    """tests/inside/check_capsule.py has the same hash of the same tensor."""
    text = script(subject(), OLD, expectation())
    (function,) = [n for n in ast.parse(text).body if getattr(n, "name", "") == "sha256"]
    scope = {"hashlib": hashlib, "torch": Torch}
    exec(compile(ast.Module([function], []), "sha256", "exec"), scope)  # noqa: S102
    known = "2f0c645069e7581a1382ebb64296772a2f992bf44cc6f1a711df88e514b6b0e7"
    assert scope["sha256"](Tensor()) == known


class Torch:
    uint8 = None


class Tensor:
    """The part of a tensor that the hash function of the scripts needs."""

    dtype, shape, data = "torch.float32", (2, 3), bytes(range(24))

    def contiguous(self):
        return self

    flatten = numpy = contiguous

    def view(self, _):
        return self

    def tobytes(self):
        return self.data


def test_a_class_of_a_package_is_imported_from_it():
    wheels = {"my-models": "my_models-0.1-py3-none-any.whl"}
    commit = "git+https://x.org/more@" + "a" * 40
    packages = OLD.packages | {"my-models": "0.1", "more": commit}
    installed = OLD._replace(packages=packages, wheels=wheels)
    own = {
        "model_class": "Mine",
        "class_module": "my_models.modeling",
        "modules": ("my_models", "my_models.more"),
        "options": (("variant", "fp16"), ("num_labels", 3), ("add_pooling_layer", False)),
    }
    text = script(subject(**own), installed, expectation())
    compile(text, "script", "exec")
    assert "\nimport my_models  # registers the model\nimport my_models.more  #" in text
    assert "\nfrom my_models.modeling import Mine\n" in text
    assert " Mine.from_pretrained(" in text
    assert "transformers.Mine" not in text
    assert 'variant="fp16", num_labels=3, add_pooling_layer=False' in text
    values = metadata(text)
    assert {f"more @ {commit}", "my-models==0.1"} <= set(values["dependencies"])
    assert values["tool"]["uv"]["sources"] == {"my-models": {"path": wheels["my-models"]}}
