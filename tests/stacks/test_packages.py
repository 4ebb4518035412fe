"""Packages of models beside a stack, with a fake uv: locks, folders, contents and contradictions."""

import shutil
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from samebits.base.filestate import Dependencies
from samebits.records.record import read_record
from samebits.stacks.installer import Installer
from samebits.stacks.packages import Added, PackageBuilder, PackagesError, with_versions
from tests.support.builders import built_stack
from tests.support.wheels import locked, pylock

STACK = built_stack("4.48", "llama", python="/stack/bin/python")
CONTRADICTION = """\
  \x1b[31m\u00d7\x1b[0m No solution found when resolving dependencies:
  ╰─▶ Because my-models==1.2 depends on transformers>=5 and
      transformers==4.48.3, we can conclude that my-models==1.2 cannot be used.
"""
UNKNOWN = """\
  \x1b[31m\u00d7\x1b[0m No solution found when resolving dependencies:
  ╰─▶ Because my-modls was not found in the package
      registry and you require my-modls, we can conclude that your requirements are unsatisfiable.
"""


class Uv:
    """Replaces uv: resolves to ``lock``, makes wheels and installs one module per line."""

    def __init__(self, lock="my-models==1.2\neinops==0.8\ntorch==2.13.0\n"):
        self.lock = lock
        self.calls = []
        self.failing = {}

    def __call__(self, command, text, env):
        what = next(word for word in command if word in ("compile", "build", "install"))
        self.calls.append((what, command, text))
        if what in self.failing:
            return CompletedProcess(command, 1, "", self.failing[what])
        return CompletedProcess(command, 0, getattr(self, what)(command, text), "")

    def compile(self, command, text):
        if "pylock.toml" in command:
            return pylock(locked(text))
        return self.resolve(command, text)

    def resolve(self, command, text):
        # what computes is fixed, whatever the packages want
        assert f"\ntorch==2.13.0\ntransformers=={STACK.transformers}" in text
        Path(command[command.index("--output-file") + 1]).write_text(self.lock, "utf-8")
        return ""

    def build(self, command, text):
        folder, source = Path(command[-2]), Path(command[-1])
        version = (source / "pyproject.toml").read_text("utf-8")
        (folder / f"{source.name}-{version}-py3-none-any.whl").touch()
        return ""

    def install(self, command, text):
        folder = Path(command[command.index("--target") + 1])
        for line in text.splitlines():
            (folder / f"{line.split()[0].partition('==')[0]}.py").touch()
        return ""

    @property
    def names(self):
        return [what for what, *_ in self.calls]


@pytest.fixture
def uv():
    return Uv()


def builder(folder, uv, **options):
    options = {"dependencies": Dependencies(), **options}
    return PackageBuilder(folder / "work", folder, Installer({"PATH": "/bin"}, run=uv, **options))


def extend(folder, uv, *packages, **options):
    return builder(folder, uv, **options).extend(STACK, "3.11", packages)


def source(folder, version="0.1"):
    (folder / "mine" / "src").mkdir(parents=True, exist_ok=True)
    (folder / "mine" / "pyproject.toml").write_text(version)
    (folder / "mine" / "src" / "code.py").write_text("x = 1\n")
    return "./mine"


def test_only_what_the_stack_lacks_is_installed(tmp_path, uv):
    extended = extend(tmp_path, uv, "my-models>=1.2")
    # versions twice, then the hashes of wheels
    assert uv.names == ["compile", "compile", "compile", "install"]
    assert uv.calls[0][2].splitlines()[0] == "my-models>=1.2"
    assert uv.calls[3][2] == locked("my-models==1.2\neinops==0.8\n").rstrip()
    assert "--hash=sha256:" in extended.lock
    assert extended.added.packages == {"my-models": "1.2", "einops": "0.8"}
    assert sorted(path.name for path in Path(extended.folder).iterdir()) == [
        "einops.py",
        "my-models.py",
    ]
    assert "--no-deps" in uv.calls[-1][1]
    assert extended.packages == {**STACK.packages, "my-models": "1.2", "einops": "0.8"}
    assert (extended.id, extended.python) == (STACK.id, STACK.python)
    assert extended.lock.startswith(STACK.lock.rstrip())


def test_the_second_time_nothing_runs(tmp_path, uv):
    first = extend(tmp_path, uv, "my-models>=1.2")
    uv.calls.clear()
    assert extend(tmp_path, uv, "my-models>=1.2") == first
    assert uv.calls == []


def test_results_follow_from_the_packages(tmp_path, uv):
    digests = {STACK.lock_digest, extend(tmp_path, uv, "my-models").lock_digest}
    uv.lock = "my-models==1.3\n"
    digests.add(extend(tmp_path, uv, "my-models", upgrade=True).lock_digest)
    assert len(digests) == 3


def test_a_torn_folder_is_installed_again(tmp_path, uv):
    extended = extend(tmp_path, uv, "my-models")
    stamp = Path(extended.folder).parent / "samebits-packages.json"
    stamp.write_text(stamp.read_text("utf-8")[:30], "utf-8")
    shutil.rmtree(extended.folder)
    again = extend(tmp_path, uv, "my-models")
    assert uv.names == ["compile", "compile", "compile", "install", "install"]
    stamp = Path(again.folder).parent / "samebits-packages.json"
    assert read_record(stamp, Added) == extended.added
    assert Path(again.folder, "einops.py").exists()
    assert again.lock_digest != extended.lock_digest  # the torn folder may have been used


def test_a_folder_is_built_once_for_each_content(tmp_path, uv):
    package = source(tmp_path)
    uv.lock = "mine @ file:///elsewhere/mine-0.1-py3-none-any.whl\n"
    first = extend(tmp_path, uv, package)
    (tmp_path / "mine" / "build").mkdir()
    (tmp_path / "mine" / "src" / "__pycache__").mkdir()
    assert extend(tmp_path, uv, package) == first
    assert uv.names == ["build", "compile", "compile", "install"]
    (tmp_path / "mine" / "src" / "code.py").write_text("x = 2\n")
    second = extend(tmp_path, uv, package)
    assert uv.names == ["build", "compile", "compile", "install"] * 2
    assert first.lock_digest != second.lock_digest
    assert second.added.packages == {"mine": "0.1"}
    assert second.added.local == ("mine",)
    assert Path(second.wheels["mine"]).name == "mine-0.1-py3-none-any.whl"
    # what is installed is the wheel that was built now; the lock names no folder of this machine
    assert uv.calls[-1][2] == f"mine @ {Path(second.wheels['mine']).as_uri()}"
    assert "file:" not in second.lock


def test_a_change_of_the_source_is_noticed_by_the_next_run(tmp_path, uv):
    dependencies = Dependencies()
    uv.lock = "mine @ file:///elsewhere/mine-0.1-py3-none-any.whl\n"
    extend(tmp_path, uv, source(tmp_path), dependencies=dependencies)
    assert str(tmp_path / "mine" / "src" / "code.py") in dependencies.files
    assert str(tmp_path / "mine" / "src") in dependencies.files


def test_a_wheel_is_taken_as_it_is(tmp_path, uv):
    (tmp_path / "mine-0.2-py3-none-any.whl").write_bytes(b"wheel")
    uv.lock = "mine @ file:///elsewhere\n"
    extended = extend(tmp_path, uv, "./mine-0.2-py3-none-any.whl")
    assert uv.names == ["compile", "compile", "install"]
    assert extended.added.packages == {"mine": "0.2"}


def test_a_contradiction_is_a_result_in_plain_words(tmp_path, uv):
    uv.failing["compile"] = CONTRADICTION
    with pytest.raises(PackagesError) as caught:
        extend(tmp_path, uv, "my-models")
    assert caught.value.contradicts
    assert str(caught.value).startswith(
        "its packages do not fit transformers 4.48.0: Because my-models==1.2 depends on "
        "transformers>=5 and transformers==4.48.3, we can conclude that my-models==1.2 cannot be "
        "used. Name a version".replace("4.48.0", STACK.transformers)
    )


def test_a_package_that_excludes_the_release_is_no_matter_of_the_environment(tmp_path, uv):
    """As adapters, which requires transformers~=4.57.6, beside 5.24.0."""
    pinned = f"And because you require transformers=={STACK.transformers}, it cannot be used."
    uv.failing["compile"] = f"{CONTRADICTION.partition('Because')[0]}{pinned}"
    with pytest.raises(PackagesError) as caught:
        extend(tmp_path, uv, "adapters")
    assert "excludes this release" in str(caught.value)
    assert "environment-package" not in str(caught.value)


def test_a_name_that_no_index_has_is_told_apart_from_a_contradiction(tmp_path, uv):
    uv.failing["compile"] = UNKNOWN
    with pytest.raises(PackagesError) as caught:
        extend(tmp_path, uv, "my-modls")
    assert caught.value.contradicts
    assert "Check the name" in str(caught.value)
    assert "Name a version" not in str(caught.value)


def test_of_a_long_contradiction_nothing_is_left_out(tmp_path, uv):
    steps = [
        f"And because mine=={n} depends on numpy<{n}, mine=={n} cannot be used." for n in range(9)
    ]
    uv.failing["compile"] = CONTRADICTION.partition("Because")[0] + "Because " + " ".join(steps)
    with pytest.raises(PackagesError) as caught:
        extend(tmp_path, uv, "my-models")
    assert " ".join(steps) in str(caught.value)


@pytest.mark.parametrize("step", ["build", "compile", "install"])
def test_any_other_failure_is_no_result(tmp_path, uv, step):
    uv.lock = "mine @ file:///elsewhere\n"
    uv.failing[step] = "error: Failed to fetch: https://index/simple/"
    with pytest.raises(PackagesError) as caught:
        extend(tmp_path, uv, source(tmp_path))
    assert not caught.value.contradicts
    assert "Failed to fetch" in str(caught.value)
    assert "check the network" in str(caught.value)
    uv.failing.clear()  # nothing is left that breaks the next run
    assert extend(tmp_path, uv, "./mine").added.packages == {"mine": "0.1"}


def test_an_old_lock_serves_without_a_network(tmp_path, uv):
    first = extend(tmp_path, uv, "my-models")
    uv.failing["compile"] = "error: Failed to fetch"
    assert extend(tmp_path, uv, "my-models", max_age=-1.0) == first
    uv.failing["compile"] = CONTRADICTION
    with pytest.raises(PackagesError):
        extend(tmp_path, uv, "my-models", max_age=-1.0)


EXTRA = {"fsspec": "2026.9.0", "numpy": "2.4.6", "timm": "1.0"}
LIBRARY = STACK.model_copy(
    update={
        "packages": STACK.packages | EXTRA,
        "lock": STACK.lock + "".join(f"{name}=={version}\n" for name, version in EXTRA.items()),
    }
)


class Resolver(Uv):
    """Resolves as uv does: datasets needs an fsspec older than the stack's."""

    def resolve(self, command, text):
        overrides = Path(command[command.index("--override") + 1]).read_text("utf-8")
        output = Path(command[command.index("--output-file") + 1])
        self.ignored = [line.partition(";")[0] for line in overrides.splitlines()]
        self.preferred = output.read_text("utf-8")
        pins = dict(line.split("==") for line in text.splitlines() if "==" in line)
        pins |= {} if "fsspec" in self.ignored else {"fsspec": "2026.6.0"}
        output.write_text("".join(f"{n}=={v}\n" for n, v in {**pins, **self.own(pins)}.items()))
        return ""

    def own(self, pins):
        # the newest is chosen where nothing that may move stands against it
        return {"datasets": "5.0.1" if "fsspec" in self.ignored else pins.get("datasets", "2.14.4")}


def test_a_package_that_decides_no_bits_gives_way_and_what_computes_does_not(tmp_path):
    uv = Resolver()
    extended = builder(tmp_path, uv).extend(LIBRARY, "3.11", ["datasets"], ["timm>=1"])
    assert uv.calls[0][2].splitlines()[1:] == [
        "numpy==2.4.6",
        "timm==1.0",  # which the stack lists
        "torch==2.13.0",
        "transformers==4.48.0",
    ]
    assert "datasets==5.0.1" in uv.calls[1][2]
    assert "fsspec==2026.9.0" in uv.preferred  # what may stay as it is stays
    assert extended.added.packages == {"fsspec": "2026.6.0", "datasets": "5.0.1"}
    assert extended.added.replaced == {"fsspec": "2026.9.0"}
    assert extended.packages["fsspec"] == "2026.6.0"
    assert "fsspec==2026.9.0" not in extended.lock
    instead = Path(extended.folder).with_name("instead")
    assert [path.name for path in instead.iterdir()] == ["fsspec.py"]
    assert [path.name for path in Path(extended.folder).iterdir()] == ["datasets.py"]


def test_without_a_need_nothing_of_the_stack_moves(tmp_path, uv):
    uv.lock = "".join(f"{n}=={v}\n" for n, v in LIBRARY.packages.items()) + "my-models==1.2\n"
    extended = builder(tmp_path, uv).extend(LIBRARY, "3.11", ["my-models"])
    assert extended.added.packages == {"my-models": "1.2"}
    assert extended.added.replaced == {}
    assert not Path(extended.folder).with_name("instead").exists()


def test_listed_packages_are_named_in_exactly_one_version(tmp_path, uv):
    extended = extend(tmp_path, uv, "My_Models[fast]>=1.2")
    listed = ("My_Models[fast]>=1.2", "./mine", "x @ git+https://host/x@0123", "torch", "unknown")
    assert with_versions(listed, extended) == (
        "My_Models[fast]==1.2",
        "./mine",
        "x @ git+https://host/x@0123",
        "torch==2.13.0",
        "unknown",
    )
