"""Names that no known release has: slips and names that left before 4.48, and what is not accused."""

import pytest

from samebits.lint.engine import lint

IMPORTS = {
    "a slip": ("from transformers import AutoModelForCasualLM", "write AutoModelForCausalLM"),
    "gone before 4.48": (
        "from transformers.models.llama.modeling_llama import LLAMA_ATTENTION_CLASSES",
        "correct the name",
    ),
    "another module": (
        "from transformers.pytorch_utils import AttentionMaskConverter_",
        "correct the name",
    ),
    "its place": (
        (
            "from transformers.modeling_outputs import GenerationMixin_\n"
            "from transformers.trainer_utils import StoppingCriteria"
        ),
        "import it from transformers",
    ),
    "a module": ("from transformers.modeling_util import PreTrainedModel", "correct the name"),
    "import of a module": ("import transformers.cache_util", "correct the name"),
    "an attribute": (
        "import transformers\nx = transformers.AutoModelForCasualLM",
        "write AutoModelForCausalLM",
    ),
    "of a module that is imported by name": (
        "from transformers import modeling_outputs\nx = modeling_outputs.MaskedImageModelingOutputs",
        "write MaskedImageModelingOutput",
    ),
}
CLEAN = {
    "in a try": "try:\n    from transformers import NeverHeard\nexcept ImportError:\n    NeverHeard = None",
    "for a type checker": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from transformers import NeverHeard"
    ),
    "a question": (
        "from transformers.utils import is_flash_attn_2_available\nif is_flash_attn_2_available():\n"
        "    from transformers import NeverHeard"
    ),
    "a version": (
        "import transformers\nif transformers.__version__ < '4.30':\n    from transformers import NeverHeard"
    ),
    "another package": "from transformers_stream import NeverHeard\nfrom .transformers import NeverHeard2",
    "what each release has": (
        "import transformers\nfrom transformers import AutoConfig, AutoModel, PreTrainedModel\n"
        "from transformers.activations import ACT2FN\nx = transformers.__version__\n"
        "y = transformers.utils.logging.get_logger(__name__)\nz = transformers.AutoModel.from_pretrained"
    ),
    "a name of some releases": (
        "try:\n    from transformers.masking_utils import create_causal_mask\nexcept ImportError:\n    pass"
    ),
    "parts that the table leaves out": (
        "from transformers.data.data_collator import NeverHeard\n"
        "from transformers.models.bert.tokenization_bert_fast import NeverHeard2\n"
        "from transformers.models.llama.modeling_llama import _never_heard"
    ),
    "an attribute that it asks for": (
        "import transformers\nx = transformers.NeverHeard if hasattr(transformers, 'NeverHeard') else None"
    ),
    "an attribute that it sets": (
        "import transformers\ntransformers.modeling_utils.never_heard = 1\nx = transformers.modeling_utils.never_heard"
    ),
    "a variable of that name": "def f(transformers):\n    return transformers.NeverHeard",
    "an attribute of an own object": (
        "import transformers\nclass A:\n    def f(self):\n        return self.transformers.NeverHeard"
    ),
}


def unheard(tmp_path, text):
    path = tmp_path / "modeling_x.py"
    path.write_text(text + "\n", "utf-8")
    found = lint([path]).problems
    return [p for p in found if p.code == "SB102" and str(p.releases) == "4.48 to 5.24"]


@pytest.mark.parametrize(("text", "remedy"), IMPORTS.values(), ids=IMPORTS)
def test_what_no_known_release_has_is_said(tmp_path, text, remedy):
    problem = unheard(tmp_path, text)[-1]
    assert "no known release has" in problem.message
    assert problem.remedy.startswith(remedy)


@pytest.mark.parametrize("text", CLEAN.values(), ids=CLEAN)
def test_what_may_be_missing_is_not_accused(tmp_path, text):
    assert unheard(tmp_path, text) == []


def test_a_copy_of_the_library_has_names_of_its_own(tmp_path):
    folder = tmp_path / "transformers"
    folder.mkdir()
    (folder / "modeling_utils.py").write_text("from transformers import NeverHeard\n")
    (folder / "x.py").write_text("from transformers import NeverHeard\n")
    files = sorted(folder.glob("*.py"))
    assert lint(files).problems == []
    assert len(lint([files[1]]).problems) == 1
