"""Nothing of a model's folder runs unless the user said so, in an old, a middle and the newest release."""

import os
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from samebits import cli
from samebits.matrix.spec import StackSpec
from samebits.stacks.build import StackBuilder
from samebits.stacks.installer import Installer
from samebits.terminal.summary import summary
from tests.real.conftest import NEW, OLD, SHARED, WORK
from tests.support import canaries

pytestmark = pytest.mark.long  # for changes of what code of a folder may run: samebits/base, model/load.py, check_consent.py has the probes' half

MIDDLE = "4.57"
"""A release that runs custom_generate of a folder without trust."""
REFUSED = ("generates", "maps")
"""Models that are tried with ``trust_remote_code: false``, too."""
MATRIX = f"""
environments: ["{OLD}", "{MIDDLE}", "{NEW}"]
torch: "2.13.0"
python: "3.11"
defaults:
  relations: false
  save_load: false
  training: false
  changes: false
  greedy: 4
  prompts: {{short: {{length: 7}}}}
models:
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory, stacks):
    folder = tmp_path_factory.mktemp("consent")
    script = canaries.__file__
    command = [stacks[OLD].python, script, str(folder), str(folder / "canary")]
    subprocess.run(command, check=True, env={"PATH": os.environ["PATH"], "HOME": str(folder)})
    assert not (folder / "canary").exists()
    return folder


@pytest.fixture(scope="module")
def report(made, run_in):
    lines = [f"  {name}: {{path: {name}}}" for name in canaries.DOORS]
    lines += [f"  {name}-refused: {{path: {name}, trust_remote_code: false}}" for name in REFUSED]
    lines += [
        f"  {name}-trusted: {{path: {name}-trusted, trust_remote_code: true}}"
        for name in canaries.TRUSTED
    ]
    (made / "matrix.yaml").write_text(MATRIX + "\n".join(lines) + "\n")
    # the look at files before a run refuses RealmRetriever, which is no model
    with mock.patch("samebits.pipeline.early.refuse"):
        return run_in(made)


@pytest.fixture(scope="module")
def ran(made, report):
    """Return the lines that code wrote which ran, without repetitions."""
    return set((made / "canary").read_text().splitlines())


@pytest.mark.parametrize("name", canaries.DOORS)
def test_no_code_runs_without_consent(ran, name):
    assert not [line for line in ran if line.startswith(f"{name}/")], canaries.DOORS[name]


def test_only_code_of_trusted_models_ran(ran):
    assert all(line.split("/")[0].endswith("-trusted") for line in ran)


def test_code_runs_with_consent(ran):
    releases = {name: set() for name in canaries.TRUSTED}
    files = {name: set() for name in canaries.TRUSTED}
    for line in ran:
        name, _, rest = line.partition("-trusted/")
        files[name].add(rest.split()[0])
        releases[name].add(line.split()[-1][:4])
    assert releases["maps"] >= {"4.48", "4.57"}
    assert len(releases["maps"]) == 3
    # 4.48 has no such door
    assert len(releases["generates"]) == 2
    assert "4.57" in releases["generates"]
    # 4.48 has no LightGlue, and 5.23 asks the caller
    assert releases["lightglue"] >= {"4.57"}
    assert files["processors"] == {"own_processor.py", "own_video.py"}


@pytest.mark.parametrize("name", ["generates", "generates-refused", "shadows"])
@pytest.mark.parametrize("stack", [MIDDLE, NEW])
def test_a_model_that_loads_without_its_code_is_judged_without_it(cells, name, stack):
    assert cells[name, OLD].verdict == "reference"
    assert cells[name, stack].verdict in ("identical", "rounding"), cells[name, stack].headline


def test_a_refusal_names_the_file_and_what_to_do(cells):
    cell = cells["retriever", OLD]
    text = f"{cell.headline} {cell.failure}"
    assert "block_records.npy: this pickle names " in text
    assert "--trust-remote-code" in text


def test_a_config_that_trusts_code_by_itself_is_refused_by_name(cells):
    cell = cells["lightglue", MIDDLE]
    text = f"{cell.headline} {cell.failure}"
    assert "detector/own.py comes with the model, and it was not run" in text
    assert "--trust-remote-code" in text


def test_the_report_and_the_terminal_say_what_was_not_run(report, made):
    not_run = {entry.model: entry.not_run for entry in report.checkpoints}
    assert not_run["generates"] == ("custom_generate/generate.py",)
    assert not_run["maps"] == ("config.json", "tokenizer_config.json", "preprocessor_config.json")
    assert not_run["processors"] == ("processor_config.json", "video_preprocessor_config.json")
    assert not_run["generates-trusted"] == not_run["template"] == ()
    (line,) = [line for line in summary(report, [Path("report.md")]) if "trust_remote_code" in line]
    assert "generates (custom_generate/generate.py)" in line


@pytest.fixture
def standing_in(made, monkeypatch):
    """Stand in the folder of the model with custom_generate, and forget what has run before."""
    monkeypatch.chdir(made / "generates")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (made / "canary").unlink(missing_ok=True)
    return made


def test_a_lock_holds_the_files_of_code_that_does_not_run(standing_in, capsys):
    builder = StackBuilder(WORK, Installer(os.environ), stacks=SHARED["stacks"])
    spec = StackSpec(id=MIDDLE, transformers=MIDDLE, torch="2.13.0", python="3.11")
    words = ["--python", builder.build(spec).python, "--lock", str(standing_in / "samebits.lock")]
    assert cli.main(["record", ".", *words], os.environ) == 0
    assert "code that is not run without --trust-remote-code" in capsys.readouterr().err
    assert cli.main(["verify", *words], os.environ) == 0
    assert "custom_generate/generate.py" in (standing_in / "samebits.lock").read_text()
    assert not (standing_in / "canary").exists()
