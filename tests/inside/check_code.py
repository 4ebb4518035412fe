"""cell.code, model.source, model.executed: what a model's code asks for, and what of it ran."""

import ast
import os
import sys
import tempfile
import types
from pathlib import Path

import tiny
import torch
import transformers
from samebits_probe.cell import code
from samebits_probe.model import forks
from samebits_probe.model import source as model_source
from samebits_probe.model.executed import Executed
from samebits_probe.model.load import Source

OWN = """
import torch
import transformers.cache_utils
from transformers import PreTrainedModel as Base
from transformers.utils import NoSuchName
from .configuration_x import XConfig

if torch.cuda.is_available():
    from transformers.integrations import only_there
try:
    from transformers.cache_utils import NoSuchCache
except ImportError:
    from transformers.nowhere import NoSuchCache
try:
    from transformers.utils import NotCaught
except ValueError:
    pass


class XModel(Base):
    _tied_weights_keys = ["head.weight"]
    supports: bool = True

    def __init__(self, config, *args, scale=1.0, **kwargs):
        super().__init__(config)
        self.post_init()

    def forward(self, x, /, mask=None):
        from transformers.masking_utils import no_such_mask
        return self.head.weight.data.normal_(x)
"""


def source(folder, *, auto_map=True, trust=True):
    Path(folder, "config.json").write_text(
        '{"auto_map": {"AutoModel": "x.X"}}' if auto_map else "{}"
    )
    return Source(str(folder), None, trust, "float32", "default", "cpu")


def found(text=OWN, **options):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "modeling_x.py").write_text(text)
        return code.of_source(source(folder, **options))


def test_imports_are_found_with_what_guards_them_and_whether_they_are_there():
    imports = found()["imports"]
    facts = {(i["symbol"]["owner"], i["symbol"]["name"]): i for i in imports}
    expected = {
        ("transformers", "cache_utils"): (True, False),
        ("transformers", "PreTrainedModel"): (True, False),
        ("transformers.utils", "NoSuchName"): (False, False),
        ("transformers.integrations", "only_there"): (False, True),
        ("transformers.cache_utils", "NoSuchCache"): (False, True),
        ("transformers.nowhere", "NoSuchCache"): (False, True),
        ("transformers.utils", "NotCaught"): (False, False),
        ("transformers.masking_utils", "no_such_mask"): (False, False),
    }
    assert {k: (i["symbol"]["found"], i["guarded"]) for k, i in facts.items()} == expected
    base = facts["transformers", "PreTrainedModel"]
    assert base["defined_in"].startswith("transformers/modeling_utils.py:")
    assert base["line"] == 4


def test_classes_are_told_as_they_are_written():
    (model,) = found()["classes"]
    assert model["name"] == "XModel"
    assert model["bases"] == ["Base"]
    assert model["attributes"] == {"_tied_weights_keys": "list", "supports": "bool"}
    assert model["methods"] == {
        "__init__": ["self", "config", "*args", "scale", "**kwargs"],
        "forward": ["self", "x", "mask"],
    }
    assert set(model["calls"]["__init__"]) == {"super().__init__", "super", "self.post_init"}
    assert model["calls"]["forward"] == ["self.head.weight.data.normal_"]


def test_nothing_is_read_of_a_model_of_the_library_or_one_that_is_not_trusted():
    assert found(auto_map=False)["files"] == {}
    assert found(trust=False)["files"] == {}
    assert list(found()["files"]) == ["modeling_x.py"]


def test_the_truth_of_a_cache_is_a_line_to_name_where_an_empty_one_is_true():
    lines = found("if past_key_values:\n    pass\nlayer(h)[0]\n")["idioms"]
    named = ["truth of a cache"] if forks.empty_cache_is_true() else []
    assert [line["name"] for line in lines] == [*named, "first of a layer's output"]


def test_reading_never_runs_the_model_s_code():
    text = "import os\nos.environ['PROBE_RAN'] = '1'\nraise SystemExit\n"
    assert found(text)["classes"] == []
    assert "PROBE_RAN" not in os.environ


def test_a_file_that_is_no_python_is_still_hashed():
    assert len(found("def (")["files"]["modeling_x.py"]) == 64


def test_asking_for_the_version_is_seen():
    for text in (
        "import transformers\nNEW = transformers.__version__ >= '5'\n",
        "from importlib.metadata import version\n",
        "from transformers import __version__\n",
    ):
        assert found(text)["reads_version"], text
    assert not found("import torch\nx = torch.__version__\n")["reads_version"]
    assert not found()["reads_version"]


PLAIN = "def f(a, b=1):\n    return a + b\n"
SAME = (
    "def f(a: int, b: 'x' = 1) -> int:\n    '''Doc.'''\n    # why\n\n    return (a +\n        b)\n",
    "@auto_docstring(custom='x')\ndef f(a, b=1):\n    return a + b\n",
    "    def f(a, b=1):\n        return a + b\n",
)
OTHER = (
    "def f(a, b=2):\n    return a + b\n",
    "def f(a, b=1):\n    return b + a\n",
    "@torch.no_grad()\ndef f(a, b=1):\n    return a + b\n",
    "def f(a, b=1):\n    'doc'\n    'x'\n    return a + b\n",
)


def test_a_digest_leaves_out_what_computes_nothing_and_nothing_else():
    for text in SAME:
        assert model_source.digest(text) == model_source.digest(PLAIN), text
    digests = [model_source.digest(text) for text in (PLAIN, *OTHER)]
    assert len(set(digests)) == len(digests)


def made(text, name="transformers.made"):
    """Return a module of that text in a file, as if it were one of transformers."""
    folder = Path(tempfile.mkdtemp(), "site-packages", "transformers")
    folder.mkdir(parents=True)
    path = folder / "made.py"
    path.write_text(text)
    module = types.ModuleType(name)
    exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102  made by this test
    return module


def test_executed_functions_have_the_digest_of_their_source():
    text = "def f(x):\n    y = g(\n        x,\n    )\n    return y\n\n\ndef g(x):\n    return [i for i in x]\n"
    module = made(text + "\n\ndef unused():\n    return 1\n")
    before = sys.getprofile()
    with Executed() as executed:
        module.f([1])
        module.g([2])
    assert sys.getprofile() is before
    found = executed.functions()
    assert {k.partition(":")[2]: f["calls"] for k, f in found.items()} == {"f": 1, "g": 2}
    f = found["transformers.made:f"]
    assert f["file"] == "transformers/made.py"
    assert not f["own"]
    assert f["digest"] == model_source.digest(text.partition("\n\n")[0] + "\n")


def test_remote_code_has_the_same_key_wherever_a_release_copies_it():
    keys = set()
    for name in ("transformers_modules.x.abc123.modeling_x", "transformers_modules.x.modeling_x"):
        with Executed() as executed:
            made("def f():\n    return 1\n", name).f()
        ((key, fact),) = executed.functions().items()
        assert fact["own"]
        keys.add(key)
    assert keys == {"modeling_x:f"}


def test_of_a_real_model_every_function_has_a_source():
    model = tiny.llama()
    with Executed() as executed, torch.no_grad():
        model(torch.arange(4)[None])
    found = executed.functions()
    assert any(key.endswith(":LlamaAttention.forward") for key in found)
    assert all(len(fact["digest"]) == 64 for fact in found.values())
    assert not any("torch" in key.partition(":")[0] for key in found)


def test_a_class_of_the_package_is_found_without_parsing_its_file():
    found = model_source.of_class(transformers.DynamicCache)
    lines = Path(found[0]).read_text().splitlines()
    assert lines[found[1] - 1].startswith("class DynamicCache")
    digest = model_source.of_object(transformers.DynamicCache)
    tree = ast.parse(Path(found[0]).read_text())
    (node,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "DynamicCache"]
    start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    assert not node.decorator_list
    text = "\n".join(lines[start - 1 : node.end_lineno]) + "\n"
    assert digest == model_source.digest(text)
