"""SB3xx: rules for loading: tensors left unwritten, overwritten, drawn at random, cast, renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.case import weights_of
from samebits.findings.rule import Rule, Sighting, raised
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.capture import Capture
    from samebits.records.provenance import Provenance

_MEANINGS = {
    "derived": "that of a model newly built from the config",
    "unexplained": "neither that of the checkpoint nor that of a newly built model",
}
_MAX_SHOWN = 2
"""Renamed tensors that the evidence of SB309 names."""
_RANDOM = "two loads with two seeds give different values"
_UNWRITTEN = "it still holds the bytes with which the memory was filled before the load"


def _unwritten_part(provenance: Provenance) -> str:
    if provenance.source == "partly written":
        return f"{provenance.n_unwritten:,} of its elements still hold the bytes of the fill"
    return _UNWRITTEN


def _unwritten_buffers(case: Case) -> Iterator[Sighting]:
    for name, tensor in case.tensors():
        if tensor.kind == "non-persistent buffer" and tensor.written in ("none", "partly"):
            evidence = [_unwritten_part(tensor)]
            if tensor.fresh == "differs":
                evidence.append("a model newly built from the config has different bytes there")
            evidence.append(
                "loading reported no missing key, because the buffer is not in the state_dict"
            )
            evidence += [
                f"{i.file}:{i.line}: {i.code} — not a remedy: it tests what memory happens to hold"
                for i in case.idioms("truth of a buffer's values")
            ]
            yield Sighting(name, tuple(evidence))


def _unwritten_parameters(case: Case) -> Iterator[Sighting]:
    load = case.capture.signals.load
    missing = load.missing_keys if load is not None else ()
    for name, tensor in case.tensors():
        if tensor.kind == "non-persistent buffer" or tensor.written not in ("none", "partly"):
            continue
        report = (
            "loading reported it as a missing key"
            if name in missing
            else "loading did not report it as a missing key"
        )
        yield Sighting(name, (_unwritten_part(tensor), report))


def _overwritten_tensors(case: Case) -> Iterator[Sighting]:
    """Find tensors that the checkpoint has and that hold random values after loading."""
    for name, tensor in case.tensors():
        if (
            tensor.source == "reinitialised"
            and tensor.ignored
            and not _is_outside_state_dict(tensor)
        ):
            yield Sighting(name, (_different_bytes(name, tensor), _RANDOM, *_init_weights(case)))


def _ignored_tensors(case: Case) -> Iterator[Sighting]:
    """Find tensors that the checkpoint has and loading leaves to values that the model computes."""
    for name, tensor in case.tensors():
        if not tensor.ignored:
            continue
        evidence = [_different_bytes(name, tensor)]
        if tensor.source in _MEANINGS:
            evidence.append(f"its value is {_MEANINGS[tensor.source]}")
        elif tensor.source == "reinitialised" and _is_outside_state_dict(tensor):
            evidence.append(_RANDOM)
        else:
            continue
        if _is_outside_state_dict(tensor):
            evidence += [
                "the buffer is not in the state_dict",
                _unexpected_key(case, tensor.stored_as or name),
            ]
        yield Sighting(name, tuple(evidence))


def _is_outside_state_dict(tensor: Provenance) -> bool:
    """Return True if the tensor is in no state_dict, so that no load reads it from a file."""
    return tensor.kind == "non-persistent buffer"


def _different_bytes(name: str, tensor: Provenance) -> str:
    place = f"as {name}" if tensor.stored_as else "under that name"
    return (
        f"the checkpoint has {tensor.stored_as or name}, and the model has different bytes {place}"
    )


def _unexpected_key(case: Case, key: str) -> str:
    load = case.capture.signals.load
    reported = load is not None and key in load.unexpected_keys
    return f"loading {'reported' if reported else 'did not report'} it as an unexpected key"


def _init_weights(case: Case) -> Iterator[str]:
    for fact in case.classes:
        for call in fact.calls.get("_init_weights", ()):
            if call.endswith((".data.normal_", ".data.zero_", ".data.fill_", ".data.uniform_")):
                yield (
                    f"{fact.file}: {fact.name}._init_weights calls {call}, "
                    "which overwrites loaded tensors"
                )


def _missing_parameters(case: Case) -> Iterator[Sighting]:
    """Find parameters that the checkpoint lacks and that are drawn at random at every load."""
    load = case.capture.signals.load
    missing = set(load.missing_keys) if load is not None else set()
    drawn = [n for n, t in case.tensors() if t.source == "reinitialised" and n in missing]
    for name in drawn:
        yield Sighting(
            name,
            (
                f"the checkpoint does not contain {name}, and loading reported it as missing",
                _RANDOM,
            ),
        )


def _default_dtype(case: Case) -> Iterator[Sighting]:
    candidate = case.capture.signals.integrity
    reference = case.reference.signals.integrity if case.reference is not None else None
    if (
        candidate is None
        or reference is None
        or not candidate.default_dtypes
        or not reference.default_dtypes
    ):
        return
    candidate_dtypes, reference_dtypes = (
        set(candidate.default_dtypes),
        set(reference.default_dtypes),
    )
    if candidate_dtypes != reference_dtypes and case.reference is not None:
        yield Sighting(
            "from_pretrained without dtype",
            (
                f"{case.capture.cell.stack}: parameters in {', '.join(sorted(candidate_dtypes))}",
                f"{case.reference.cell.stack}: parameters in {', '.join(sorted(reference_dtypes))}",
                "samebits passes a dtype to every load, so no verdict depends on this",
            ),
        )


def _round_trip(case: Case) -> Iterator[Sighting]:
    integrity = case.capture.signals.integrity
    trip = integrity.round_trip if integrity is not None else None
    if trip is None or trip.outcome not in ("differs", "save failed", "load failed"):
        return
    evidence = [f"save_pretrained, then from_pretrained in the same stack: {trip.outcome}"]
    if trip.reason:
        evidence.append(trip.reason)
    if trip.tensors:
        evidence.append(f"different bytes: {', '.join(trip.tensors[:6])}")
    if trip.config:
        evidence.append(f"config: {', '.join(trip.config[:6])}")
    if trip.logits != "not compared":
        evidence.append(f"logits: {trip.logits}")
    yield Sighting("save_pretrained", tuple(evidence))


def _renamed_tensors(case: Case) -> Iterator[Sighting]:
    """Find tensors that have the file's name in the reference's memory and a different one here."""
    if case.reference is None:
        return
    reference_names, candidate_names = (
        _names_in_memory(case.reference),
        _names_in_memory(case.capture),
    )
    renamed = [
        tensor
        for tensor, name in reference_names.items()
        if name == tensor and tensor in candidate_names
    ]
    renamed = [tensor for tensor in renamed if candidate_names[tensor] != tensor]
    if renamed:
        examples = (f"{tensor} is in {candidate_names[tensor]}" for tensor in renamed[:_MAX_SHOWN])
        count = (
            f"{len(renamed)} of {len(reference_names)} tensors of the checkpoint "
            "have a different name in memory"
        )
        yield Sighting("names in memory", (count, *examples))


def _names_in_memory(capture: Capture) -> dict[str, str]:
    """Return tensor of the file -> its name in memory, preferring the same name."""
    names_in_memory: dict[str, str] = {}
    weights = weights_of(capture)
    names = set(weights) | {alias for facts in weights.values() for alias in facts.aliases}
    for name, facts in weights.items():
        for piece in facts.pieces if facts.origin == "loaded" else ():
            memory_name = piece.tensor if piece.tensor in names else name
            names_in_memory.setdefault(piece.tensor, memory_name)
    return names_in_memory


RULES = (
    Rule(
        RuleText(
            code="SB301",
            name="a non-persistent buffer is never written",
            kind="silent",
            looks_for="a buffer outside the state_dict that still holds the bytes with which "
            "samebits filled the memory before the load: a chosen byte in the first load, NaN in "
            "the second. The values themselves are not judged",
            cause="5.x builds the model on the meta device. A buffer registered with "
            "`persistent=False` loses the values that __init__ computed, and no checkpoint "
            "contains it. Loading then allocates it with torch.empty_like, so it holds whatever "
            "the memory held before. Only modules that the library's own _init_weights recognises "
            "(its rotary embeddings) are computed again. No exception and no warning appears, and "
            "the model computes wrong numbers. In a fresh process such memory is often zero, "
            "which hides the defect. Affected: custom models that compute a table such as "
            "inv_freq in __init__ and keep it in a non-persistent buffer.",
            remedy="Do not use a buffer. Compute the table in forward from plain attributes "
            "such as self.config; compute it on the CPU and then move it, so that it is the same "
            "on every device. If the table is too large for that, write it again in "
            "_init_weights: 5.x calls this method for every module that the checkpoint did not "
            "fill. Call super()._init_weights(module) there, or the library's own rotary "
            "embeddings stay unwritten. A test of the values, such as `if not "
            "self.inv_freq.any()`, is not a remedy: it works only if the memory happens to be "
            "zero. Both remedies give the same bits in all releases (tests/custom). Users of a "
            "stock model: use another release, or write the values into the buffer after loading.",
            example="class MyRotaryEmbedding(nn.Module):\n"
            "    def __init__(self, config):\n"
            "        super().__init__()\n"
            "        self.config = config  # no buffer\n\n"
            "    def forward(self, x, position_ids):\n"
            "        inv_freq = rope_frequencies(self.config).to(x.device)  # computed on the CPU\n"
            "        ...",
            releases="5.0.0 to 5.23.0, all that were measured. 4.x keeps what __init__ computes.",
            references=(
                "https://github.com/huggingface/transformers/issues/48892",
                "https://github.com/huggingface/transformers/issues/45902",
                "transformers/modeling_utils.py, _move_missing_keys_from_meta_to_device",
            ),
        ),
        _unwritten_buffers,
    ),
    Rule(
        RuleText(
            code="SB302",
            name="a parameter is never written",
            kind="silent",
            looks_for="a parameter or persistent buffer that still holds the bytes with which "
            "samebits filled the memory before the load",
            cause="The checkpoint does not contain this tensor, and _init_weights does not "
            "set it. Since 4.53 the value from __init__ is lost while the model loads: the module "
            "is made on the meta device, and missing tensors come from torch.empty. The model "
            "then computes with whatever the memory held. Affected: custom models with a "
            "parameter that was added after the checkpoint was saved.",
            remedy="Initialise the tensor in _init_weights, or store it in the checkpoint.",
            example="def _init_weights(self, module):\n"
            "    super()._init_weights(module)\n"
            "    if isinstance(module, MyScale):\n"
            "        torch.nn.init.constant_(module.scale, 3.0)",
            releases="4.53 and later. 4.48 keeps the value from __init__.",
            references=("transformers/modeling_utils.py, _initialize_missing_keys",),
        ),
        _unwritten_parameters,
    ),
    Rule(
        RuleText(
            code="SB303",
            name="`_init_weights` overwrites loaded weights",
            kind="silent",
            looks_for="a tensor that is in the checkpoint and that is different in the model, "
            "with different values in two loads with two seeds",
            cause="5.x calls _init_weights for every module after loading. The functions of "
            "torch.nn.init skip tensors that are already loaded. A direct write such as "
            "module.weight.data.normal_() does not, so it replaces the loaded weights by random "
            "numbers. loading_info reports nothing. Affected: custom models whose _init_weights "
            "writes to `.data`, as was usual in 4.x.",
            remedy="Use torch.nn.init in _init_weights, never `.data.normal_()`.",
            example="torch.nn.init.normal_(module.weight, mean=0.0, std=self.config.initializer_range)",
            releases="Remote code: 5.0 and 5.1. Classes defined in the user's own program: also "
            "5.6 and 5.9.",
            references=(
                "https://github.com/huggingface/transformers/issues/46620",
                "https://github.com/huggingface/transformers/issues/46632",
            ),
        ),
        _overwritten_tensors,
    ),
    Rule(
        RuleText(
            code="SB304",
            name="a parameter is missing from the checkpoint and gets random values",
            kind="silent",
            looks_for="a parameter that loading reports as missing and that differs between two "
            "loads with two seeds",
            cause="The checkpoint does not contain this parameter, so every load gives it new "
            "random values. Usual reasons: the checkpoint was saved from another class or under "
            "another tensor name; the parameter was tied when it was saved, and this release does "
            "not tie it (SB404); or this release builds the class with different modules than the "
            "release that saved it (zamba2's adapters in 5.2). Affected: everyone who loads this "
            "checkpoint in this release.",
            remedy="Load the class from which the checkpoint was saved, rename the tensor in "
            "the file, declare the tie, or initialise the parameter to a constant.",
            releases="all",
            references=(),
        ),
        _missing_parameters,
    ),
    Rule(
        RuleText(
            code="SB305",
            name="`__init__` needs the values of tensors, which have none on the meta device",
            kind="crash",
            looks_for="an exception of item(), numpy(), a copy or a nested from_pretrained on a "
            "meta tensor, while the model loads",
            cause="Since 5.0 from_pretrained runs __init__ under `torch.device('meta')`. "
            "Tensors made there have a shape and no values, so code that reads a value raises. "
            "Affected: custom models that call `.item()`, `.numpy()` or `.to('cpu')` on a tensor "
            "in __init__, or from_pretrained of a sub-model.",
            remedy="In __init__ compute constants with Python or numpy instead of torch, and "
            "build sub-models with from_config. Move code that needs values to _init_weights or "
            "to the first forward.",
            example="rates = [float(x) for x in numpy.linspace(0, drop_rate, depth)]",
            releases="5.0.0 and later. torch.linspace(…).item() works again by 5.6.2.",
            references=("transformers/initialization.py, meta_device_safe_creation_ops",),
        ),
        raised(
            "RuntimeError|TypeError|NotImplementedError",
            r"Tensor\.item\(\) cannot be called on meta tensors|can't convert meta device type tensor"
            r"|with a meta device context manager|Cannot copy out of meta tensor",
        ),
    ),
    Rule(
        RuleText(
            code="SB306",
            name="the default dtype is no longer float32",
            kind="silent",
            looks_for="a load without dtype whose parameters have a different dtype than in the "
            "reference",
            cause="Up to 4.57 from_pretrained without a dtype loads in float32. 5.0 made "
            "`dtype='auto'` the default: the model gets the dtype of config.json or of the "
            "weights. A bfloat16 checkpoint is then computed in bfloat16, with less precision and "
            "without a warning. Affected: all callers of from_pretrained that do not pass a "
            "dtype.",
            remedy="Pass torch_dtype=torch.float32 (or the dtype that you want) in every call.",
            releases="4.x: float32. 5.0.0 and later: the dtype of config.json, else that of the "
            "weights.",
            references=("transformers/modeling_utils.py, from_pretrained",),
        ),
        _default_dtype,
    ),
    Rule(
        RuleText(
            code="SB307",
            name="the model changes when it is saved and loaded again",
            kind="silent",
            looks_for="save_pretrained and from_pretrained in the same release that fail, or that "
            "change tensors, config values or logits",
            cause="Known causes: a tensor is left out of the file, because it is declared as "
            "tied and is not tied in memory; a tensor is in the file and is not loaded (SB308); a "
            "config field is not saved, or a default overrides it when it is read; or the save "
            "refuses tensors that share memory. The evidence says what changed, not why. "
            "Affected: everyone who saves this model in this release, for example after "
            "fine-tuning.",
            remedy="Own code: declare ties in _tied_weights_keys as a dict (SB401), and set "
            "every config field in __init__. Stock models: keep the original files and copy the "
            "original config.json to the saved weights, or save with a release that loads the "
            "model unchanged.",
            releases="depends on the model",
            references=(),
        ),
        _round_trip,
    ),
    Rule(
        RuleText(
            code="SB308",
            name="a tensor of the checkpoint is not loaded",
            kind="silent",
            looks_for="a tensor that is in the checkpoint and that has different bytes in the "
            "model, the same ones in every load. Bytes are compared in the model's dtype. A table "
            "that the file stores in a smaller float is compared in the file's dtype. Shapes are "
            "not compared",
            cause="Two causes are known. Something replaces the tensor after it was loaded, "
            "such as a tie that is made too late: in 4.48 _tie_weights of roberta and albert sets "
            "the head's bias to one that was never loaded, if the checkpoint has the dtype asked "
            "for. Or the tensor is a buffer with `persistent=False`: the model computes it and "
            "ignores the file. Old BERT checkpoints contain such a buffer, position_ids. It is "
            "reported only if its bytes differ from those that the model computes. Affected: "
            "users of such checkpoints; the model runs with a value that is not the trained one.",
            remedy="After loading, compare the tensor with the file and copy it by hand, or "
            "use a release that loads it. If the model is meant to compute the buffer, remove the "
            "tensor from the file.",
            example="model.lm_head.bias.data.copy_(file_tensors['lm_head.bias'])",
            releases="roberta and albert: 4.48, if the file has the dtype asked for (measured "
            "here). Buffers outside the state_dict: all releases; 5.2 reports position_ids as an "
            "unexpected key, and 4.48, 4.57 and 5.23 do not.",
            references=("docs/found.md",),
        ),
        _ignored_tensors,
    ),
    Rule(
        RuleText(
            code="SB309",
            name="tensors of the checkpoint have different names in memory",
            kind="api",
            looks_for="tensors whose names in the reference's model are those of the checkpoint, "
            "and that are renamed or part of a larger tensor in this release. The numbers are "
            "compared by the checkpoint's names and may be identical",
            cause="Newer releases rename or fuse modules, and translate the names when they "
            "load and save. From 5.0 on experts.N.w1 and w3 are experts.gate_up_proj; by 5.15 "
            "gpt_neox's embed_out is lm_head. The numbers are right. Affected: code that looks up "
            "a module or parameter by its name, such as LoRA targets, quantisation lists or "
            "model.embed_out.",
            remedy="Loading and saving need no change. For heads call get_output_embeddings(). "
            "For experts look for the fused name first, then for the old one.",
            example="head = model.get_output_embeddings()",
            releases="Mixtures of experts: 5.0.0 and later. gpt_neox: 5.15 and later.",
            references=(
                "transformers/core_model_loading.py, WeightConverter",
                "transformers/conversion_mapping.py",
            ),
        ),
        _renamed_tensors,
    ),
)
