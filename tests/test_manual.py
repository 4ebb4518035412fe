"""docs/reference/ is what the code says: every key, every option, and an example that is valid."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from samebits import cli, manual, schemas
from samebits.cli.parser import make_parser
from samebits.reports.formats.registry import FORMATS, JSON
from samebits.text.terminal import PLAIN

RENDERED = manual.render()
SCHEMA = json.loads(schemas.render()["matrix.schema.json"])


@pytest.mark.parametrize("name", RENDERED)
def test_the_folder_holds_what_is_generated(name):
    published = (manual.FOLDER / name).read_text("utf-8")
    assert published == RENDERED[name], "run: python -m samebits.manual"


def test_write(tmp_path):
    manual.write(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(RENDERED)


def test_the_example_is_valid():
    jsonschema.Draft202012Validator(SCHEMA).validate(yaml.safe_load(manual.EXAMPLE))


def test_every_key_of_the_schema_has_a_row():
    lines = RENDERED["matrix.md"].splitlines()
    for form in [SCHEMA, *SCHEMA["$defs"].values()]:
        for key in form["properties"]:
            assert any(line.startswith(f"| `{key}`") for line in lines), key


def test_every_value_is_described():
    for line in RENDERED["matrix.md"].splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert cells[1], line
            assert cells[-1], line


def test_a_new_mapping_of_the_schema_needs_a_heading(monkeypatch):
    monkeypatch.delitem(manual._FORMS, "Rule")
    with pytest.raises(KeyError, match="Rule"):
        manual.render()


def test_every_option_has_a_row():
    sections = RENDERED["command-line.md"].split("\n## samebits ")[1:]
    assert [section.split("\n")[0] for section in sections] == [*cli.parsers()]
    for section, parser in zip(sections, cli.parsers().values(), strict=True):
        for action in parser._actions:
            for name in set(action.option_strings) - {"-h", "--help"}:
                assert f"`{name}" in section


def test_every_command_is_there():
    parser, by_name = make_parser(PLAIN)
    (commands,) = [a for a in parser._actions if a.dest == "command"]
    assert set(cli.parsers()) == set(commands.choices)
    assert set(by_name) == set(commands.choices)


def test_help_keeps_its_options_and_its_blanks():
    text = "write 'llama*,gpt2' or `a b` --no-repro: none, don't"
    assert manual._words(text) == "write `llama*,gpt2` or `a b` `--no-repro`: none, don't"


def test_the_folder_of_the_pages_is_that_of_the_repository():
    assert Path(__file__).parents[1] / "docs" / "reference" == manual.FOLDER


TEXT = (manual.FOLDER / "formats.md").read_text("utf-8")


@pytest.mark.parametrize("name", schemas.render())
def test_every_schema_is_listed_with_the_key_of_its_version(name):
    (row,) = [line for line in TEXT.splitlines() if f"schemas/{name})" in line]
    key = row.split("|")[3].strip(" `")
    assert key in json.loads(schemas.render()[name])["properties"]
    assert key.endswith("version")


def test_every_format_of_a_report_is_listed_with_its_file():
    rows = {line.split("`")[1]: line for line in TEXT.splitlines() if line.startswith("| `")}
    assert JSON in rows
    for format in FORMATS:
        assert format.main in rows[format.name]
