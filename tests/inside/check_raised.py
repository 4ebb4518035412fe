"""model.raised: parameters that keep their dtype and compute in a wider one."""

from unittest import mock

import torch
import transformers
from samebits_probe.model import precision, raised

WIDTHS = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128}
CONFIGS = {
    "llama": WIDTHS,
    "gpt2": GPT2,
    "mixtral": WIDTHS | {"num_local_experts": 4},
    "qwen2_moe": WIDTHS
    | {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64,
    },
    "mamba": {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 128, "state_size": 8},
    "bloom": {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128},
    "opt": WIDTHS | {"ffn_dim": 96, "word_embed_proj_dim": 64},
}
IDS = torch.arange(3, 14)[None]


def all_raised():
    """Raise every parameter, and convert factors of products in small parts."""
    return mock.patch.multiple(raised, MIN_BYTES=1, PART_BYTES=1 << 13)


def tiny(name, dtype=torch.float32):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **CONFIGS[name])
    return transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()


def logits(model, dtype, native):
    with torch.no_grad(), precision.arithmetic_in(dtype, native):
        result = model(IDS).logits
        steps = model.generate(
            IDS, max_new_tokens=3, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
    return torch.cat([result.flatten(), *(step.flatten() for step in steps.logits)])


def test_a_raised_model_computes_what_a_copy_computes():
    for name in CONFIGS:
        for native in (torch.float32, torch.bfloat16):
            model = tiny(name, native)
            for dtype in {torch.float64, torch.float32} - {native}:
                copied = logits(precision.copy_in(dtype, model, {}), dtype, native)
                with all_raised():
                    twin = precision.copy_in(dtype, model, {}, shares=True)
                    kinds = {type(parameter) for parameter in twin.parameters()}
                    computed = logits(twin, dtype, native)
                assert kinds == {raised.Raised}, (name, kinds)
                assert computed.dtype == copied.dtype == dtype, name
                accuracy = 1e-11 if dtype == torch.float64 else 1e-4
                assert torch.allclose(computed, copied, accuracy, accuracy), (name, native, dtype)


def test_a_raised_model_has_no_values_of_its_own():
    model = tiny("llama", torch.bfloat16)
    with all_raised():
        twin = precision.copy_in(torch.float64, model, {}, shares=True)
    pairs = list(zip(twin.parameters(), model.parameters(), strict=True))
    assert all(a.values.data_ptr() == b.data_ptr() for a, b in pairs)
    assert all((a.shape, a.dtype) == (b.shape, torch.float64) for a, b in pairs)


def test_small_parameters_are_copied():
    model = tiny("llama")
    twin = precision.copy_in(torch.float64, model, {}, shares=True)
    assert {type(parameter) for parameter in twin.parameters()} == {torch.nn.Parameter}
    assert {parameter.dtype for parameter in twin.parameters()} == {torch.float64}


def test_tied_parameters_stay_one():
    model = tiny("gpt2")
    with all_raised():
        twin = precision.copy_in(torch.float64, model, {}, shares=True)
    assert twin.lm_head.weight is twin.transformer.wte.weight


def test_the_finer_side_is_rounded_to_the_coarser_ones_dtype():
    model = tiny("llama")
    name = "lm_head.weight"
    with all_raised():
        twin = precision.copy_in(torch.float64, model, {name: "bfloat16"}, shares=True)
    assert torch.equal(twin.lm_head.weight + 0, model.lm_head.weight.bfloat16().double())
    assert twin.model.norm.weight.values.data_ptr() == model.model.norm.weight.data_ptr()


def test_code_that_writes_to_a_parameter_is_refused_and_the_model_keeps_its_values():
    linear = torch.nn.Linear(8, 8)
    before = linear.weight.detach().clone()
    with all_raised():
        twin = precision.copy_in(torch.float64, linear, {}, shares=True)
    refused = []
    for write in (
        lambda: twin.weight.mul_(2),
        lambda: twin.weight[0].fill_(0),
        lambda: torch.add(twin.bias, 1, out=twin.bias),
        lambda: twin.weight.t().copy_(before),
    ):
        try:
            with torch.no_grad():
                write()
        except raised.ParameterWritten as error:
            refused.append(str(error))
    assert len(refused) == 4
    assert torch.equal(linear.weight, before)


def test_products_in_parts_are_those_of_whole_factors():
    torch.manual_seed(1)
    weight, left, bias = torch.randn(40, 24), torch.randn(5, 24).double(), torch.randn(40)
    experts, rows = torch.randn(6, 24, 16), torch.randn(6, 3, 24).double()
    whole = weight.double()
    with all_raised():
        raised.PART_BYTES = 512
        wide, wide_bias = (raised.Raised(t, torch.float64) for t in (weight, bias))
        wide_experts = raised.Raised(experts, torch.float64)
        results = [
            (left @ wide.T, left @ whole.T),
            (torch.nn.functional.linear(left, wide, wide_bias), left @ whole.T + bias.double()),
            (torch.bmm(rows, wide_experts), torch.bmm(rows, experts.double())),
            (rows[0] @ wide_experts[3], rows[0] @ experts[3].double()),
            (wide @ left.T, whole @ left.T),
            (left[:1] @ wide.T, left[:1] @ whole.T),
            (left[:0] @ wide.T, left[:0] @ whole.T),
            (left @ raised.Raised(weight.T.contiguous(), torch.float64), left @ whole.T),
        ]
        memory = max(part.numel() for part in raised._MEMORY.values())
    assert memory * 8 < whole.numel() * 8 / 10
    for computed, exact in results:
        assert torch.allclose(computed, exact, 1e-13, 1e-13)


def test_lookups_convert_only_their_rows():
    table = torch.randn(1000, 16).bfloat16()
    wide = raised.Raised(table, torch.float64)
    ids = torch.tensor([3, 1, 999])
    for rows in (torch.nn.functional.embedding(ids, wide), wide[ids], wide.index_select(0, ids)):
        assert rows.dtype == torch.float64
        assert type(rows) is torch.Tensor
        assert torch.equal(rows, table[ids].double())


def test_the_working_memory_is_that_of_the_largest_parameter_twice():
    model = torch.nn.Sequential(torch.nn.Linear(600, 600, bias=False), torch.nn.Linear(3, 3))
    assert raised.working_bytes(model, torch.float64) == (2 * 600 * 600 + 9 + 3) * 8
