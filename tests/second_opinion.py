"""A second implementation of the verdicts, on purpose short and without samebits.

Inside a stack:   python second_opinion.py dump OUT.pt JOBS.json
With any torch:   python second_opinion.py compare ONE.pt OTHER.pt

JOBS.json maps a model to {"path", "dtype", "prompts": {name: {"input_ids", "attention_mask"}},
"greedy"}. The comparison prints one JSON object: model -> {weights, buffers, logits, greedy} ->
equal or not. It loads through the auto classes, compares the bytes of state dicts name by name,
and knows nothing of checkpoints, hooks or hashes.
"""

import json
import sys

import torch


def load(path, dtype):
    import transformers

    name = json.load(open(f"{path}/config.json"))["architectures"][0]
    model = getattr(transformers, name).from_pretrained(path, torch_dtype=getattr(torch, dtype))
    return model.eval()


def dump(job):
    torch.set_num_threads(1)
    model = load(job["path"], job["dtype"])
    state = model.state_dict()
    buffers = {k: v.clone() for k, v in model.named_buffers() if "original_inv_freq" not in k}
    logits, greedy = {}, {}
    for name, given in job["prompts"].items():
        feed = {key: torch.tensor(value) for key, value in given.items()}
        with torch.no_grad():
            rows = model(**feed).logits
        real = feed.get("attention_mask", torch.ones_like(feed["input_ids"])).bool()
        logits[name] = rows[real] if rows.shape[1] == real.shape[1] else rows
        if job["greedy"] and type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
            start = feed["input_ids"].shape[1]
            feed.pop("decoder_input_ids", None)
            ids = model.generate(**feed, max_new_tokens=job["greedy"], do_sample=False)
            greedy[name] = ids if model.config.is_encoder_decoder else ids[:, start:]
    return {"weights": state, "buffers": buffers, "logits": logits, "greedy": greedy}


def same_bits(one, other):
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    flat = [t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)]
    return bool((flat[0] == flat[1]).all())


def same(one, other, *, shared_only=False):
    """Buffers come and go between releases without a meaning: those of both are compared."""
    if one.keys() != other.keys() and not shared_only:
        return False
    return all(same_bits(one[k], other[k]) for k in one.keys() & other.keys())


def main(command, *files):
    if command == "dump":
        out, jobs = files
        torch.save({name: dump(job) for name, job in json.load(open(jobs)).items()}, out)
        return
    one, other = (torch.load(file) for file in files)
    verdicts = {
        model: {
            signal: same(one[model][signal], other[model][signal], shared_only=signal == "buffers")
            for signal in one[model]
        }
        for model in one
    }
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(*sys.argv[1:])
