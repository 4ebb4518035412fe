"""The models of a lock: whose word lets their code run."""

import pytest

from samebits.gate.lockfile import environment_key, with_model
from samebits.gate.model import CodeError, require_consent
from samebits.records.lock import LockFile
from tests.support.locks import environment, machine, recorded

NAME = "tiny/float32-default"
SOURCE = "torch @ https://evil.example/torch-2.13.0-py3-none-any.whl"


def lock(path=".", *, trusts=True, sources=()):
    made = environment().model_copy(update={"sources": dict(sources)})
    entry = recorded(path=path, trust_remote_code=trusts, environment=environment_key(made))
    return with_model(LockFile(), NAME, entry, made, machine())


def asked(file, content, **more):
    require_consent(file, content, [NAME], **({"is_given": False} | more))


def model(folder, files=("config.json",)):
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"model_type": "llama"}')
    return folder


LAYOUTS = {
    "beside the model": (("config.json",), ".", "."),
    "below it": (("config.json",), "project", ".."),
    "beside weights without a config": (("model.safetensors",), ".", "."),
    "beside what only the lock calls a model": (("own.py",), ".", "."),
    "below that": (("own.py",), "project", ".."),
    "for a model elsewhere": (("config.json",), ".", "../other"),
}


@pytest.mark.parametrize(("files", "place", "path"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_lock_in_the_folder_of_a_model_is_no_consent(tmp_path, files, place, path):
    folder = model(tmp_path / "dl", files) / place
    folder.mkdir(exist_ok=True)
    file = folder / "samebits.lock"
    with pytest.raises(CodeError, match="may have come with the model") as caught:
        asked(file, lock(path))
    assert str(tmp_path / "dl") in str(caught.value)
    asked(file, lock(path), is_given=True)
    asked(file, lock(path, trusts=False))


def test_a_link_hides_no_folder_of_a_model(tmp_path):
    folder = model(tmp_path / "dl")
    (folder / "samebits.lock").touch()
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "samebits.lock").symlink_to(folder / "samebits.lock")
    for file in (tmp_path / "link" / "samebits.lock", tmp_path / "samebits.lock"):
        with pytest.raises(CodeError):
            asked(file, lock("dl"))


def test_addresses_of_packages_in_it_are_no_consent_either(tmp_path):
    file = model(tmp_path / "dl") / "samebits.lock"
    content = lock(trusts=False, sources={"torch": SOURCE})
    with pytest.raises(CodeError, match=r"installed from torch @ https://evil\.example"):
        asked(file, content, installs=True)
    asked(file, content, installs=True, is_given=True)
    asked(file, content, installs=False)


@pytest.mark.parametrize("path", ["model", "../model", "models/a"])
def test_the_lock_of_a_project_keeps_its_meaning(tmp_path, path):
    project = tmp_path / "project"
    model(project / path)
    (project / "config.json").write_text('{"port": 8080}')
    asked(project / "samebits.lock", lock(path, sources={"torch": SOURCE}), installs=True)
