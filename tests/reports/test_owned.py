"""A report replaces its own files and none of its user's."""

import asyncio
import json

import pytest

from samebits import cli
from samebits.matrix.plan import Plan, PlannedRow
from samebits.pipeline.order import Order
from samebits.pipeline.run import run_matrix
from samebits.reports import document, owned, write
from samebits.reports.owned import ReportsError
from tests.support.builders import cell_id
from tests.support.sample_report import sample_report

MINE = "my own notes"


def plan():
    cells = cell_id("4.48"), cell_id("5.x")
    row = PlannedRow(model="llama", variant=cells[0].variant, cells=cells, reference="4.48")
    return Plan(rows=(row,), stacks=("4.48", "5.x"))


NAMES = (
    "report.md",
    "report.html",
    "report.json",
    "api-checks.md",
    "locks/5.x.txt",
    "models/llama.md",
    "html/models/llama.html",
    "repro/llama@5.x/notes.txt",
)


def put(folder, name, text=MINE):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", [MINE, "", "# llama\n", '{"coverage": 3}', "\xff"])
def test_a_first_run_into_a_folder_with_a_file_of_the_user_is_refused(tmp_path, name, text):
    path = put(tmp_path, name, text)
    with pytest.raises(ReportsError, match="which samebits did not write") as caught:
        owned.check(tmp_path, plan())
    assert f'"{name}"' in str(caught.value)
    assert caught.value.exit_code == 2
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["models/mine.md", "notes.md", "locks/mine.txt", "repro/a/b"])
def test_a_file_of_another_name_is_no_matter(tmp_path, name):
    put(tmp_path, name)
    owned.check(tmp_path, plan())


def test_neither_is_an_empty_folder_or_none(tmp_path):
    owned.check(tmp_path, plan())
    owned.check(tmp_path / "new", plan())


def test_what_an_earlier_report_wrote_is_replaced(tmp_path):
    write.write(sample_report(), tmp_path, {"locks/5.x.txt": "x", "repro/llama@5.x/a.py": b""})
    owned.check(tmp_path, plan())
    write.write(sample_report(), tmp_path, {"locks/5.x.txt": "y"})
    assert (tmp_path / "locks/5.x.txt").read_text() == "y"


def test_a_page_in_a_folder_of_ours_can_be_the_user_s(tmp_path):
    """As one that was there before a model of its name was added to the matrix."""
    write.write(sample_report(), tmp_path, {})
    path = put(tmp_path, "models/llama.md")
    with pytest.raises(ReportsError, match=r"models/llama\.md"):
        owned.check(tmp_path, plan())
    assert path.read_text() == MINE


@pytest.mark.parametrize("left", ["", "{", "gone"], ids=["empty", "torn", "gone"])
def test_pages_of_ours_are_known_without_a_report_json(tmp_path, left):
    """A disk that was full, or a user who tidied up, must not make a folder of ours a foreign one."""
    write.write(sample_report(), tmp_path, {"locks/5.x.txt": "x", "repro/llama@5.x/a.py": b""})
    data = tmp_path / "report.json"
    if left == "gone":
        data.unlink()
    else:
        data.write_text(left)
    mine = put(tmp_path, "models/llama.md")
    with pytest.raises(ReportsError) as caught:
        owned.check(tmp_path, plan())
    assert '"models/llama.md", which' in str(caught.value)
    mine.unlink()
    owned.check(tmp_path, plan())
    write.write(sample_report(), tmp_path, {"locks/5.x.txt": "y"})


def test_another_end_of_line_makes_no_page_foreign(tmp_path):
    """git writes one on Windows, in a report that is committed."""
    write.write(sample_report(), tmp_path, {})
    for path in tmp_path.rglob("*.md"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    owned.check(tmp_path, plan())


def test_every_page_of_a_report_is_known_by_its_first_lines(tmp_path):
    write.write(sample_report(), tmp_path, {})
    (tmp_path / "report.json").unlink()
    pages = document.render(sample_report())
    assert len(pages) > 3
    owned.refuse_foreign(tmp_path, pages)


def test_what_appeared_meanwhile_is_not_replaced_either(tmp_path):
    page = next(name for name in document.render(sample_report()) if name.startswith("models/"))
    path = put(tmp_path, page)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ReportsError):
        write.write(sample_report(), tmp_path, {})
    assert path.read_text() == MINE
    assert sorted(tmp_path.rglob("*")) == before  # and nothing else was begun


def test_many_names_are_a_short_message(tmp_path):
    for i in range(9):
        put(tmp_path, f"repro/llama@5.x/{i}.txt")
    with pytest.raises(ReportsError) as caught:
        owned.check(tmp_path, plan())
    assert '/4.txt" and 4 more, which samebits did not write: the report needs their names' in str(
        caught.value
    )


def test_a_run_refuses_before_it_begins(tmp_path):
    (tmp_path / "matrix.yaml").write_text("models: {llama: {build: llama}}\n")
    put(tmp_path / "mine", "models/llama.md")
    order = Order(matrix=tmp_path / "matrix.yaml", reports=tmp_path / "mine")
    with pytest.raises(ReportsError):
        asyncio.run(run_matrix(order, {}, lambda total: pytest.fail("the run began")))
    assert not (tmp_path / ".samebits").exists()


def test_the_command_line_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.yaml").write_text("models: {llama: {build: llama}}\n")
    put(tmp_path / "reports" / "latest", "models/llama.md")
    assert cli.main(["matrix"], {"HOME": "/h"}) == 2
    _, said = capsys.readouterr()
    assert said == (
        '"reports/latest" holds "models/llama.md", which samebits did not write: the report needs '
        "its name.\nMove it, or name another folder with --reports.\n"
    )


def test_a_report_json_of_another_program_is_not_ours(tmp_path):
    put(tmp_path, "report.json", json.dumps({"files": {"report.json": "x", "report.md": "x"}}))
    put(tmp_path, "report.md")
    with pytest.raises(ReportsError, match=r"report\.json"):
        owned.check(tmp_path, plan())
