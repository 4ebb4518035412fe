"""torch's settings, missing devices, and what exists only on a GPU, with the CPU in its place."""

import importlib
import json
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import cells
import torch
import transformers
from raising import raised
from samebits_probe.cell import cell, on_device
from samebits_probe.cell.phases import device as device_phase
from samebits_probe.cell.phases import settings as settings_phase
from samebits_probe.model import load
from samebits_probe.model.tensor import Keeper
from samebits_probe.process import devices, settings
from samebits_probe.process.devices import DeviceMissing, Inventory
from tiny import SIZES

EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
MATMUL = "torch.get_float32_matmul_precision()"


@contextmanager
def subject_of(kind="Llama", *, dtype="float32", device="cpu", capability=(9, 0), **sizes):
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**SIZES, **sizes)
    made = getattr(transformers, f"{kind}ForCausalLM")(config).to(getattr(torch, dtype))
    with tempfile.TemporaryDirectory() as folder:
        made.save_pretrained(folder)
        source = load.Source(folder, None, False, dtype, "default", "cpu")
        loaded = load.load_model(source)
        named = source._replace(device=device)
        kwargs = {"input_ids": torch.arange(3, 21)[None]}
        yield on_device.Subject(loaded, named, "short", kwargs, capability), Keeper(folder, 0, [])


def results(subject, keeper):
    return {facts["name"]: facts for facts in on_device.observe(subject, keeper)}


# --- settings


@contextmanager
def precision(value):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def test_every_setting_of_this_torch_is_read():
    values = settings.read()
    assert values[MATMUL] == "highest"
    assert values["torch.backends.cudnn.deterministic"] == "False"
    assert values["torch.backends.cuda.flash_sdp_enabled()"] == "True"
    assert values[settings.BATCH_INVARIANT] == "off"
    is_new = hasattr(torch.backends, "fp32_precision")
    assert ("torch.backends.cudnn.conv.fp32_precision" in values) == is_new
    json.dumps(values)


def test_a_setting_that_this_torch_lacks_is_left_out():
    assert settings._text("torch.backends.no_such_backend.allow_tf32") == ""


def test_what_changed_is_named_with_what_ran():
    watch = settings.Watch()
    watch.look("load")
    assert watch.facts()["changes"] == settings._of_imports
    with precision("high"):
        watch.look("prompts")
    changes = {change["name"]: change for change in watch.facts()["changes"]}
    assert changes[MATMUL] == {
        "name": MATMUL,
        "before": "highest",
        "after": "high",
        "by": "prompts",
    }
    assert watch.facts()["values"][MATMUL] == "high"


def test_what_an_import_changed_is_in_every_watch():
    noted = list(settings._of_imports)
    before = settings.read()
    try:
        with precision("medium"):
            settings.note_imports(before)
        changes = settings.Watch().facts()["changes"]
        assert {"name": MATMUL, "before": "highest", "after": "medium", "by": "import"} in changes
    finally:
        settings._of_imports[:] = noted


def test_importing_this_release_changes_no_setting():
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from samebits_probe.process import settings\n"
        "before = settings.read()\n"
        "import transformers, transformers.modeling_utils, transformers.generation\n"
        "transformers.LlamaForCausalLM, transformers.Trainer\n"
        "print(settings.changed(before, settings.read(), 'import'))\n"
    )
    import subprocess

    probes = str(Path(settings.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, probes], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout


def test_mixed_apis_are_a_value_and_no_error():
    if not hasattr(torch.backends, "fp32_precision"):
        return
    with on_device.tf32(on=True):
        values = settings.read()
    assert values["torch.backends.cuda.matmul.fp32_precision"] == "tf32"
    assert values["torch.backends.cuda.matmul.allow_tf32"] == settings.MIXED


def test_a_batch_invariant_mode_is_seen_while_it_is_on():
    module = ModuleType("batch_invariant_ops")
    on = [False]
    module.is_batch_invariant_mode_enabled = lambda: on[0]
    sys.modules["batch_invariant_ops"] = module
    try:
        assert settings.read()[settings.BATCH_INVARIANT] == "off"
        on[0] = True
        assert settings.read()[settings.BATCH_INVARIANT] == "batch_invariant_ops"
    finally:
        del sys.modules["batch_invariant_ops"]


def test_only_run_a_records_settings():
    for is_run_a in (True, False):
        watch = settings.Watch()
        session = SimpleNamespace(is_run_a=is_run_a, settings=watch, signals={})
        settings_phase.observe(session)
        assert ("settings" in session.signals) == is_run_a


# --- devices


def missing(device, **there):
    try:
        devices.require(device, lambda kind: Inventory(**there))
    except DeviceMissing as reason:
        return str(reason)
    return ""


def test_a_missing_device_is_named():
    assert missing("cuda", built=True, available=1) == ""
    assert missing("cuda:1", built=True, available=2) == ""
    assert "no code for cuda" in missing("cuda", built=False)
    assert "no cuda device" in missing("cuda:0", built=True, available=0)
    assert "no cuda:2" in missing("cuda:2", built=True, available=2)


def test_this_machine_has_a_cpu_and_no_device_of_another_vendor():
    assert devices.inventory("cpu") == Inventory(built=True, available=1)
    assert devices.inventory("xpu").available == 0


def test_a_cell_on_a_missing_device_says_so_and_is_not_finished():
    with tempfile.TemporaryDirectory() as folder:
        on_xpu = cells.CELL | {"variant": cells.VARIANT | {"device": "xpu"}}
        job = cells.job(folder, {}, cell=on_xpu)
        cell.run(job)
        text = Path(job["capture"]).read_text("utf-8")
    capture = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert capture["status"] == "unfinished"
    assert capture["unfinished"]["phase"] == cell.NO_DEVICE == "no device"
    assert "xpu" in capture["unfinished"]["reason"]
    assert "--devices cpu" in capture["unfinished"]["reason"]


def synchronizing(answer):
    return mock.patch.object(torch.cuda, "synchronize", answer)


def broken():
    raise RuntimeError("CUDA error: misaligned address\nCompile with TORCH_USE_CUDA_DSA")


def test_an_exception_on_a_lost_device_ends_the_process_and_another_one_is_a_result():
    with tempfile.TemporaryDirectory() as folder:
        job = cells.job(folder, {}, cell=cells.CELL | {"variant": {"device": "cuda"}})
        with mock.patch.object(cell, "_run", side_effect=ZeroDivisionError):
            with synchronizing(broken):
                lost = raised(devices.DeviceLost, cell.run, job)
            assert str(lost) == "CUDA error: misaligned address"
            assert not Path(job["capture"]).exists()
            with synchronizing(lambda: None):
                cell.run(job)
            assert "ZeroDivisionError" in Path(job["capture"]).read_text("utf-8")


def test_a_cpu_is_never_lost():
    with synchronizing(broken):
        devices.require_alive("cpu")


# --- what exists only on a GPU


def test_without_a_gpu_every_probe_of_its_chip_is_skipped_with_a_reason():
    with subject_of(capability=None) as (subject, keeper):
        found = results(subject, keeper)
    assert [*found] == [probe.name for probe in on_device.PROBES]
    for name in ("sdpa by its flash kernel", "TF32 on", "TF32 off"):
        assert found[name]["skipped"] == "cpu is no GPU of NVIDIA"
    assert found["flash_attention_2"]["skipped"] == "the environment has no package flash_attn"
    assert "flash_attn_interface" in found["flash_attention_3"]["skipped"]
    assert "experts" in found["experts by grouped_mm"]["skipped"]


def test_an_old_chip_and_another_precision_are_reasons():
    with subject_of(capability=(7, 5), device="cuda") as (subject, keeper):
        assert "capability 8.0, not 7.5" in results(subject, keeper)["TF32 on"]["skipped"]
    with subject_of(device="cuda") as (subject, keeper):
        assert "not in float32" in results(subject, keeper)["sdpa by its flash kernel"]["skipped"]
    with subject_of(device="cuda", dtype="bfloat16") as (subject, keeper):
        assert "not in bfloat16" in results(subject, keeper)["TF32 on"]["skipped"]


def test_tf32_changes_nothing_on_a_cpu_and_is_put_back():
    before = settings.read()
    with subject_of() as (subject, keeper):
        found = results(subject, keeper)
    for name in ("TF32 on", "TF32 off"):
        assert "skipped" not in found[name]
        assert found[name]["repeats"] is True
        assert found[name]["distance"]["n_differ"] == 0
    assert settings.changed(before, settings.read(), "prompts") == []


def test_the_flash_kernel_of_torch_runs():
    with subject_of(dtype="bfloat16") as (subject, keeper):
        facts = results(subject, keeper)["sdpa by its flash kernel"]
    assert "skipped" not in facts, facts
    assert facts["repeats"] is True
    assert facts["logits"]["dtype"] == "bfloat16"


def test_grouped_experts_run_where_the_release_has_them():
    with subject_of("Qwen2Moe", **EXPERTS) as (subject, keeper):
        facts = results(subject, keeper)["experts by grouped_mm"]
        has_them = hasattr(type(subject.loaded.model), "_can_set_experts_implementation")
    if has_them:
        assert "skipped" not in facts, facts
        assert facts["repeats"] is True
    else:
        assert "5.0" in facts["skipped"]


def test_a_model_that_is_too_large_is_not_loaded_again():
    with subject_of("Qwen2Moe", **EXPERTS) as (subject, keeper):
        large = subject._replace(no_room="it would need another 5 GiB")
        skipped = results(large, keeper)["experts by grouped_mm"]["skipped"]
    has_them = hasattr(transformers.PreTrainedModel, "_can_set_experts_implementation")
    assert ("5 GiB" in skipped) == has_them


def test_a_way_that_raises_is_skipped_and_one_that_computes_otherwise_is_measured():
    class Other(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, **kwargs):
            output = self.model(**kwargs)
            output.logits = output.logits * 1.5
            return output

    @contextmanager
    def other(subject):
        yield Other(subject.loaded.model)

    @contextmanager
    def refusing(subject):
        raise RuntimeError("no kernel image is available")
        yield

    real = on_device.PROBES
    made = on_device.DeviceProbe
    on_device.PROBES = (
        made("TF32 on", lambda _: "", other),
        made("TF32 off", lambda _: "", refusing),
    )
    try:
        with subject_of() as (subject, keeper):
            found = results(subject, keeper)
    finally:
        on_device.PROBES = real
    assert found["TF32 on"]["distance"]["n_differ"] > 0
    assert found["TF32 on"]["repeats"] is True
    assert "no kernel image" in found["TF32 off"]["skipped"]


def test_the_phase_takes_the_first_prompt_without_padding():
    forwards = {"pair": {"real_rows": [[0, 3]]}, "short": {"real_rows": None}}
    session = SimpleNamespace(
        signals={"forward": forwards},
        inputs=lambda name: SimpleNamespace(kwargs={"name": name}),
        loaded=None,
        source=None,
        too_large=lambda: "",
        no_room=lambda times: "",
    )
    assert device_phase.of_session(session, None).prompt == "short"
    session.signals = {"forward": {"pair": forwards["pair"]}}
    assert device_phase.of_session(session, None) is None


def test_a_cell_on_the_cpu_has_no_such_phase():
    session = SimpleNamespace(
        is_run_a=True, source=SimpleNamespace(device="cpu"), signals={}, begin=None
    )
    device_phase.observe(session)
    assert session.signals == {}


importlib.import_module("transformers.generation")
