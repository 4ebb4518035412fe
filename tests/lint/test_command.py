"""The command: exit codes, formats, options, and files that are no Python."""

import io
import json
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samebits.lint.command import main
from samebits.lint.engine import UNREADABLE, lint
from samebits.lint.fix import fix_files

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


def test_sarif_has_the_required_fields(bad, tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    log = json.loads(run(tmp_path, "--format", "sarif")[1])
    assert log["version"] == "2.1.0"
    (sarif,) = log["runs"]
    driver = sarif["tool"]["driver"]
    assert driver["name"] == "samebits"
    (result,) = sarif["results"]
    assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "SB101"
    assert result["level"] in {"error", "warning", "note"}
    assert result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].startswith("file:///")
    assert " " not in place["artifactLocation"]["uri"]
    assert place["region"] == {"startLine": 1, "startColumn": 32, "endLine": 1, "endColumn": 42}
    (note,) = sarif["invocations"][0]["toolExecutionNotifications"]
    assert "not read" in note["message"]["text"]


LOCATION = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation", "region"],
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "required": ["uri"],
                    "additionalProperties": False,
                    "properties": {
                        "uri": {"type": "string", "pattern": "^[^ ]+$"},
                        "uriBaseId": {"const": "SRCROOT"},
                    },
                },
                "region": {"$ref": "#/$defs/region"},
            },
        }
    },
}
SARIF = {
    "$defs": {
        "text": {
            "type": "object",
            "required": ["text"],
            "properties": {"text": {"type": "string"}, "markdown": {"type": "string"}},
            "additionalProperties": False,
        },
        "region": {
            "type": "object",
            "required": ["startLine", "startColumn", "endLine", "endColumn"],
            "additionalProperties": False,
            "properties": {
                name: {"type": "integer", "minimum": 1}
                for name in ("startLine", "startColumn", "endLine", "endColumn")
            },
        },
        "level": {"enum": ["none", "note", "warning", "error"]},
        "rule": {
            "type": "object",
            "required": [
                "id",
                "shortDescription",
                "fullDescription",
                "help",
                "helpUri",
                "defaultConfiguration",
            ],
            "additionalProperties": False,
            "properties": {
                "id": {"type": "string"},
                "shortDescription": {"$ref": "#/$defs/text"},
                "fullDescription": {"$ref": "#/$defs/text"},
                "help": {"$ref": "#/$defs/text"},
                "helpUri": {"type": "string"},
                "defaultConfiguration": {"properties": {"level": {"$ref": "#/$defs/level"}}},
            },
        },
        "result": {
            "type": "object",
            "required": ["ruleId", "ruleIndex", "level", "message", "locations"],
            "additionalProperties": False,
            "properties": {
                "ruleId": {"type": "string"},
                "ruleIndex": {"type": "integer", "minimum": 0},
                "level": {"$ref": "#/$defs/level"},
                "message": {"$ref": "#/$defs/text"},
                "locations": {"type": "array", "items": LOCATION, "minItems": 1},
                "partialFingerprints": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                },
                "fixes": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["artifactChanges"],
                        "additionalProperties": False,
                        "properties": {
                            "description": {"$ref": "#/$defs/text"},
                            "artifactChanges": {
                                "type": "array",
                                "minItems": 1,
                                "items": {
                                    "required": ["artifactLocation", "replacements"],
                                    "additionalProperties": False,
                                    "properties": {
                                        "artifactLocation": {},
                                        "replacements": {
                                            "type": "array",
                                            "minItems": 1,
                                            "items": {
                                                "required": ["deletedRegion"],
                                                "additionalProperties": False,
                                                "properties": {
                                                    "deletedRegion": {"$ref": "#/$defs/region"},
                                                    "insertedContent": {"$ref": "#/$defs/text"},
                                                },
                                            },
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
                    "tool": {
                        "properties": {
                            "driver": {
                                "required": ["name"],
                                "properties": {
                                    "rules": {"type": "array", "items": {"$ref": "#/$defs/rule"}}
                                },
                            }
                        }
                    },
                },
            },
        },
    },
}
"""The part of SARIF 2.1.0 that the log uses, as its specification words it; stricter in keys."""


def sarif_of(path, *options):
    log = json.loads(run(path, "--format", "sarif", *options)[1])
    jsonschema.validate(log, SARIF)
    return log["runs"][0]


def test_sarif_follows_its_schema(tmp_path, monkeypatch):
    (tmp_path / "m y.py").write_text(f"x = 'é'; y = 1\n{BAD}")
    monkeypatch.chdir(tmp_path)
    sarif = sarif_of(tmp_path)
    for rule in sarif["tool"]["driver"]["rules"]:
        assert "**Remedy.**" in rule["help"]["markdown"]
        assert (ROOT / rule["helpUri"]).is_file()
    (result,) = sarif["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "m%20y.py", "uriBaseId": "SRCROOT"}
    assert sarif["originalUriBaseIds"]["SRCROOT"]["uri"] == f"{tmp_path.as_uri()}/"


def test_the_fix_in_sarif_is_what_fix_writes(tmp_path):
    path = tmp_path / "m.py"
    path.write_text(f"x = 'é'; y = 1\n{BAD}z = 1\n", "utf-8")
    (result,) = sarif_of(path)["results"]
    text = path.read_text("utf-8")
    starts = [0, *(n + 1 for n, c in enumerate(text) if c == "\n")]
    (change,) = result["fixes"][0]["artifactChanges"]
    for part in sorted(
        change["replacements"],
        key=lambda r: (r["deletedRegion"]["startLine"], r["deletedRegion"]["startColumn"]),
        reverse=True,
    ):
        region = part["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        text = text[:start] + part["insertedContent"]["text"] + text[end:]
    run(path, "--fix")
    assert path.read_text("utf-8") == text


def test_fingerprints_stay_when_lines_are_added_above(tmp_path):
    path = tmp_path / "m.py"

    def prints(text):
        path.write_text(text)
        return [r["partialFingerprints"]["line/v1"] for r in sarif_of(path)["results"]]

    before = prints(BAD + BAD)
    assert len(set(before)) == 2
    assert prints(f"x = 1\n\n{BAD}{BAD}") == before
    assert prints(BAD.replace("LossKwargs", "TransformersKwargs")) != before[:1]


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
