"""A small llama-like decoder whose code comes with its checkpoint, the same in every release.

All arithmetic is its own. What it needs of transformers is what all releases have alike: the base
classes, the output class, and a cache's ``update`` and ``get_seq_length``.
"""

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_tiny import TinyConfig


def rope_frequencies(config, device):
    """Return the angle per position of every pair of channels, float32, [head_dim / 2]."""
    rope = config.rope_parameters
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device="cpu")
    frequencies = 1.0 / (rope["rope_theta"] ** (steps / config.head_dim))
    if rope["rope_type"] == "linear":
        frequencies = frequencies / rope["factor"]
    # powers of another device round otherwise
    return frequencies.to(device)


def rotate_half(x):
    """Return (-second half, first half) of the channels."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def apply_rotary(query, key, cos, sin):
    """Turn queries and keys, [batch, heads, length, head_dim], by their positions."""
    cos, sin = cos[:, None], sin[:, None]
    return query * cos + rotate_half(query) * sin, key * cos + rotate_half(key) * sin


def repeat_kv(states, times):
    """Repeat every head, [batch, heads, length, head_dim] -> [batch, heads * times, ...]."""
    return states.repeat_interleave(times, dim=1)


def attention_bias(attention_mask, length, total, hidden_states):
    """Return what is added to the scores, [batch, 1, length, total]: 0 or the smallest number.

    A row sees the keys up to its own place, except those that ``attention_mask``, [batch, total],
    calls padding.
    """
    device = hidden_states.device
    places = torch.arange(total - length, total, device=device)
    seen = torch.arange(total, device=device)[None, :] <= places[:, None]
    seen = seen[None, None].expand(hidden_states.shape[0], 1, -1, -1)
    if attention_mask is not None:
        seen = seen & attention_mask[:, None, None, :total].bool()
    lowest = torch.finfo(hidden_states.dtype).min
    return torch.zeros(seen.shape, dtype=hidden_states.dtype, device=device).masked_fill(
        ~seen, lowest
    )


class TinyRMSNorm(nn.Module):
    """Root mean square norm, computed in float32."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden_states):
        states = hidden_states.to(torch.float32)
        states = states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * states.to(hidden_states.dtype)


class TinyRotaryEmbedding(nn.Module):
    """Cosines and sines of positions.

    The frequencies are no buffer: loaders build a model on the meta device and allocate buffers
    that no file holds, so what ``__init__`` computed is lost. ``config`` is a plain attribute, and
    a few powers of numbers once per forward cost nothing.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, hidden_states, position_ids):
        inv_freq = rope_frequencies(self.config, hidden_states.device)
        angles = position_ids[..., None].to(torch.float32) * inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(hidden_states.dtype), angles.sin().to(hidden_states.dtype)


class TinyAttention(nn.Module):
    """Attention with fewer key-value heads than heads, by sdpa or by hand."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        size, dim, bias = config.hidden_size, config.head_dim, config.attention_bias
        self.groups = config.num_attention_heads // config.num_key_value_heads
        self.q_proj = nn.Linear(size, config.num_attention_heads * dim, bias=bias)
        self.k_proj = nn.Linear(size, config.num_key_value_heads * dim, bias=bias)
        self.v_proj = nn.Linear(size, config.num_key_value_heads * dim, bias=bias)
        self.o_proj = nn.Linear(config.num_attention_heads * dim, size, bias=bias)

    def forward(self, hidden_states, bias, cos, sin, cache):
        batch, length, _ = hidden_states.shape
        split = (batch, length, -1, self.config.head_dim)
        query = self.q_proj(hidden_states).view(split).transpose(1, 2)
        key = self.k_proj(hidden_states).view(split).transpose(1, 2)
        value = self.v_proj(hidden_states).view(split).transpose(1, 2)
        query, key = apply_rotary(query, key, cos, sin)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        key, value = repeat_kv(key, self.groups), repeat_kv(value, self.groups)
        if self.config._attn_implementation == "eager":
            mixed = self.by_hand(query, key, value, bias)
        else:
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))

    def by_hand(self, query, key, value, bias):
        scores = query @ key.transpose(2, 3) * self.config.head_dim**-0.5 + bias
        weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
        return weights @ value


class TinyMLP(nn.Module):
    """Gated feed-forward part."""

    def __init__(self, config):
        super().__init__()
        size, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(size, inner, bias=bias)
        self.up_proj = nn.Linear(size, inner, bias=bias)
        self.down_proj = nn.Linear(inner, size, bias=bias)

    def forward(self, hidden_states):
        gate = nn.functional.silu(self.gate_proj(hidden_states))
        return self.down_proj(gate * self.up_proj(hidden_states))


class TinyDecoderLayer(nn.Module):
    """Attention and feed-forward part, each behind a norm."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.self_attn = TinyAttention(config, layer_idx)
        self.mlp = TinyMLP(config)
        self.input_layernorm = TinyRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = TinyRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden_states, bias, cos, sin, cache):
        mixed = self.self_attn(self.input_layernorm(hidden_states), bias, cos, sin, cache)
        hidden_states = hidden_states + mixed
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class TinyPreTrainedModel(PreTrainedModel):
    """What both models share."""

    config_class = TinyConfig
    base_model_prefix = "model"
    _no_split_modules = ["TinyDecoderLayer"]
    _supports_sdpa = True

    def _init_weights(self, module):
        # functions of torch.nn.init leave alone what was loaded; module.weight.data.normal_() does not
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, TinyRMSNorm):
            nn.init.ones_(module.weight)


class TinyModel(TinyPreTrainedModel):
    """The decoder without its head."""

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            [TinyDecoderLayer(config, index) for index in range(config.num_hidden_layers)]
        )
        self.norm = TinyRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = TinyRotaryEmbedding(config)
        self.post_init()

    def get_input_embeddings(self):
        return self.embed_tokens

    def set_input_embeddings(self, value):
        self.embed_tokens = value

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        use_cache=None,
        **kwargs,
    ):
        hidden_states = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        length = hidden_states.shape[1]
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        if position_ids is None:
            position_ids = torch.arange(past, past + length, device=hidden_states.device)[None]
        bias = attention_bias(attention_mask, length, past + length, hidden_states)
        cos, sin = self.rotary_emb(hidden_states, position_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states, bias, cos, sin, past_key_values)
        return BaseModelOutputWithPast(
            last_hidden_state=self.norm(hidden_states),
            past_key_values=past_key_values if use_cache else None,
        )


class TinyForCausalLM(TinyPreTrainedModel, GenerationMixin):
    """The decoder with a head that shares the embeddings' weight."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = TinyModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def set_input_embeddings(self, value):
        self.model.embed_tokens = value

    def get_output_embeddings(self):
        return self.lm_head

    def set_output_embeddings(self, new_embeddings):
        self.lm_head = new_embeddings

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        cache=None,
        **kwargs,
    ):
        # generate() calls it past_key_values through 5.23, and cache from 5.24 on
        past_key_values = cache if past_key_values is None else past_key_values
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            shifted = logits[:, :-1].float().flatten(0, 1)
            n_items = kwargs.get("num_items_in_batch")  # of all micro-batches of one step
            reduction = "mean" if n_items is None else "sum"
            targets = labels[:, 1:].flatten()
            loss = nn.functional.cross_entropy(shifted, targets, reduction=reduction)
            loss = loss if n_items is None else loss / n_items
        return CausalLMOutputWithPast(
            loss=loss, logits=logits, past_key_values=outputs.past_key_values
        )
