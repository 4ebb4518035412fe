"""training: heads whose loss takes labels of another form train; a planted loss is another one, its twin is not."""

import tempfile
from unittest import mock

import torch
import transformers
from samebits_probe.model import named
from samebits_probe.model.choice import signature_of
from samebits_probe.model.load import head_of
from samebits_probe.model.tensor import Keeper
from samebits_probe.questions.training import batches, forms, origin, relations, signals
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.way import Setting
from tiny import BERT, bart, made

torch.set_num_threads(1)
PIXELS = torch.linspace(-1, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)
VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 16,
    "patch_size": 4,
    "encoder_stride": 4,
}
SOUND = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "conv_dim": (8,),
    "conv_stride": (80,),
    "conv_kernel": (80,),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "mask_time_prob": 0.0,
}
DEPTH = {
    "hidden_sizes": [8, 8],
    "depths": [1, 1],
    "sr_ratios": [2, 1],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
    "num_encoder_blocks": 2,
    "decoder_hidden_size": 8,
}
MAE = {**VISION, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 1}
MAE |= {"decoder_num_attention_heads": 2, "decoder_intermediate_size": 16}
VIDEO = {**MAE, "num_frames": 4, "tubelet_size": 2}
SERIES = {
    "context_length": 16,
    "patch_length": 4,
    "patch_stride": 4,
    "d_model": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "ffn_dim": 16,
    "num_input_channels": 2,
    "num_targets": 3,
    "do_mask_input": False,
}
PAST = {"past_values": PIXELS.reshape(-1)[:64].reshape(2, 16, 2)}
HEADS = {
    "BertForMultipleChoice": (BERT, {}),
    "BertForPreTraining": (BERT, {}),
    "Wav2Vec2ForAudioFrameClassification": (SOUND, {"input_values": PIXELS.reshape(1, -1)}),
    "GLPNForDepthEstimation": (DEPTH, {"pixel_values": PIXELS}),
    "ViTForMaskedImageModeling": (VISION, {"pixel_values": PIXELS}),
    "ViTMAEForPreTraining": (MAE, {"pixel_values": PIXELS}),
    "PatchTSTForRegression": (SERIES, PAST),
    "PatchTSTForClassification": (SERIES, PAST),
    "VideoMAEForPreTraining": (VIDEO, {"pixel_values": PIXELS.expand(1, 4, 3, 16, 16)}),
}
"""Head -> fields of a config, and its first input."""


def head(name):
    fields, inputs = HEADS[name]
    model = made(getattr(transformers, name), std=0.3, **fields)
    arguments = named.names(type(model), signature_of(model.forward), model.config)
    rows = [named.Row(model.config, "short")]
    return model, inputs | {argument: named.tensor(argument, rows) for argument in arguments}


def step(model, inputs):
    kind = head_of(type(model).__name__, encoder_decoder=False)
    prompts = {"short": inputs} if inputs else {}
    torch.manual_seed(0)
    all_batches = batches.batches(model, kind, prompts)
    keeper = Keeper(tempfile.mkdtemp(), 1 << 20, [])
    learner = Learner(model, torch.float32)
    facts = signals.signals(learner, all_batches, origin.places(model, None), keeper)
    assert learner.gradients() == {}
    return facts["batches"], facts["gradients"]


def test_each_head_trains_and_twice_the_same():
    for name in HEADS:
        first = step(*head(name))
        assert first[1], name
        assert not [of for of in first[0].values() if "refused" in of], (name, first[0])
        assert step(*head(name)) == first, name


def spoiled(name, target, **changed):
    """Return the losses of a head one of whose functions gives another result."""
    with mock.patch(target, **changed):
        facts, _ = step(*head(name))
    return [of["loss"] for of in facts.values()]


def losses(name):
    return [of["loss"] for of in step(*head(name))[0].values()]


def test_a_part_that_a_loss_leaves_out_shows():
    cross_entropy = torch.nn.functional.cross_entropy

    def of_many(scores, target, *args, **kwargs):
        loss = cross_entropy(scores, target, *args, **kwargs)
        return (
            loss * 0 if scores.shape[-1] == 2 else loss
        )  # whether the next sentence follows, and frames

    plant = {"target": "torch.nn.functional.cross_entropy", "new": of_many}
    for name in ("BertForPreTraining", "Wav2Vec2ForAudioFrameClassification"):
        assert spoiled(name, **plant) != losses(name), name
    assert spoiled("BertForMultipleChoice", **plant) == losses("BertForMultipleChoice")


def test_another_loss_of_choices_depths_and_patches_shows():
    cross_entropy, log, l1, mse = (
        torch.nn.functional.cross_entropy,
        torch.log,
        torch.nn.functional.l1_loss,
        torch.nn.functional.mse_loss,
    )

    def first_row(scores, target, *args, **kwargs):
        return cross_entropy(scores[:1], target[:1], *args, **kwargs)

    plants = {
        "BertForMultipleChoice": ("torch.nn.functional.cross_entropy", first_row),
        "PatchTSTForClassification": ("torch.nn.functional.cross_entropy", first_row),
        "GLPNForDepthEstimation": ("torch.log", lambda x: log(x.clamp(max=1.0))),
        "ViTForMaskedImageModeling": (
            "torch.nn.functional.l1_loss",
            lambda *args, **kwargs: l1(*args, **kwargs) * 2,
        ),
        "VideoMAEForPreTraining": (
            "torch.nn.functional.mse_loss",
            lambda *args, **kwargs: mse(*args, **kwargs) * 2,
        ),
    }
    for name, (target, new) in plants.items():
        assert spoiled(name, target, new=new) != losses(name), name


def test_patches_are_hidden_where_a_forward_requires_it_or_a_head_predicts_them():
    video, inputs = head("VideoMAEForPreTraining")
    assert inputs[named.MASKED].tolist() == [[True, False] * 16]
    assert forms.hides_patches(video)
    vit, inputs = head("ViTForMaskedImageModeling")
    assert named.MASKED not in inputs
    assert forms.of_patches(vit, inputs)[named.MASKED].shape == (1, 16)
    assert not forms.hides_patches(vit.vit)


def ids_by_both_ways(model):
    asked = tuple(r for r in relations.RELATIONS if r.name.startswith("decoder ids"))
    main = batches.batches(model, "seq2seq-lm", {})[0]
    with mock.patch.object(relations, "RELATIONS", asked):
        answer = relations.observe(Learner(model, torch.float32), Setting(main, "seq2seq-lm"), 1e12)
    return answer["relations"], [skip["reason"] for skip in answer["inapplicable"]]


def test_ids_of_labels_that_are_not_shifted_are_broken_and_those_of_a_clean_class_are_not():
    ((answer,), _) = ids_by_both_ways(bart(pad_token_id=1, decoder_start_token_id=2))
    assert answer["holds"], answer
    planted = bart(pad_token_id=1, decoder_start_token_id=2)
    planted.prepare_decoder_input_ids_from_labels = lambda labels: labels.clamp(min=1)
    ((answer,), _) = ids_by_both_ways(planted)
    assert answer["broken"], answer
    planted.prepare_decoder_input_ids_from_labels = lambda labels_: labels_
    assert "raises" in ids_by_both_ways(planted)[1][0]
