"""usage: what a load with an argument gives is told apart from one without it."""

import copy
import tempfile
from pathlib import Path
from unittest import mock

import tiny
import torch
import transformers
from samebits_probe.model import load
from samebits_probe.questions.usage import loads
from samebits_probe.questions.usage.subject import Subject

from samebits_wire.arguments import LOADED_IN

torch.set_num_threads(1)
DTYPE = torch.get_default_dtype()
TIES = "from_pretrained(tie_word_embeddings=True)"
TUPLES = "from_pretrained(torchscript=True)"


def subject(folder):
    made = tiny.model()
    made.save_pretrained(folder)
    source = load.Source(folder, None, False, "float32", "default", "cpu")
    return Subject(load.load(source).model, "causal-lm", Path(folder), source=source)


def asked(planted):
    """Return what is found where a load with an argument gives what ``planted`` makes of a model and the argument."""
    with tempfile.TemporaryDirectory() as folder:
        made = subject(folder)

        def loaded(_subject, arguments):
            (name,) = arguments or ("",)
            return planted(copy.deepcopy(made.model), name)

        with mock.patch.object(loads, "_loaded", loaded):
            return loads.loads(made)


def test_a_load_that_drops_each_argument_gives_the_same_tensors():
    facts = asked(lambda model, _: model)
    assert facts[TIES] == {"gave": "the same tensors, embeddings apart"}
    assert facts[TUPLES] == {"gave": "the same tensors, no tuple"}


def test_a_load_that_heeds_an_argument_is_told_apart():
    def heeded(model, name):
        if name == "tie_word_embeddings":
            model.get_output_embeddings().weight = model.get_input_embeddings().weight
        if name == "torchscript":
            model.forward = lambda **_: (torch.zeros(1),)
        return model

    facts = asked(heeded)
    assert facts[TIES] == {"gave": "other tensors, tied embeddings"}
    assert facts[TUPLES] == {"gave": "the same tensors, forward returns a tuple"}


def test_a_refusal_is_no_answer_as_each_user_sees_it():
    def refusing(model, name):
        if name == "tie_word_embeddings":
            raise TypeError(name)
        if name == "torchscript":
            raise ImportError(name)
        return model

    facts = asked(refusing)
    assert facts[TIES]["left_out"].startswith("TypeError: tie_word_embeddings")
    assert facts[TUPLES]["left_out"].startswith("ImportError: torchscript")


def test_real_loads_leave_the_process_as_it_was():
    with tempfile.TemporaryDirectory() as folder:
        made = subject(folder)
        facts = loads.loads(made)
        with mock.patch.object(loads, "MAX_BYTES", 1):
            assert loads.loads(made) == {}
        made.source = None
        assert loads.loads(made) == {}
    assert facts.keys() >= {TIES, TUPLES, LOADED_IN}


def test_a_class_that_keeps_a_parameter_in_float32_is_told_apart():
    plain = transformers.LlamaForCausalLM.from_pretrained

    def keeping(*names, **options):
        model = plain(*names, **options)
        if "bfloat16" in options.values():
            model.lm_head.float()
        return model

    with tempfile.TemporaryDirectory() as folder:
        made = subject(folder)
        facts = loads.loads(made)
        with mock.patch.object(type(made.model), "from_pretrained", keeping):
            planted = loads.loads(made)
    assert facts[LOADED_IN] == {"gave": "parameters in bfloat16"}
    assert planted[LOADED_IN] == {"gave": "parameters in bfloat16 and float32"}
    assert facts.keys() == planted.keys()


def test_own_code_is_loaded_by_its_auto_class():
    """An Auto class hands the dtype to the config, from which ChatGLM3 takes that of its parameters in 4.48."""
    from check_integrity import checkpoint

    folder = str(checkpoint("none"))
    source = load.Source(folder, None, True, "float32", "default", "cpu")
    made = Subject(load.load(source).model, "causal-lm", Path(folder), source=source)
    assert loads._loader(made.model, source) is transformers.AutoModelForCausalLM
    assert loads._loader(made.model, source._replace(trust_remote_code=False)) is type(made.model)
    assert loads._in_bfloat16(made)[LOADED_IN] == {"gave": "parameters in bfloat16"}
    with mock.patch.object(type(made.model), "from_pretrained", return_value=made.model):
        unheeded = loads._in_bfloat16(made)
    assert unheeded[LOADED_IN] == {"gave": "parameters in float32"}
