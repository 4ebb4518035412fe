"""A tiny model of text, image and video in custom code: its tower may differ between releases, or not run."""

import torch
import transformers
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

NEW = int(transformers.__version__.split(".")[0]) >= 5


class SeeingConfig(PretrainedConfig):
    model_type = "seeing"

    def __init__(
        self,
        vocab_size=32,
        hidden_size=16,
        image_token_id=30,
        video_token_id=29,
        defect="none",
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.image_token_id = image_token_id
        self.video_token_id = video_token_id
        self.image_size = 8
        self.patch_size = 4
        self.defect = defect
        super().__init__(**kwargs)


class SeeingModel(PreTrainedModel):
    config_class = SeeingConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.tower = torch.nn.Linear(3 * config.patch_size**2, config.hidden_size)
        self.experts = torch.nn.ModuleList(
            torch.nn.Linear(config.hidden_size, config.hidden_size) for _ in range(3)
        )
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def _init_weights(self, module):
        pass

    def features(self, pixel_values):
        size = self.config.patch_size
        patches = functional.unfold(pixel_values, size, stride=size).transpose(1, 2)
        if self.config.defect == "by hand":
            features = functional.linear(patches, self.tower.weight, self.tower.bias)
        else:
            features = self.tower(patches)
        return features * 1.5 if NEW and self.config.defect == "tower" else features

    def placed(self, hidden, is_placeholder, features):
        if is_placeholder.sum() != features.shape[0] * features.shape[1]:
            raise ValueError("Features and placeholder tokens do not match")
        return hidden.masked_scatter(is_placeholder[..., None], features.to(hidden.dtype))

    def forward(self, input_ids, pixel_values=None, pixel_values_videos=None, attention_mask=None):
        hidden = self.embed(input_ids)
        if pixel_values is not None:
            features = self.features(pixel_values)
            if NEW and self.config.defect == "second" and len(features) > len(input_ids):
                features = features.clone()
                features[1::2] = features[::2]
            hidden = self.placed(hidden, input_ids == self.config.image_token_id, features)
        if pixel_values_videos is not None:
            if NEW and self.config.defect == "frames":
                pixel_values_videos = pixel_values_videos.flip(1)
            features = self.features(pixel_values_videos.flatten(0, 1))
            hidden = self.placed(hidden, input_ids == self.config.video_token_id, features)
        hidden = hidden + torch.tanh(self.experts[0](hidden)) + torch.tanh(self.experts[2](hidden))
        return CausalLMOutput(logits=self.head(hidden))


class HearingConfig(PretrainedConfig):
    model_type = "hearing"

    def __init__(self, vocab_size=32, hidden_size=16, defect="none", **kwargs):
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.audio_token_id, self.num_mel_bins = 28, 8
        self.defect = defect
        super().__init__(**kwargs)


class HearingModel(PreTrainedModel):
    """Four vectors of a sound among the text."""

    config_class = HearingConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.ear = torch.nn.Linear(config.num_mel_bins, config.hidden_size)
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, input_ids, input_features=None, attention_mask=None):
        hidden = self.embed(input_ids)
        if input_features is not None:
            if NEW and self.config.defect == "turned":
                input_features = input_features.flip(-1)
            heard = self.ear(input_features.unflatten(-1, (4, -1)).mean(-1).transpose(1, 2))
            is_sound = (input_ids == self.config.audio_token_id)[..., None]
            if is_sound.sum() != heard.shape[0] * heard.shape[1]:
                raise ValueError("Features and placeholder tokens do not match")
            hidden = hidden.masked_scatter(is_sound, heard.to(hidden.dtype))
        return CausalLMOutput(logits=self.head(hidden))
