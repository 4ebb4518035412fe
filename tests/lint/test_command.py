"""The command: exit codes, formats, options, and files that are no Python."""

import io
import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samebits.lint import command
from samebits.lint.bounds import bound_of, range_of
from samebits.lint.command import main
from samebits.lint.engine import UNREADABLE, lint, python_files
from samebits.lint.fix import fix_files
from samebits.lint.releases import NEWEST

ROOT = Path(__file__).parents[2]
BAD = "from transformers.utils import LossKwargs\n"


def run(*arguments):
    """Run the command; return exit code, standard output and standard error."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as stop:
            code = stop.code
    out.flush()
    return code, out.buffer.getvalue().decode("utf-8"), err.getvalue()


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "modeling, 50%:ä.py"
    path.write_text(BAD, "utf-8")
    return path


def test_nothing_found(tmp_path):
    (tmp_path / "m.py").write_text("x = 1\n")
    assert run(tmp_path) == (0, "no problem found\n", "")


def test_something_found(bad):
    code, out, _ = run(bad)
    assert code == 1
    assert ":1:32: SB101 " in out
    assert out.endswith("1 problem found; --fix repairs 1\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no such folder"],
        [".", "--select", "SB999"],
        [".", "--format", "xml"],
        [".", "--fix", "--diff"],
    ],
)
def test_a_mistake_on_the_command_line(arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--select", "SB1"], 1),
        (["--select", "sb101,SB3"], 1),
        (["--select", "SB3"], 0),
        (["--ignore", "SB101"], 0),
        (["--select", "SB1", "--ignore", "SB102"], 1),
    ],
)
def test_select_and_ignore(bad, options, expected):
    assert run(bad, *options)[0] == expected


@pytest.mark.parametrize(
    ("line", "options", "expected"),
    [
        (BAD, ["--from", "4.54"], 1),
        (BAD, ["--to", "4.53"], 0),
        (BAD, ["--to", "4.53.3"], 0),
        (BAD, ["--from", "5", "--to", "5.x"], 1),
        ("from transformers.core_model_loading import WeightRenaming\n", ["--from", "5.x"], 0),
        ("from transformers.core_model_loading import WeightRenaming\n", ["--to", "4.57"], 1),
        ("from transformers.utils import TransformersKwargs\n", ["--from", "5.0"], 0),
        ("from transformers.utils import TransformersKwargs\n", ["--from", "4.53"], 1),
    ],
)
def test_only_problems_of_the_releases_that_the_code_is_for(tmp_path, line, options, expected):
    (tmp_path / "m.py").write_text(line)
    assert run(tmp_path, *options)[0] == expected


@pytest.mark.parametrize("options", [["--from", "new"], ["--from", "5.2", "--to", "4.57"]])
def test_a_wrong_release_is_a_mistake(bad, options):
    code, out, err = run(bad, *options)
    assert (code, out) == (2, "")
    assert "--from and --to: " in err


def test_json(bad):
    content = json.loads(run(bad, "--format", "json")[1])
    assert content["schema_version"] == 1
    (row,) = content["problems"]
    assert (row["code"], row["line"], row["column"], row["fixable"]) == ("SB101", 1, 32, True)
    assert row["path"] == bad.as_posix()
    assert row["releases"] == "4.54 and later"
    assert row["affected"] == [{"first": "4.54", "last": None}]


def test_github(bad):
    line = run(bad, "--format", "github")[1]
    assert line.endswith("(4.54 and later)%0Atry TransformersKwargs, and fall back to LossKwargs\n")
    assert line.startswith("::error file=")
    assert "modeling%2C 50%25%3Aä.py,line=1,endLine=1,col=32,title=SB101::" in line
    assert line.count("\n") == 1


def test_diff_writes_nothing_and_is_what_fix_writes(bad):
    code, out, _ = run(bad, "--diff")
    assert code == 1
    assert bad.read_text("utf-8") == BAD
    added = [
        line[1:] for line in out.splitlines() if line.startswith("+") and not line.startswith("+++")
    ]
    assert run(bad, "--fix")[0] == 0
    assert bad.read_text("utf-8").splitlines() == added
    assert run(bad, "--diff") == (0, "", "")


def test_fix_repairs_only_what_is_selected(bad):
    run(bad, "--fix", "--ignore", "SB101")
    assert bad.read_text("utf-8") == BAD


@pytest.mark.parametrize(
    "data",
    [
        b"def f(:\n",
        b"\xff\xfe\x00",
        b"# coding: no-such\n",
        b"\x00",
        b"x = '\xe4'\n",
        b"(" * 3000,
        b"x = 1\n" * 800_000,
        b"-" * 100_000 + b"1",
        b"\xef\xbb\xbf# coding: latin-1\n",
    ],
    ids=["syntax", "bytes", "codec", "nul", "latin", "brackets", "huge", "deep", "bom"],
)
def test_an_unreadable_file_is_one_line(tmp_path, data):
    path = tmp_path / "m.py"
    path.write_bytes(data)
    (problem,) = lint([path]).problems
    assert problem.code == UNREADABLE
    assert "\n" not in problem.message
    code, out, _ = run(path)
    assert code == 1
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(
    "data", [b"", b"\xef\xbb\xbfx = 1\n", b"# coding: latin-1\nx = '\xe4'\n", b"x = 1\r\x0cy = 2"]
)
def test_an_unusual_file_is_read(tmp_path, data):
    (tmp_path / "m.py").write_bytes(data)
    assert lint([tmp_path / "m.py"]).problems == []


LINES = st.sampled_from(
    [
        "from transformers.utils import LossKwargs",
        "from transformers import *",
        "import transformers.x as y",
        "class M(PreTrainedModel):",
        "class M(M):",
        "class M(N, metaclass=T):",
        "    def __init__(self, config):",
        "    def _init_weights(self, module):",
        "        module.weight.data[0].zero_()",
        "        self.register_buffer('x', y, persistent=False)",
        "        self.m = [m.item() for m in torch.arange(3)]",
        "from transformers import PreTrainedModel",
        "import torch",
        "    _tied_weights_keys = ['é']",
        "    def tie_weights(self): pass",
        "        x.weight.data.normal_(*a)",
        "        a = self.m(x)[0]",
        "    pass",
        "        pass",
        "x = ROPE_INIT_FUNCTIONS[lambda: 0]",
        "from . import M",
        "if past_key_values: pass",
        "from transformers.utils import LossKwargs as é, x; y = 1",
        "\t",
        "\x0c",
        "try:",
        "except ImportError: pass",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(
        st.binary(max_size=200), st.lists(LINES, max_size=14).map(lambda x: "\n".join(x).encode())
    )
)
def test_no_file_breaks_it(tmp_path, data):
    path = tmp_path / "m.py"
    path.write_bytes(data)
    assert run(path)[0] in {0, 1}
    fix_files([path], lambda _: True, write=True)
    unread = [p for p in lint([path]).problems if p.code == UNREADABLE]
    assert not unread or path.read_bytes() == data


@pytest.mark.processes
def test_it_starts_without_the_rest():
    code = (
        "import sys; sys.argv = ['samebits', 'lint', 'tests/custom/healthy']\n"
        "from samebits.__main__ import main\n"
        "try: main()\nexcept SystemExit as stop: print(stop.code)\n"
        "print(sorted({'pydantic', 'numpy', 'rich', 'yaml', 'asyncio'} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.splitlines() == ["no problem found", "0", "[]"]


def test_a_usual_model_takes_less_than_a_second():
    start = time.process_time()
    lint(sorted((ROOT / "tests" / "custom" / "healthy").glob("*.py")))
    assert time.process_time() - start < 5, "0.2 s of CPU were measured; no machine is so slow"


def test_a_folder_without_python_files_is_a_mistake(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path)])
    assert ended.value.code == 2
    assert f"no Python file in {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        (">=4.56.2", (4, 56), NEWEST),
        ("<5,>=4.0", (4, 0), (4, 999)),
        ("<5.0.0", (0, 0), (4, 999)),
        ("<5.2.1", (0, 0), (5, 2)),
        ("<=5.2", (0, 0), (5, 2)),
        ("==4.48.*", (4, 48), (4, 48)),
        ("~=4.48.1", (4, 48), (4, 48)),
        ("~=4.40", (4, 40), (4, 999)),
        (">=4.40,!=4.50.0", (4, 40), NEWEST),
    ],
)
def test_a_requirement_is_a_range_of_releases(text, first, last):
    assert range_of(text) == (first, last)


METADATA = {
    "pyproject.toml": '[project]\nname = "p"\ndependencies = ["torch", "transformers>=4.41,<4.54"]\n',
    "setup.cfg": "[options]\ninstall_requires =\n    torch\n    transformers<4.54\n",
    "setup.py": "from setuptools import setup\nsetup(install_requires=['transformers<4.54'])\n",
}


@pytest.mark.parametrize("name", METADATA)
def test_releases_that_the_package_does_not_allow_are_no_problem(tmp_path, name):
    bound_of.cache_clear()
    code = tmp_path / "src" / "p" / "m.py"
    code.parent.mkdir(parents=True)
    code.write_text(BAD)  # a name that is gone from 4.54 on
    assert run(code)[0] == 1
    (tmp_path / name).write_text(METADATA[name])
    bound_of.cache_clear()
    result, out, err = run(code)
    assert (result, out) == (0, "no problem found\n")
    assert "requires transformers" in err
    assert run(code, "--to", "5.x")[0] == 1  # who names releases asks about these
    (tmp_path / name).write_text(METADATA[name].replace("<4.54", "<4.57"))
    bound_of.cache_clear()
    assert "(4.54 to 4.56)" in run(code)[1]


def test_an_installed_package_has_its_bound_in_its_metadata(tmp_path):
    bound_of.cache_clear()
    code = tmp_path / "p" / "m.py"
    code.parent.mkdir()
    code.write_text(BAD)
    info = tmp_path / "p-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: p\nRequires-Dist: transformers<4.54\n")
    (info / "RECORD").write_text("other/m.py,,\n")
    assert run(code)[0] == 1
    (info / "RECORD").write_text("p/m.py,,\n")
    bound_of.cache_clear()
    assert run(code)[0] == 0


GUARDED = "if is_transformers_ge_v5:\n    from .x import y\n"


@pytest.mark.parametrize(
    ("importers", "expected"),
    [
        ([GUARDED], 0),
        ([GUARDED, GUARDED], 0),
        ([GUARDED, "from p.x import y\n"], 1),
        (["from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .x import y\n"], 1),
        (["if is_peft_available():\n    from .x import y\n"], 1),
        ([], 1),
    ],
)
def test_a_module_behind_a_question_about_the_release_is_not_reached(tmp_path, importers, expected):
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "x.py").write_text("from .z import w\n" + BAD)
    (package / "z.py").write_text(BAD)  # imported by x alone
    for number, text in enumerate(importers):
        (package / f"m{number}.py").write_text(text)
    code, out, _ = run(package)
    assert code == expected
    # without an importer x is one that a user imports, and z follows
    assert out.count("SB101") == 2 * expected


FLAGS = """\
try:
    from transformers.distributed import shard
    has_sharding = True
except ImportError:
    has_sharding = False
"""
"""A flag that asks for the release, and is read by other files."""
OTHER_FLAGS = FLAGS.replace("transformers.distributed", "flash_attn")
CALLED = f"def load():\n    {BAD}"


@pytest.mark.parametrize(
    ("flags", "call", "expected"),
    [
        (FLAGS, "if has_sharding:\n    load()\n", 0),
        (FLAGS, "def outer():\n    load()\nif has_sharding:\n    outer()\n", 0),
        (FLAGS, "if has_sharding:\n    load()\nload()\n", 1),
        (FLAGS, "", 1),  # somebody else calls it
        (OTHER_FLAGS, "if has_sharding:\n    load()\n", 1),
        (FLAGS, "if is_peft_available():\n    load()\n", 1),
    ],
)
def test_a_function_that_is_called_below_a_question_about_the_release_alone_is_not_reached(
    tmp_path, flags, call, expected
):
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "flags.py").write_text(flags)
    (package / "x.py").write_text(CALLED)
    imports = "from p.flags import has_sharding\nfrom p.x import load\n"
    (package / "y.py").write_text(imports + call)
    code, out, _ = run(package)
    assert (code, out.count("SB101")) == (expected, expected)


def test_a_flag_of_another_file_is_a_question_about_the_release(tmp_path):
    (tmp_path / "flags.py").write_text(FLAGS)
    bad = tmp_path / "bad.py"
    bad.write_text(f"from flags import has_sharding\nif has_sharding:\n    {BAD}")
    assert run(tmp_path)[0] == 0
    bad.write_text(f"from flags import has_sharding\nif not torch:\n    {BAD}")
    assert run(tmp_path)[0] == 1


def test_a_long_run_says_how_far_it_is(bad, monkeypatch):
    assert run(bad)[2] == ""
    monkeypatch.setattr(command, "_PATIENCE", 0.0)
    lines = run(bad)[2].splitlines()
    assert lines[0].startswith("1 files: reading ")
    assert any("looking for SB402" in line for line in lines)


def test_pipes_and_files_without_end_are_not_waited_for(tmp_path):
    (tmp_path / "model.py").write_text("import torch\n")
    for name in ("config.json", "pyproject.toml", "setup.py", "other.py"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "large.py").touch()
    os.truncate(tmp_path / "large.py", 200 << 30)
    (problem,) = lint(python_files([tmp_path])).problems
    assert (problem.path.name, problem.message) == (
        "large.py",
        "not read: it has more than 4,194,304 bytes",
    )
