"""Bisections over real commits: copies of the newest release, and a package, where one computes something else."""

import asyncio
import json
import os
import shutil

import pytest

from samebits.bisect import command
from samebits.matrix import load, yamltext
from samebits.matrix.spec import StackSpec
from samebits.stacks.build import StackBuilder, transformers_folder
from samebits.stacks.installer import Installer
from tests.real.conftest import NEW, SHARED, share_stacks
from tests.support.clones import FOLDER, clone, git
from tests.support.model_packages import make_checkpoint, make_package

LLAMA = {
    "architecture": "llama",
    "config": {
        "vocab_size": 99,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
    },
}
NORM = f"{FOLDER}/models/llama/modeling_llama.py"


@pytest.fixture
def cache(tmp_path):
    """Make a cache folder with the stacks and the locks of the tests."""
    share_stacks(tmp_path / "cache" / "checks")
    (tmp_path / "cache" / "stacks").symlink_to(SHARED["stacks"])
    return tmp_path / "cache"


def commits_of(release, repo):
    """Make a clone whose commits are the release, two of other files, the planted one, and one behind it."""
    shutil.copytree(release, repo / FOLDER, ignore=shutil.ignore_patterns("__pycache__"))
    text = (repo / NORM).read_text("utf-8")
    planted = text.replace(
        "variance + self.variance_epsilon", "variance + 2 * self.variance_epsilon"
    )
    assert planted != text
    return clone(
        repo,
        ("Release", {}),
        ("Another model", {f"{FOLDER}/models/gpt2/configuration_gpt2.py": "raise ImportError\n"}),
        ("A comment (#7)", {NORM: f"{text}\n# nothing\n"}),
        ("Steady the norm (#8)", {NORM: planted}),
        ("A page", {"docs/page.md": "text"}),
    )


@pytest.mark.long
def test_the_planted_commit_is_named_with_its_function_and_its_cause(tmp_path, cache):
    environ = {**os.environ, "SAMEBITS_CACHE": str(cache)}
    spec = StackSpec(id=NEW, transformers=NEW)
    builder = StackBuilder(cache / "checks", Installer(environ), stacks=cache / "stacks")
    repo = tmp_path / "transformers"
    shas = commits_of(transformers_folder(builder.build(spec)), repo)
    environments = [
        {"id": sha[:10], "transformers": f"{repo}@{sha}"} for sha in (shas[0], shas[-1])
    ]
    text = json.dumps(
        {"version": 1, "environments": environments, "models": {"tiny": {"build": LLAMA}}}
    )
    matrix = load.parse(yamltext.parse(text.encode()), tmp_path / "matrix.yaml")
    options = command.Options(model="tiny", first=shas[0], last=shas[-1], repo=repo, base=NEW)
    found = asyncio.run(command.bisected(matrix, options, environ, print))
    (culprit,) = found.culprits
    assert (culprit.sha, culprit.before, culprit.pull) == (shas[3], shas[2], "8")
    assert culprit.is_proven
    assert culprit.verdict in {"diverged", "rounding"}
    assert "LlamaRMSNorm" in culprit.hunks[0].name
    assert "2 * self.variance_epsilon" in culprit.hunks[0].diff
    assert (found.n_suspected, found.n_tried) == (1, 3)
    assert git(repo, "status", "--porcelain") == ""


TINY = "src/my_models/modeling_tiny.py"
MATRIX = """
environments: ["5.x"]
models: {tiny: {path: tiny, import: my_models, greedy: 0}}
"""


def commits_of_package(repo):
    """Make a clone of a package: two commits that change no bits, one that does not import, the planted one."""
    make_package(repo, "my_models")
    text = (repo / TINY).read_text("utf-8")
    plain = text.replace(
        "states = hidden_states.to(torch.float32)\n", "states = hidden_states.float()\n"
    )
    planted = plain.replace("keepdim=True) + self.eps", "keepdim=True) + 2 * self.eps")
    assert len({text, plain, planted}) == 3
    return clone(
        repo,
        ("Start", {}),
        ("A shorter name (#3)", {TINY: plain}),
        ("Other models", {"src/my_models/other.py": "A = 1\n"}),
        ("Broken", {"src/my_models/__init__.py": "import nothing_of_this_name\n"}),
        ("Mended", {"src/my_models/__init__.py": (repo / "src/my_models/__init__.py").read_text()}),
        ("Steady the norm (#8)", {TINY: planted}),
        ("A page", {"docs/page.md": "text"}),
    )


def test_the_planted_commit_of_a_package_is_named_and_its_clean_twin_names_none(tmp_path, cache):
    environ = {**os.environ, "SAMEBITS_CACHE": str(cache)}
    repo = tmp_path / "my-models"
    shas = commits_of_package(repo)
    make_checkpoint(tmp_path / "tiny")
    matrix = load.parse(yamltext.parse(MATRIX.encode()), tmp_path / "matrix.yaml")

    def search(first, last):
        options = command.Options(model="tiny", first=first, last=last, package_repo=repo, base=NEW)
        return asyncio.run(command.bisected(matrix, options, environ, print))

    found = search(shas[0], "main")
    (culprit,) = found.culprits
    assert (culprit.sha, culprit.before, culprit.pull) == (shas[5], shas[4], "8")
    assert culprit.is_proven
    assert culprit.verdict == "diverged"
    assert "TinyRMSNorm.forward" in culprit.cause
    (hunk,) = culprit.hunks
    assert (hunk.file, hunk.name) == ("my_models/modeling_tiny.py", "TinyRMSNorm.forward")
    assert "+ 2 * self.eps" in hunk.diff
    assert git(repo, "status", "--porcelain") == ""
    twin = search(shas[0], shas[4])
    assert (twin.culprits, twin.same) == ((), True)
