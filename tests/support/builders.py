"""Small captures to compare, with their tensors in memory; small models and stacks."""

import numpy as np

from samebits.base.digests import digest_of
from samebits.findings.case import Case
from samebits.matrix.spec import ModelSpec, Prompt, Recipe, StackSpec
from samebits.records.capture import (
    AttentionCall,
    AttentionSignal,
    BufferFacts,
    Capture,
    Failure,
    ForwardFacts,
    GreedyFacts,
    InvFreqFacts,
    Layer,
    LoadFacts,
    Piece,
    SdpaCall,
    Signals,
    Skip,
    WeightFacts,
    WeightsSignal,
)
from samebits.records.comparison import CellResult
from samebits.records.distance import Distance
from samebits.records.ids import CellId, Variant, Verdict
from samebits.records.ladder import LadderStep
from samebits.records.question import is_question
from samebits.records.report import Report, StackReport
from samebits.records.state import LeftBehind, StateSignal
from samebits.records.subject import Subject
from samebits.records.tensor import NUMPY_DTYPES, TensorRef, tensor_hash
from samebits.records.tokenizer import Answer, Encoded, TokenizerSignal
from samebits.records.trace import Cause
from samebits.stacks.build import Stack

NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


class Memory:
    """A TensorSource whose tensors are arrays, and the maker of refs to them."""

    def __init__(self):
        self.arrays = {}
        self.reads = 0

    def put(self, array, *, stored=True):
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        name = NAMES[array.dtype]
        hash = tensor_hash(name, array.shape, array.tobytes())
        if stored:
            self.arrays[hash] = array
        return TensorRef(hash=hash, dtype=name, shape=array.shape, stored=stored)

    def has(self, ref):
        return ref.hash in self.arrays

    def tensor(self, ref):
        self.reads += 1
        return self.arrays[ref.hash]


def values(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def nudged(array, *index, by=1e-6):
    """Return a copy that differs in one element; the bits change, however small ``by`` is."""
    other = array.copy()
    other[index] = np.nextafter(other[index], np.float32(np.inf)) if by == 0 else other[index] + by
    assert other.tobytes() != array.tobytes()
    return other


def cell_id(stack="4.48", model="llama", dtype="float32", attention="sdpa"):
    return CellId(model=model, variant=Variant(dtype=dtype, attention=attention), stack=stack)


def weight(
    memory, array, *pieces, origin=None, kind="parameter", layout="", aliases=(), stored=False
):
    """Return a tensor that is loaded if it has pieces: names, or (name, part) pairs."""
    told = [
        Piece(tensor=p) if isinstance(p, str) else Piece(tensor=p[0], part=p[1]) for p in pieces
    ]
    return WeightFacts(
        ref=memory.put(array, stored=stored),
        kind=kind,
        origin=origin or ("loaded" if pieces else "derived"),
        layout=layout,
        pieces=tuple(told),
        aliases=aliases,
    )


def weights_signal(tensors, *, checkpoint_tensors=4, unused=()):
    return WeightsSignal(tensors=tensors, checkpoint_tensors=checkpoint_tensors, unused=unused)


def buffer(memory, array, *, persistent=False, fresh="equal", unwritten=False, replaced=False):
    return BufferFacts(
        ref=memory.put(array),
        persistent=persistent,
        fresh=fresh,
        unwritten=unwritten,
        replaced=replaced,
    )


def frequencies(memory, array, *, scaling=1.0, formula=None):
    return InvFreqFacts(
        ref=memory.put(array),
        module="model.rotary_emb",
        rope_type="default",
        attention_scaling=scaling,
        fresh="equal",
        formula=formula,
    )


def layers(memory, *arrays, names=None, padded=True, stored=True):
    if names is None:
        names = ["embeddings", *(f"model.layers.{i}" for i in range(len(arrays) - 1))]
    return tuple(
        Layer(name=name, ref=memory.put(array, stored=stored), padded=padded)
        for name, array in zip(names, arrays, strict=True)
    )


def forward(memory, *, ids=None, hidden=(), logits=None, real_rows=None, stored=True, **more):
    ids = np.arange(6).reshape(1, 6) if ids is None else np.asarray(ids)
    return ForwardFacts(
        inputs={"input_ids": memory.put(ids.astype(np.int64))},
        hidden_states=hidden,
        logits=None if logits is None else memory.put(logits, stored=stored),
        real_rows=real_rows,
        **more,
    )


def step_logits(*ids, top=None, vocabulary=16):
    """Return logits [steps, vocabulary] that choose ``ids``; a step follows from its id alone."""
    rows = values(len(ids), vocabulary, seed=40) / 8 - 4
    for row, id, best in zip(rows, ids, top or tops(ids), strict=True):
        row[id], row[id + 1] = best, best - 1
    return rows


def tops(ids):
    return [2.0 - i / 8 for i in range(len(ids))]


def decoded(memory, *ids, top=None, logits=None, stored=True):
    """Return what greedy decoding chose, and the logits that it chose from unless others are given."""
    best = zip(ids, top or tops(ids), strict=True)
    if logits is None and ids:
        logits = step_logits(*ids, top=top)
    return GreedyFacts(
        ids=ids,
        top2=tuple(((i, t), (i + 1, t - 1)) for i, t in best),
        logits=None if logits is None else memory.put(logits, stored=stored),
    )


LAYOUT = "float32[1, 4, 6, 16] strides [384, 96, 16, 1]"
"""How probes/samebits_probe/model/attention.py describes a query; 0.25 is the default scale of 16 dimensions."""


def call(layer, **sdpa):
    settings = {"enable_gqa": False, "is_causal": True, "mask": None, "scale": 0.25} | sdpa
    return AttentionCall(
        module=f"model.layers.{layer}.self_attn",
        module_class="LlamaAttention",
        function="sdpa_attention_forward",
        source="integrations/sdpa_attention.py:40",
        sdpa=SdpaCall(query=LAYOUT, key=LAYOUT, value=LAYOUT, **settings),
        aten=("aten::_scaled_dot_product_flash_attention_for_cpu",),
    )


def attention(*calls, prompt="short"):
    return AttentionSignal(requested="sdpa", resolved="sdpa", calls={prompt: calls})


def capture(stack="4.48", *, run="a", status="complete", model="llama", skips=(), **signals):
    """Return a capture; ``skips`` maps what -> reason, or holds whole skips.

    A signal with the name of a question is its answer.
    """
    answers = {name: signals.pop(name) for name in [*signals] if is_question(name)}
    answers = {name: answer for name, answer in answers.items() if answer is not None}
    told = (
        tuple(Skip(what=what, reason=why) for what, why in skips.items())
        if isinstance(skips, dict)
        else tuple(skips)
    )
    failure = None
    if status == "failed":
        failure = Failure(phase="load", type="ImportError", message="no such name", traceback="")
    return Capture(
        cell=cell_id(stack, model),
        run=run,
        status=status,
        failure=failure,
        absent="llama is not known here" if status == "absent" else None,
        skips=told,
        signals=Signals(**signals, answers=answers),
    )


def sound_signals(memory):
    """Return every signal of a small model, as the fields of Signals."""
    hidden = [values(1, 6, 4, seed=seed) for seed in range(3)]
    return {
        "load": LoadFacts(model_class="Llama", requested_dtype="float32", seconds=0.1),
        "config": {"hidden_size": 4, "rope": {"theta": 10000.0}},
        "weights": weights_signal(
            {
                "model.embed.weight": weight(memory, values(8, 4, seed=10), "embed"),
                "model.layers.0.q.weight": weight(memory, values(4, 4, seed=11), "layers.0.q"),
                "model.layers.1.q.weight": weight(memory, values(4, 4, seed=12), "layers.1.q"),
                "model.norm.weight": weight(memory, values(4, seed=13), "norm"),
            }
        ),
        "buffers": {"model.mask": buffer(memory, values(3, 3, seed=14))},
        "inv_freq": {"model.rotary_emb.inv_freq": frequencies(memory, values(2, seed=15))},
        "attention": attention(call(0), call(1)),
        "forward": {
            "short": forward(
                memory, hidden=layers(memory, *hidden), logits=values(1, 6, 8, seed=16)
            )
        },
        "greedy": {"short": decoded(memory, 3, 1, 4)},
    }


def sound(memory, stack="4.48", *, run="a", skips=(), model="llama", **changed):
    """Return a complete capture of a small model, with some signals changed."""
    signals = sound_signals(memory) | changed
    return capture(stack, run=run, skips=skips, model=model, **signals)


def sound_case(candidate, reference):
    """Return what rules read of a sound cell, with these signals on each side."""
    runs = sound(Memory(), "5.x", **candidate), sound(Memory(), **reference)
    return Case(capture=runs[0], reference=runs[1])


def cell_result(cell, verdict=Verdict.UNDECIDED, **fields):
    """Return a result with nothing but its verdict."""
    usual = {"reference": None, "judged": verdict, "figure": "", "headline": ""}
    return CellResult(cell=cell, verdict=verdict, **(usual | fields))


def ladder_step(own=1.0, float64=1e-15, kind="rounding", **fields):
    """Return a step of the logits of prompt short, which float32 sees as the own dtype does."""
    usual = {"signal": "logits", "subject": Subject(prompt="short"), "float32": own}
    return LadderStep(own=own, float64=float64, kind=kind, **(usual | fields))


def cause_in(candidate, **fields):
    """Return a cause in the forward of prompt short."""
    usual = {"kind": "operation", "headline": "mul", "prompt": "short", "what": "forward"}
    return Cause(candidate=candidate, **(usual | {"sink": "layer"} | fields))


def bare_report(stacks, *rows):
    """Return a report with nothing but its rows; the first stack is the reference."""
    return Report(
        samebits="1",
        matrix="matrix.yaml",
        matrix_digest="0",
        started="",
        seconds=1.0,
        command="",
        reference=stacks[0],
        stacks=tuple(StackReport(id=stack) for stack in stacks),
        checkpoints=(),
        rows=rows,
        exit_code=0,
    )


ROPE_TABLE = LeftBehind(name="model.rotary_emb.inv_freq", kind="buffer")
STATE_LEFT = StateSignal(
    prompt="short",
    holds=False,
    outputs=("logits",),
    hashes={"logits": "b"},
    changes=(ROPE_TABLE,),
    is_undone=True,
    causes=(ROPE_TABLE,),
    distance=Distance(n=8, n_differ=8, max_abs=6e-3, mean_abs=1e-3),
)
"""A forward behind generate() that differs by a table of rope, which undoes it."""


def stack_spec(id, transformers=None, torch="2.13.0", python="3.11", **changed):
    return StackSpec(id=id, transformers=transformers or id, torch=torch, python=python, **changed)


def built_stack(id, *architectures, lock=None, python=None):
    """Return a stack as a builder returns it; nothing of it lies on disk."""
    lock = lock or f"transformers=={id}.0\n"
    return Stack(
        id=id,
        python=python or f"/stacks/{id}/bin/python",
        lock=lock,
        lock_digest=digest_of(lock),
        packages={"transformers": f"{id}.0", "torch": "2.13.0"},
        architectures=architectures,
    )


def model_spec(name="llama", **changed):
    """Return a model with one variant; a recipe unless ``hub`` or ``path`` is given."""
    source = {} if {"hub", "path"} & set(changed) else {"build": Recipe(architecture="llama")}
    fields = {
        "dtypes": ("float32",),
        "attention": ("sdpa",),
        "devices": ("cpu",),
        "prompts": {"short": Prompt(length=6)},
        "greedy": 3,
        "timeout": 10.0,
    }
    return ModelSpec(name=name, **(fields | source | changed))


def with_signals(run, **changed):
    """Return a run that observed something else in some signals."""
    return run.model_copy(update={"signals": run.signals.model_copy(update=changed)})


def with_outputs(memory, run, prompt="short", **outputs):
    """Return a run whose forward over a prompt returns these tensors beside the logits."""
    refs = {name: memory.put(array) for name, array in outputs.items()}
    return with_signals(run, named={**run.signals.named, "outputs": {prompt: refs}})


def logits_of(memory, logits, **more):
    """Return the forwards of a sound run with other logits."""
    facts = sound_signals(memory)["forward"]["short"]
    return {"short": facts.model_copy(update={"logits": memory.put(logits, **more)})}


def hidden_of(memory, *arrays, **more):
    """Return the forwards of a sound run with other layers."""
    facts = sound_signals(memory)["forward"]["short"]
    return {"short": facts.model_copy(update={"hidden_states": layers(memory, *arrays, **more)})}


def tokenizer(**changed):
    """Return a tokenizer that adds one token before a text."""
    fields = {
        "class_name": "LlamaTokenizerFast",
        "padding_side": "left",
        "special": {"bos": 1},
        "texts": {"fixed": Encoded(text="Hello", ids=(1, 5, 6), bare=(5, 6))},
        "gives": ("input_ids", "attention_mask"),
        "batch": Answer(raised="TypeError: no list"),
        "methods": {"encode_plus": True},
        "saved_class": "LlamaTokenizer",
        "knows_backend": False,
    }
    return TokenizerSignal(**(fields | changed))
