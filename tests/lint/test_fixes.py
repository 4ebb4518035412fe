"""What ``samebits lint --fix`` writes, byte for byte: into the planted code, and into its other forms."""

import ast
import difflib

from samebits.lint.fix import fix_files
from tests.lint.test_rules import CASES, HEAD
from tests.support.pages import assert_gold

HEADED = """\
{}
class MForCausalLM({}):
    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {{}}
"""
INIT = HEAD + "class M(PreTrainedModel):\n    def _init_weights(self, module):\n"
ZERO = "module.weight.data[0].zero_()"
LAYER = """\
from torch import nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
class M(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = LlamaDecoderLayer(config, 0)
    def forward(self, x, p):
        x = self.layer(x, position_embeddings=p)[0]"""
FORMS = {
    "an import behind": HEADED.format(
        "from transformers import AutoConfig\n"
        "from transformers.modeling_utils import PreTrainedModel",
        "PreTrainedModel",
    ),
    "an import under another name": HEADED.format(
        "from transformers import PreTrainedModel as Base", "Base"
    ),
    "an import of several lines": HEADED.format(
        "from transformers import (\n    AutoConfig,\n    PreTrainedModel,\n)", "PreTrainedModel"
    ),
    "a keyword behind the bases": HEADED.format(
        "from transformers import PreTrainedModel", "PreTrainedModel, metaclass=type"
    ),
    "no import of the library's top": HEADED.format(
        "from transformers.modeling_utils import PreTrainedModel", "PreTrainedModel"
    ),
    "an import of all": HEADED.format(
        "from transformers import *\nfrom transformers.modeling_utils import PreTrainedModel",
        "PreTrainedModel",
    ),
    "or": INIT + f"        if a or b:\n            {ZERO}\n",
    "a choice": INIT + f"        if a if b else c:\n            {ZERO}\n",
    "not": INIT + f"        if not a:\n            {ZERO}\n",
    "one line": INIT + f"        if a: {ZERO}\n",
    "brackets": INIT + f"        if (a):\n            {ZERO}\n",
    "else": INIT + f"        if a:\n            {ZERO}\n        else:\n            pass\n",
    "several writes": INIT
    + "        module.weight.data.fill_(1.0)\n        module.bias.data.fill_(0.5)\n"
    "        module.weight.data.uniform_(-1, 1)\n",
    "a write of several lines": INIT
    + "        module.weight.data.normal_(\n            0.0,\n            self.std,\n        )\n",
    "any arguments": HEAD
    + "class M(PreTrainedModel):\n    def tie_weights(self, *args):\n        pass\n",
    "an argument of its own": HEAD
    + "class M(PreTrainedModel):\n    def tie_weights(self, keys=None):\n        pass\n",
    "a signature of several lines": HEAD
    + "class M(PreTrainedModel):\n    def tie_weights(\n        self,\n    ) -> None:\n"
    "        super(M, self).tie_weights()\n",
    "the end of the file": LAYER,
    "the middle of a file": LAYER + "\n        return x\n",
    "the name output": LAYER.replace("        x =", "        output = p\n        x =") + "\n",
}
"""Form -> code that a rule names, and that a fix may have to leave alone."""


def test_fixes_are_the_gold_ones(tmp_path):
    planted = [(code, text) for code, text, _ in CASES]
    diffs = (diff_of_fix(tmp_path, *each) for each in [*planted, *FORMS.items()])
    assert_gold("fixes.diff", "".join(filter(None, diffs)), folder="lint")


def diff_of_fix(tmp_path, name, planted):
    """Return what lint writes into planted code; '' for nothing, which only forms tell."""
    path = tmp_path / "modeling_x.py"
    path.write_text(planted, "utf-8")
    if not fix_files([path], lambda _: True, write=True)[0]:
        return f"# {name}: left alone\n" if name in FORMS else ""
    fixed = path.read_text("utf-8")
    ast.parse(fixed)
    sides = (text.splitlines() for text in (planted, fixed))
    lines = [*difflib.unified_diff(*sides, n=1, lineterm="")][2:]
    return "\n".join([f"# {name}", *lines, ""])
