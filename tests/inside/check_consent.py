"""Code of a model runs only with consent: each way that Python has to run a file, with its clean twin."""

import importlib.util
import os
import pickle
import py_compile
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import tokenizers
import torch
import transformers
from huggingface_hub import constants
from samebits_probe.model import forks
from samebits_probe.process import consent, failure
from samebits_probe.process.fork import run_in_fork
from transformers import dynamic_module_utils

SOURCE = "import os\nos.environ['CANARY'] = 'ran'\n"


class Evil:
    def __reduce__(self):
        return os.putenv, ("CANARY", "ran")


def import_file(path):
    spec = importlib.util.spec_from_file_location("own", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def execute(path):
    exec(compile(Path(path).read_text(), path, "exec"), {})  # noqa: S102  it is what is tested


def import_from_path(path):
    sys.path.insert(0, str(Path(path).parent))
    importlib.import_module(Path(path).stem)


def import_a_copy(path):
    copy = Path(dynamic_module_utils.HF_MODULES_CACHE, "transformers_modules", "copy.py")
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(Path(path).read_text())
    import_file(copy)


def import_compiled(path):
    compiled = str(Path(path).with_suffix(".pyc"))
    py_compile.compile(path, compiled, dfile="/somewhere/else.py")
    import_file(compiled)


def import_by_a_link(path):
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, "linked.py")
        link.symlink_to(path)
        import_file(link)


def start(path):
    Path(path).chmod(0o755)
    subprocess.run([path], check=False)


RUNS = [
    import_file, execute, import_from_path, import_a_copy, import_compiled, import_by_a_link,
    runpy.run_path, start,
]  # fmt: skip


def model(folder):
    """Make a folder with code and pickles of a model; return the path of the code."""
    code = Path(folder, "modeling_own_code.py")
    code.write_text("#!/bin/sh\n" + SOURCE)
    np.save(Path(folder, "records.npy"), np.array([Evil()], dtype=object), allow_pickle=True)
    torch.save({"a": Evil()}, Path(folder, "weights.bin"))
    Path(folder, "vocab.pkl").write_bytes(pickle.dumps(Evil()))
    return str(code)


def outcome(folder, function, *arguments, trusted=False):
    """Return what happens in a child that is guarded unless the model is trusted."""

    def attempt():
        job = {"model": {"source": folder, "trust_remote_code": trusted}}
        if not consent.is_given(job):
            consent.guard(job)
        try:
            function(*arguments)
        except consent.CodeRefused as refusal:
            return str(refusal)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "ran"

    return run_in_fork_without_check(attempt)


def run_in_fork_without_check(function):
    """Run in a fork, and keep a refusal that the function has answered from being raised again."""

    def answered():
        result = function()
        consent._GUARD.refusals.clear()
        return result

    return run_in_fork(answered)


def test_a_file_of_an_untrusted_model_is_refused_by_name_and_with_what_to_do():
    for function in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            refused = outcome(folder, function, model(folder))
            assert ".py" in refused, (function, refused)
            assert "comes with the model, and it was not run" in refused, (function, refused)
            assert "--trust-remote-code" in refused


def test_a_file_of_a_trusted_model_runs():
    for function in RUNS[:-1]:
        with tempfile.TemporaryDirectory() as folder:
            assert outcome(folder, function, model(folder), trusted=True) == "ran", function


def test_a_link_inside_the_folder_to_code_elsewhere_is_code_of_the_model():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as elsewhere:
        link = Path(folder, "linked.py")
        link.symlink_to(model(elsewhere))
        assert "linked.py comes with the model" in outcome(folder, import_file, str(link))


def test_a_folder_that_is_a_link_is_known_by_both_names():
    with tempfile.TemporaryDirectory() as folder:
        real, link = Path(folder, "real"), Path(folder, "link")
        real.mkdir()
        link.symlink_to(real)
        path = model(real)
        assert "comes with the model" in outcome(str(link), import_file, path)
        assert "comes with the model" in outcome(
            str(real), import_file, str(link / Path(path).name)
        )


def test_code_elsewhere_runs_and_so_does_what_the_user_names():
    def allowed(path):
        consent.allow(path)
        import_file(path)

    def on_the_path(path):
        import_file(path)

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as elsewhere:
        assert outcome(folder, import_file, model(elsewhere)) == "ran"
        assert outcome(folder, allowed, model(folder)) == "ran"
        packages = Path(folder, ".venv", "site-packages")
        packages.mkdir(parents=True)
        sys.path.append(str(packages))
        try:
            assert outcome(folder, on_the_path, model(packages)) == "ran"
            assert "comes with the model" in outcome(folder, on_the_path, model(folder))
        finally:
            sys.path.remove(str(packages))


def test_what_lies_in_the_cache_of_the_hub_is_a_model_s_but_for_kernels_of_transformers():
    with (
        tempfile.TemporaryDirectory() as cache,
        mock.patch.object(constants, "HF_HUB_CACHE", cache),
    ):
        for name, refused in {
            "models--org--name": True,
            "models--kernels-community--flash-attn": False,
            "kernels--org--attention": True,
            "kernels--kernels-community--flash-attn": False,
            "models--org--name/models--kernels-community--x": True,
        }.items():
            folder = Path(cache, name, "snapshots", "0" * 40)
            folder.mkdir(parents=True)
            answer = outcome("org/name", import_file, model(folder))
            assert ("comes with the model" in answer) is refused, (name, answer)
            assert (answer == "ran") is not refused


PICKLES = {
    "records.npy": lambda path: np.load(path, allow_pickle=True),
    "weights.bin": lambda path: torch.load(path, weights_only=False),
    "vocab.pkl": lambda path: pickle.loads(Path(path).read_bytes()),
}


def test_a_pickle_that_could_run_code_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        model(folder)
        for name, read in PICKLES.items():
            refused = outcome(folder, read, f"{folder}/{name}")
            assert f"{name}: this pickle names " in refused, refused
            assert "--trust-remote-code" in refused
            assert outcome(folder, read, f"{folder}/{name}", trusted=True) == "ran"


def test_pickles_of_weights_of_tokenizers_and_of_the_user_are_read():
    def users(path):
        with consent.users_code():
            pickle.loads(Path(path).read_bytes())

    def tokenizer():
        parts = tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.Whitespace()])
        assert pickle.loads(pickle.dumps(parts)) is not None

    with tempfile.TemporaryDirectory() as folder:
        model(folder)
        torch.save({"a": torch.ones(3)}, f"{folder}/plain.bin")
        assert outcome(folder, torch.load, f"{folder}/plain.bin") == "ran"
        assert outcome(folder, tokenizer) == "ran"
        assert outcome(folder, users, f"{folder}/vocab.pkl") == "ran"


def test_what_the_compiler_of_torch_kept_is_read_back_by_itself_alone():
    def read_in(module):
        names = {"__name__": module, "pickle": pickle}
        exec("def read(content):\n    return pickle.loads(content)", names)  # noqa: S102
        return names["read"]

    content = pickle.dumps(Evil())
    with tempfile.TemporaryDirectory() as folder:
        assert outcome(folder, read_in("torch._inductor.codecache"), content) == "ran"
        for other in ("torch.serialization", "transformers_modules.own"):
            assert "names posix.putenv" in outcome(folder, read_in(other), content)


def test_a_refusal_that_somebody_swallows_fails_the_phase():
    def swallow(path):
        with failure.phase("load"):
            try:
                import_file(path)
            except Exception:
                return

    with tempfile.TemporaryDirectory() as folder:
        refused = outcome(folder, swallow, model(folder))
        assert refused.startswith("PhaseFailed: modeling_own_code.py comes with the model"), refused
        assert outcome(folder, swallow, model(folder), trusted=True) == "ran"


def test_custom_generate_is_what_a_checkpoint_does_not_have():
    if not hasattr(transformers.GenerationMixin, "load_custom_generate"):
        return  # up to 4.51

    def load(path):
        forks.refuse_custom_generate()
        transformers.GenerationMixin().load_custom_generate(path)

    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, "custom_generate", "generate.py")
        code.parent.mkdir()
        code.write_text("def generate(model): pass\n")
        # from_pretrained takes an OSError for a checkpoint without such a file
        assert outcome(folder, load, folder).startswith("OSError: ")
