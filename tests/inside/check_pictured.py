"""training.pictured: steps of rows with images, padded and packed, of real models and of planted ones."""

import time
from unittest import mock

import torch
import transformers
from samebits_probe.questions.training import batches, pictured, relations
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.way import Setting
from tiny import RELEASE

torch.set_num_threads(1)
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
VISION = SIZES | {"image_size": 16, "patch_size": 8, "projection_dim": 32, "vision_use_head": False}
TEXT = SIZES | {"vocab_size": 128, "head_dim": 8, "pad_token_id": 0, "initializer_range": 0.3}
IMAGE = 120
PACKED, PADDING = "packed = padded, with images", "ids of padding have no effect"
LOGPROBS, TEXTS = "logprobs of training = logprobs of decoding", "packed = padded"
CHECKPOINTED = "gradient checkpointing, reentrant, only layers learn = without, with images"
ASKED = (PACKED, PADDING, LOGPROBS, TEXTS, CHECKPOINTED)


def paligemma(model_class=transformers.PaliGemmaForConditionalGeneration):
    torch.manual_seed(0)
    text = TEXT | {"model_type": "gemma", "num_key_value_heads": 1}
    config = transformers.PaliGemmaConfig(
        text_config=text, vision_config=dict(VISION), image_token_index=IMAGE, projection_dim=32
    )
    return model_class(config).eval()


def llava(model_class=transformers.LlavaForConditionalGeneration):
    torch.manual_seed(0)
    vision = {k: v for k, v in VISION.items() if k != "vision_use_head"}
    config = transformers.LlavaConfig(
        text_config=TEXT | {"model_type": "llama", "num_key_value_heads": 2},
        vision_config=vision | {"model_type": "clip_vision_model"},
        image_token_index=IMAGE,
        image_seq_length=4,
    )
    return model_class(config).eval()


def gemma3():
    torch.manual_seed(0)
    text = TEXT | {"num_key_value_heads": 2, "sliding_window": 16}
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=dict(VISION),
        mm_tokens_per_image=4,
        image_token_index=IMAGE,
        boi_token_index=121,
        eoi_token_index=122,
        initializer_range=0.3,
    )
    model = transformers.Gemma3ForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight)
    return model.eval()


class SeesPadding(transformers.LlavaForConditionalGeneration):
    def forward(self, input_ids=None, labels=None, position_ids=None, **kwargs):
        kwargs |= {"labels": labels, "position_ids": position_ids}
        output = super().forward(input_ids=input_ids, **kwargs)
        if labels is not None:
            output.loss = output.loss * (1 + self.get_input_embeddings()(input_ids).mean())
        return output


class Meets(transformers.LlavaForConditionalGeneration):
    def forward(self, input_ids=None, labels=None, position_ids=None, pixel_values=None, **kwargs):
        kwargs |= {"labels": labels, "pixel_values": pixel_values}
        positions = None if pixel_values is not None else position_ids
        return super().forward(input_ids=input_ids, position_ids=positions, **kwargs)


def prompts(**more):
    """Return the prompt with an image in each row, as cells have it: padded on the left."""
    torch.manual_seed(1)
    image = [IMAGE] * 4
    rows = [[5, *image, 6, 7, 8, 9, 10, 11, 12, 13], [0, 0, 0, 0, 14, *image, 15, 16, 17, 18]]
    ids = torch.tensor(rows)
    kwargs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    kwargs |= {name: make(ids) for name, make in more.items()}
    return {pictured.PROMPT: kwargs | {"pixel_values": torch.randn(2, 3, 16, 16)}}


def ways(model, fed):
    made = batches.batches(model, "causal-lm", fed)
    images = next(batch for batch in made if batch.name == batches.IMAGES)
    learner = Learner(model, torch.float32)
    asked = tuple(r for r in relations.RELATIONS if r.name in ASKED)
    with mock.patch.object(relations, "RELATIONS", asked):
        setting = Setting(made[0], "causal-lm", images)
        answer = relations.observe(learner, setting, time.perf_counter() + 600)
    return {r["relation"]: r["broken"] for r in answer["relations"]}, answer["inapplicable"]


def test_rows_with_images_are_padded_behind_and_have_labels_behind_their_images():
    kwargs = pictured.padded(llava(), prompts())
    assert kwargs["input_ids"][1].tolist() == [14, *[IMAGE] * 4, 15, 16, 17, 18, 0, 0, 0, 0]
    assert kwargs["attention_mask"].sum(1).tolist() == [13, 9]
    assert kwargs["labels"][1].tolist() == [-100] * 5 + [15, 16, 17, 18] + [-100] * 4
    assert pictured.padded(llava(), {}) is None
    kwargs = pictured.padded(paligemma(), prompts(token_type_ids=torch.zeros_like))
    assert kwargs["token_type_ids"].tolist() == (kwargs["labels"] != -100).long().tolist()


def test_a_row_that_ends_and_one_that_begins_with_an_image_are_packed():
    model = llava()
    as_one, apart = pictured.packed(model, pictured.padded(model, prompts()))
    image = [IMAGE] * 4
    assert as_one["input_ids"].tolist() == [[5, *image, *image, 15, 16, 17, 18]]
    assert as_one["position_ids"].tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7]]
    assert apart["attention_mask"].sum(1).tolist() == [5, 8]
    assert apart["labels"].max(1).values.tolist() == [-100, 18]


def test_a_clean_model_is_not_accused_and_planted_ones_are():
    broken, skipped = ways(llava(), prompts())
    assert broken[PADDING] is False, skipped
    assert broken.get(PACKED, False) is False
    assert ways(llava(SeesPadding), prompts())[0][PADDING] is True
    if RELEASE >= (4, 57):  # before, no attention but that of flash kept packed rows apart
        assert broken[PACKED] is False, skipped
        assert ways(llava(Meets), prompts())[0][PACKED] is True


def test_a_step_of_paligemma_sees_padding_up_to_4_48():
    """https://github.com/huggingface/transformers/pull/35859: the prefix, which sees all of itself, has the padding."""
    broken, skipped = ways(paligemma(), prompts(token_type_ids=torch.zeros_like))
    assert broken[PADDING] is (RELEASE < (4, 49)), skipped


class Forgets(transformers.PaliGemmaForConditionalGeneration):
    """Its training takes all of a row for what is behind the prefix."""

    def forward(
        self, input_ids=None, labels=None, token_type_ids=None, attention_mask=None, **kwargs
    ):
        if labels is not None:
            token_type_ids = torch.ones_like(input_ids)
        kwargs |= {"labels": labels, "token_type_ids": token_type_ids}
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, **kwargs)


def test_paligemma_gets_the_segments_of_its_prefix():
    """Tokens of a prefix attend to each other. Without segments training is causal, and decoding is not."""
    fed = prompts(token_type_ids=torch.zeros_like)
    broken, skipped = ways(paligemma(), fed)
    assert broken[LOGPROBS] is False, skipped
    assert broken.get(TEXTS, False) is False
    if RELEASE >= (5, 0):  # what generate() of 4.x passes depends on the signature
        assert ways(paligemma(Forgets), fed)[0][LOGPROBS] is True


def test_images_that_meet_in_a_packed_row_of_gemma3_stay_apart():
    if RELEASE < (4, 50):
        return
    fed = prompts(token_type_ids=lambda ids: (ids == IMAGE).long())
    broken, skipped = ways(gemma3(), fed)
    assert broken[PADDING] is False
    # mended in 4.57 (pull 40753), and otherwise since: places in the groups of images are those in each packed row
    # (transformers 5.24.0: remap_positions_for_packed_sequence of masking_utils.py, for layers with a window)
    if RELEASE in ((4, 57), (5, 24)):
        assert broken[PACKED] is (RELEASE == (5, 24)), skipped


class OfTextAlone(transformers.LlavaForConditionalGeneration):
    """Its tower of images gets no gradient, as only the inputs of the text ask for one."""

    def enable_input_require_grads(self):
        self._hook = self.get_input_embeddings().register_forward_hook(
            lambda _module, _given, output: output.requires_grad_(True)
        )

    def disable_input_require_grads(self):
        self._hook.remove()


def test_a_tower_of_images_that_gets_no_gradient_under_checkpointing_is_seen():
    """https://github.com/huggingface/transformers/pull/41993: up to 4.57 all models with images are such ones."""
    broken, skipped = ways(llava(OfTextAlone), prompts())
    assert broken[CHECKPOINTED] is True, skipped
    broken, skipped = ways(llava(), prompts())
    assert broken[CHECKPOINTED] is (RELEASE < (5, 0)), skipped
