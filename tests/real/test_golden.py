"""Tests whose expected values moved: by a planted change of the model, by rounding, and by what the test does itself.

The releases are copies of the newest one, of which one computes another function and one sums in another order.
"""

import asyncio
import os
import shutil
import subprocess

import pytest

from samebits.golden import command
from samebits.matrix.spec import StackSpec
from samebits.stacks.build import StackBuilder, transformers_folder
from samebits.stacks.installer import Installer
from tests.real.conftest import NEW, SHARED, share_stacks
from tests.support.clones import FOLDER

pytestmark = pytest.mark.long

NORM = f"{FOLDER}/models/llama/modeling_llama.py"
VARIANCE = "variance = hidden_states.pow(2).mean(-1, keepdim=True)"
EPSILON = "variance + self.variance_epsilon"
CHANGES = {
    "other-function": (EPSILON, "variance + 1000 * self.variance_epsilon"),
    "other-order": (
        VARIANCE,
        "variance = hidden_states.flip(-1).pow(2).sum(-1, keepdim=True) / hidden_states.shape[-1]",
    ),
}

MODEL = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)
torch.manual_seed(0)
sizes = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2)).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.normal_(std=0.5)
    model.save_pretrained("tiny")
    logits = model(torch.tensor([[1, 5, 9, 13, 2, 7, 4]])).logits
print([[round(value, 6) for value in row] for row in logits[0, :2, :3].tolist()])
"""

TEST = """
import unittest

import torch
from transformers import LlamaForCausalLM

IDS = torch.tensor([[1, 5, 9, 13, 2, 7, 4]])


def test_unseeded():
    model = LlamaForCausalLM.from_pretrained("tiny")
    logits = model(torch.randint(0, 99, (1, 4)))[0]
    torch.testing.assert_close(logits[0, 0, :3], torch.zeros(3))


class LlamaIntegrationTest(unittest.TestCase):
    def test_slice(self):
        model = LlamaForCausalLM.from_pretrained("tiny")
        with torch.no_grad():
            out = model(IDS)
        expected_slice = torch.tensor(EXPECTED)
        torch.testing.assert_close(out.logits[0, :2, :3], expected_slice, rtol=0, atol=TOLERANCE)

    def test_the_other_way_round(self):
        model = LlamaForCausalLM.from_pretrained("tiny")
        expected_slice = torch.tensor(EXPECTED[1])
        self.assertTrue(torch.allclose(expected_slice, model(IDS)[0][0, 1, :3], rtol=0, atol=TOLERANCE))

    def test_two_ways(self):
        model = LlamaForCausalLM.from_pretrained("tiny")
        torch.testing.assert_close(model(IDS)[0], model(IDS, use_cache=False)[0])
"""


class Project:
    """A project with the test, and checkouts of the newest release with one change each."""

    def __init__(self, root):
        self.root = root
        share_stacks(root / "cache" / "checks")
        (root / "cache" / "stacks").symlink_to(SHARED["stacks"])
        builder = StackBuilder(
            root / "cache" / "checks", Installer(os.environ), stacks=root / "cache" / "stacks"
        )
        stack = builder.build(StackSpec(id=NEW, transformers=NEW))
        for name, change in CHANGES.items():
            self.copy(transformers_folder(stack), root / name, *change)
        made = subprocess.run(
            [stack.python, "-c", MODEL], cwd=root, check=True, capture_output=True, text=True
        )
        values = made.stdout.strip().splitlines()[-1]
        text = TEST.replace("EXPECTED", values).replace("TOLERANCE", "2e-6")
        (root / "test_tiny.py").write_text(text, "utf-8")

    def copy(self, release, folder, before, after):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(release, folder / FOLDER, ignore=ignored)
        text = (folder / NORM).read_text("utf-8")
        assert before in text
        (folder / NORM).write_text(text.replace(before, after), "utf-8")

    def judged(self, last):
        """Return what is said of each test, and the exit code."""
        environ = {**os.environ, "SAMEBITS_CACHE": str(self.root / "cache")}
        options = command.Options(test="test_tiny.py", first=NEW, last=str(self.root / last))
        found = asyncio.run(command.run(options, environ, print))
        assert [*command.lines(found)]
        return {each.test.rpartition("::")[2]: each for each in found.judged}, command.exit_code(
            found
        )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("golden"))


def test_another_function_is_named_with_its_line_and_no_values_to_paste(project, monkeypatch):
    monkeypatch.chdir(project.root)
    judged, code = project.judged("other-function")
    for name in ("test_slice", "test_the_other_way_round"):
        (change,) = judged[name].changes
        assert (judged[name].kind, judged[name].new) == ("behaviour change", "")
        assert judged[name].holds == (True, False)
        assert change.verdict == "diverged"
        assert "LlamaRMSNorm.forward" in change.cause
    assert judged["test_two_ways"].kind == "not golden"
    assert judged["test_unseeded"].kind == "not repeatable"
    assert code == 1


def test_its_twin_that_sums_in_another_order_only_rounds(project, monkeypatch):
    monkeypatch.chdir(project.root)
    judged, _ = project.judged("other-order")
    for name in ("test_slice", "test_the_other_way_round"):
        (change,) = judged[name].changes
        assert (judged[name].kind, change.verdict) == ("rounding", "rounding")
        assert "LlamaRMSNorm.forward" in change.cause
        assert judged[name].holds[0]
        assert bool(judged[name].new) is not judged[name].holds[1]
    assert judged["test_two_ways"].kind == "not golden"
    assert judged["test_unseeded"].kind == "not repeatable"
