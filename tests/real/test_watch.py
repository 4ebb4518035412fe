"""Nights of the watch over real commits: copies of the newest release, in which one computes something else."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from samebits.matrix import load, yamltext
from samebits.matrix.spec import StackSpec
from samebits.pipeline.order import Order
from samebits.pipeline.run import run_matrix
from samebits.stacks.build import StackBuilder, transformers_folder
from samebits.stacks.installer import Installer
from samebits.terminal.progress import silent
from samebits.watch.causes import night_of
from samebits.watch.nights import changes
from samebits.watch.records import WatchFile
from tests.real.conftest import NEW, SHARED, share_stacks
from tests.support.clones import FOLDER, clone

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MODELS = {name: {"build": {"architecture": name, "config": SIZES}} for name in ("llama", "mistral")}
TABLE = f"{FOLDER}/dependency_versions_table.py"


def commits_of(release, repo):
    """Make a clone with a commit for each night."""
    shutil.copytree(release, repo / FOLDER, ignore=shutil.ignore_patterns("__pycache__"))
    paths = [f"{FOLDER}/models/{name}/modeling_{name}.py" for name in MODELS]

    def edited(old, new):
        texts = {path: (repo / path).read_text("utf-8").replace(old, new) for path in paths}
        assert all(new in text for text in texts.values())
        return texts

    norm = "hidden_states * torch.rsqrt(variance + self.variance_epsilon)"
    rounds = edited(norm, "hidden_states / torch.sqrt(variance + self.variance_epsilon)")
    planted = edited(norm, "hidden_states * torch.rsqrt(variance + 0.1)")
    table = (repo / TABLE).read_text("utf-8")
    unmet = table.replace('"numpy": "numpy', '"numpy": "numpy>=99,')
    assert unmet != table
    return clone(
        repo,
        ("Divide by the root", rounds),
        ("Steady the norm (#8)", planted),
        ("A page", {"docs/page.md": "text"}),
        ("Need a numpy that nobody has", {TABLE: unmet}),
        ("Divide by the root again", {TABLE: table, **rounds}),
    )


@pytest.mark.long
def test_a_planted_change_is_one_cause_until_it_is_reverted_and_rounding_is_none(tmp_path):
    cache = tmp_path / "cache"
    share_stacks(cache / "checks")
    (cache / "stacks").symlink_to(SHARED["stacks"])
    environ = {**os.environ, "SAMEBITS_CACHE": str(cache)}
    builder = StackBuilder(cache / "checks", Installer(environ), stacks=cache / "stacks")
    repo = tmp_path / "transformers"
    stack = builder.build(StackSpec(id=NEW, transformers=NEW))
    shas = commits_of(transformers_folder(stack), repo)
    order = Order(
        matrix=Path("watch.yaml"), level="quick", causes=True, work=cache / "checks", checks=True
    )
    state, lines = WatchFile(), []
    for sha in shas:
        main = {"id": "main", "transformers": f"{repo}@{sha}", "base": NEW}
        text = json.dumps({"version": 1, "environments": [NEW, main], "models": MODELS})
        matrix = load.parse(yamltext.parse(text.encode()), tmp_path / "watch.yaml")
        report, _ = asyncio.run(run_matrix(order, environ, silent, matrix=matrix))
        night = night_of(report)
        changed = changes(state, night)
        state = changed.after
        lines.append([[known.kind for known, _ in changed.opens], [k.kind for k in changed.closes]])
        if sha == shas[1]:
            (known,) = state.causes
            assert known.models == ("llama", "mistral")
            assert (known.since, known.reference) == (sha[:10], stack.packages["transformers"])
    assert lines == [
        [[], []],
        [["differs"], []],
        [[], []],
        [["watch"], []],
        [[], ["differs", "watch"]],
    ]
