"""Environment variables of the probes: what is passed on, fixed, and shown in a report."""

import pytest

from samebits.stacks.environment import (
    FIXED,
    FOR_THE_HUB,
    KERNELS,
    PASSED_ON,
    probe_environment,
    shown,
)

SECRETS = ("HF_TOKEN", "HF_TOKEN_PATH", "HTTPS_PROXY", "http_proxy", "HF_ENDPOINT")


def environment(environ=None, *, needs_hub=False):
    return probe_environment(environ or {}, needs_hub=needs_hub, modules_cache="/work/modules")


@pytest.mark.parametrize(
    "name",
    [
        "ATEN_CPU_CAPABILITY",
        "ONEDNN_MAX_CPU_ISA",
        "DNNL_MAX_CPU_ISA",
        "MKL_CBWR",
        "LD_PRELOAD",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "VIRTUAL_ENV",
        "TORCH_LOGS",
        "TRANSFORMERS_VERBOSITY",
        "AWS_SECRET_ACCESS_KEY",
    ],
)
def test_what_changes_bits_or_concerns_nobody_is_not_passed_on(name):
    assert name not in environment({name: "x"})


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_chosen_by_an_argument_alone(name):
    options = {"needs_hub": False, "modules_cache": "/work/modules"}
    assert name not in probe_environment({name: "x"}, **options)
    variables = probe_environment({name: "x"}, **options, kernels={name: "avx2"})
    assert variables[name] == shown(variables)[name] == "avx2"


def test_no_other_variable_comes_in_as_a_kernel():
    options = {"needs_hub": False, "modules_cache": "/work/modules"}
    with pytest.raises(
        ValueError, match="OMP_NUM_THREADS does not select kernels; the variables that do are ATEN_"
    ):
        probe_environment({}, **options, kernels={"OMP_NUM_THREADS": "8"})


def test_what_is_needed_to_run_and_to_reach_the_hub_is_passed_on():
    environ = {name: f"my {name}" for name in (*PASSED_ON, *FOR_THE_HUB)}
    variables = environment(environ, needs_hub=True)
    assert {name: variables[name] for name in environ} == environ


@pytest.mark.parametrize("name", FOR_THE_HUB)
def test_no_token_and_no_way_to_the_hub_goes_where_none_is_needed(name):
    assert name in environment({name: "x"}, needs_hub=True)
    assert name not in environment({name: "x"})


def test_what_is_not_set_is_not_made_up():
    assert set(environment(needs_hub=True)) == {*FIXED, "HF_MODULES_CACHE"}


@pytest.mark.parametrize("name", sorted(FIXED))
def test_nothing_of_the_user_s_replaces_what_is_fixed(name):
    assert environment({name: "mine"})[name] == FIXED[name]


def test_threads_are_one_and_kernels_are_the_release_s_own():
    variables = environment()
    assert variables["OMP_NUM_THREADS"] == variables["MKL_NUM_THREADS"] == "1"
    assert variables["USE_HUB_KERNELS"] == "NO"


def test_the_hub_is_switched_off_unless_it_is_needed():
    assert environment()["HF_HUB_OFFLINE"] == "1"
    assert environment({"HF_HUB_OFFLINE": "0"})["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in environment(needs_hub=True)
    assert environment({"HF_HUB_OFFLINE": "1"}, needs_hub=True)["HF_HUB_OFFLINE"] == "1"


def test_each_stack_has_its_own_copy_of_remote_code():
    assert environment({"HF_MODULES_CACHE": "/shared"})["HF_MODULES_CACHE"] == "/work/modules"


def test_the_given_environment_is_left_alone():
    environ = {"PATH": "/bin", "OMP_NUM_THREADS": "8"}
    environment(environ)
    assert environ == {"PATH": "/bin", "OMP_NUM_THREADS": "8"}


def test_a_report_shows_no_token_and_no_folder():
    names = (*PASSED_ON, *FOR_THE_HUB)
    environ = {name: f"secret of {name}" for name in names} | {"HF_HUB_OFFLINE": "0"}
    shown_variables = shown(environment(environ, needs_hub=True))
    assert not set(SECRETS) & set(shown_variables)
    assert not {"HOME", "PATH", "HF_HOME", "USER", "HF_MODULES_CACHE"} & set(shown_variables)
    secret = {name for name, text in shown_variables.items() if text.startswith("secret")}
    assert secret == {"CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG"}


def test_a_report_shows_what_bears_on_bits():
    assert shown(environment())["OMP_NUM_THREADS"] == "1"
    assert shown(environment())["HF_HUB_OFFLINE"] == "1"
    assert shown({}) == {}
