"""The smallest set that restores a planted model's bits is what was planted, in both stacks."""

from pathlib import Path

import pytest

from samebits.grafts import judge
from samebits.records.graft import DonorFile, GraftFile
from samebits_wire import seal

HERE = Path(__file__).parent
PROBES = HERE.parents[1] / "probes"
WEIGHT = "model.layers.1.mlp.down_proj.weight"
FOUND = {
    "weight": (WEIGHT,),
    "inv_freq": ("model.rotary_emb.inv_freq",),
    "positions": ("position ids",),
    "mask": ("attention mask",),
    "scale": ("model.layers.*.self_attn.scaling",),
    "config": ("config.rms_norm_eps",),
    "kernel": ("attention implementation sdpa",),
    "cache": ("cache contents",),
    "two": (WEIGHT, "model.rotary_emb.inv_freq"),
    "code": (),
    "code and inv_freq": (),
}
"""What is planted -> the smallest set that gives the bits back."""
DAMAGED = ("damaged weight", "damaged logits")


@pytest.fixture(scope="module", params=["4.48", "5.x"])
def grafts(request, run_script, tmp_path_factory):
    """Return what is said of every planted model of one stack."""
    folder = tmp_path_factory.mktemp("grafts")
    run_script(request.param, HERE / "planted" / "graft_plants.py", PROBES, folder)
    healthy = GraftFile.model_validate_json(seal.read(folder / "none.json"))
    found = {"none": healthy.mismatch}
    for name in DAMAGED:
        found[name] = (folder / f"{name}.txt").read_text()
        assert not (folder / f"{name}.json").exists()
    for name in FOUND:
        donor = DonorFile.model_validate_json(seal.read(folder / f"{name}.donor.json"))
        patient = GraftFile.model_validate_json(seal.read(folder / f"{name}.json"))
        assert not donor.failure, donor.failure
        assert not donor.mismatch
        assert not patient.failure, patient.failure
        assert not patient.mismatch, (name, patient.mismatch)
        found[name] = judge.graft(donor, patient)
    return found


@pytest.mark.parametrize("name", FOUND)
def test_what_is_planted_is_the_smallest_set(grafts, name):
    graft = grafts[name]
    assert graft.smallest == FOUND[name], graft.tried
    if not graft.smallest:
        return
    assert graft.proof == ("alone" if len(graft.smallest) == 1 else "smallest")
    assert graft.headline.startswith("swapping only ")
    best = next(run for run in graft.tried if run.suspects == graft.smallest)
    assert best.same == best.of > 3
    assert not graft.tried[0].restores, "there was nothing to restore"


@pytest.mark.parametrize("name", DAMAGED)
def test_a_turned_bit_in_what_the_donor_left_is_never_put_in(grafts, name):
    assert "does not hold the bytes of its hash" in grafts[name]


def test_nothing_is_put_into_a_healthy_model(grafts):
    assert grafts["none"] == "it has the reference's bytes already"


def test_what_is_computed_from_the_root_restores_alone_too_and_comes_second(grafts):
    assert "rope's cos and sin" in grafts["inv_freq"].others
    assert "rope's cos and sin" in grafts["positions"].others


def test_a_change_of_code_is_said_to_be_one_with_how_far_the_rest_brings_it(grafts):
    assert grafts["code"].headline.startswith("nothing that can be swapped differs")
    both = grafts["code and inv_freq"]
    assert both.proof == "none"
    assert "is in the code of the release" in both.headline
