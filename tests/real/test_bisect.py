"""A bisection over real commits: copies of the newest release, one of which computes something else."""

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
