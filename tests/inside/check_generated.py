"""Generation beside an image, a video or a sound: a step that differs from the forward is seen, a clean twin is not accused."""

import json

import tiny
import torch
import transformers
from check_feed import LLAVA
from check_multimodal import QWEN
from planting import fed_otherwise
from samebits_probe.questions.relations import generated, relations

torch.set_num_threads(1)


def whisper():
    return tiny.whisper(std=0.3, d_model=16, max_source_positions=20)


def prompts():
    torch.manual_seed(1)
    features = torch.rand(1, 8, 40)
    return [("short", {"input_features": features, "decoder_input_ids": torch.tensor([[3, 5, 6]])})]


def asked(model, given=None):
    return generated.observe(model, given or prompts())


def test_a_sound_that_is_read_by_every_step_keeps_the_relation():
    answer = asked(whisper())
    relation = answer.relations[0]
    assert relation["tried"] == 1
    assert relation["promoted"] is None or relation["promoted"]["max_abs"] < 1e-9, relation
    skipped = [skip["relation"] for skip in answer.inapplicable]
    assert skipped == [generated.PADDED, generated.LATER]
    assert answer.relations[1]["relation"] == generated.UNCACHED


def test_a_step_that_forgets_its_position_is_seen():
    model = whisper()
    table = model.model.decoder.embed_positions

    class Forgetful(type(table)):
        def forward(self, *args, **kwargs):
            positions = super().forward(*args, **kwargs)
            return self.weight[:1] if positions.shape[-2] == 1 else positions

    table.__class__ = Forgetful
    relation = asked(model).relations[0]
    assert relation["promoted"]["max_abs"] > 1e-3


def llava():
    fields = json.loads(json.dumps(LLAVA)) | {"image_token_index": 90}
    return tiny.made(transformers.LlavaForConditionalGeneration, std=0.3, **fields)


def pictures():
    """Return two rows with an image each, the second one behind three pads."""
    ids = torch.tensor([[5, *[90] * 9, 6, 7, 8, 9], [0, 0, 0, 5, *[90] * 9, 6]])
    pixels = torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    mask = (ids != 0).long()
    return [("image-padded", {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels})]


def padded(model):
    relations = asked(model, pictures()).relations
    return next(r for r in relations if r["relation"] == generated.PADDED)["promoted"]["max_abs"]


def test_padding_changes_no_step():
    assert padded(llava()) < 1e-9


def test_a_step_whose_position_counts_the_padding_is_seen():
    """Kosmos-2 has it so from 4.57 on."""

    def shifted(fed, ids):
        if fed["input_ids"] is not None and fed["input_ids"].shape[1] == 1:
            fed["position_ids"] = torch.full_like(fed["input_ids"], ids.shape[1] - 1)

    assert padded(fed_otherwise(llava(), shifted)) > 1e-3


def test_a_class_that_is_not_made_for_padding_is_noted():
    def unmasked(fed, _ids):
        if "attention_mask" in fed:  # 5.x leaves out one of ones
            fed["attention_mask"] = torch.ones_like(fed["attention_mask"])

    model = fed_otherwise(llava(), unmasked)
    (relation,) = [
        r for r in asked(model, pictures()).relations if r["relation"] == generated.PADDED
    ]
    assert "the first step differs" in relation["note"]
    assert relation["promoted"]["max_abs"] > 1e-3


def gpt2():
    sizes = {"vocab_size": 64, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
    return tiny.made(transformers.GPT2LMHeadModel, std=0.3, **sizes, bos_token_id=0, eos_token_id=0)


def of_text(model):
    (relation,) = generated.observe(model, [], generated.padded_text(model, model.config)).relations
    assert relation["relation"] == generated.PADDED
    return relation


def test_a_padded_row_of_text_is_generated_as_without_its_padding():
    relation = of_text(gpt2())
    assert not relation.get("note")
    assert relation["promoted"] is None or relation["promoted"]["max_abs"] < 1e-9


def test_positions_that_count_the_padding_of_text_are_noted():
    """openai-gpt has it so in 4.57, and not in 5.24."""

    class Unplaced(transformers.GPT2LMHeadModel):
        def forward(self, *args, position_ids=None, **kwargs):
            return super().forward(*args, **kwargs)

    model = gpt2()
    model.__class__ = Unplaced
    relation = of_text(model)
    assert "the first step differs" in relation["note"]
    assert relation["promoted"]["max_abs"] > 1e-3


def test_a_step_that_reads_the_positions_of_the_first_row_is_seen_in_a_batch_alone():
    class OfFirstRow(transformers.GPT2LMHeadModel):
        def forward(self, *args, position_ids=None, **kwargs):
            if position_ids is not None and position_ids.shape[1] == 1:
                position_ids = position_ids[:1].expand_as(position_ids)
            return super().forward(*args, position_ids=position_ids, **kwargs)

    model = gpt2()
    model.__class__ = OfFirstRow
    relation = of_text(model)
    assert relation["case"] == "text: row 1 of 2, 3 pads"
    assert not relation.get("note")
    assert relation["promoted"]["max_abs"] > 1e-3


def qwen2_vl():
    return tiny.made(transformers.Qwen2VLForConditionalGeneration, std=0.3, **QWEN)


def clip():
    """Return a row with a video of two pairs of frames, six tokens each, that text follows."""
    ids = torch.tensor([[5, 92, *[91] * 12, 93, 6, 7, 8]])
    pixels = torch.rand(48, 96, generator=torch.Generator().manual_seed(1))
    fed = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    fed |= {"pixel_values_videos": pixels, "video_grid_thw": torch.tensor([[2, 4, 6]])}
    return [("video", fed | {"mm_token_type_ids": 2 * (ids == 91).long()})]


def beside_a_video(model):
    return {relation["relation"]: relation for relation in asked(model, clip()).relations}


def test_steps_behind_a_video_are_those_of_a_forward():
    relations = beside_a_video(qwen2_vl())
    for name in (generated.NAME, generated.LATER, generated.UNCACHED):
        relation = relations[name]
        assert relation["holds"] or relation["promoted"]["max_abs"] < 1e-9, name


def test_a_step_that_counts_each_token_of_a_video_as_one_position_is_seen():
    """As without what Qwen2-VL keeps of a prompt: the tokens of a video share their positions."""

    def counting(fed, ids):
        if (places := fed.get("position_ids")) is not None and places.shape[-1] == 1:
            fed["position_ids"] = torch.full_like(places, ids.shape[1] - 1)

    relations = beside_a_video(fed_otherwise(qwen2_vl(), counting))
    assert relations[generated.NAME]["promoted"]["max_abs"] > 1e-3


def forgetful(model, prompts, name):
    """Let steps behind the prompt lose what it shows."""
    width = prompts[0][1]["input_ids"].shape[1]

    def forget(fed, ids):
        if ids.shape[1] > width:
            fed.pop(name, None)
            fed.pop("mm_encoder_outputs", None)  # 5.24 has encoded them before

    return fed_otherwise(model, forget)


def test_a_step_without_a_cache_that_forgets_the_video_is_seen():
    model = forgetful(qwen2_vl(), clip(), "pixel_values_videos")
    assert beside_a_video(model)[generated.UNCACHED]["promoted"]["max_abs"] > 1e-3


def turn():
    """Return a row with an image that text follows."""
    torch.manual_seed(1)
    ids = torch.tensor([[5, *[90] * 9, 6, 7, 8, 9]])
    return [("image", {"input_ids": ids, "pixel_values": torch.rand(1, 3, 24, 24)})]


def beside_an_image(model, name):
    relations = asked(model, turn()).relations
    return next(r for r in relations if r["relation"] == name)


def test_a_turn_over_the_cache_is_what_it_is_anew():
    relation = beside_an_image(llava(), generated.LATER)
    assert relation["holds"] or relation["promoted"]["max_abs"] < 1e-9


def test_a_turn_whose_positions_begin_anew_is_seen():
    """As in a class that counts positions from what it is fed, once text comes behind a filled cache."""
    model = llava()
    if not hasattr(model, "model"):
        return  # up to 4.51 the language model counts positions itself, so this plants nothing
    inner = model.model.language_model

    class Restarted(type(inner)):
        def forward(self, *args, **kwargs):
            positions = kwargs.get("position_ids")
            if positions is not None and positions.shape[-1] > 1:
                kwargs["position_ids"] = positions - positions[:, :1]
            return super().forward(*args, **kwargs)

    inner.__class__ = Restarted
    assert beside_an_image(model, generated.LATER)["promoted"]["max_abs"] > 1e-3
    relations = {r["relation"]: r for r in asked(model, turn()).relations}
    assert relations[generated.NAME]["promoted"] is None or (
        relations[generated.NAME]["promoted"]["max_abs"] < 1e-9
    )


def test_steps_without_a_cache_see_the_image():
    relation = beside_an_image(llava(), generated.UNCACHED)
    assert relation["holds"] or relation["promoted"]["max_abs"] < 1e-9


def test_a_step_without_a_cache_that_forgets_the_image_is_seen():
    """SmolVLM has it so from 5.0 to 5.3."""
    model = forgetful(llava(), turn(), "pixel_values")
    assert beside_an_image(model, generated.UNCACHED)["promoted"]["max_abs"] > 1e-3


def test_ends_that_a_class_gives_itself_are_left_to_it():
    """As BLIP does, whose generate() is called with the ends of its decoder."""
    model = whisper()
    whole = model.generate
    model.generate = lambda **given: whole(eos_token_id=None, pad_token_id=0, **given)
    answer = asked(model)
    names = [relation["relation"] for relation in answer.relations]
    assert names == [generated.NAME, generated.UNCACHED]
    assert not any(skip.get("raised") for skip in answer.inapplicable)


def test_text_alone_and_a_model_that_does_not_generate_are_left_out():
    text = [("short", {"input_ids": torch.tensor([[5, 6]])})]
    answer = asked(whisper(), text)
    assert not answer.relations
    assert "no prompt" in answer.inapplicable[0]["reason"]
    encoder = transformers.WhisperModel(whisper().config).eval()
    assert "does not generate" in asked(encoder).inapplicable[0]["reason"]


def test_a_prompt_with_an_argument_that_goes_on_in_no_known_way_is_left_out():
    ids, kinds = torch.tensor([[5, 6, 7]]), torch.zeros(1, 3, dtype=torch.long)
    assert generated._behind({"input_ids": ids, "token_type_ids": kinds}, ids.repeat(1, 2)) is None
    longer = generated._behind(
        {"input_ids": ids, "mm_token_type_ids": kinds + 1, "attention_mask": kinds + 1},
        ids.repeat(1, 2),
    )
    assert longer["mm_token_type_ids"].tolist() == [[1, 1, 1, 0, 0, 0]]
    assert longer["attention_mask"].tolist() == [[1] * 6]


def test_ids_without_the_start_of_the_decoder_are_not_fed():
    model = whisper()
    assert generated._begins(model, torch.tensor([[3, 5]]))
    assert not generated._begins(model, torch.tensor([[5, 7]]))


def test_it_is_one_of_the_relations_of_a_cell():
    signal = relations.observe(whisper(), "seq2seq-lm", whisper().config, {}, prompts())
    assert generated.NAME in {relation["relation"] for relation in signal["relations"]}
