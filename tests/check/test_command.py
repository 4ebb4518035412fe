"""samebits check: the run that it asks for, what it says before, and its exit codes."""

import json
import os
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from samebits import cli
from samebits.base.filestate import Dependencies
from samebits.check import hub
from samebits.check.command import prepare
from samebits.check.folder import claimed_folder
from samebits.check.options import Options
from samebits.matrix.checkpoint import CheckpointError
from samebits.matrix.spec import Matrix
from samebits.questions import registry
from samebits.records.finding import Finding
from samebits.records.report import PackagesReport
from samebits.terminal.progress import CellLines
from tests.check.test_model import CONFIG, checkpoint
from tests.support.sample_report import sample_report


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "llama")
    return tmp_path


class Runner:
    """A fake of run_matrix that keeps what it was asked."""

    def __init__(self):
        self.report = sample_report()
        self.order = self.matrix = None
        self.raises = None

    async def __call__(self, order, environ, progress, dependencies, matrix):
        assert isinstance(matrix, Matrix)
        self.order, self.matrix = order, matrix
        assert isinstance(progress(0), CellLines)
        if self.raises:
            raise self.raises
        return self.report, {}


@pytest.fixture
def runner(monkeypatch):
    made = Runner()
    monkeypatch.setattr("samebits.cli.check.run_matrix", made)
    return made


def main(folder, *arguments):
    return cli.main(("check", *arguments), {"HOME": "/h", "SAMEBITS_CACHE": str(folder / "cache")})


def test_a_folder_is_run_without_a_file(runner, folder, capsys):
    assert main(folder, "llama") == runner.report.exit_code == 1
    (model,) = runner.matrix.models
    assert (model.name, model.path) == ("llama", str(folder / "llama"))
    assert [stack.id for stack in runner.matrix.stacks] == ["4.57", "5.x"]
    assert all(map(model.asks, ("relations", "crossings", "usage")))
    order = runner.order
    assert order.work_folder == folder / "cache" / "checks"
    assert (order.level, order.capsules, order.lock_age > 0) == ("default", "none", True)
    assert order.command == "samebits check llama"
    out, err = capsys.readouterr()
    assert (folder / "reports" / "check" / "llama" / "report.md").is_file()
    assert out.splitlines()[-1] == (
        "  report  reports/check/llama/report.md, reports/check/llama/report.html"
    )
    assert err.startswith("llama: LlamaForCausalLM (llama), 1.0 kB\ncompared: 4.57 → 5.x (saved ")
    # nothing else is left in the user's folder
    assert {path.name for path in folder.iterdir()} <= {"llama", "reports", "cache"}


@pytest.mark.parametrize(
    ("type_name", "quoted", "name", "variant", "words"),
    [
        ("qwen2_vl", "type:qwen2_vl", "qwen2_vl", 0, "qwen2_vl"),
        ("gemma2#3", "'type:gemma2#3'", "gemma2-3", 3, "gemma2, variant 3 of its config"),
    ],
)
def test_a_type_or_a_variant_of_it_is_run_as_a_tiny_model_that_the_run_makes(
    runner, folder, capsys, type_name, quoted, name, variant, words
):
    main(folder, f"type:{type_name}", "--from", "4.57")
    (model,) = runner.matrix.models
    recipe = model.build
    assert (recipe.architecture, recipe.auto) == (type_name.partition("#")[0], True)
    assert (recipe.head, recipe.config_variant) == ("auto", variant)
    assert runner.order.command == f"samebits check {quoted} --from 4.57"
    assert (folder / "reports" / "check" / name / "report.md").is_file()
    made = f"{name}: a tiny model that the run makes ({words})\n"
    assert capsys.readouterr().err.startswith(made)


@pytest.mark.parametrize("number", ["", "0", "100", "two", "-1"])
def test_the_number_of_a_variant_that_is_none_is_named(folder, capsys, number):
    assert main(folder, f"type:gemma2#{number}", "--from", "4.57") == 2
    text = capsys.readouterr().err
    assert f"type:gemma2#{number}: after # comes the number of a variant" in text
    assert "as in type:gemma2#2" in text


def test_the_options_reach_the_run(runner, folder):
    main(
        folder,
        *("llama", "--from", "4.50", "--to", "5.2", "--quick", "--dtypes", "bfloat16,float32"),
        *("--attention", "eager", "--releases", "--repro", "--reports", "out", "--jobs", "1"),
    )
    (model,) = runner.matrix.models
    assert (model.dtypes, model.attention) == (("bfloat16", "float32"), ("eager",))
    assert [stack.id for stack in runner.matrix.stacks] == ["4.50", "5.2"]
    order = runner.order
    assert (order.level, order.releases, order.capsules, order.jobs) == ("quick", True, "all", 1)
    assert order.command == (
        "samebits check llama --from 4.50 --to 5.2 --dtypes bfloat16,float32 --attention eager "
        "--releases --quick --repro"
    )
    assert (folder / "out" / "report.md").is_file()


SMALL = {
    "dtype of 5.x": ({"dtype": "bfloat16"}, ("bfloat16", "float32")),
    "dtype of 4.x": ({"torch_dtype": "float16"}, ("float16", "float32")),
    "dtype of its text part": ({"text_config": {"dtype": "bfloat16"}}, ("bfloat16", "float32")),
    "float32": ({"torch_dtype": "float32"}, ("float32",)),
    "none": ({}, ("float32",)),
    "no dtype": ({"dtype": ["bfloat16"], "text_config": 1}, ("float32",)),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_dtype_of_the_config_comes_first_and_float32_beside_it(runner, folder, capsys, name):
    """Users load what the config names: 5.x does so by default."""
    fields, dtypes = SMALL[name]
    checkpoint(folder / "small", CONFIG | fields)
    main(folder, "small", "--from", "4.57", "--to", "5.2")
    (model,) = runner.matrix.models
    assert model.dtypes == dtypes
    assert (f"in {dtypes[0]}, which config.json names" in capsys.readouterr().err) is (
        len(dtypes) > 1
    )
    assert runner.order.command == "samebits check small --from 4.57 --to 5.2"


def test_a_scan_runs_the_newest_release_alone_and_says_so(runner, folder, capsys):
    main(folder, "llama", "--from", "4.57", "--to", "5.23", "--scan", "numpy>=2.3")
    assert (runner.order.scan, [spec.id for spec in runner.matrix.stacks]) == (
        "numpy>=2.3",
        ["5.23"],
    )
    said = "compared: transformers 5.23 (with the releases of numpy>=2.3 that fit)"
    assert said in capsys.readouterr().err
    main(folder, "llama", "--scan", "")
    assert runner.order.scan == ""  # which the run refuses: it names no package


def test_a_lock_that_no_release_fits_does_not_end_a_check(runner, folder, capsys, monkeypatch):
    """The last question of a scan is for a release below the oldest that fits, and leaves no lock."""

    class Asking(Dependencies):
        def __init__(self):
            super().__init__()
            self.file(folder / "cache" / "checks" / "locks" / "newest-numpy-0123.txt")

    monkeypatch.setattr("samebits.cli.check.Dependencies", Asking)
    assert main(folder, "llama", "--scan", "numpy>=2.3") == runner.report.exit_code
    assert "report" in capsys.readouterr().out


def test_a_named_dtype_replaces_that_of_the_config(runner, folder, capsys):
    checkpoint(folder / "small", CONFIG | {"dtype": "bfloat16"})
    main(folder, "small", "--dtypes", "float64")
    (model,) = runner.matrix.models
    assert model.dtypes == ("float64",)
    assert "which config.json names" not in capsys.readouterr().err


def test_code_in_packages_reaches_the_run(runner, folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "pyproject.toml").touch()
    code = (
        "--package",
        "my-models==1.2",
        "--package",
        str(folder / "mine"),
        "--import",
        "my_models",
    )
    main(folder, "llama", *code, "--class", "my_models.modeling:X", "--from", "5.2", "--to", "5.3")
    (model,) = runner.matrix.models
    assert model.packages == ("my-models==1.2", str(folder / "mine"))
    assert (model.imports, model.model_class) == (("my_models",), "my_models.modeling:X")
    # a command that is published names no folder of this machine
    assert runner.order.command.startswith(
        "samebits check llama --package my-models==1.2 --package ./mine --import my_models "
        "--class my_models.modeling:X --from 5.2"
    )


def test_packages_of_the_stacks_reach_every_stack(runner, folder):
    wanted = ("--environment-package", "datasets>=4", "--environment-package", "numpy<2")
    main(folder, "llama", *wanted, "--from", "4.57", "--to", "5.2")
    assert [(stack.id, stack.packages) for stack in runner.matrix.stacks] == [
        ("4.57", ("datasets>=4", "numpy<2")),
        ("5.2", ("datasets>=4", "numpy<2")),
    ]
    assert (
        runner.order.command == "samebits check llama --environment-package 'datasets>=4' "
        "--environment-package 'numpy<2' --from 4.57 --to 5.2"
    )
    (model,) = runner.matrix.models
    assert model.packages == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("llama", "--environment-package", "./mine"), "--environment-package: "),
        (("lama/",), 'did you mean "llama"?'),
        (("llama", "--to", "5.2.1.0"), "--to"),
        (("llama", "--from", "4.60"), "there is no such release"),
        (("llama", "--dtypes", "fp33"), '--dtypes: "fp33" is not a dtype'),
        (("llama", "--devices", "gpu"), "--devices"),
        (("llama", "--package", "./mine"), '--package: "./mine" does not exist'),
        (
            ("llama", "--package", "x", "--package", "torch"),
            '--package: "torch": every environment',
        ),
        (("llama", "--import", "my-models"), "such as my_models"),
        (("llama", "--class", "a.b.C"), "write a.b:C"),
    ],
)
def test_a_mistake_ends_with_2_and_no_traceback(runner, folder, capsys, arguments, words):
    assert main(folder, *arguments) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert ("Traceback" in err, out, runner.order) == (False, "", None)


CODE = """\
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.utils import LossKwargs


class X(LlamaForCausalLM):
    pass
"""


def with_code(folder):
    made = checkpoint(
        folder / "own", CONFIG | {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}
    )
    (made / "modeling_x.py").write_text(CODE)


def test_code_of_its_own_must_be_allowed(runner, folder, capsys):
    with_code(folder)
    assert main(folder, "own") == 2
    err = capsys.readouterr().err
    assert "comes with code of its own: auto_map in config.json (modeling_x.X)" in err
    assert "--trust-remote-code" in err
    assert runner.order is None


def test_allowed_code_is_read_before_it_runs(runner, folder, capsys):
    with_code(folder)
    main(folder, "own", "--trust-remote-code")
    err = capsys.readouterr().err
    assert "seen by reading its code: 1 problem" in err
    assert "modeling_x.py:2:" in err
    assert "SB101" in err
    assert runner.matrix.models[0].trust_remote_code
    assert runner.order.command == "samebits check own --trust-remote-code"


def test_the_rest_of_its_problems_has_a_command_that_can_be_typed(runner, folder, capsys):
    with_code(folder)
    body = CODE.splitlines()[1]
    (folder / "own" / "modeling_x.py").write_text("\n".join([CODE, *[body] * 9]))
    (folder / "own").rename(folder / "my own")
    main(folder, "my own", "--trust-remote-code")
    assert "more: samebits lint 'my own'\n" in capsys.readouterr().err


def test_a_problem_of_releases_that_are_not_compared_is_not_shown(runner, folder, capsys):
    with_code(folder)
    main(folder, "own", "--trust-remote-code", "--from", "4.48", "--to", "4.48")
    assert "SB101" not in capsys.readouterr().err


def test_the_class_of_transformers_may_be_asked_for(runner, folder, capsys):
    with_code(folder)
    main(folder, "own", "--no-trust-remote-code")
    assert "seen by reading" not in capsys.readouterr().err
    assert not runner.matrix.models[0].trust_remote_code


def test_a_checkout_of_this_machine_is_named_on_the_user_s_own_terminal():
    check = prepare(Options(model="llama", first="5.2", last="/elsewhere/transformers"))
    assert "--to '…/transformers'" in check.command.shown([])
    assert "--to /elsewhere/transformers" in check.command.to_type([])


def test_a_folder_of_this_machine_is_in_no_report(runner, folder, monkeypatch, capsys):
    """The user's own terminal has it: the next command could not be pasted."""
    (folder / "other").mkdir()
    monkeypatch.chdir(folder / "other")
    main(folder, str(folder / "llama"))
    assert runner.order.command == "samebits check '…/llama'"
    out = capsys.readouterr().out
    (command,) = [line for line in out.splitlines() if line.startswith("  next ")]
    assert f" samebits check {folder / 'llama'} --releases " in command


def test_a_folder_below_the_working_directory_is_named_from_there(runner, folder):
    main(folder, str(folder / "llama"))
    assert runner.order.command == "samebits check ./llama"


def test_a_report_of_somebody_else_is_not_replaced(folder, capsys):
    (folder / "reports" / "check" / "llama").mkdir(parents=True)
    (folder / "reports" / "check" / "llama" / "report.md").write_text("mine")
    assert main(folder, "llama") == 2  # the real run ends before anything is built
    assert "which samebits did not write" in capsys.readouterr().err


def test_an_error_of_the_run_keeps_its_code(runner, folder, capsys):
    runner.raises = CheckpointError("gone")
    assert main(folder, "llama") == 2
    assert capsys.readouterr().err.endswith("gone\n")


def test_code_that_no_load_needs_is_not_asked_for_and_is_named(runner, folder, capsys):
    code = folder / "llama" / "custom_generate" / "generate.py"
    code.parent.mkdir()
    code.write_text("def generate(model): pass")
    main(folder, "llama")
    assert not runner.matrix.models[0].trust_remote_code
    assert runner.order.command == "samebits check llama"
    line = "code that is not run without --trust-remote-code: custom_generate/generate.py"
    assert line in capsys.readouterr().err
    main(folder, "llama", "--trust-remote-code")
    assert runner.matrix.models[0].trust_remote_code
    assert line not in capsys.readouterr().err


def test_code_of_a_tokenizer_must_be_allowed(runner, folder, capsys):
    settings = {"auto_map": {"AutoTokenizer": ["tokenization_x.X", None]}}
    (folder / "llama" / "tokenizer_config.json").write_text(json.dumps(settings))
    assert main(folder, "llama") == 2
    assert "auto_map in tokenizer_config.json (tokenization_x.X)" in capsys.readouterr().err
    assert runner.order is None


def test_code_for_generate_is_read_before_it_runs(runner, folder, capsys):
    code = folder / "llama" / "custom_generate" / "generate.py"
    code.parent.mkdir()
    code.write_text("from transformers.utils import LossKwargs\n")
    main(folder, "llama", "--trust-remote-code")
    assert "generate.py:1:" in capsys.readouterr().err


def test_two_models_of_one_name_have_two_reports(runner, folder):
    for parent in ("a", "b"):
        checkpoint(folder / parent / "checkpoint-500")
    reports = folder / "reports" / "check"

    def names():
        return {path.name for path in reports.iterdir() if (path / "report.json").is_file()}

    main(folder, "a/checkpoint-500")
    main(folder, "a/checkpoint-500")
    main(folder, str(folder / "a" / "checkpoint-500"))
    assert names() == {"checkpoint-500"}
    first = (reports / "checkpoint-500" / "report.json").read_bytes()
    runner.report = sample_report().model_copy(update={"started": "2031-01-01T00:00:00Z"})
    main(folder, "b/checkpoint-500")
    (second,) = names() - {"checkpoint-500"}
    assert second.startswith("checkpoint-500-")
    main(folder, "b/checkpoint-500")
    assert names() == {"checkpoint-500", second}
    assert (reports / "checkpoint-500" / "report.json").read_bytes() == first


@pytest.fixture
def twins(folder):
    for parent in ("a", "b"):
        checkpoint(folder / parent / "twin")
    return folder / "reports" / "check"


def reports_of(folder):
    return sorted(path.parent.name for path in folder.glob("*/report.json"))


def test_two_checks_of_one_name_at_the_same_time_have_two_reports(
    runner, folder, twins, monkeypatch
):
    other = SimpleNamespace(name="twin", source=str(folder / "b" / "twin"))
    second = []

    async def run(*asked):
        with claimed_folder(other.name, other.source) as claimed:
            second.append(claimed)
        return await runner(*asked)

    monkeypatch.setattr("samebits.cli.check.run_matrix", run)
    main(folder, "a/twin")
    main(folder, "b/twin")
    first, own = (Path("reports/check") / name for name in reports_of(twins))
    assert (first.name, second, runner.order.reports) == ("twin", [own] * 2, own)


def test_a_check_that_ends_without_a_report_keeps_no_folder(runner, folder, twins, capsys):
    runner.raises = CheckpointError("cut off")
    assert main(folder, "a/twin") == 2
    assert not (folder / "reports").exists()
    runner.raises = None
    main(folder, "b/twin")
    assert reports_of(twins) == ["twin"]


@pytest.mark.parametrize("mark", ["", "0" * 64, None])
def test_a_folder_whose_mark_is_not_ours_is_left_alone(runner, folder, twins, mark):
    (twins / "twin").mkdir(parents=True)
    path = twins / "twin" / ".samebits-model"
    os.mkfifo(path) if mark is None else path.write_text(mark)
    main(folder, "a/twin")
    (name,) = reports_of(twins)
    assert name.startswith("twin-")


def test_a_folder_that_cannot_be_written_is_named_before_the_run(runner, folder, capsys):
    (folder / "file").write_text("")
    environ = {"HOME": "/h", "SAMEBITS_CACHE": str(folder / "file" / "deep" / "cache")}
    assert cli.main(("check", "llama"), environ) == 2
    error = capsys.readouterr().err
    assert f"the cache folder {folder / 'file' / 'deep' / 'cache'} cannot be written" in error
    assert "Set SAMEBITS_CACHE to a folder that can be written and kept" in error
    assert "SAMEBITS_CACHE" in error
    assert main(folder, "llama", "--reports", str(folder / "file" / "out")) == 2
    assert f"cannot be written to {folder / 'file' / 'out'}" in capsys.readouterr().err
    assert runner.order is None
    assert main(folder, "llama", "--reports", str(folder / "new" / "out")) == 1
    assert runner.order is not None


def test_a_misspelt_option_names_the_nearest(folder, capsys):
    with pytest.raises(SystemExit) as ended:
        main(folder, "llama", "--qick")
    assert ended.value.code == 2
    assert 'unknown option or argument: --qick: did you mean "--quick"?' in capsys.readouterr().err


def test_who_asks_for_json_learns_where_it_is(folder, capsys):
    with pytest.raises(SystemExit):
        main(folder, "llama", "--json")
    assert "--json. report.json is always written, beside report.md" in capsys.readouterr().err


def test_a_second_model_is_one_for_a_matrix(folder, capsys):
    with pytest.raises(SystemExit) as ended:
        main(folder, "llama", "bert")
    assert ended.value.code == 2
    assert "argument: bert. A check is of one model; samebits init" in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(("--version",), {})
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"samebits {version('samebits')}\n"


@pytest.mark.parametrize(("config", "code"), [({}, 2), (CONFIG, 1)])
def test_the_config_of_a_model_on_the_hub_is_looked_at_before_the_run(
    runner, folder, monkeypatch, capsys, config, code
):
    path = checkpoint(folder / "cached", config) / "config.json"
    monkeypatch.setattr(hub, "config_file", lambda *_: hub.HubFile(path, "c" * 40))
    for name in ("settings_folder", "code_folder"):
        monkeypatch.setattr(hub, name, lambda *_: path.parent)
    assert main(folder, "org/name") == code
    assert ("it has no model_type" in capsys.readouterr().err) == (code == 2)
    assert (runner.order is None) == (code == 2)


SERIES = """inputs:
  mine:
    arguments:
      past_values: {shape: [2, context_length], dtype: float32}
      scale: 3
"""


def test_inputs_come_from_a_file_and_their_paths_from_its_folder(runner, folder):
    (folder / "fed").mkdir()
    (folder / "fed" / "inputs.yaml").write_text(SERIES)
    main(folder, "llama", "--inputs", "fed/inputs.yaml")
    (model,) = runner.matrix.models
    made = model.prompts["mine"]
    assert list(model.prompts) == ["mine"]  # as beside inputs: of matrix.yaml
    assert made.arguments["past_values"].shape == (2, "context_length")
    assert made.arguments["scale"].value == 3
    assert made.places["past_values"] == "inputs.yaml:4:7"
    assert made.folder == "fed"
    assert model.path == str(folder / "llama")
    assert "--inputs fed/inputs.yaml" in runner.order.command


def test_a_file_of_arrays_is_a_set_of_inputs(runner, folder):
    import numpy as np

    np.savez(folder / "given.npz", input_ids=np.ones((1, 3), dtype=np.int64))
    main(folder, "llama", "--inputs", "given.npz")
    assert [given.file for given in runner.matrix.models[0].prompts.values()] == ["given.npz"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SERIES.replace("dtype", "dtpe"), 'inputs.yaml:4:49: unknown key "dtpe"'),
        ("mine: {}\n", "inputs.yaml: the file has one key, inputs"),
        ("inputs: [", "inputs.yaml:"),
        (None, "inputs.yaml: the file does not exist"),
    ],
)
def test_a_mistake_in_the_file_of_inputs_has_its_place(runner, folder, capsys, text, words):
    if text is not None:
        (folder / "inputs.yaml").write_text(text)
    assert main(folder, "llama", "--inputs", "inputs.yaml") == 2
    assert words in capsys.readouterr().err


def needs(package, **beside):
    """Return a report in which a load needs a package."""
    report = sample_report()
    finding = Finding(code="SB318", where=package, evidence=())
    row = report.rows[0]
    cell = row.cells[0].model_copy(update={"findings": (finding,)})
    rows = (row.model_copy(update={"cells": (cell, *row.cells[1:])}), *report.rows[1:])
    packages = (PackagesReport(models=("llama",), stack="5.x", **beside),) if beside else ()
    rules = (*report.rules, *registry.texts([finding.code]))
    return report.model_copy(update={"rows": rows, "packages": packages, "rules": rules})


@pytest.fixture
def asked(monkeypatch, runner):
    """Return the packages of each run; the reports are taken from ``runner.reports`` first."""
    listed = []
    runner.reports = []

    async def run(order, environ, progress, dependencies, matrix):
        listed.append(matrix.models[0].packages)
        if runner.reports:
            runner.report = runner.reports.pop(0)
        return await runner(order, environ, progress, dependencies, matrix)

    monkeypatch.setattr("samebits.cli.check.run_matrix", run)
    return listed


def test_a_package_that_a_load_needs_is_added_and_the_check_run_again(
    runner, asked, folder, capsys
):
    runner.reports = [needs("torchvision"), sample_report()]
    main(folder, "llama")
    assert asked == [(), ("torchvision",)]
    assert "a load needs torchvision: added, and run again" in capsys.readouterr().err


def test_packages_that_are_missed_one_after_the_other_are_all_added(runner, asked, folder):
    runner.reports = [needs("einops"), needs("timm", listed=("einops",)), sample_report()]
    main(folder, "llama")
    assert asked == [(), ("einops",), ("einops", "timm")]


def test_a_package_that_is_listed_or_has_no_wheels_is_not_added(runner, asked, folder):
    runner.reports = [needs("timm", listed=("timm",)), needs("detectron2")]
    main(folder, "llama")
    main(folder, "llama")
    assert asked == [(), ()]


def test_without_the_package_the_first_run_stays(runner, asked, folder, capsys):
    runner.reports = [needs("timm"), needs("timm", listed=("timm",), failure="no network")]
    main(folder, "llama")
    assert asked == [(), ("timm",)]
    assert "timm cannot be had here: run without" in capsys.readouterr().err
