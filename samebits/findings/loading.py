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
    "derived": "what a model made fresh from the config holds there",
    "unexplained": "neither from the checkpoint nor as a fresh model has it",
}
_MAX_SHOWN = 2
"""Renamed tensors that the evidence of SB309 names."""
_RANDOM = "two loads under two seeds give two results"
_UNWRITTEN = "it still holds what memory was filled with before the load"


def _unwritten_part(provenance: Provenance) -> str:
    if provenance.source == "partly written":
        return f"{provenance.n_unwritten:,} of its elements still hold what memory was filled with"
    return _UNWRITTEN


def _unwritten_buffers(case: Case) -> Iterator[Sighting]:
    for name, tensor in case.tensors():
        if tensor.kind == "non-persistent buffer" and tensor.written in ("none", "partly"):
            evidence = [_unwritten_part(tensor)]
            if tensor.fresh == "differs":
                evidence.append("a model made fresh from the config holds other bytes there")
            evidence.append("loading reported no missing key: such buffers are in no state_dict")
            evidence += [
                f"{i.file}:{i.line}: {i.code} — no repair: it asks what the memory happens to hold"
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
            "it is among the missing keys" if name in missing else "no key was reported missing"
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
            evidence.append(f"what it holds is {_MEANINGS[tensor.source]}")
        elif tensor.source == "reinitialised" and _is_outside_state_dict(tensor):
            evidence.append(_RANDOM)
        else:
            continue
        if _is_outside_state_dict(tensor):
            evidence += [
                "such a buffer is in no state_dict",
                _unexpected_key(case, tensor.stored_as or name),
            ]
        yield Sighting(name, tuple(evidence))


def _is_outside_state_dict(tensor: Provenance) -> bool:
    """Return True if the tensor is in no state_dict, so that no load reads it from a file."""
    return tensor.kind == "non-persistent buffer"


def _different_bytes(name: str, tensor: Provenance) -> str:
    place = f"as {name}" if tensor.stored_as else "under that name"
    return f"the checkpoint has {tensor.stored_as or name}, and the model holds other bytes {place}"


def _unexpected_key(case: Case, key: str) -> str:
    load = case.capture.signals.load
    reported = load is not None and key in load.unexpected_keys
    return f"loading {'reported' if reported else 'did not report'} it as an unexpected key"


def _init_weights(case: Case) -> Iterator[str]:
    for fact in case.classes:
        for call in fact.calls.get("_init_weights", ()):
            if call.endswith((".data.normal_", ".data.zero_", ".data.fill_", ".data.uniform_")):
                yield f"{fact.file}: {fact.name}._init_weights calls {call}, which marks nothing"


def _missing_parameters(case: Case) -> Iterator[Sighting]:
    """Find parameters that the checkpoint lacks and that are drawn at random at every load."""
    load = case.capture.signals.load
    missing = set(load.missing_keys) if load is not None else set()
    drawn = [n for n, t in case.tensors() if t.source == "reinitialised" and n in missing]
    for name in drawn:
        yield Sighting(
            name,
            (
                f"the checkpoint has no {name}; loading reported it missing",
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
                "samebits asks for a dtype explicitly, so no verdict here follows from it",
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
        evidence.append(f"other bytes: {', '.join(trip.tensors[:6])}")
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
            f"{len(renamed)} of {len(reference_names)} tensors of the file: "
            "no attribute of their names here"
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
            looks_for="a buffer outside the state_dict that still holds the bytes that memory was "
            "filled with before the load: NaN in a second, poisoned load and a chosen byte in the "
            "first. What the value looks like plays no part",
            cause="5.x builds the model on the meta device. What __init__ computes for a buffer "
            "registered with persistent=False is thrown away, no checkpoint entry replaces it, and "
            "loading allocates it with torch.empty_like. Only modules that the library's own "
            "_init_weights recognises (its rotary embeddings) are computed again. In a fresh "
            "process such memory is often zero, which is why it is reported as 'zeroed'.",
            remedy="Have no such buffer: compute the table in forward from plain attributes such as "
            "self.config, on the CPU and then moved, so that no loader can lose it and no other "
            "device rounds it. A table too large for that: write it again in _init_weights, which "
            "5.x calls for every module that no file filled, and call super()._init_weights(module) "
            "there, or the library's own rotary embeddings lose theirs. Asking for the values is no "
            "repair: `if not self.inv_freq.any()` works only while the memory happens to be zero. "
            "Both remedies are run in all releases by this project's tests (tests/custom). Users of a "
            "stock model: another release, or the module's own formula written into the buffer after "
            "loading.",
            example="class MyRotaryEmbedding(nn.Module):\n"
            "    def __init__(self, config):\n"
            "        super().__init__()\n"
            "        self.config = config  # no buffer\n\n"
            "    def forward(self, x, position_ids):\n"
            "        inv_freq = rope_frequencies(self.config).to(x.device)  # computed on the CPU\n"
            "        ...",
            releases="5.0.0 to 5.23.0, all that were measured; 4.x computes it in __init__ and "
            "keeps it",
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
            looks_for="a parameter or persistent buffer that still holds the bytes that memory was "
            "filled with before the load",
            cause="The checkpoint has no such tensor, and since 4.53 the value that __init__ gave "
            "it does not survive loading: the module is made on the meta device and its missing "
            "tensors come from torch.empty. _init_weights has no branch that writes this one.",
            remedy="Initialise it in _init_weights, or store it in the checkpoint.",
            example="def _init_weights(self, module):\n"
            "    super()._init_weights(module)\n"
            "    if isinstance(module, MyScale):\n"
            "        torch.nn.init.constant_(module.scale, 3.0)",
            releases="4.53 and later; 4.48 keeps the constructor's value",
            references=("transformers/modeling_utils.py, _initialize_missing_keys",),
        ),
        _unwritten_parameters,
    ),
    Rule(
        RuleText(
            code="SB303",
            name="loaded weights are overwritten by _init_weights",
            kind="silent",
            looks_for="a tensor that the checkpoint has under this name, where the model holds other "
            "bytes that differ between two loads under two seeds",
            cause="5.x runs _init_weights over every module after loading. Calls of torch.nn.init "
            "skip tensors that are already loaded; module.weight.data.normal_() does not know of "
            "that and draws them anew. loading_info stays clean.",
            remedy="Use torch.nn.init in _init_weights, never .data.normal_().",
            example="torch.nn.init.normal_(module.weight, mean=0.0, std=self.config.initializer_range)",
            releases="remote code: 5.0 and 5.1; classes defined in the user's own program also 5.6 "
            "and 5.9",
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
            name="a parameter is missing from the checkpoint and drawn at random",
            kind="silent",
            looks_for="a parameter among the missing keys that differs between two loads under two "
            "seeds",
            cause="The checkpoint was saved without it, under another name, or for another head; it "
            "was tied when it was saved, and this release does not tie it (SB404); or this release "
            "builds the class with other modules than the one that saved it (zamba2's adapters in "
            "5.2).",
            remedy="Load the class that the checkpoint was saved from, rename the tensor in the "
            "file, declare the tie, or initialise it to a constant.",
            releases="all",
            references=(),
        ),
        _missing_parameters,
    ),
    Rule(
        RuleText(
            code="SB305",
            name="the constructor needs data, and 5.x constructs on the meta device",
            kind="crash",
            looks_for="the exceptions that item(), numpy(), a copy or a nested from_pretrained raise "
            "on meta tensors, in phase load",
            cause="from_pretrained of 5.x runs __init__ under torch.device('meta'), where tensors "
            "have no values.",
            remedy="Compute constants in __init__ with Python or numpy, not with torch; build "
            "sub-models with from_config; move what needs values to _init_weights or the first "
            "forward.",
            example="rates = [float(x) for x in numpy.linspace(0, drop_rate, depth)]",
            releases="5.0.0 and later; torch.linspace(...).item() works again by 5.6.2",
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
            looks_for="a load that asks for no dtype and gives parameters of another dtype than in "
            "the reference",
            cause="5.0 made dtype='auto' the default of from_pretrained: the checkpoint's dtype "
            "instead of float32.",
            remedy="Say torch_dtype=torch.float32 (or what you mean) in every call.",
            releases="4.x: float32. 5.0.0 and later: what config.json or the weights say",
            references=("transformers/modeling_utils.py, from_pretrained",),
        ),
        _default_dtype,
    ),
    Rule(
        RuleText(
            code="SB307",
            name="the model does not survive save_pretrained and from_pretrained",
            kind="silent",
            looks_for="a model saved and loaded again in the same stack that fails, or comes back "
            "with other tensors, config values or logits",
            cause="A tensor is left out of the file (tied by declaration but not in memory) or is in "
            "it and not taken (SB308), a config field is not written, or written where a default "
            "overrides it when it is read, or saving refuses shared memory. The evidence says which "
            "of them came back otherwise, not why.",
            remedy="Own code: declare ties in _tied_weights_keys, as a dict (SB401), and write config "
            "fields in __init__. "
            "Stock models: keep the original files and copy config.json beside the weights by hand, "
            "or save with a release in which the round trip holds.",
            releases="depends on the model",
            references=(),
        ),
        _round_trip,
    ),
    Rule(
        RuleText(
            code="SB308",
            name="a tensor of the checkpoint is not taken",
            kind="silent",
            looks_for="a tensor that the checkpoint has under this name, where the model holds other "
            "bytes at every load. Bytes are compared in the dtype of the model and, of a table that "
            "the file has in a smaller float, in the file's; shapes play no part",
            cause="Two causes are known. Something replaces the tensor after it was loaded, such as "
            "a tie made too late: 4.48 assigns loaded parameters where dtypes agree, and "
            "_tie_weights then points the bias at one that was never filled (roberta, albert). Or "
            "the tensor is a buffer that is no longer in the state_dict (persistent=False): the "
            "model computes it by itself and the file's is not read. Old BERT checkpoints have such "
            "a table, position_ids; one that holds what the model computes is no finding.",
            remedy="Compare the tensor with the file after loading and copy it in by hand, or use a "
            "release that takes it. If the model is meant to compute the buffer, remove the tensor "
            "from the file.",
            example="model.lm_head.bias.data.copy_(file_tensors['lm_head.bias'])",
            releases="roberta and albert: 4.48 in the dtype of the file, as measured here. Buffers "
            "outside the state_dict: all; 5.2 reports position_ids as an unexpected key, and 4.48, "
            "4.57 and 5.23 do not report it",
            references=("docs/found.md",),
        ),
        _ignored_tensors,
    ),
    Rule(
        RuleText(
            code="SB309",
            name="tensors of the checkpoint have other names in memory",
            kind="api",
            looks_for="tensors that the model holds under the checkpoint's names in the reference, and "
            "under others, or as part of a larger tensor, here. The numbers are compared in "
            "checkpoint space and may well be the same",
            cause="Releases rename and fuse modules and turn names back when they load and save: "
            "experts.N.w1 and w3 are experts.gate_up_proj from 5.0 on, gpt_neox's embed_out is lm_head "
            "by 5.15.",
            remedy="Nothing for loading and saving. Code that reaches for such a tensor (a LoRA target, "
            "a quantiser's list, model.embed_out) needs the name of the release: get_output_embeddings() "
            "for heads; for experts look for the fused name first.",
            example="head = model.get_output_embeddings()",
            releases="mixtures of experts: 5.0.0 and later; gpt_neox: 5.15 and later",
            references=(
                "transformers/core_model_loading.py, WeightConverter",
                "transformers/conversion_mapping.py",
            ),
        ),
        _renamed_tensors,
    ),
)
