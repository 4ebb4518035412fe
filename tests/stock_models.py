"""Seven stock models that take more than text, by transformers and torch alone, without samebits.

Inside a stack:   python stock_models.py make FOLDER
Inside a stack:   python stock_models.py forward FOLDER OUT.pt
With any torch:   python stock_models.py compare FOLDER OUT.json REFERENCE CANDIDATE ...

``make`` writes a tiny checkpoint of each model. ``forward`` loads each of them by the class that made it and keeps
every tensor that forward returns for seeded inputs, in float32 and in float64. ``compare`` says of each model
and release whether the outputs are the same bytes, round, differ, one side raises, or float64 raises.
"""

import inspect
import json
import sys
from pathlib import Path

import torch
import transformers as T

TEXT = {
    "vocab_size": 99,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
TOKENS = {
    "image_token_id": 90,
    "video_token_id": 91,
    "vision_start_token_id": 92,
    "vision_end_token_id": 93,
}
ROUNDS = 1e-9
"""What is left in float64 of a difference that rounds, at most."""
ROPE = {"type": "mrope", "mrope_section": [2, 2, 2]}


def qwen2vl():
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 48, "num_heads": 4, "patch_size": 4}
    text = TEXT | {"rope_scaling": ROPE, "max_position_embeddings": 128}
    config = T.Qwen2VLConfig(text_config=text, vision_config=vision | {"mlp_ratio": 2}, **TOKENS)
    return T.Qwen2VLForConditionalGeneration(config)


def qwen25vl():
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 48}
    vision |= {"num_heads": 4, "patch_size": 4, "window_size": 16, "fullatt_block_indexes": [1]}
    text = TEXT | {"rope_scaling": ROPE, "max_position_embeddings": 128}
    config = T.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **TOKENS)
    return T.Qwen2_5_VLForConditionalGeneration(config)


def llava():
    vision = T.CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        projection_dim=32,
    )
    config = T.LlavaConfig(vision, T.LlamaConfig(**TEXT), image_token_index=90, image_seq_length=16)
    return T.LlavaForConditionalGeneration(config)


def timeseries():
    config = T.TimeSeriesTransformerConfig(
        prediction_length=4,
        context_length=8,
        lags_sequence=[1, 2, 3],
        num_time_features=2,
        num_static_categorical_features=1,
        cardinality=[3],
        embedding_dimension=[2],
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
    )
    return T.TimeSeriesTransformerForPrediction(config)


def whisper():
    config = T.WhisperConfig(
        vocab_size=99,
        d_model=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=40,
        max_target_positions=40,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return T.WhisperForConditionalGeneration(config)


def clip():
    shared = {"num_hidden_layers": 2, "num_attention_heads": 4, "projection_dim": 24}
    text = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48}
    text |= {"max_position_embeddings": 32, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    vision = {"hidden_size": 48, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
    config = T.CLIPConfig(
        text_config=text | shared, vision_config=vision | shared, projection_dim=24
    )
    return T.CLIPModel(config)


def detr():
    backbone = T.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    config = T.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_queries=5,
        num_labels=4,
        dilation=False,
    )
    return T.DetrForObjectDetection(config)


MODELS = {f.__name__: f for f in (qwen2vl, qwen25vl, llava, timeseries, whisper, clip, detr)}
CLASSES = {
    "qwen2vl": "Qwen2VLForConditionalGeneration",
    "qwen25vl": "Qwen2_5_VLForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
    "timeseries": "TimeSeriesTransformerForPrediction",
    "whisper": "WhisperForConditionalGeneration",
    "clip": "CLIPModel",
    "detr": "DetrForObjectDetection",
}


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def ids(*row):
    tokens = torch.tensor([row])
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def inputs(name):
    """Return what forward gets: an image among the tokens, a sound, an image, a series."""
    if name.startswith("qwen"):
        grid = torch.tensor([[1, 4, 4]])
        patches = numbers(16, 3 * 2 * 4 * 4)
        row = (5, 92, 90, 90, 90, 90, 93, 7, 8)
        fed = ids(*row) | {"pixel_values": patches, "image_grid_thw": grid}
        kinds = torch.tensor([[int(token == 90) for token in row]])
        return fed, {"mm_token_type_ids": kinds}
    if name == "llava":
        return ids(5, *[90] * 16, 7, 8, 9) | {"pixel_values": numbers(1, 3, 32, 32)}, {}
    if name == "clip":
        return ids(1, 5, 7, 2) | {"pixel_values": numbers(1, 3, 32, 32)}, {}
    if name == "detr":
        return {"pixel_values": numbers(1, 3, 64, 64)}, {}
    if name == "whisper":
        tokens = torch.tensor([[3, 5, 7]])
        return {"input_features": numbers(1, 16, 80), "decoder_input_ids": tokens}, {}
    past, future = 11, 4
    return {
        "past_values": numbers(1, past),
        "past_time_features": numbers(1, past, 2),
        "past_observed_mask": torch.ones(1, past),
        "static_categorical_features": torch.tensor([[1]]),
        "future_values": numbers(1, future),
        "future_time_features": numbers(1, future, 2),
    }, {}


def tensors(value, name=""):
    """Yield every tensor of an output by its place; a list of tensors is told from one tensor."""
    if torch.is_tensor(value):
        yield name, value.detach().clone()
    elif hasattr(value, "items"):
        for key, part in value.items():
            yield from tensors(part, f"{name}.{key}" if name else key)
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from tensors(part, f"{name}[{number}]")


def forward(folder, name, dtype):
    """Return the tensors of one forward, or the exception that it raises."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)  # a load that raises may leave another one
    fed, optional = inputs(name)
    try:
        kind = getattr(T, CLASSES[name])
        model = kind.from_pretrained(folder / name, torch_dtype=dtype).eval()
        takes = inspect.signature(model.forward).parameters
        fed |= {key: value for key, value in optional.items() if key in takes}
        fed = {k: v.to(dtype) if v.is_floating_point() else v for k, v in fed.items()}
        with torch.no_grad():
            outputs = model(**fed)
        return dict(tensors({k: v for k, v in outputs.items() if k != "past_key_values"}))
    except Exception as error:  # noqa: BLE001  what a release raises is its answer
        return f"{type(error).__name__}: {error}"


def word(reference, candidate):
    """Return how two forwards compare; each is the outputs in float32 and in float64."""
    own, exact = zip(reference, candidate)
    if any(isinstance(side, str) for side in own):
        return "raises"
    if own[0].keys() != own[1].keys() or any(own[0][k].shape != own[1][k].shape for k in own[0]):
        return "differs"
    if all(same_bytes(own[0][key], own[1][key]) for key in own[0]):
        return "same"
    if any(isinstance(side, str) for side in exact):
        return "unknown"
    left = max(float((exact[0][key] - exact[1][key]).abs().max()) for key in exact[0])
    return "rounds" if left <= ROUNDS else "differs"


def same_bytes(a, b):
    flat = [t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return a.dtype == b.dtype and bool((flat[0] == flat[1]).all())


def compare(folder, out, reference, *candidates):
    files = {name: torch.load(folder / f"{name}.pt") for name in (reference, *candidates)}
    sides = {
        (model, stack): [files[stack][model, dtype] for dtype in ("torch.float32", "torch.float64")]
        for model in MODELS
        for stack in files
    }
    words = {
        f"{model}@{stack}": word(sides[model, reference], sides[model, stack])
        for model in MODELS
        for stack in candidates
    }
    Path(out).write_text(json.dumps(words))


def main(command, where, out="", *stacks):
    folder = Path(where)
    if command == "compare":
        compare(folder, out, *stacks)
        return
    if command == "make":
        for name, make in MODELS.items():
            torch.manual_seed(0)
            make().eval().save_pretrained(folder / name)
        return
    found = {
        (name, str(dtype)): forward(folder, name, dtype)
        for name in MODELS
        for dtype in (torch.float32, torch.float64)
    }
    torch.save(found, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
