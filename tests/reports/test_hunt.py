"""The hunt's table and what a failure's names were found to be, as a reader sees them."""

from samebits.records.capture import Failure, Frame
from samebits.records.code import Symbol
from samebits.records.finding import Step
from samebits.reports.cell.failure import failure_places
from samebits.reports.cell.hunt import hunt
from tests.support.builders import cell_id, cell_result


def cell(*steps, stack="5.x"):
    return cell_result(cell_id(stack), reference=cell_id(), steps=steps)


def told(*cells):
    return hunt(cells, lambda found: ", ".join(one.cell.stack for one in found))


def test_a_cell_without_steps_has_no_table():
    assert told(cell()) == ""


def test_steps_stand_in_order_with_the_one_ruled_in_standing_out():
    text = told(
        cell(
            Step(suspect="weights", status="ruled out", what="all 4 hold the same bytes"),
            Step(suspect="inv_freq", status="ruled in", what="1 | 2: `x`"),
            Step(suspect="logits", status="follows", what="they differ"),
        )
    )
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert [line.split("|")[1].strip() for line in lines] == ["**inv_freq**", "logits"]
    assert "**ruled in**" in lines[0]
    assert r"1 \| 2" in lines[0]
    assert "Ruled out: weights." in text
    assert "follows: it differs, but so does something that it is computed from." in text
    assert "open:" not in text


def test_what_two_cells_tell_alike_stands_once_and_the_rest_says_of_which():
    same = Step(suspect="weights", status="ruled out", what="all 4 hold the same bytes")
    code = [Step(suspect="transformers' code", status="open", what=f"{n} changed") for n in (1, 2)]
    text = told(cell(code[0], same, stack="5.2"), cell(code[1], same))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[word.strip() for word in line.split("|")[1:-1]] for line in lines]
    assert cells[0] == ["candidate cause", "only on", "verdict", "result"]
    assert cells[2:] == [
        ["transformers' code", "5.2", "open", "1 changed"],
        ["transformers' code", "5.x", "open", "2 changed"],
    ]
    assert text.count("Ruled out: weights.") == 1


def test_a_suspect_that_is_ruled_out_on_some_cells_alone_stays_in_the_table():
    quiet = Step(suspect="weights", status="ruled out", what="all 4 hold the same bytes")
    loud = Step(suspect="weights", status="ruled in", what="2 of 4 differ")
    text = told(cell(quiet, stack="5.2"), cell(loud))
    assert "2 of 4 differ" in text
    assert "Ruled out" not in text


def test_a_distance_in_ulp_is_written_as_everywhere():
    step = Step(suspect="logits", status="follows", what="max abs 2 (2,138,199,360 ULP)")
    assert "max abs 2 (2.1e+09 ULP)" in told(cell(step))


def failure(*symbols, own=True):
    return Failure(
        phase="load",
        type="ImportError",
        message="cannot import name",
        traceback="",
        frames=(
            Frame(file="transformers/dynamic_module_utils.py", line=9, function="get_class"),
            Frame(
                file="x/abc/modeling_x.py", line=3, function="<module>", code="import y", own=own
            ),
            Frame(file="importlib/__init__.py", line=1, function="import_module"),
        ),
        symbols=symbols,
    )


def test_the_deepest_frames_of_model_and_library_are_named():
    text = failure_places(failure())
    assert "deepest in the model's own code: `modeling_x.py:3` in `<module>`: `import y`" in text
    assert "deepest in transformers: `transformers/dynamic_module_utils.py:9`" in text
    assert "Looked up" not in text
    assert "own code" not in failure_places(failure(own=False))


def test_a_name_that_python_s_own_types_lack_is_nowhere_else():
    elsewhere = ("transformers.processing_utils._LazyAutoProcessorMapping.keys",)
    found = [
        Symbol(name="keys", owner=o, found=False, elsewhere=elsewhere) for o in ("list", "NoneType")
    ]
    assert "Looked up" not in failure_places(failure(*found))


def test_a_symbol_says_where_it_is_now_or_that_it_is_gone():
    owner = "transformers.utils"
    moved = Symbol(name="A", owner=owner, found=False, elsewhere=("transformers.cache_utils",))
    alike = Symbol(name="B", owner=owner, found=False, similar=("Bb",))
    gone = Symbol(name="C", owner=owner, found=False)
    text = failure_places(failure(moved, alike, gone))
    assert "`transformers.utils` has no `A`: now in `transformers.cache_utils`" in text
    assert "`transformers.utils` has no `B`: it has `Bb`" in text
    assert "`transformers.utils` has no `C`: no module of this release defines that name" in text
