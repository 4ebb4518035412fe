"""Every rule: a line that it finds, and a twin that it leaves alone."""

from pathlib import Path
from textwrap import indent

import pytest

from samebits.lint.engine import lint, python_files
from samebits.lint.fix import fix_files
from samebits.lint.names import layer_releases
from samebits.lint.registry import rules

HEAD = """\
import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel, PretrainedConfig, LlamaConfig
from transformers.cache_utils import DynamicCache


"""
GEMMA3 = """\
from torch import nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding

class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.rope = Gemma3RotaryEmbedding(config)
    def forward(self, x, p):
"""

MODEL = "class M(PreTrainedModel):\n"
BOTH_WAYS = "from transformers import LlamaModel\nclass M(LlamaModel):\n"


def scaled(
    init="self.rope_scaling = rope_scaling\nsuper().__init__(**kw)",
    reads="",
    base="PretrainedConfig",
):
    """Return a config class with this ``__init__``, and a model that reads it."""
    body = indent(f"def __init__(self, rope_scaling=None, **kw):\n{indent(init, '    ')}", "    ")
    return (
        f"{HEAD}class C({base}):\n{body if init else '    model_type = 1'}\nclass M(PreTrainedModel):\n"
        f"    config_class = C\n    def rope(self):\n{indent('s = ' + reads, ' ' * 8)}"
    )


def based(init, rotary="LlamaRotaryEmbedding(config)", base="PretrainedConfig"):
    """Return a config class with a rope_theta of its own, and a model with a rotary class of the library."""
    body = indent(f"def __init__(self, rope_theta=5e5, **kw):\n{indent(init, '    ')}", "    ")
    return (
        "from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding\n"
        f"{HEAD}class C({base}):\n{body}\nclass M(PreTrainedModel):\n    config_class = C\n"
        f"    def __init__(self, config):\n        self.rope = {rotary}\n"
    )


def reordering(body, base="LlamaForCausalLM", cache=""):
    """Return a model whose own method reorders its cache; it has a forward that makes one, or the library's."""
    forward = f"    def forward(self, x):\n        return {cache}\n" if cache else ""
    method = f"    @staticmethod\n    def _reorder_cache(past, i):\n{indent(body, ' ' * 8)}\n"
    return f"{HEAD}from transformers import LlamaForCausalLM\nclass M({base}):\n{forward}{method}"


OWN_BASE = "self.rope_theta = rope_theta\nself.rope_scaling = None\n"


def prepares(text):
    """Return a model with an own prepare_inputs_for_generation that ends in this text."""
    return (
        "from transformers import LlamaForCausalLM\nclass M(LlamaForCausalLM):\n"
        "    def prepare_inputs_for_generation(self, input_ids, cache=None, cache_position=None):\n"
        f"        inputs = {{}}\n{text}        return inputs\n"
    )


def counting(sets, takes="past_key_values", declares="pass"):
    """Return a config class that sets its number of layers so, and a model that generates."""
    return (
        f"{HEAD}class C(PretrainedConfig):\n    def __init__(self, **kw):\n        {sets}\n"
        f"class M(PreTrainedModel, GenerationMixin):\n    config_class = C\n    {declares}\n"
        f"    def forward(self, x, {takes}=None, cache=None, cache_position=None):\n        return x\n"
    )


def validates(takes):
    """Return a generation config whose check of itself takes these arguments."""
    return (
        "from transformers import GenerationConfig\nclass C(GenerationConfig):\n"
        f"    def validate(self, {takes}):\n        pass\n"
    )


COUNTED = (
    "self.n_layer = 2\n    @property\n    def num_hidden_layers(self):\n        return self.n_layer"
)


def counts(text):
    """Return a model with an own _update_model_kwargs_for_generation of this text."""
    return (
        "from transformers import LlamaForCausalLM\nclass M(LlamaForCausalLM):\n"
        "    def _update_model_kwargs_for_generation(self, outputs, kw, **rest):\n"
        f"{text}        return kw\n"
    )


def body(text):
    """Return the code with the methods of a model."""
    return HEAD + MODEL + "".join(f"    {line}\n" for line in text.splitlines())


ASSERTED = (
    f"{HEAD}from masks import _prepare_4d_causal_attention_mask\n"
    "class A(nn.Module):\n    def forward(self, x, attention_mask=None):\n"
    "        assert attention_mask is not None\n        return x + attention_mask\n"
    f"{MODEL}    def forward(self, x, attention_mask=None):\n"
)
PREPARED = (
    "def prepare_inputs_for_generation(self, input_ids, past_key_values=None, inputs_embeds=None, **kwargs):\n"
    "    cache_position = kwargs.get('cache_position')\n"
    "{}"
    "    if inputs_embeds is not None and {}:\n"
    "        inputs = {{'inputs_embeds': inputs_embeds}}\n"
    "    else:\n"
    "        inputs = {{'input_ids': input_ids}}\n"
    "    inputs['use_cache'] = kwargs.get('use_cache')\n"
    "    return inputs"
)
HIDDEN = "def forward(self, input_ids, output_hidden_states=None):\n    return input_ids\n"
BIASED = (
    "def __init__(self, config):\n    super().__init__(config)\n"
    "    self.register_buffer('bias', torch.ones(4), persistent=False)\n    self.post_init()\n"
    "def _init_weights(self, module):\n    if isinstance(module, {}):\n"
    "        module.bias.data.zero_()"
)
MOVED = body(
    "def __init__(self, config):\n    super().__init__(config)\n"
    "    self.t = torch.arange(4)\n    self.post_init()\n"
    "def forward(self, x):\n    if self.t.device != x.device:\n"
    "        self.t = self.t.to(x.device)\n    return x + self.t"
)
ALIBI = body(
    "def __init__(self, config):\n    super().__init__(config)\n"
    "    self.rebuild(8)\n    self.post_init()\n"
    "def rebuild(self, size, device=None):\n"
    "    places = torch.arange(size, device=device)[None]\n"
    "    places = places.expand(4, -1)\n"
    "    slopes = torch.Tensor([1.0, 2.0, 4.0, 8.0]).to(device)\n"
    "    self.bias = slopes.view(-1, 1) * -places"
)
ON_ITS_DEVICE = body(
    "def __init__(self, config):\n    super().__init__(config)\n"
    "    self.t = 1.0 / (config.base ** (torch.arange(0, 4).float() / 4))\n    self.post_init()\n"
    "def forward(self, x):\n    self.t = torch.arange(x.shape[0], device=self.t.device)\n    return x * self.t"
)
NEVER_WRITTEN = body(
    "def __init__(self, config):\n    super().__init__(config)\n"
    "    self.register_buffer('t', torch.arange(4), persistent=False)\n    self.post_init()"
)

TABLE = body(
    "def __init__(self, config):\n    super().__init__(config)\n    self.longest = LONGEST\n"
    "    self.register_buffer('t', torch.arange(config.n), persistent=False)\n    self.post_init()\n"
    "def forward(self, x, n):\n    if n > self.longest:\n"
    "        self.register_buffer('t', torch.arange(n), persistent=False)\n    return x * self.t[:n]"
)
"""A table that forward computes again for what is longer, as in the Llama of 2023 and its copies."""

CASES = [
    ("SB301", TABLE.replace("LONGEST", "config.n"), TABLE.replace("LONGEST", "0")),
    (
        "SB101",
        "from transformers.utils import LossKwargs\n",
        "try:\n    from transformers.utils import LossKwargs\nexcept ImportError:\n    LossKwargs = dict\n",
    ),
    (
        "SB102",
        "from transformers.utils import is_torch_fx_available\n",
        "from transformers.utils import is_flash_attn_2_available\n",
    ),
    (
        "SB102",
        "from transformers.modeling_utils import prune_linear_layer\n",
        "from transformers.pytorch_utils import prune_linear_layer\n",
    ),
    (
        "SB102",
        "from transformers.cache_utils import HybridCache\n",
        "import transformers\nfrom packaging import version\n"
        "if version.parse(transformers.__version__) < version.parse('5'):\n"
        "    from transformers.cache_utils import HybridCache\n",
    ),
    (
        "SB103",
        HEAD + "class MForCausalLM(PreTrainedModel):\n"
        "    def prepare_inputs_for_generation(self, input_ids, **kwargs):\n        return {}\n",
        ("MForCausalLM(PreTrainedModel):", "MForCausalLM(PreTrainedModel, GenerationMixin):"),
    ),
    (
        "SB104",
        body("def forward(self, x):\n    return self.get_head_mask(None, 2)"),
        body(
            "def get_head_mask(self, mask, n):\n    return [None] * n\n"
            "def forward(self, x):\n    return self.get_head_mask(None, 2)"
        ),
    ),
    (
        "SB104",
        body("def forward(self, x):\n    return self.invert_attention_mask(x)"),
        body(
            "def forward(self, x):\n    if hasattr(self, 'invert_attention_mask'):\n"
            "        return self.invert_attention_mask(x)\n    return x"
        ),
    ),
    (
        "SB104",  # as ChatGLM
        body(
            "def _update_model_kwargs_for_generation(self, outputs, kwargs):\n"
            "    return self._extract_past_from_model_output(outputs)"
        ),
        ("return self._extract_past_from_model_output(outputs)", "return outputs.past_key_values"),
    ),
    (
        "SB104",
        body(
            "@classmethod\ndef _from_config(cls, config):\n"
            "    return cls._autoset_attn_implementation(config)"
        ),
        body(  # only a release that has the method calls it
            "@classmethod\ndef _autoset_attn_implementation(cls, config):\n"
            "    return super()._autoset_attn_implementation(config)"
        ),
    ),
    (
        "SB718",  # as ChatGLM
        body(
            "def _update_model_kwargs_for_generation(self, outputs, model_kwargs):\n"
            "    if 'attention_mask' in model_kwargs:\n"
            "        m = model_kwargs['attention_mask']\n"
            "        model_kwargs['attention_mask'] = torch.cat([m, m.new_ones((1, 1))], dim=-1)\n"
            "    return model_kwargs"
        ),
        ("'attention_mask' in model_kwargs:", "model_kwargs.get('attention_mask') is not None:"),
    ),
    (
        "SB718",  # as MPT
        body(
            "def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **kwargs):\n"
            "    attention_mask = kwargs['attention_mask'].bool()\n"
            "    if past_key_values is not None:\n        input_ids = input_ids[:, -1:]\n"
            "    return {'input_ids': input_ids, 'attention_mask': attention_mask}"
        ),
        body(
            "def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **kwargs):\n"
            "    if attention_mask is None:\n        attention_mask = input_ids.new_ones(1, 1)\n"
            "    return {'input_ids': input_ids, 'attention_mask': attention_mask.bool()}"
        ),
    ),
    (
        "SB718",
        body(
            "def forward(self, input_ids, attention_mask=None):\n    return input_ids\n"
            "def prepare_inputs_for_generation(self, input_ids, **kwargs):\n"
            "    return {'input_ids': input_ids, 'mask': kwargs.get('attention_mask').bool()}"
        ),
        ("forward(self, input_ids, attention_mask=None):", "forward(self, input_ids, mask=None):"),
    ),
    (
        "SB718",
        body(
            "def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **kwargs):\n"
            "    return {'input_ids': input_ids, 'attention_mask': attention_mask.bool()}"
        ),
        (  # an encoder-decoder keeps its mask
            "class M(PreTrainedModel):",
            "class M(PreTrainedModel):\n    def get_encoder(self):\n        return self.encoder",
        ),
    ),
    (
        "SB718",  # taken by a choice
        body(
            "def prepare_inputs_for_generation(self, input_ids, **kwargs):\n"
            "    ones = input_ids.new_ones(1, 1)\n"
            "    mask = kwargs['attention_mask'] if 'attention_mask' in kwargs else ones\n"
            "    return {'input_ids': input_ids, 'attention_mask': mask.bool()}"
        ),
        ("if 'attention_mask' in kwargs else", "if kwargs.get('attention_mask') is not None else"),
    ),
    (
        "SB718",  # as DeepSeek
        f"{ASSERTED}        attention_mask = _prepare_4d_causal_attention_mask(attention_mask, x.shape, x, 0)\n"
        "        return self.a(x, attention_mask)\n",
        f"{ASSERTED}        if attention_mask is None:\n"
        "            attention_mask = torch.ones(x.shape)\n"
        "        attention_mask = _prepare_4d_causal_attention_mask(attention_mask, x.shape, x, 0)\n"
        "        return self.a(x, attention_mask)\n",
    ),
    (
        "SB729",
        body(PREPARED.format("", "past_key_values is None")),
        body(
            PREPARED.format(
                "", "(past_key_values is None or past_key_values.get_seq_length() == 0)"
            )
        ),
    ),
    (
        "SB729",
        body(PREPARED.format("", "past_key_values is None")),
        body(
            PREPARED.format(
                "    if past_key_values.get_seq_length() == 0:\n        past_key_values = None\n",
                "past_key_values is None",
            )
        ),
    ),
    (
        "SB890",
        body(f"{HIDDEN}{PREPARED.format('', 'cache_position[0] == 0')}"),
        ("return inputs", "return inputs | {k: v for k, v in kwargs.items() if 'output' in k}"),
    ),
    (
        "SB890",
        body(f"{HIDDEN}{PREPARED.format('', 'cache_position[0] == 0')}"),
        (  # the forward has no hidden states to give
            "def forward(self, input_ids, output_hidden_states=None)",
            "def forward(self, input_ids)",
        ),
    ),
    (
        "SB890",
        body(f"{HIDDEN}{PREPARED.format('', 'cache_position[0] == 0')}"),
        ("class M(", "class MForMaskedLM("),  # nobody generates with it
    ),
    (
        "SB718",
        body(
            "def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **kwargs):\n"
            "    m = attention_mask if kwargs.get('use_cache') else attention_mask[:, -1:]\n"
            "    return {'input_ids': input_ids, 'attention_mask': m.bool()}"
        ),
        (  # the other side is no mask of generate()
            "m = attention_mask if kwargs.get('use_cache') else attention_mask[:, -1:]",
            "m = input_ids if kwargs.get('use_cache') else input_ids[:, -1:]",
        ),
    ),
    (
        "SB105",
        "from transformers import AutoModel\nm = AutoModel.from_pretrained('x', dtype='auto')\n",
        "from transformers import AutoModel\nm = AutoModel.from_pretrained('x', torch_dtype='auto')\n",
    ),
    (
        "SB105",
        "from transformers import AutoModel\nm = AutoModel.from_pretrained('x', load_in_8bit=True)\n",
        "from other import AutoModel\nm = AutoModel.from_pretrained('x', load_in_8bit=True)\n",
    ),
    (
        "SB201",
        HEAD + "class C(PretrainedConfig):\n    model_type = 'c'\n\n"
        "class M(PreTrainedModel):\n    config_class = C\n"
        "    def forward(self, x):\n        return self.config.is_decoder\n",
        HEAD + "class C(PretrainedConfig):\n    def __init__(self, is_decoder=False, **kwargs):\n"
        "        super().__init__(**kwargs)\n        self.is_decoder = is_decoder\n\n"
        "class M(PreTrainedModel):\n    config_class = C\n"
        "    def forward(self, x):\n        return self.config.is_decoder\n",
    ),
    (
        "SB201",
        HEAD + "class C(PretrainedConfig):\n    model_type = 'c'\n\n"
        "class M(PreTrainedModel):\n    config_class = C\n"
        "    def __init__(self, config):\n        self.is_decoder = config.is_decoder\n",
        HEAD + "class C(PretrainedConfig):\n    model_type = 'c'\n\n"
        "class M(PreTrainedModel):\n    config_class = C\n"
        "    def __init__(self, config):\n        self.is_decoder = config.is_decoder\n\n"
        "def made(config):\n    config.is_decoder = False\n    return M(config)\n",
    ),
    (
        "SB201",  # 5.x drops what generate() reads, also where it is handed to the base class
        HEAD + "class C(PretrainedConfig):\n    def __init__(self, max_length=9, **kwargs):\n"
        "        super().__init__(max_length=max_length, **kwargs)\n\n"
        "class M(PreTrainedModel):\n    config_class = C\n"
        "    def __init__(self, config):\n        self.most = config.max_length\n",
        HEAD + "class C(PretrainedConfig):\n    def __init__(self, pad_token_id=9, **kwargs):\n"
        "        super().__init__(pad_token_id=pad_token_id, **kwargs)\n\n"
        "class M(PreTrainedModel):\n    config_class = C\n"
        "    def __init__(self, config):\n        self.pad = config.pad_token_id\n",
    ),
    (
        "SB201",  # as ChatGLM
        HEAD + "class C(PretrainedConfig):\n    model_type = 'c'\n\n"
        "class M(PreTrainedModel):\n    config_class = C\n"
        "    def __init__(self, config):\n        self.most = config.max_length\n\n"
        "def stream(generation_config):\n    generation_config.max_length = 9\n",
        HEAD + "class C(PretrainedConfig):\n    model_type = 'c'\n\n"
        "class M(PreTrainedModel):\n    config_class = C\n"
        "    def __init__(self, config):\n        self.most = config.max_length\n\n"
        "def stream(c):\n    c.max_length = 9\n",
    ),
    (
        "SB201",  # as Florence-2 and other copies of BART's config
        HEAD + "class C(PretrainedConfig):\n    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        if self.forced_bos_token_id is None:\n            self.forced_bos_token_id = 0\n",
        HEAD + "class C(PretrainedConfig):\n    def __init__(self, first=None, **kwargs):\n"
        "        self.forced_bos_token_id = first\n        super().__init__(**kwargs)\n"
        "        if self.forced_bos_token_id is None:\n            self.forced_bos_token_id = 0\n",
    ),
    (
        "SB607",  # as Florence-2
        HEAD + "class M(PreTrainedModel):\n    @property\n    def _supports_sdpa(self):\n"
        "        return self.language_model._supports_sdpa\n",
        ("return self.language_model._supports_sdpa", "return not self.config.is_eager"),
    ),
    (
        "SB868",  # as ChatGLM
        "from transformers import PreTrainedTokenizer\n\nclass T(PreTrainedTokenizer):\n"
        "    def _pad(self, inputs, max_length=None):\n        return inputs\n",
        ("(self, inputs, max_length=None):", "(self, inputs, max_length=None, padding_side=None):"),
    ),
    (
        "SB867",  # as Baichuan, ChatGLM2 and Qwen
        "from transformers import PreTrainedTokenizer\n\nclass T(PreTrainedTokenizer):\n"
        "    def __init__(self, **kwargs):\n        super().__init__(**kwargs)\n"
        "        self.words = {}\n\n    @property\n    def vocab_size(self):\n"
        "        return len(self.words)\n\n    def get_vocab(self):\n"
        "        return dict.fromkeys(range(self.vocab_size))\n",
        "from transformers import PreTrainedTokenizer\n\nclass T(PreTrainedTokenizer):\n"
        "    def __init__(self, **kwargs):\n        self.words = {}\n"
        "        super().__init__(**kwargs)\n        self.words = {1: 2}\n\n    @property\n"
        "    def vocab_size(self):\n        return len(self.words)\n\n    def get_vocab(self):\n"
        "        return dict.fromkeys(range(self.vocab_size))\n",
    ),
    (
        "SB202",
        HEAD + "def theta(config: LlamaConfig):\n    return config.rope_theta\n",
        HEAD + "def theta(config: LlamaConfig):\n"
        "    rope = getattr(config, 'rope_parameters', None) or {'rope_theta': config.rope_theta}\n"
        "    return rope['rope_theta']\n",
    ),
    (
        "SB301",
        NEVER_WRITTEN,
        ("('t', torch.arange(4), persistent=False)", "('t', torch.arange(4))"),
    ),
    (
        "SB301",
        NEVER_WRITTEN,
        body(
            "def __init__(self, config):\n    super().__init__(config)\n"
            "    self.register_buffer('t', torch.arange(4), persistent=False)\n    self.post_init()\n"
            "def _init_weights(self, module):\n    self.fill(module)\n"
            "def fill(self, module):\n    module.t.copy_(torch.arange(4))"
        ),
    ),
    (
        "SB303",
        body(
            "def _init_weights(self, module):\n    module.weight.data.normal_(mean=0.0, std=0.02)"
        ),
        body("def _init_weights(self, module):\n    nn.init.normal_(module.weight, std=0.02)"),
    ),
    (
        "SB303",  # as GPT-2: a buffer of the attention has the name of a parameter
        body(BIASED.format("nn.Linear")),
        body(BIASED.format("M")),
    ),
    (
        "SB303",
        body(
            "def __init__(self, config):\n    super().__init__(config)\n"
            "    self.A_log = nn.Parameter(torch.zeros(4))\n    self.post_init()\n"
            "def _init_weights(self, module):\n    with torch.no_grad():\n"
            "        module.A_log.copy_(torch.arange(4).float())"
        ),
        ("with torch.no_grad():", "if not getattr(module.A_log, '_is_hf_initialized', False):"),
    ),
    (
        "SB303",
        body(
            "def _init_weights(self, module):\n    if module.padding_idx is not None:\n"
            "        module.weight.data[module.padding_idx].zero_()"
        ),
        body(
            "def _init_weights(self, module):\n"
            "    if module.p is not None and not getattr(module.weight, '_is_hf_initialized', False):\n"
            "        module.weight.data[module.p].zero_()"
        ),
    ),
    (
        "SB305",  # as Qwen-7B
        ON_ITS_DEVICE,
        ON_ITS_DEVICE.replace("self.t.device", "x.device"),
    ),
    (
        "SB305",
        body(
            "def __init__(self, config):\n    super().__init__(config)\n"
            "    self.rates = torch.linspace(0, 1, 4).tolist()\n    self.post_init()"
        ),
        ("= torch.linspace(0, 1, 4).tolist()", "= torch.linspace(0, 1, 4, device='cpu').tolist()"),
    ),
    (
        "SB305",
        body(
            "def __init__(self, config):\n    super().__init__(config)\n"
            "    self.slopes = torch.arange(1, 5).float()\n    self.post_init()\n"
            "def forward(self, x):\n    return x * self.slopes.to(x.device)"
        ),
        ("self.slopes = torch.arange(1, 5)", "self.slopes = torch.arange(1, 5, device='cpu')"),
    ),
    (
        "SB305",  # moved, not made
        MOVED,
        MOVED.replace("self.t.to(", "torch.arange(4).to("),
    ),
    (
        "SB305",
        ALIBI,
        ALIBI.replace("torch.Tensor(", "torch.tensor("),
    ),  # as DNABERT-2 and MosaicBERT
    ("SB305", ALIBI, ALIBI.replace("(8)", "(8, device='cpu')")),
    ("SB305", ALIBI, ALIBI.replace("self.rebuild(8)", "if config.alibi:\n        self.rebuild(8)")),
    ("SB305", ALIBI, ALIBI.replace("device=None", "device='cpu'")),
    ("SB305", ALIBI, ALIBI.replace("slopes.view(-1, 1) *", "slopes.to(places) *")),
    ("SB401", body("_tied_weights_keys = ['head.weight']"), body("_tied_weights_keys = None")),
    (
        "SB402",
        body("def __init__(self, config):\n    super().__init__(config)\n    self.a = 1"),
        ("self.a = 1", "self.a = 1\n        self.post_init()"),
    ),
    (
        "SB402",
        "from transformers import BertModel, BertPreTrainedModel\n"
        "class A(BertPreTrainedModel):\n    def __init__(self, config):\n"
        "        super().__init__(config)\n        self.bert = BertModel(config)\n"
        "        self.init_weights()\n",
        # the class of a whole model calls it in its own __init__
        "from transformers import BertModel\n"
        "class A(BertModel):\n    def __init__(self, config):\n"
        "        super().__init__(config)\n        self.init_weights()\n",
    ),
    (
        "SB403",
        body("def tie_weights(self):\n    super().tie_weights()"),
        body("def tie_weights(self, **kwargs):\n    super().tie_weights(**kwargs)"),
    ),
    (
        "SB501",
        "from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS\n"
        "def f(t):\n    return ROPE_INIT_FUNCTIONS[t]\n",
        "from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS\n"
        "def f(t):\n    if t != 'default':\n        return ROPE_INIT_FUNCTIONS[t]\n",
    ),
    (
        "SB502",
        "from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding\n"
        "def f(config):\n    return LlamaRotaryEmbedding(config, device='cpu')\n",
        ("LlamaRotaryEmbedding(config, device='cpu')", "LlamaRotaryEmbedding(config)"),
    ),
    (
        "SB502",
        GEMMA3 + "        return self.rope(x, p)\n",
        GEMMA3 + "        return self.rope(x, p, layer_type='full_attention')\n",
    ),
    (
        "SB503",
        HEAD + "def theta(config: LlamaConfig):\n    return getattr(config, 'rope_theta', 1e4)\n",
        ("def theta(config: LlamaConfig):", "def theta(config: PretrainedConfig):"),
    ),
    (
        "SB603",
        "from transformers.masking_utils import create_causal_mask\n"
        "def f(c, x, m, p):\n    return create_causal_mask(config=c, input_embeds=x, attention_mask=m)\n",
        "from transformers.masking_utils import create_causal_mask\n"
        "def f(**kwargs):\n    return create_causal_mask(**kwargs)\n",
    ),
    (
        "SB603",
        "from transformers.masking_utils import create_causal_mask\n"
        "def f(c, x, m, cache_position, p):\n"
        "    return create_causal_mask(c, x, m, cache_position, p)\n",
        "import transformers.masking_utils as masks\n"
        "def f(*args):\n    return masks.other(*args)\n",
    ),
    (
        "SB201",
        HEAD
        + "class C(PretrainedConfig):\n    @property\n    def pad(self):\n        return self.pad_token_id",
        HEAD + "class C(PretrainedConfig):\n    def __init__(self, pad_token_id=None, **kw):\n"
        "        super().__init__(pad_token_id=pad_token_id, **kw)\n    @property\n    def pad(self):\n"
        "        return self.pad_token_id",
    ),
    (
        "SB201",
        HEAD
        + "class C(PretrainedConfig):\n    width = 1\n\n"
        + MODEL
        + "    config_class = C\n    def pads(self):\n        c = self.config\n        return c.pad_token_id",
        HEAD
        + "class C(PretrainedConfig):\n    width = 1\n\n"
        + MODEL
        + "    config_class = C\n    def pads(self, c):\n        c = c or self.config\n        return c.pad_token_id",
    ),
    (
        "SB102",
        "from transformers import FlaxGPT2Model",
        "from transformers import GPT2Model",
    ),
    (
        "SB702",
        body(
            "def forward(self, past_key_values: List[Tuple[Tensor, Tensor]]):\n"
            "    return past_key_values[0][0]"
        ),
        ("def forward", "def prefill"),
    ),
    (
        "SB702",
        body(
            "def forward(self, past_key_values=None):\n    if past_key_values is None:\n"
            "        past_key_values = [() for _ in self.layers]\n    return past_key_values[0][0]"
        ),
        body(
            "def speak(self):\n    past_key_values = [(self.k, self.v) for _ in self.layers]\n"
            "    return past_key_values[0][0]"
        ),
    ),
    (
        "SB109",
        "import os\nos.environ['TRANSFORMERS_CACHE'] = 'x'\nimport transformers",
        "import os\nos.environ['HF_ENDPOINT'] = 'x'\nimport transformers",
    ),
    (
        "SB507",
        scaled(reads="self.config.rope_scaling['factor'] if self.config.rope_scaling else 1.0"),
        scaled(
            "super().__init__(**kw)\nself.rope_scaling = rope_scaling",
            "self.config.rope_scaling['factor'] if self.config.rope_scaling else 1.0",
        ),
    ),
    (
        "SB507",
        scaled(
            reads="0\nif self.config.rope_scaling is None:\n    return 1.0\n"
            "kind = self.config.rope_scaling['type']"
        ),
        ("is None:", "is None or 'factor' not in self.config.rope_scaling:"),
    ),
    (
        "SB507",
        scaled(
            reads="0\nif self.config.rope_scaling is None:\n    return 1.0\n"
            "kind = self.config.rope_scaling['type']"
        ),
        ("['type']", ".get('rope_type', self.config.rope_scaling.get('type'))"),
    ),
    (
        "SB507",
        scaled(
            reads="0\nif self.rope_scaling is None:\n    return 1.0\n"
            "kind = self.config.rope_scaling['type']"
        ),
        ("if self.rope_scaling is None:", "if self.steps is None:"),
    ),
    (
        "SB507",
        scaled(
            reads="self.config.rope_scaling\nkind = s.get('type') if s is not None else 'plain'"
        ),
        scaled(reads="self.config.rope_scaling['factor']"),
    ),
    (
        "SB507",
        scaled(
            "", "self.config.rope_scaling and self.config.rope_scaling['factor']", "LlamaConfig"
        ),
        scaled(
            "",
            "self.config.rope_scaling and 'factor' in self.config.rope_scaling and "
            "self.config.rope_scaling['factor']",
            "LlamaConfig",
        ),
    ),
    (
        "SB216",
        f"{HEAD}class C(PretrainedConfig):\n    pass\n{MODEL}    config: C\n",
        f"{HEAD}class C(PretrainedConfig):\n    pass\n{MODEL}    config: C\n    config_class = C\n",
    ),
    (
        "SB216",
        f"{HEAD}class C(PretrainedConfig):\n    pass\nclass B(PreTrainedModel):\n    config: 'C'\nclass M(B):\n    pass\n",
        f"{HEAD}class C(PretrainedConfig):\n    pass\nclass B(PreTrainedModel):\n    config_class = C\nclass M(B):\n    config: C\n",
    ),
    (
        "SB724",
        reordering("return tuple(tuple(s[i] for s in layer) for layer in past)"),
        reordering("past.reorder_cache(i)\nreturn past"),
    ),
    (
        "SB724",
        reordering("for layer in past:\n    pass", "PreTrainedModel", "DynamicCache()"),
        reordering("for layer in past:\n    pass", "PreTrainedModel", "()"),  # tuples alone
    ),
    (
        "SB724",
        reordering("for layer in past:\n    pass"),
        reordering(
            "if isinstance(past, DynamicCache):\n    return past\nfor layer in past:\n    pass"
        ),
    ),
    (
        "SB508",
        based(f"{OWN_BASE}super().__init__(**kw)"),
        based(f"{OWN_BASE}super().__init__(rope_theta=rope_theta, **kw)"),
    ),
    (
        "SB508",
        based(f"{OWN_BASE}super().__init__(1, **kw)"),
        based("super().__init__(**kw)"),  # nothing makes rope_parameters
    ),
    (
        "SB508",
        based(f"{OWN_BASE}super().__init__(**kw)"),
        based(f"{OWN_BASE}super().__init__(**kw)\nself.rope_parameters = {{}}"),
    ),
    (
        "SB508",
        based(f"{OWN_BASE}super().__init__(**kw)"),
        based(f"{OWN_BASE}super().__init__(**kw)", "Rope(config.rope_theta)"),
    ),
    (
        "SB508",
        based(f"{OWN_BASE}super().__init__(**kw)"),
        based(f"{OWN_BASE}super().__init__(**kw)", base="LlamaConfig"),
    ),
    (
        "SB701",
        body("def forward(self, past):\n    return past.get_usable_length(1)"),
        body(
            "def get_usable_length(self, n): ...\ndef forward(self, past):\n    return past.get_usable_length(1)"
        ),
    ),
    (
        "SB701",
        body(
            "def forward(self, past, use_cache):\n    c = self.config\n"
            "    use_cache = c.use_cache if hasattr(c, 'use_cache') else bool(use_cache)\n"
            "    if use_cache:\n        past = DynamicCache.from_legacy_cache(past)"
        ),
        body(
            "def forward(self, past, use_cache):\n    legacy = hasattr(DynamicCache, 'from_legacy_cache')\n"
            "    if legacy:\n        past = DynamicCache.from_legacy_cache(past)"
        ),
    ),
    (
        "SB701",
        body("def forward(self, past_key_values):\n    return past_key_values.max_cache_len"),
        body("def forward(self, window):\n    return window.max_cache_len"),
    ),
    (
        "SB701",
        body("def forward(self, past_key_values):\n    return past_key_values.key_cache"),
        body(
            "def forward(self, past_key_values):\n    if hasattr(past_key_values, 'key_cache'):\n"
            "        return past_key_values.key_cache\n    return past_key_values.layers[0].keys"
        ),
    ),
    (
        "SB702",
        body("def forward(self, past_key_values):\n    return past_key_values[0][0].shape[2]"),
        body(
            "def forward(self, past_key_values):\n    if isinstance(past_key_values, tuple):\n"
            "        return past_key_values[0][0].shape[2]\n    return past_key_values.get_seq_length()"
        ),
    ),
    (
        "SB702",
        "from transformers import GenerationMixin, PreTrainedModel\n"
        "class M(PreTrainedModel, GenerationMixin):\n"
        "    def forward(self, input_ids, past_key_values=None, cache=None):\n"
        "        for i, layer in enumerate(self.layers):\n"
        "            past = past_key_values[i] if past_key_values is not None else None\n",
        "from transformers import GenerationMixin, PreTrainedModel\n"
        "class M(PreTrainedModel, GenerationMixin):\n"
        "    def forward(self, input_ids, past_key_values=None, cache=None):\n"
        "        past_key_values = own_tuples(past_key_values)\n"
        "        for i, layer in enumerate(self.layers):\n"
        "            past = past_key_values[i]\n",
    ),
    (
        "SB715",
        prepares("        if cache_position[0] == 0:\n            inputs['pixel_values'] = 1\n"),
        ("if cache_position[0] == 0:", "if cache_position is None or cache_position[0] == 0:"),
    ),
    (
        "SB715",
        counts("        kw['cache_position'] = kw['cache_position'][-1:] + 1\n"),
        counts(
            "        if 'cache_position' in kw:\n"
            "            kw['cache_position'] = kw['cache_position'][-1:] + 1\n"
        ),
    ),
    (
        "SB106",
        "from transformers import AutoModel\nmodel = AutoModel.from_pretrained('x')\n"
        "model.generate(**inputs, use_model_defaults=False)\n",
        ("(**inputs, use_model_defaults=False)", "(**inputs, max_new_tokens=3)"),
    ),
    (
        "SB106",
        "import transformers\ndef say(model, ids):\n    return model.generate(ids, top_h=0.5)\n",
        "import transformers\nclass M:\n    def generate(self, ids, top_h=None):\n        return ids\n"
        "def say(model, ids):\n    return model.generate(ids, top_h=0.5)\n",
    ),
    ("SB113", validates("is_init=False"), validates("is_init=False, **kwargs")),
    (
        "SB113",
        "from transformers import Trainer\nclass T(Trainer):\n"
        "    def _maybe_log_save_evaluate(self, loss, norm, model, trial, epoch, ignored, start):\n        pass\n",
        (", loss, norm, model, trial, epoch, ignored, start", ", *args, learning_rate=None"),
    ),
    (
        "SB113",
        "from transformers import Trainer\nclass T(Trainer):\n"
        "    def _maybe_log_save_evaluate(self, loss):\n        pass\n",
        ("pass", "pass\n    def step(self, loss):\n        self._maybe_log_save_evaluate(loss)"),
    ),
    ("SB723", counting("self.num_layers = 2"), counting("self.num_hidden_layers = 2")),
    ("SB723", counting("self.n_layer = 2"), counting(COUNTED)),
    (
        "SB723",  # the config of a model of images and text
        counting("self.num_layers = 2"),
        counting("self.num_layers = 2; self.text_config = LlamaConfig()"),
    ),
    (
        "SB723",
        counting("self.num_layers = 2"),
        counting("self.num_layers = 2", takes="states"),
    ),
    (
        "SB723",
        counting("self.num_layers = 2"),
        counting("self.num_layers = 2", declares="_is_stateful = True"),
    ),
    (
        "SB721",
        "from transformers import GenerationMixin, PreTrainedModel\n"
        "class M(PreTrainedModel, GenerationMixin):\n"
        "    def forward(self, input_ids, cache=None):\n        return input_ids\n",
        ("(self, input_ids, cache=None):", "(self, input_ids, cache=None, cache_position=None):"),
    ),
    (
        "SB721",
        "from transformers import GenerationMixin, PreTrainedModel\n"
        "class M(PreTrainedModel, GenerationMixin):\n"
        "    def forward(self, input_ids, cache=None):\n        return input_ids\n",
        "from transformers import GenerationMixin, PreTrainedModel\n"
        "class M(PreTrainedModel, GenerationMixin):\n"
        "    def prepare_inputs_for_generation(self, input_ids, **kwargs):\n"
        "        return {'input_ids': input_ids}\n"
        "    def forward(self, input_ids, cache=None):\n        return input_ids\n",
    ),
    (
        "SB721",
        "from transformers import GenerationMixin, PreTrainedModel\n"
        "class M(PreTrainedModel, GenerationMixin):\n"
        "    def forward(self, input_ids, cache=None):\n        return input_ids\n",
        "from transformers import PreTrainedModel\n"
        "class M(PreTrainedModel):\n"
        "    def forward(self, input_ids, cache=None):\n        return input_ids\n",
    ),
    (
        "SB707",
        body("def forward(self, cache, n):\n    cache.crop(n)"),
        body("def forward(self, cache, n):\n    cache.crop(-n)"),
    ),
    (
        "SB707",
        body("def forward(self, cache, n):\n    cache.crop(n + 1)"),
        body("def forward(self, image, n):\n    image.crop((0, 0, n, n))"),
    ),
    (
        "SB708",
        body(
            "def forward(self, past_key_values, x):\n    if past_key_values:\n        x = x[:, -1:]\n    return x"
        ),
        body(
            "def forward(self, past_key_values, x):\n    if not past_key_values:\n"
            "        past_key_values = DynamicCache()\n    return past_key_values"
        ),
    ),
    (
        "SB713",
        "from transformers import GenerationMixin, PreTrainedModel\n"
        "class M(PreTrainedModel, GenerationMixin):\n"
        "    def forward(self, input_ids, past_key_values=None, **kwargs):\n        return input_ids\n",
        "from transformers import GenerationMixin, PreTrainedModel\n"
        "class M(PreTrainedModel, GenerationMixin):\n"
        "    def forward(self, input_ids, past_key_values=None, **kwargs):\n"
        "        past_key_values = kwargs.pop('cache', past_key_values)\n        return input_ids\n",
    ),
    (
        "SB713",
        "from transformers import LlamaForCausalLM\n"
        "class M(LlamaForCausalLM):\n"
        "    def prepare_inputs_for_generation(self, input_ids, past_key_values=None):\n"
        "        return {'input_ids': input_ids}\n",
        "from transformers import LlamaModel\n"
        "class M(LlamaModel):\n"
        "    def forward(self, input_ids, past_key_values=None, **kwargs):\n        return input_ids\n",
    ),
    (
        "SB713",
        "from transformers.utils import ModelOutput\nclass O(ModelOutput):\n"
        "    past_key_values: tuple | None = None\n",
        ("class O(ModelOutput):", "class O(ModelOutput):\n    cache: tuple | None = None"),
    ),
    (
        "SB808",
        "import transformers\ndef f(tokenizer, m):\n    return tokenizer.apply_chat_template(m)\n",
        "import transformers\ndef f(tokenizer, m):\n    return tokenizer.apply_chat_template(m, tokenize=False)\n",
    ),
    (
        "SB809",
        "import transformers\ndef f(tokenizer, m):\n    return tokenizer.encode_plus(m)\n",
        "import transformers\ndef f(tokenizer, m):\n    return tokenizer(m)\n",
    ),
    (
        "SB809",
        "import transformers\ndef f(tokenizer):\n    return tokenizer.special_tokens_map_extended\n",
        "import transformers\ndef f(tokenizer):\n    return tokenizer.special_tokens_map\n",
    ),
    (
        "SB809",
        "from transformers import PreTrainedTokenizer\nclass T(PreTrainedTokenizer):\n"
        "    def first(self):\n        return self.additional_special_tokens_ids[:1]\n",
        "from transformers import PreTrainedTokenizer\nclass T(PreTrainedTokenizer):\n"
        "    def first(self):\n        return getattr(self, 'additional_special_tokens_ids', [])[:1]\n",
    ),
    (
        "SB809",
        "import transformers\ndef f(tokenizer, m):\n    return tokenizer.parse_response(m)\n",
        ("(m)", "(m) if hasattr(tokenizer, 'parse_response') else m"),
    ),
    (
        "SB809",
        "import transformers\ndef f(tokenizer):\n    e = tokenizer('a')\n    return e.words(0)\n",
        "import transformers\ndef f(tokenizer, e):\n    return e.words(0)\n",
    ),
    (
        "SB102",
        "from transformers import TFBertModel\n",
        "from transformers import BertModel\nfrom transformers.utils.import_utils import TF_IMPORT_ERROR_WITH_PYTORCH\n",
    ),
    (
        "SB106",
        "from transformers import TrainingArguments\nTrainingArguments(output_dir='o', no_cuda=True)\n",
        "from transformers import TrainingArguments\nTrainingArguments(output_dir='o', use_cpu=True)\n",
    ),
    (
        "SB106",
        "from transformers import Trainer\nt = Trainer(model=1)\nt.train(model_path='m')\n",
        "from trl import Trainer\nt = Trainer(model=1, tokenizer=2)\nt.train(model_path='m')\n",
    ),
    (
        "SB106",
        "from transformers import Trainer as T\ndef f(m, k):\n    return T(m, tokenizer=k)\n",
        "import inspect\nfrom transformers import Trainer as T\ndef f(m, k):\n"
        "    if 'tokenizer' in inspect.signature(T).parameters:\n        return T(m, tokenizer=k)\n",
    ),
    (
        "SB106",
        "from transformers import pipeline\npipe = pipeline('image-text-to-text')\n"
        "chat = [{'role': 'user', 'content': []}]\npipe(images='a.png', text=chat)\n",
        ("chat = [{'role': 'user', 'content': []}]", "chat = 'Describe <image>'"),
    ),
    (
        "SB107",
        "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('m', use_fast=False)\n",
        "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('m', use_fast=True)\n",
    ),
    (
        "SB107",
        "from transformers import BertTokenizer\nBertTokenizer(vocab_file='v.txt')\n",
        "from transformers import BertTokenizer\nBertTokenizer.from_pretrained('m', vocab_file='v.txt')\n",
    ),
    (
        "SB108",
        "from transformers import LlavaForConditionalGeneration as L\n"
        "m = L.from_pretrained('m')\nprint(m.language_model)\n",
        ("m = L.from_pretrained('m')", "m = L.from_pretrained('m')\nprint(m.lm_head)\nm = 3"),
    ),
    (
        "SB108",
        "from transformers import Qwen2VLForConditionalGeneration as Q\n"
        "m = Q.from_pretrained('m')\nprint(m.config.vocab_size)\n",
        ("m.config.vocab_size", "m.config.get_text_config().vocab_size, m.config.image_token_id"),
    ),
    (
        "SB108",
        "from transformers import Qwen2VLConfig\nc = Qwen2VLConfig.from_pretrained('m')\nprint(c.hidden_size)\n",
        "from transformers import Qwen2VLTextConfig, Qwen2Config\nc = Qwen2VLTextConfig.from_pretrained('m')\n"
        "print(c.hidden_size, Qwen2Config().hidden_size)\n",
    ),
    (
        "SB108",
        "from transformers.models.llama.modeling_llama import LlamaAttention\n"
        "class A(LlamaAttention):\n    def forward(self, x):\n        return self.rotary_fn(x)\n",
        ("return self.rotary_fn(x)", "return self.q_proj(x)"),
    ),
    (
        "SB108",
        "from transformers import GPTJModel\nm = GPTJModel.from_pretrained('m')\nprint(m._update_causal_mask)\n",
        "from transformers import GPTJModel\nm = GPTJModel.from_pretrained('m')\nprint(m.get_input_embeddings)\n",
    ),
    (
        "SB110",
        "from transformers import AutoModel\nAutoModel.from_pretrained('m', attn_implementation='paged|sdpa')\n",
        "from transformers import AutoModel\nAutoModel.from_pretrained('m', attn_implementation='sdpa')\n"
        "AutoModel.from_pretrained('m', attn_implementation='eager')\n",
    ),
    (
        "SB110",
        "from transformers import AutoModel\nm = AutoModel.from_pretrained('m')\n"
        "m.set_attn_implementation('sdpa_paged')\n",
        "from transformers import AutoModel, AttentionInterface\n"
        "AttentionInterface.register('sdpa_paged', print)\n"
        "m = AutoModel.from_pretrained('m')\nm.set_attn_implementation('sdpa_paged')\n",
    ),
    (
        "SB111",
        f"{BOTH_WAYS}    def _update_causal_mask(self, mask, *args):\n        return None\n",
        f"{BOTH_WAYS}    def _update_causal_mask(self, mask, *args):\n        return None\n"
        "    def forward(self, x, mask):\n        return super().forward(x, self._update_causal_mask(mask))\n",
    ),
    (
        "SB111",
        f"{BOTH_WAYS}    def _update_causal_mask(self, mask, *args):\n        return None\n",
        f"{BOTH_WAYS}    def _init_weights(self, module):\n        return None\n",
    ),
    (
        "SB112",
        "from transformers import AutoModel\nAutoModel.from_pretrained('m', use_kernels=True)\n",
        "from transformers import AutoModel\nAutoModel.from_pretrained('m', use_kernels=False)\n"
        "call(use_kernels=True)\n",
    ),
    (
        "SB108",
        "from transformers import CLIPConfig\nCLIPConfig.from_text_vision_configs(1, 2)\n",
        "from transformers import CLIPConfig\nCLIPConfig.from_pretrained('m')\n",
    ),
    (
        "SB108",
        "from transformers import BertForSequenceClassification as B\n"
        "m = B.from_pretrained('m')\nprint(m.generation_config)\n",
        "from transformers import BertForSequenceClassification as B\n"
        "m = B.from_pretrained('m')\nif hasattr(m, 'generation_config'):\n    print(m.generation_config)\n",
    ),
    (
        "SB109",
        "import os\nos.environ['TRANSFORMERS_CACHE'] = '/c'\n",
        "import os\nos.environ['HF_HOME'] = '/c'\nprint(os.environ['TRANSFORMERS_CACHE'])\n",
    ),
    (
        "SB864",
        "from transformers import pipeline\npipeline('translation_en_to_fr', model='m')\n",
        "from transformers import pipeline\npipeline('text-generation', model='m')\n",
    ),
    *[
        (
            "SB913",
            f"from transformers import {name}\nm = {name}.from_pretrained('m')\n"
            f"out = m{method}(input_ids=i, pixel_values=p, image_grid_thw=g)\n",
            f"from transformers import {name}\nm = {name}.from_pretrained('m')\n"
            f"out = m{method}(input_ids=i, pixel_values=p, image_grid_thw=g{twin})\n",
        )
        for name, method, twin in (
            ("AutoModelForImageTextToText", "", ", mm_token_type_ids=t"),
            ("Qwen2_5_VLForConditionalGeneration", ".generate", ", **more"),
            ("Qwen3VLModel", ".forward", ", position_ids=q"),
        )
    ],
    (
        "SB913",
        "from transformers import Qwen2VLModel\nm = Qwen2VLModel.from_pretrained('m')\nm(i, video_grid_thw=g)\n",
        "from transformers import ColQwen2Model\nm = ColQwen2Model.from_pretrained('m')\nm(i, video_grid_thw=g)\n"
        "def f(visual, m):\n    return visual(image_grid_thw=g), m.get_image_features(p, image_grid_thw=g)\n",
    ),
    (
        "SB907",
        "import transformers\ndef f(m, a, x):\n"
        "    return m.generate(x, assistant_model=a, min_new_tokens=4)\n",
        ("(x, assistant_model=a, min_new_tokens=4)", "(x, assistant_model=None, min_new_tokens=4)"),
    ),
    (
        "SB908",
        "import transformers\ndef f(m, x):\n    return m.generate(x, num_beam_groups=2)\n",
        "import transformers\ndef f(m, x):\n    return m.generate(x, num_beam_groups=1, top_k=4)\n",
    ),
    (
        "SB908",
        "import transformers\ndef f(m, x):\n    return m.generate(x, penalty_alpha=0.6, top_k=4)\n",
        ("x, penalty_alpha=0.6, top_k=4", "x, penalty_alpha=0.6, top_k=4, trust_remote_code=True"),
    ),
    (
        "SB909",
        body("def store(self, path):\n    self.save_pretrained(path, safe_serialization=False)"),
        "import transformers\ndef f(adapter, path):\n"
        "    adapter.save_pretrained(path, safe_serialization=False)\n",
    ),
    (
        "SB909",
        "from transformers import AutoModel\ndef f(name, path):\n"
        "    model = AutoModel.from_pretrained(name)\n"
        "    model.save_pretrained(path, safe_serialization=False)\n",
        ("model.save_pretrained(path, safe_serialization=False)", "model.save_pretrained(path)"),
    ),
    (
        "SB911",
        "import transformers\ndef f(model):\n    model.gradient_checkpointing_enable()\n",
        ("_enable()", "_enable({'use_reentrant': False})"),
    ),
]
"""Finding, code that has it, and a twin that has not: the whole code, or what stands in place of a part of the other."""


KEPT = "def __init__(self, config):\n    super().__init__(config)\n    self.slopes = torch.arange(1, 5)\n"
CLEAN = {
    "a cache that an assert excludes": body(
        "def forward(self, x, past_key_values=None, use_cache=False):\n"
        "    assert past_key_values is None and not use_cache\n"
        "    if past_key_values:\n        x = x + past_key_values[0][0]\n    return x"
    ),
    "a tensor that becomes a buffer": body(
        KEPT + "    self.register_buffer('slopes', torch.arange(1, 5))\n    self.post_init()\n"
        "def forward(self, x):\n    return x * self.slopes"
    ),
    "a tensor of which the shape is read": body(
        KEPT + "    self.post_init()\ndef forward(self, x):\n    return x * self.slopes.shape[0]"
    ),
    "a tensor that forward makes": body(
        KEPT + "    self.post_init()\n"
        "def forward(self, x):\n    self.slopes = x + 1\n    return x * self.slopes"
    ),
    "a dataclass named config": HEAD
    + "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int\n"
    "class T:\n    def __init__(self, config: C):\n        self.a = config.pad_token_id\n",
    "a crop to a shorter length": body(
        "def forward(self, cache, n):\n    cache.crop(n - cache.get_seq_length())"
    ),
    "a cache that a flag decides about": body(
        "def forward(self, past_key_values, x):\n    done = past_key_values.is_updated\n"
        "    if past_key_values and done:\n        x = past_key_values.layers[0].keys\n    return x"
    ),
    "states of one's own under the cache's name": body(
        "def forward(self, past_key_values, x):\n    if past_key_values:\n"
        "        x = [state[:-1] for state in past_key_values]\n    return x"
    ),
    "a head that another model generates with": HEAD
    + "class TextForCausalLM(PreTrainedModel):\n    pass\n\n"
    "class M(PreTrainedModel, GenerationMixin):\n    def __init__(self, config):\n"
    "        super().__init__(config)\n        self.text = TextForCausalLM._from_config(config)\n"
    "        self.post_init()\n",
    "bases that only a run knows": HEAD
    + "def joined(base):\n    return type('Joined', (M, base), {})\n\n"
    + "class M(PreTrainedModel):\n    def __init__(self, config):\n"
    "        super().__init__(config)\n        self.scale = 1\n"
    "    def mask(self, x):\n        return super().get_extended_attention_mask(x, x.shape)\n",
    "a flag of the release": "import transformers\nfrom packaging import version\n"
    "old = version.parse(transformers.__version__) < version.parse('4.57')\n"
    "def f():\n    if old:\n        raise ValueError\n"
    "    from transformers.core_model_loading import WeightRenaming\n",
    "an imported flag of the release": "from .compat import is_transformers_ge_v5\n"
    "def f():\n    if is_transformers_ge_v5:\n"
    "        from transformers.core_model_loading import WeightRenaming\n",
    "an empty subscript": "x = y[()]\nfrom transformers.integrations.sdpa_attention import "
    "sdpa_attention_forward\nsdpa_attention_forward(x)\n",
}
"""Code that real packages have, and that is the same in every release."""


def twin_of(planted, twin):
    """Return the code of a twin."""
    if isinstance(twin, str):
        return twin
    part, other = twin
    assert planted.count(part) == 1, part
    return planted.replace(part, other)


def problems_of(tmp_path, text):
    path = tmp_path / "modeling_x.py"
    path.write_text(text, "utf-8")
    return lint([path]).problems


@pytest.mark.parametrize(
    ("code", "planted", "twin"), CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)]
)
def test_a_planted_line_is_found_and_its_twin_is_not(tmp_path, code, planted, twin):
    problems = problems_of(tmp_path, planted)
    assert code in {p.code for p in problems}
    for problem in problems:
        assert problem.message
        assert problem.releases
        assert problem.remedy
    assert code not in {p.code for p in problems_of(tmp_path, twin_of(planted, twin))}


@pytest.mark.parametrize(
    ("code", "planted"), [c[:2] for c in CASES], ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)]
)
def test_a_fix_is_exact_and_idempotent(tmp_path, code, planted):
    problems = problems_of(tmp_path, planted)
    fixable = [p for p in problems if p.edits]
    path = tmp_path / "modeling_x.py"
    count, _ = fix_files([path], lambda _: True, write=True)
    assert count == len(fixable)
    rest = lint([path]).problems
    assert [p.code for p in rest] == [p.code for p in problems if not p.edits]
    assert fix_files([path], lambda _: True, write=True)[0] == 0


@pytest.mark.parametrize("text", CLEAN.values(), ids=CLEAN)
def test_healthy_code_is_clean(tmp_path, text):
    assert problems_of(tmp_path, text) == []


def test_fixed_text(tmp_path):
    path = tmp_path / "m.py"
    path.write_bytes(
        b"import torch\r\nfrom transformers import PreTrainedModel\r\n"
        b"from transformers.utils import logging, LossKwargs  # kept\r\n"
        b"class M(PreTrainedModel):\r\n    def _init_weights(self, m):\r\n"
        b"        m.weight.data.normal_(\r\n            mean=0.0,  # \xc3\xa9\r\n            std=1)\r\n"
    )
    fix_files([path], lambda _: True, write=True)
    assert path.read_bytes().decode() == (
        "import torch\r\nfrom transformers import PreTrainedModel\r\n"
        "from transformers.utils import logging  # kept\r\n"
        "try:\r\n    from transformers.utils import TransformersKwargs as LossKwargs\r\n"
        "except ImportError:\r\n    from transformers.utils import LossKwargs\r\n"
        "class M(PreTrainedModel):\r\n    def _init_weights(self, m):\r\n"
        "        torch.nn.init.normal_(m.weight, \r\n            mean=0.0,  # é\r\n            std=1)\r\n"
    )


REST = "attention_mask=m, cache_position=position, past_key_values=p"


@pytest.mark.parametrize(
    ("call", "releases"),
    [
        # each range is that of the signatures in the sources of every minor release
        ("c, x, m, past_key_values=p", "4.48 to 5.3"),
        ("c, x, m, past_key_values, p", "4.48 to 5.8"),
        ("c, x, m, position, p", "4.48 to 4.52, and 5.4 and later"),
        (f"c, input_embeds=x, {REST}", "4.48 to 4.52, and 5.9 and later"),
        (f"c, inputs_embeds=x, {REST}", "4.48 to 5.1, and 5.9 and later"),
        ("c, inputs_embeds=x, attention_mask=m, past_key_values=p", "4.48 to 5.3"),
        (f"c, input_embeds=x, {REST}, layer_idx=0", "4.48 and later"),
    ],
)
def test_the_releases_of_a_mask_follow_from_its_arguments(tmp_path, call, releases):
    text = (
        "from transformers.masking_utils import create_causal_mask\n"
        f"def f(c, x, m, p, position, past_key_values):\n    return create_causal_mask({call})\n"
    )
    problems = [p for p in problems_of(tmp_path, text) if p.code == "SB603"]
    assert [str(p.releases) for p in problems] == [releases]


def test_a_layer_that_renames_a_keyword_takes_the_former_name_and_no_older_one():
    """5.24 renames ``past_key_values`` to ``cache``, and takes no ``past_key_value``."""
    layer = "transformers.models.llama.modeling_llama.LlamaDecoderLayer"
    assert str(layer_releases(layer, "past_key_value", holds=False)) == "5.0 and later"
    assert str(layer_releases(layer, "past_key_values", holds=False)) == "4.48 to 4.55"


def test_every_rule_has_a_planted_line():
    planted = {code for code, _, _ in CASES}
    elsewhere = {
        "SB324",
        "SB404",
        "SB504",
        "SB602",
        "SB604",
        "SB709",
        "SB725",
        "SB803",
        "SB804",
        "SB805",
    }
    assert {rule.code for rule in rules()} == planted | elsewhere


@pytest.mark.parametrize(
    ("comment", "hidden"),
    [
        ("# samebits: ignore[SB101]", True),
        ("# samebits: ignore", True),
        ("# samebits: ignore[SB2, SB1]", True),
        ("# samebits: ignore[SB102]", False),
        ("# ignore", False),
    ],
)
def test_a_comment_ignores(tmp_path, comment, hidden):
    text = f"from transformers.utils import LossKwargs  {comment}\n"
    assert (problems_of(tmp_path, text) == []) == hidden


def test_what_a_head_needs_without_a_method_of_its_own_is_said(tmp_path):
    method = (
        "    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **kw):\n"
        "        if past_key_values is not None:\n            input_ids = input_ids[:, -1:]\n"
        "        position_ids = kw.get('position_ids')\n"
        "        return {'input_ids': input_ids, 'position_ids': position_ids}\n"
    )
    takes = "    def forward(self, input_ids, position_ids=None{}):\n        pass\n"
    bare = f"{HEAD}class MForCausalLM(PreTrainedModel):\n{takes.format('')}{method}"
    whole = bare.replace("(PreTrainedModel)", "(PreTrainedModel, GenerationMixin)")
    whole = whole.replace("=None):", "=None, cache_position=None):", 1)

    def remedy(text):
        found = [p for p in problems_of(tmp_path, text) if p.code == "SB805"]
        return found[0].remedy

    assert "GenerationMixin" in remedy(bare)
    assert "cache_position=None" in remedy(bare)
    whole = f"from transformers import GenerationMixin\n{whole}"
    assert remedy(whole).endswith("in every case, or delete the method")


@pytest.mark.parametrize(
    ("otherwise", "words"),
    [
        ("", "RuntimeError about sizes"),
        ("        else:\n            position_ids = None\n", "drops them: padded rows"),
        ("        else:\n            position_ids = position_ids[:, -1:]\n", None),
    ],
)
def test_positions_that_a_method_drops_are_not_those_that_it_does_not_cut(
    tmp_path, otherwise, words
):
    """5.24.0: a GPT-2 with such an else generates other tokens for a row with left padding, and raises nothing."""
    text = (
        f"{HEAD}class M(PreTrainedModel):\n"
        "    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **kw):\n"
        "        mask = kw.get('attention_mask')\n"
        "        if past_key_values is not None:\n            input_ids = input_ids[:, -1:]\n"
        "        position_ids = kw.get('position_ids')\n"
        "        if mask is not None and position_ids is None:\n"
        "            position_ids = mask.long().cumsum(-1) - 1\n"
        f"{otherwise}"
        "        return {'input_ids': input_ids, 'position_ids': position_ids}\n"
    )
    found = [p.message for p in problems_of(tmp_path, text) if p.code == "SB805"]
    assert [words in message for message in found] == ([] if words is None else [True])


@pytest.mark.parametrize(
    ("config", "changed", "codes"),
    [
        ('{"sliding_window": 24}', (), ["SB725"]),
        ('{"sliding_window": 24, "layer_types": ["sliding_attention"]}', (), ["SB725"]),
        ('{"sliding_window": 24, "layer_types": ["full_attention"]}', (), []),
        ('{"sliding_window": null}', (), []),
        ('{"sliding_window": 24, "use_sliding_window": false}', (), []),
        ("{}", (), []),
        # the masks are the library's
        ('{"sliding_window": 24}', (".tril()", ""), []),
        ('{"sliding_window": 24}', ("class A", "import transformers.masking_utils\nclass A"), []),
        ('{"sliding_window": 24}', ("PreTrainedModel, Gen", "transformers.LlamaModel, Gen"), []),
    ],
)
def test_own_attention_beside_a_window_that_generate_keeps_is_found(
    tmp_path, config, changed, codes
):
    code = (
        f"{HEAD}import transformers\nclass A(nn.Module):\n"
        "    def forward(self, k, v, past_key_value=None):\n"
        "        k, v = past_key_value.update(k, v, 0)\n        return k @ v.tril()\n"
        "class M(PreTrainedModel, GenerationMixin):\n    def __init__(self, config):\n"
        "        super().__init__(config)\n        self.a = A()\n        self.post_init()\n"
        "    def forward(self, x, past_key_values=None, cache=None, cache_position=None):\n        return x\n"
    )
    code = code.replace(*changed) if changed else code
    (tmp_path / "modeling_x.py").write_text(code)
    (tmp_path / "config.json").write_text(config)
    problems = lint(python_files([tmp_path])).problems
    assert [problem.code for problem in problems] == codes


def test_a_table_that_config_json_switches_off_is_not_lost(tmp_path):
    text = body(
        "def __init__(self, config):\n    table = torch.ones(4) if config.has_table else None\n"
        "    self.register_buffer('table', torch.ones(4) if config.has_table else None, persistent=False)"
    )

    def codes(config):
        (tmp_path / "config.json").write_text(config)
        return [p.code for p in problems_of(tmp_path, text)]

    assert codes('{"has_table": false}') == []
    assert codes('{"has_table": true}') == codes("{}") == ["SB301"]


@pytest.mark.parametrize(
    ("signature", "found"),
    [
        ("self, dim, scale=None", []),
        ("self, dim, *, scale=None", []),
        ("self, dim, scale=512", ["SB301"]),
        ("self, scale, dim=None", ["SB301"]),
    ],
)
def test_a_table_that_only_an_option_makes_is_not_certainly_lost(tmp_path, signature, found):
    """xPos of a flash-attn rotary embedding, which no checkpoint has."""
    text = body(
        f"def __init__({signature}):\n    table = torch.ones(4) if scale is not None else None\n"
        "    self.register_buffer('table', table, persistent=False)"
    )
    assert [p.code for p in problems_of(tmp_path, text)] == found


def test_a_parameter_of_generate_is_read_with_its_default_and_use_cache_is_set(tmp_path):
    """As ChatGLM3, whose config.json has use_cache, and whose class hands it on to its base class."""
    text = HEAD + (
        "class C(PretrainedConfig):\n    def __init__(self, n=1, **kwargs):\n        super().__init__(**kwargs)\n"
        "class M(PreTrainedModel):\n    config_class = C\n    def __init__(self, config):\n"
        "        self.most = config.max_length\n        self.caches = config.use_cache\n"
    )

    def remedies():
        return [p.remedy for p in problems_of(tmp_path, text) if p.code == "SB201"]

    (most,) = remedies()  # without a config.json 4.48 has no use_cache either
    assert most.startswith("write getattr(config, 'max_length', …)")
    (tmp_path / "config.json").write_text('{"use_cache": true}')
    assert remedies() == [most, "set self.use_cache in C.__init__, with 4.48's default"]
    text = text.replace(
        "n=1, **kwargs):\n", "use_cache=True, **kw):\n        self.use_cache = use_cache\n"
    )
    assert remedies() == [most]


OWN_LOAD = (
    "@classmethod\ndef from_pretrained(cls, path, **kw):\n    model = cls(C.from_pretrained(path))\n"
    "    model.load_state_dict(torch.load(path))\n    return model\n"
)
"""As nomic-bert and the BERT of 2018 load."""
LOSING = (
    "def __init__(self, config):\n    super().__init__(config)\n"
    "    self.register_buffer('t', torch.arange(4), persistent=False)\n"
    "    self.kept = torch.ones(4).tolist()\n"
    "def _init_weights(self, module):\n    module.weight.data.normal_()\n"
    "def tie_weights(self):\n    self.head.weight = self.embed.weight\n"
)


def test_what_a_load_of_transformers_loses_is_not_lost_by_one_of_the_model_s_own(tmp_path):
    lost = {"SB301", "SB303", "SB305", "SB402", "SB403"}
    assert {p.code for p in problems_of(tmp_path, body(LOSING))} == lost
    assert problems_of(tmp_path, body(LOSING + OWN_LOAD)) == []
    ends = "    return super().from_pretrained(path)\n"
    handed_on = LOSING + OWN_LOAD.replace("    return model\n", ends)
    assert {p.code for p in problems_of(tmp_path, body(handed_on))} == lost
    finished = LOSING.replace("def _init", "    self.post_init()\ndef _init") + OWN_LOAD
    assert {p.code for p in problems_of(tmp_path, body(finished))} == {"SB403"}


@pytest.mark.parametrize(
    ("signature", "reads", "expected"),
    [
        ("path, **kw", 'kw.pop("torch_dtype", None)', ["SB324"]),
        ("path, torch_dtype=None", "torch_dtype", ["SB324"]),
        ("path, **kw", 'kw.get("dtype") or kw.get("torch_dtype")', []),
        ("path, dtype=None, **kw", 'dtype or kw.get("torch_dtype")', []),
        ("path, **kw", "None", []),
    ],
)
def test_an_own_load_that_only_knows_torch_dtype_is_a_problem(tmp_path, signature, reads, expected):
    own = OWN_LOAD.replace("path, **kw", signature).replace(
        "    return model\n",
        f"    dtype = {reads}\n    return model.to(dtype) if dtype else model\n",
    )
    assert [p.code for p in problems_of(tmp_path, body(own))] == expected
    handed_on = own.replace(
        "    return model", "    super().from_pretrained(path)\n    return model"
    )
    assert problems_of(tmp_path, body(handed_on)) == []


def test_a_config_class_of_the_library_is_a_problem_only_beside_a_namesake(tmp_path):
    code = "from transformers import BertModel\nclass M(BertModel):\n    pass\n"
    (tmp_path / "modeling_x.py").write_text(code)
    for name, codes in (("BertConfig", ["SB216"]), ("TinyConfig", [])):
        auto_map = f'{{"AutoConfig": "x.{name}", "AutoModel": "modeling_x.M"}}'
        (tmp_path / "config.json").write_text(f'{{"auto_map": {auto_map}}}')
        assert [p.code for p in lint(python_files([tmp_path])).problems] == codes


def test_other_models_beside_one_that_loads_itself_count_unless_config_json_leaves_them_out(
    tmp_path,
):
    other = body(LOSING).removeprefix(HEAD).replace("class M(", "class Vision(")
    text = body(LOSING + OWN_LOAD) + other

    def names():
        return {p.line for p in problems_of(tmp_path, text) if p.code == "SB301"}

    assert len(names()) == 1
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "modeling_x.Vision"}}')
    assert len(names()) == 1
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "modeling_x.M"}}')
    assert names() == set()


def test_files_of_a_folder_know_each_other(tmp_path):
    (tmp_path / "base.py").write_text(
        "from transformers import PreTrainedModel\nclass P(PreTrainedModel): ...\n"
    )
    (tmp_path / "m.py").write_text(
        "from .base import P\nclass M(P):\n    _tied_weights_keys = ['a']\n"
    )
    assert [p.code for p in lint(python_files([tmp_path])).problems] == ["SB401"]
    assert lint([Path(tmp_path / "m.py")]).problems == []


@pytest.mark.parametrize(
    ("name", "releases", "remedy"),
    [
        (
            "from_legacy_cache()",
            "5.0 and later",
            "write DynamicCache(), and cache.update(key, value, i)",
        ),
        ("to_legacy_cache()", "5.0 and later", "return the cache itself"),
        ("get_usable_length(1)", "4.54 and later", "use cache.get_seq_length(layer_idx)"),
        ("seen_tokens", "4.54 and later", "use cache.get_seq_length()"),
        ("_seen_tokens", "4.54 and later", "use cache.get_seq_length()"),
        ("key_cache[0]", "4.56 and later", "use cache.layers[i].keys"),
        ("get_max_length()", "4.49 to 5.12", "use the length that"),
        ("get_max_cache_shape()", "5.20 and later", "use the length that"),
        ("max_batch_size", "5.20 and later", "use the batch size that"),
    ],
)
def test_each_member_of_the_old_cache_has_its_releases_and_its_remedy(
    tmp_path, name, releases, remedy
):
    code = body(f"def forward(self, past_key_values):\n    return past_key_values.{name}")
    (tmp_path / "modeling_x.py").write_text(code)
    found = lint(python_files([tmp_path])).problems
    (problem,) = (p for p in found if p.code == "SB701")
    assert str(problem.releases) == releases
    assert problem.remedy.startswith(remedy)


def test_what_overwrites_loaded_weights_has_the_releases_that_were_measured(tmp_path):
    """Measured with a class of a module on 37 releases from 5.0.0 to 5.24.0; 5.2 looks at the module's weight."""
    text = (
        body("pass") + "    def _init_weights(self, module):\n        module.weight.data.zero_()\n"
    )
    (found,) = (p for p in problems_of(tmp_path, text) if p.code == "SB303")
    assert str(found.releases).startswith("5.0 to 5.1, and 5.3 to 5.12;")


@pytest.mark.parametrize("loop", ["name, p in module.named_parameters()", "p in self.parameters()"])
def test_what_writes_to_inner_modules_overwrites_them_in_every_later_release(tmp_path, loop):
    """Measured with Qwen-7B's own code from 5.0.0 to 5.24.0: its attention has the buffer of a causal mask."""
    text = (
        f"{body('pass')}    def _init_weights(self, module):\n        for {loop}:\n"
        "            p.data.normal_()\n"
    )
    (found,) = (p for p in problems_of(tmp_path, text) if p.code == "SB303")
    assert str(found.releases).startswith("5.0 and later")


@pytest.mark.parametrize(("base", "codes"), [("PreTrainedModel, ", ["SB305"]), ("Optimized, ", [])])
def test_a_class_that_another_package_loads_is_not_made_on_the_meta_device(tmp_path, base, codes):
    """The OpenVINO models of optimum-intel have only generate() from transformers."""
    text = (
        f"{HEAD}from optimum.modeling_base import Optimized\nfrom transformers import GenerationMixin\n"
        f"class M({base}GenerationMixin):\n    def __init__(self, config):\n"
        "        super().__init__(config)\n        self.t = torch.tensor(config.t)\n"
        "        self.post_init()\n    def forward(self, x):\n        return x * self.t\n"
        "class Whole(PreTrainedModel):\n    parts = {'m': M}\n"
    )
    shown = [p.code for p in problems_of(tmp_path, text)]
    assert [code for code in shown if code == "SB305"] == codes
