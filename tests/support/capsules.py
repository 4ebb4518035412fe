"""Failed cells and checkpoints that capsules are made of."""

import json
import struct

from samebits.capsules.issue import Issue, issue
from samebits.compare.metrics import measure
from samebits.records.capsule import CapsuleFile, Question, Seen, Side
from samebits.records.capture import Failure
from samebits.records.ids import Verdict
from samebits.records.tensor import TensorRef
from tests.support.builders import cell_id, cell_result, values


def failed(phase):
    failure = Failure(phase=phase, type="KeyError", message="'x'", traceback="")
    fields = {"headline": "failed", "failure": failure}
    return cell_result(cell_id("5.x"), Verdict.FAILED, reference=cell_id(), **fields)


def checkpoint(folder, *names, n=4, **config):
    folder.mkdir()
    settings = {"num_hidden_layers": n, "layer_types": ["a", "b"] * (n // 2), "eos": [1, 2]}
    (folder / "config.json").write_text(json.dumps(settings | config))
    (folder / "tokenizer.json").write_text("large")
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for i, name in enumerate(names):
        offsets = [len(data), len(data) + 4]
        header[name] = {"dtype": "F32", "shape": [1], "data_offsets": offsets}
        data += struct.pack("<f", i)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


HOSTILE = "<script>alert(1)</script> | `x` [a](b) @someone\n# heading"


def side(stack, sees):
    return Side(
        stack=stack,
        script=f"{stack}.py",
        transformers=f"{stack}.0",
        torch="2.13.0+cpu",
        python="3.11",
        packages={},
        sees=sees,
    )


def text(sees, contrast="differs", shrunk=("1 of 4 layers",), **changed):
    ref = TensorRef(hash="a" * 64, dtype="float32", shape=(1, 3, 8))
    file = CapsuleFile(
        cell=cell_id("5.x"),
        contrast=contrast,
        question=Question(kind="forward", prompt="short"),
        checkpoint="checkpoint",
        shrunk=shrunk,
        reference=side("4.48", Seen(ref=ref, sha256="d" * 64)),
        candidate=side("5.x", sees),
        platform="Linux",
        cpu_capability="AVX2",
    )
    result = failed("load").model_copy(update={"expected": (HOSTILE,)})
    reference, candidate = values(1, 3, 8), values(1, 3, 8, seed=1)
    inputs = Issue(
        file,
        result,
        result,
        measure(reference, candidate, logits=True),
        "path model",
        False,
        {"4.48.py": HOSTILE},
    )
    return issue(inputs._replace(**changed))
