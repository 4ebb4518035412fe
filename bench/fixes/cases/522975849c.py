"""A model with an adapter in its own folder is loaded from this folder."""

import peft
import transformers
from saved import edit
from sizes import IDS, TEXT

CASE = {
    "packages": ("peft",),
    "symptom": "a folder with a model and its adapter is not loaded: the weights are looked up under the name in the adapter's config",
    "failure": "couldn't find them in the cached files",
    "says": (r"nobody/base-of-the-adapter",),
    "source": ("maybe_load_adapters", "integrations/peft.py", "auto_factory.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama, and beside it an adapter that names a base of the hub."""
    config = transformers.LlamaConfig(**TEXT, **IDS)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    adapter = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    peft.get_peft_model(model, adapter).save_pretrained(folder)
    edit(
        folder,
        "adapter_config.json",
        base_model_name_or_path="nobody/base-of-the-adapter",
        task_type="CAUSAL_LM",
    )


def observe(folder: str) -> object:
    """Return whether the model has its adapter, or the exception."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return {"adapter": any("lora" in name for name, _ in model.named_parameters())}
