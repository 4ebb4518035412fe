"""model.decode: the token behind the cache is watched, the prompt is not, and no state is left."""

import sys

import tiny
import torch
from raising import raised
from samebits_probe.model import decode
from samebits_probe.model.inputs import Inputs
from torch._C import _len_torch_function_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

torch.set_num_threads(1)
PACKS = tiny.RELEASE >= (5, 23)


FIELDS = {"num_attention_heads": 4, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}


def model():
    return tiny.llama(**FIELDS)


def padded():
    ids = torch.arange(5, 19).reshape(2, 7)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    return Inputs({"input_ids": ids, "attention_mask": mask}, [[3, 7], [0, 7]], None)


def seen(made=None):
    found = decode.first_token(made or model(), {"padded": padded()})
    return found["padded"]


def test_one_call_per_layer_is_that_of_one_token():
    calls = seen()["attention"]
    assert [call["module"] for call in calls] == [f"model.layers.{i}.self_attn" for i in (0, 1)]
    query, key = (calls[0]["sdpa"][part].partition("]")[0] for part in ("query", "key"))
    assert query == ("float32[2, 2, 2, 4" if PACKS else "float32[2, 4, 1, 4")
    assert key == ("float32[2, 2, 8, 4" if PACKS else "float32[2, 4, 8, 4")


def test_functions_are_those_of_the_token_alone():
    names = seen()["functions"]
    assert not any(name.endswith("LlamaModel.forward") for name in names)
    packs = [name for name in names if name.endswith(":pack_gqa")]
    assert bool(packs) == PACKS


def marks(made):
    """Return what watching could leave behind."""
    hooks = (
        made._forward_hooks,
        made._forward_pre_hooks,
        torch.nn.modules.module._global_forward_hooks,
    )
    modes = (_len_torch_function_stack(), len(_get_current_dispatch_mode_stack()))
    return ([len(held) for held in hooks], modes, made.forward, sys.getprofile())


def test_the_model_and_the_process_stay_as_they_were():
    made = model()
    before = marks(made)
    seen(made)
    assert marks(made) == before


def test_a_model_that_ends_at_once_has_nothing_to_tell():
    made = model()
    made.generate = lambda **kwargs: made(kwargs["input_ids"])
    assert seen(made) == {"attention": [], "functions": []}


def test_what_the_second_forward_raises_leaves_nothing_either():
    made = model()
    last = made.model.layers[1].self_attn.o_proj
    before, calls = marks(made), []

    def fail(*_):
        calls.append(1)
        if len(calls) == 2:
            raise LookupError

    last.register_forward_hook(fail)
    raised(LookupError, seen, made)
    assert marks(made) == before
