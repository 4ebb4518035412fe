"""cell.integrity: every planted defect of a load is named, and nothing healthy is."""

import importlib
import json
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

import cells
import torch
import transformers
from raising import raised
from safetensors.torch import save_file
from samebits_probe.cell import cell as cell_module
from samebits_probe.cell import session as cell_session
from samebits_probe.cell import written
from samebits_probe.cell.phases import integrity as integrity_phase
from samebits_probe.cell.phases import weights as weights_phase
from samebits_probe.model import determinism, heap, load
from samebits_probe.process import fork, progress
from tiny import BERT, RELEASE

NEW = RELEASE >= (5, 0)
for name in ("transformers.modeling_utils", "transformers.generation", "torch._dynamo"):
    importlib.import_module(name)  # once, for the forks that the tests run in
CODE = Path(__file__).parent / "modeling_leaky.py"
N = 12


def checkpoint(defect, stored=torch.float32, more=None, pickled=False, behind=None, **config):
    """Write a checkpoint of the custom model in modeling_leaky.py; ``more`` is stored as it is.

    ``behind`` is how far behind a 64-byte boundary the first tensor of a safetensors file begins.
    """
    folder = Path(tempfile.mkdtemp())
    shutil.copy(CODE, folder)
    is_tied = defect == "tied" or defect.startswith("turned ties")
    written = {
        "model_type": "leaky",
        "architectures": ["LeakyForCausalLM"],
        "auto_map": {
            "AutoConfig": "modeling_leaky.LeakyConfig",
            "AutoModelForCausalLM": "modeling_leaky.LeakyForCausalLM",
        },
        "tie_word_embeddings": is_tied,
        "defect": defect,
        "note": "not the default",
    }
    (folder / "config.json").write_text(json.dumps(written | config))
    made = torch.Generator().manual_seed(7)
    shapes = {
        "embed.weight": (32, 8),
        "proj.weight": (8, 8),
        "proj.bias": (8,),
        "head.weight": (32, 8),
    }
    if is_tied:
        del shapes["head.weight"]
    tensors = {name: torch.randn(*shape, generator=made) for name, shape in shapes.items()}
    written = {name: tensor.to(stored) for name, tensor in tensors.items()} | (more or {})
    if pickled:
        torch.save(written, folder / "pytorch_model.bin")
    else:
        save_file(written, folder / "model.safetensors", metadata={"format": "pt"})
        if behind is not None:
            place(folder / "model.safetensors", behind)
    return folder


def place(path, behind):
    """Pad the header of a safetensors file, so that its tensors begin elsewhere."""
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = raw[8:end].rstrip() + b" " * 64
    header = header[: len(header) - (8 + len(header) - behind) % 64]
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw[end:])


def cell(folder, **changes):
    """Return a cell that is loaded and traced, as far as the phase before integrity."""
    root = tempfile.mkdtemp()
    fields = {"limit": 1 << 20, "capture": f"{root}/deep/a.json"} | changes
    job = cells.job(root, cells.fed(folder, trusts=True), **fields)
    torch.set_num_threads(1)
    heap.fill_unwritten(job["run"], "cpu")
    made = cell_session.Session(job)
    made.loaded = load.load(made.source)
    made.signals["load"] = made.loaded.facts
    with torch.no_grad():
        weights_phase.observe_weights(made)
        weights_phase.observe_buffers(made)
    return made


def look(looked_at):
    """Ask about the load, as a cell does once its prompts have run."""
    cell_module.fork_untouched(looked_at)
    integrity_phase.observe(looked_at)


def integrity(defect, **config):
    """Return the signal of a model with that defect."""
    looked_at = cell(checkpoint(defect, **config))
    look(looked_at)
    assert looked_at.skips in ([], [NO_ROPE]), looked_at.skips
    return looked_at.signals["integrity"]


NO_ROPE = {"what": "inv_freq", "reason": "no buffer of the model holds rotary frequencies"}


def sources(signal):
    """Return name -> source and number of unwritten elements, of all but the loaded ones."""
    return {
        name: (facts["source"], facts["n_unwritten"])
        for name, facts in signal["tensors"].items()
        if facts["source"] != "loaded"
    }


def buffers(*names, source, n=N):
    return {f"tables.{name}": (source, n) for name in names}


def test_a_healthy_model_is_not_accused():
    signal = integrity("none")
    names = ("positions", "nothing", "mask", "largest", "allowed", "byte", "small")
    assert sources(signal) == buffers(*names, source="derived", n=0)
    assert all(facts["written"] == "all" for facts in signal["tensors"].values())
    assert all(facts["steady"] is True for facts in signal["tensors"].values())
    assert signal["silent"] == []
    assert signal["default_dtypes"] is None
    assert signal["stored_dtypes"] == {"float32": 4}
    assert signal["round_trip"] == {
        "outcome": "same bits",
        "tensors": [],
        "config": [],
        "logits": "not compared",
        "reason": "",
        "inferred": True,
    }


def test_a_round_trip_is_made_where_files_or_config_are_others():
    extra = {"no such tensor": torch.ones(16)}
    for trip in (
        integrity("none", more=extra)["round_trip"],
        integrity("none", pickled=True)["round_trip"],
        integrity("none", stored=torch.bfloat16)["round_trip"],
        integrity("adds a field")["round_trip"],
    ):
        assert "inferred" not in trip
        assert trip["logits"] == "same bits"
    assert integrity("adds a field")["round_trip"]["outcome"] == "differs"


def test_a_save_that_changes_one_bit_or_one_name_is_not_inferred():
    for defect in ("saves another bit", "saves another name"):
        trip = integrity(defect)["round_trip"]
        assert "inferred" not in trip, defect
    assert integrity("saves another bit")["round_trip"]["tensors"] == ["proj.bias"]


def test_a_fresh_model_without_parameters_gives_the_same_facts():
    # 4.51 and later make every model on the meta device, where a constructor cannot read a parameter
    reads = () if RELEASE >= (4, 51) else ("reads a parameter",)
    some = ("none", "not refilled", "computed", "shared", "missing", "buffer of a parameter")
    for defect in (*some, *reads):
        whole = observed_with(1 << 60, defect)
        lean = observed_with(0, defect)
        assert whole[1] == lean[1], defect
        for name in ("weights", "buffers", "inv_freq", "integrity"):
            assert whole[0][name] == lean[0][name], (defect, name)


def observed_with(min_lean_bytes, defect):
    """Return signals and skips of a cell; seconds, values by chance and paths left out."""

    def observe():
        cell_session.MIN_LEAN_BYTES = min_lean_bytes
        looked_at = cell(checkpoint(defect))
        with torch.no_grad():
            weights_phase._reduce_twin_to_hashes(looked_at)
        look(looked_at)
        del looked_at.signals["integrity"]["seconds"]
        return looked_at.signals, looked_at.skips

    return fork.run_in_fork(observe)


def test_the_poison_is_seen_to_work():
    said = integrity("none")["poison"]
    assert said == (
        "NaN, the largest integer or True, seen in 8 of 10 ways to allocate; "
        "0xe5 in UntypedStorage, numpy.empty"
    )


def test_a_buffer_that_only_the_constructor_writes():
    signal = integrity("not refilled")
    if not NEW:
        assert sources(signal) == buffers("table", source="derived", n=0)
        return
    assert sources(signal) == buffers("table", source="unwritten")
    assert signal["silent"] == ["tables.table"]
    facts = signal["tensors"]["tables.table"]
    assert (facts["written"], facts["steady"], facts["fresh"]) == ("none", False, "differs")
    assert signal["round_trip"]["logits"] == "not compared"
    assert signal["round_trip"]["tensors"] == []


def test_a_buffer_written_in_part():
    signal = integrity("halves")
    assert sources(signal) == buffers("table", source="partly written", n=5)
    assert signal["tensors"]["tables.table"]["written"] == "partly"
    assert signal["silent"] == ["tables.table"]


def test_integers_and_bools_that_nobody_wrote():
    signal = integrity("integers")
    assert sources(signal) == {
        **buffers("long", "bools", source="unwritten"),
        **buffers("one_bool", "one_byte", source="unwritten", n=1),
        **buffers("two_bytes", source="unwritten", n=5),
    }
    assert len(signal["silent"]) == 5


def test_memory_that_torch_did_not_allocate():
    signal = integrity("other memory")
    small = signal["tensors"].pop("tables.from_numpy")
    # what numpy keeps of freed blocks may hold anything: it is never said to be clean
    assert not (small["written"] == "all" and small["steady"])
    assert sources(signal) == {
        **buffers("storage", "new_empty", "constructor", source="unwritten"),
        **buffers("large_from_numpy", source="unwritten", n=100_003),
        **buffers("written_numpy", "mapped", source="derived", n=0),
    }
    for name in ("written_numpy", "mapped"):
        facts = signal["tensors"][f"tables.{name}"]
        assert facts["written"] == "not covered"
        assert facts["steady"] is True
        assert facts["not_covered"].startswith("its memory is not from torch")


def test_a_table_that_all_loads_of_a_process_share():
    signal = integrity("shared")
    assert sources(signal) == buffers("table", source="unwritten")
    assert signal["tensors"]["tables.table"]["steady"] is True


def test_a_buffer_computed_from_memory_that_nobody_wrote():
    assert sources(integrity("computed")) == buffers("table", source="unwritten")


def test_a_buffer_drawn_by_chance():
    signal = integrity("drawn")
    assert sources(signal) == buffers("noise", source="reinitialised", n=0)
    assert signal["silent"] == ["tables.noise"]
    assert signal["tensors"]["tables.noise"]["steady"] is False
    assert signal["round_trip"]["outcome"] == "same bits"


def test_a_parameter_that_the_checkpoint_lacks():
    signal = integrity("missing")
    expected = ("derived", 0) if RELEASE < (4, 53) else ("unwritten", 4)
    assert sources(signal) == {"scale": expected}
    assert signal["silent"] == [], "loading says that the key is missing"


def test_loaded_weights_drawn_again():
    signal = integrity("drawn again")
    assert sources(signal) == {"proj.weight": ("reinitialised", 0)}
    assert signal["tensors"]["proj.weight"]["ignored"] is True
    assert signal["silent"] == ["proj.weight"]
    assert signal["round_trip"]["outcome"] == "differs"
    assert signal["round_trip"]["tensors"] == ["proj.weight"]
    assert signal["tensors"]["proj.weight"]["restored_without"] == [], "no step of the load did it"


def test_the_step_that_draws_loaded_weights_again_is_found_by_leaving_it_out():
    for defect, step in (("drawn by init", "_init_weights"), ("drawn by tie", "tie_weights")):
        signal = integrity(defect)
        assert sources(signal) == {"proj.weight": ("reinitialised", 0)}, defect
        assert signal["tensors"]["proj.weight"]["restored_without"] == [step]
    assert "restored_without" not in integrity("")["tensors"]["proj.weight"]


def test_ties_that_take_the_place_of_a_loaded_tensor_are_found_by_turning_them_round():
    """As in RTDetrV2 of 5.0: the random numbers are those of the tie's source, which init draws."""
    if not NEW:  # ties have no direction in a list
        return
    for defect in ("turned ties", "turned ties of a constructor"):
        signal = integrity(defect)
        facts = signal["tensors"]["embed.weight"]
        assert (facts["source"], facts["ignored"]) == ("reinitialised", True), defect
        assert facts["restored_without"] == ["_tied_weights_keys"], defect
    clean = integrity("tied")["tensors"]["embed.weight"]
    assert (clean["source"], "restored_without" in clean) == ("loaded", False)


def test_a_loaded_tensor_overwritten_by_a_constant():
    signal = integrity("overwritten")
    facts = signal["tensors"]["proj.bias"]
    assert facts["ignored"] is True
    assert facts["steady"] is True
    assert facts["source"] == "unexplained"
    assert facts["restored_without"] == [], "no step of the load did it"


def test_numbers_that_a_quantizer_computes_of_codes_are_no_lost_tensor():
    """As an FP8 checkpoint on a CPU: 5.x makes plain numbers of it. Without a quantizer other bytes are a loss."""
    codes = {"proj.bias": torch.arange(8, dtype=torch.int8)}
    quantised = {"quantization_config": {"quant_method": "none that transformers knows"}}
    for more, config, is_lost in (
        (codes, quantised, False),
        (codes, {}, True),
        ({}, quantised, True),
    ):
        facts = integrity("overwritten", more=more, **config)["tensors"]["proj.bias"]
        assert facts.get("ignored", False) is is_lost, (more, config)


def test_a_row_of_a_loaded_tensor_that_init_weights_overwrites_by_a_constant():
    """As `weight.data[padding_idx].zero_()` in code of before 5.x."""
    facts = integrity("a row zeroed by init")["tensors"]["proj.weight"]
    assert (facts["ignored"], facts["steady"]) == (True, True)
    assert facts["restored_without"] == ["_init_weights"]


ORDER, PARTS = torch.arange(N)[None], torch.arange(N) / 7
SAME_TABLES = {
    "the very bytes": (ORDER, PARTS),
    "other shapes": (ORDER[0].clone(), PARTS[None].clone()),
    "other dtypes": (ORDER.int(), PARTS.double()),
    "integers as floats": (ORDER.float(), PARTS),
    "a smaller float": (ORDER, PARTS.bfloat16()),
}
OTHER_TABLES = {
    "one element": (ORDER.clone().index_fill_(1, torch.tensor([3]), 4), PARTS + 1e-6),
    "another order": (ORDER.flip(1), PARTS.flip(0)),
    "another length": (ORDER[:, :-1].clone(), PARTS[:-1].clone()),
    "another dtype": (ORDER.flip(1).int(), PARTS.flip(0).double()),
    "a larger float": (ORDER.flip(1), PARTS.double() + 1e-3),
    "a smaller float": (ORDER.flip(1), (PARTS + 1).bfloat16()),
    "truth values": (ORDER.flip(1), PARTS.bool()),
}


def ignored(signal):
    """Return name -> the file's name of every tensor that the model does not hold."""
    found = signal["tensors"].items()
    return {name: facts.get("stored_as", "") for name, facts in found if facts.get("ignored")}


def stored_tables(order, parts):
    return {"tables.order": order, "tables.parts": parts}


def test_a_table_that_the_file_and_the_model_have_with_the_same_bytes():
    for name, tables in SAME_TABLES.items():
        for pickled in (False, True):
            signal = integrity("computes tables", more=stored_tables(*tables), pickled=pickled)
            assert ignored(signal) == {}, (name, pickled)
            assert sources(signal) == buffers("order", "parts", source="derived", n=0)


def test_a_table_that_the_file_has_with_other_bytes():
    for name, tables in OTHER_TABLES.items():
        for pickled in (False, True):
            signal = integrity("computes tables", more=stored_tables(*tables), pickled=pickled)
            assert ignored(signal) == {"tables.order": "", "tables.parts": ""}, (name, pickled)
            assert sources(signal) == buffers("order", "parts", source="derived", n=0)


def test_a_table_that_is_loaded():
    for pickled in (False, True):
        for tables in ((ORDER, PARTS), (ORDER.flip(1), PARTS.flip(0)), (ORDER.int(), PARTS * 2)):
            signal = integrity("in the state_dict", more=stored_tables(*tables), pickled=pickled)
            assert sources(signal) == {}
            assert ignored(signal) == {}


def bert(table, head, prefix, pickled):
    """Write a BERT whose file has a table of positions, as files of before 4.31 have."""
    names = ["BertForMaskedLM" if head else "BertModel"]
    config = transformers.BertConfig(**BERT, max_position_embeddings=N, architectures=names)
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    state = transformers.BertModel(config).state_dict()
    stored = {f"{prefix}{name}": tensor.clone() for name, tensor in state.items()}
    stored[f"{prefix}embeddings.position_ids"] = table
    config.save_pretrained(folder)
    if pickled:
        torch.save(stored, folder / "pytorch_model.bin")
    else:
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


BERTS = (
    (False, "", True),
    (False, "bert.", False),
    (True, "", False),
    (True, "bert.", True),
)
"""A head, the prefix in the file, a pickle: each pair of these is among them."""


def test_the_positions_of_an_old_bert():
    for head, prefix, pickled in BERTS:
        name = f"{'bert.' if head else ''}embeddings.position_ids"
        there = f"{prefix}embeddings.position_ids"
        for table in (ORDER.clone(), ORDER.flip(1).clone()):
            looked_at = cell(bert(table, head, prefix, pickled))
            look(looked_at)
            signal = looked_at.signals["integrity"]
            held = dict(looked_at.loaded.model.named_buffers())[name]
            # what the release makes of the file decides, and not what is known of it here
            taken = torch.equal(held, table)
            assert taken == torch.equal(table, ORDER)
            said = {} if taken else {name: "" if there == name else there}
            assert ignored(signal) == said, (head, prefix, pickled)


def test_a_round_trip_that_loses_a_tensor_and_a_config_field():
    trip = integrity("forgets")["round_trip"]
    assert trip["outcome"] == "differs"
    assert trip["tensors"] == ["proj.bias"]
    assert trip["config"] == ["note: 'not the default' → 'n'"]
    assert trip["logits"] == "differs"


def test_the_class_that_a_save_writes_down_is_no_loss():
    """ChatGLM3's config.json names its base model, and DNABERT-2's no class; a save names the one that saves."""
    for names in (["LeakyModel"], None):
        trip = integrity("none", architectures=names)["round_trip"]
        assert (trip["outcome"], trip["config"]) == ("same bits", [])
    trip = integrity("adds a field", architectures=["LeakyModel"])["round_trip"]
    assert trip["outcome"] == "differs"
    assert not any("architectures" in change for change in trip["config"])


def test_a_save_names_its_tensors_its_keys_and_what_it_loses():
    whole, losing = (integrity(defect)["written"] for defect in ("none", "forgets"))
    assert whole["lost"] == {}
    assert whole["tensors"]["proj.bias"] == "float32 [8]"
    assert whole["files"]["config.json"]["keys"]["note"] == '"not the default"'
    assert whole["files"]["config.json"]["digest"]
    assert losing["lost"] == {"config.json": {"note": ['"not the default"', '"n"']}}
    assert set(whole["tensors"]) - set(losing["tensors"]) == {"proj.bias"}
    named = integrity("saves another name")["written"]
    assert named["tensors"].keys() != whole["tensors"].keys()


def test_a_setting_of_rope_that_the_checkpoint_has_twice_may_be_saved_once():
    inside = {"rope_parameters.partial": 4.0, "rope_parameters.rope_theta": 5000.0}
    named = {"partial": 4.0, "scale": 4.0, **inside}
    saved = {"config.json": inside}

    def lost(keys):
        return written._lost(keys, saved, "config.json", dict)

    assert lost({"partial": 4.0} | inside) == lost({"rope_theta": 5000.0} | inside) == {}
    assert lost({"partial": 2.0} | inside) == {"partial": ("2.0", "absent")}
    assert lost(named) == {"scale": ("4.0", "absent")}  # an equal number of another name
    assert lost({"rotary_pct": 4.0}) == {}  # what 5.x has under a new name was renamed


def test_a_file_that_is_not_written_loses_no_key():
    folder = checkpoint("none")
    for name in ("config.json", "generation_config.json"):
        (folder / name).write_text(json.dumps(written.json_of(folder / name) | {"more": 1}))
    source = load.Source(str(folder), None, True, "float32", "default", "cpu")
    empty = Path(tempfile.mkdtemp())
    assert written.of_model(empty, source, None, None) == {"files": {}, "lost": {}, "tensors": None}


def test_a_model_that_refuses_to_be_saved_writes_nothing():
    assert "written" not in integrity("refuses to be saved")


def test_a_kernel_that_rounds_by_the_place_of_weights_is_no_loss():
    """The saved file's header is a multiple of 8 bytes long, so it begins elsewhere."""
    for behind in (4, 0):
        looked_at = cell(checkpoint("rounds by place", more=MORE, behind=behind))
        assert looked_at.loaded.model.proj.weight.data_ptr() % 32 == behind
        look(looked_at)
        assert looked_at.signals["integrity"]["round_trip"]["outcome"] == "same bits"


MORE = {"unused": torch.ones(16)}
"""A tensor that the model ignores: saving gives another file, so that it is loaded again."""


def test_what_is_drawn_anew_is_not_lost_by_saving():
    for defect, said in (
        ("draws a factor", "a second load of the original also gives different logits"),
        ("draws in forward", determinism.NOT_REPEATED),
    ):
        trip = integrity(defect, more=MORE)["round_trip"]
        assert (trip["outcome"], trip["logits"], trip["reason"]) == (
            "same bits",
            "not compared",
            said,
        )


def test_a_model_that_refuses_to_be_saved():
    signal = integrity("refuses to be saved")
    assert signal["round_trip"]["outcome"] == "save failed"
    assert signal["round_trip"]["reason"].startswith("OSError: cannot write …/")
    assert sources(signal) == {}


def test_a_model_that_cannot_be_loaded_from_what_it_saved():
    trip = integrity("rots")["round_trip"]
    assert trip["outcome"] == "load failed"
    assert "/tmp/" not in trip["reason"]


def test_tied_weights():
    signal = integrity("tied")
    assert sources(signal) == {"head.weight": ("tied", 0)}
    assert signal["tensors"]["head.weight"]["detail"] == "tied to embed.weight"
    assert signal["round_trip"]["outcome"] == "same bits"


def test_a_tensor_that_a_tie_leaves_out():
    made = torch.Generator().manual_seed(7)
    embed = torch.randn(32, 8, generator=made)
    same = integrity("tied", more={"head.weight": embed})
    other = integrity("tied", more={"head.weight": embed + 1})
    assert ignored(same) == {}
    assert ignored(other) == ({} if NEW else {"head.weight": ""})
    assert other["tensors"]["head.weight"]["source"] == ("loaded" if NEW else "tied")


def test_the_dtype_of_a_load_that_asks_for_none():
    for key in ("torch_dtype", "dtype"):
        signal = integrity("none", stored=torch.bfloat16, **{key: "bfloat16"})
        assert signal["stored_dtypes"] == {"bfloat16": 4}
        assert signal["default_dtypes"] == {"bfloat16" if NEW else "float32": 4}
        assert signal["round_trip"]["config"] == []


def test_nothing_of_it_is_left_in_the_process():
    looked_at = cell(checkpoint("shared"))
    before = (
        torch.get_rng_state().tolist(),
        torch.get_deterministic_debug_mode(),
        torch.utils.deterministic.fill_uninitialized_memory,
        {name: id(tensor) for name, tensor in looked_at.loaded.model.state_dict().items()},
        looked_at.loaded.model.config.to_json_string(),
    )
    look(looked_at)
    after = (
        torch.get_rng_state().tolist(),
        torch.get_deterministic_debug_mode(),
        torch.utils.deterministic.fill_uninitialized_memory,
        {name: id(tensor) for name, tensor in looked_at.loaded.model.state_dict().items()},
        looked_at.loaded.model.config.to_json_string(),
    )
    assert before[0] == after[0]
    assert before[1:3] == after[1:3]
    assert before[4] == after[4]
    assert heap.holds_pattern(torch.empty(999), "a")
    assert [path.name for path in Path(looked_at.job["capture"]).parent.iterdir()] == ["a.json"]


def test_run_b_does_not_look():
    looked_at = cell(checkpoint("none"), run="b")
    look(looked_at)
    assert "integrity" not in looked_at.signals


def test_a_model_too_large_for_a_second_one():
    looked_at = cell(checkpoint("halves"))
    looked_at.no_room = lambda _times: "no memory"
    look(looked_at)
    signal = looked_at.signals["integrity"]
    assert signal["poison"] == "not tried: no memory"
    told = {skip["what"]: skip["why"] for skip in looked_at.skips if "why" in skip}
    assert told == {"integrity: second load": "cost"}
    assert signal["round_trip"]["outcome"] == "not tried"
    facts = signal["tensors"]["tables.table"]
    assert facts["written"] == "not covered"
    assert signal["tensors"]["proj.weight"]["source"] == "loaded"


def test_a_model_too_large_for_a_third_one_is_still_loaded_over_poison():
    for defect, outcome in (("none", "same bits"), ("forgets", "not tried")):
        looked_at = cell(checkpoint(defect))
        cell_session.MAX_FRESH_MODEL_BYTES = 0
        look(looked_at)
        signal = looked_at.signals["integrity"]
        assert signal["poison"].startswith("NaN, the largest integer")
        assert signal["round_trip"]["outcome"] == outcome
        assert all(facts["steady"] for facts in signal["tensors"].values())


def test_a_wholly_unwritten_buffer_is_found_without_a_second_model():
    looked_at = cell(checkpoint("integers"))
    looked_at.no_room = lambda _times: "no memory"
    look(looked_at)
    assert sources(looked_at.signals["integrity"])["tables.long"] == ("unwritten", N)


def spin():
    while True:
        pass


def test_what_dies_apart_is_no_failure_here():
    for function, said in (
        (lambda: os._exit(3), "it ended with exit code 3"),
        (os.abort, "it was killed by signal 6"),
        (lambda: os.kill(os.getpid(), 9), "it was killed by signal 9, most likely because memory"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: time.sleep(60), "no progress for N s in phase start; it used no CPU: it waits"),
        (spin, "no progress for N s in phase start; it used "),
    ):
        progress.use(progress.Board(1.0))
        reason = raised(fork.NoAnswer, fork.run_in_fork, function)
        assert re.sub(r"for \d+ s", "for N s", str(reason)).startswith(said), reason
        assert str(reason).endswith("it computes") == (function is spin)
    assert fork.run_in_fork(lambda: {"x": [1, "ä" * 100_000]}) == {"x": [1, "ä" * 100_000]}


def test_no_child_is_made_where_it_would_hang():
    assert fork.refusal("cpu") == ""
    assert "cuda" in fork.refusal("cuda")


def test_an_exception_of_the_probe_is_a_skip():
    looked_at = cell(checkpoint("none"))
    looked_at.signals["load"] = {}
    look(looked_at)
    assert "integrity" not in looked_at.signals
    assert looked_at.skips[-1] == {
        "what": "integrity",
        "reason": "KeyError: 'missing_keys'",
        "why": "instrument",
        "raised": True,
    }
