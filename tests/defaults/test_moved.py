"""Tests of moved defaults: which field, between which releases, and what a file gives itself."""

import json

import pytest

from bench.stated import written
from bench.stated.sources import of_file
from samebits.defaults.command import main
from samebits.defaults.moved import Move, is_always, is_same, moves, turn
from samebits.defaults.table import Table, from_text, table

BASE = "class PretrainedConfig:\n    def __init__(self, **kwargs):\n        self.tie = kwargs.pop('tie', True)\n"
NEW_BASE = "class PreTrainedConfig:\n    tie: bool = False\n"
CONFIG = """\
class {part}Config({base}):
    model_type = "{type}"
    attribute_map = {{"hidden_size": "n_embd"}}
    def __init__(self, n_embd={size}, heads=4, head_dim=None, window={window}, **kwargs):
        self.n_embd = n_embd
        self.heads = heads
        self.head_dim = head_dim if head_dim is not None else n_embd // heads
        self.window = window
"""
WHOLE = """\
class WholeConfig({base}):
    model_type = "whole"
    sub_configs = {{"text_config": TextConfig}}
    text_config: dict = None
"""


def release(base, size, window, base_text=BASE):
    text = CONFIG.format(part="Text", type="text", base=base, size=size, window=window)
    return of_file(base_text + text + WHOLE.format(base=base), "config")


@pytest.fixture
def made():
    """Return a table of four releases: window moves in 2, the size and the base in 3."""
    made = Table([], {})
    written.add(made, "4.1.0", release("PretrainedConfig", 64, 128))
    written.add(made, "4.2.0", release("PretrainedConfig", 64, 129))
    written.add(made, "5.0.0", release("PreTrainedConfig", 32, 129, NEW_BASE))
    written.add(made, "5.1.0", release("PreTrainedConfig", 32, 129, NEW_BASE))
    return from_text(written.text(made))


def found(made, document, first="4.1.0", last="5.1.0", name="TextConfig"):
    return {m.field: m for m in moves(made, document, first, last, (name, name))}


def test_a_move_has_both_values_and_the_release_that_brought_it(made):
    assert found(made, {}) == {
        "head_dim": Move("TextConfig", "head_dim", 16, 8, "5.0.0"),
        "n_embd": Move("TextConfig", "n_embd", 64, 32, "5.0.0"),
        "tie": Move("TextConfig", "tie", True, False, "5.0.0"),
        "window": Move("TextConfig", "window", 128, 129, "4.2.0"),
    }
    assert found(made, {}, "5.0.0") == {}


@pytest.mark.parametrize("size", ["n_embd", "hidden_size"])
def test_what_the_file_gives_did_not_move_and_neither_did_what_is_made_of_it(made, size):
    assert set(found(made, {size: 64, "window": 128})) == {"tie"}


def test_configs_inside_are_read_by_their_class(made):
    names = set(found(made, {"text_config": {"n_embd": 64}}, name="WholeConfig"))
    assert names == {"tie", "text_config.tie", "text_config.window"}


def test_a_turn_is_a_step_with_both_values_and_of_the_field_alone(made):
    assert turn(made, "text", "window", 128, 129) == ("4.1.0", "4.2.0")
    assert turn(made, "text", "window", 129, 128) == ("4.1.0", "4.2.0")
    assert turn(made, "text", "window", 128, 130) is None
    assert turn(made, "text", "head_dim", 16, 8) is None  # made of n_embd, which a file may give
    assert turn(made, "other", "window", 128, 129) is None


def test_a_default_that_holds_wherever_the_field_is_known(made):
    assert [is_always(made, "text", "heads", n) for n in (4, 8)] == [True, False]
    assert not any(is_always(made, "text", "window", size) for size in (128, 129))
    assert not is_always(made, "other", "window", 128)


def test_same_settings():
    assert is_same([1, {"a": 0.0}], [1.0, {"a": 0}])
    assert not is_same(True, 1)
    assert not is_same(None, 0)


def test_the_table_of_samebits_has_the_moves_of_the_release_notes():
    """https://github.com/huggingface/transformers: wheels of 5.5.4 and 5.6.0, of 5.19.0 and 5.20.0."""
    assert turn(table(), "gpt_oss", "router_aux_loss_coef", 0.9, 0.001) == ("5.5.4", "5.6.0")
    assert turn(table(), "mimo_v2_flash", "sliding_window", 128, 129) == ("5.19.0", "5.20.0")
    assert turn(table(), "llama", "vocab_size", 32000, 32001) is None


def test_the_command_answers_for_files_and_classes(tmp_path, capsys):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "mimo_v2_flash"}), "utf-8")
    assert main([str(tmp_path), "--from", "5.19", "--to", "5.20.0"]) == 1
    text = capsys.readouterr().out
    assert "1 default moved from 5.19.0 to 5.20.0" in text
    assert "sliding_window" in text
    file.write_text(json.dumps({"model_type": "mimo_v2_flash", "sliding_window": 128}), "utf-8")
    assert main([str(file), "--from", "5.19", "--to", "5.20.0"]) == 0
    assert main(["MiMoV2FlashConfig", "--from", "5.19", "--to", "5.20.0", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out.partition("\n")[2] or "{}")
    assert document["answers"][0]["moves"][0]["since"] == "5.20.0"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["LlamaConfg"], "did you mean LlamaConfig?"),
        (["LlamaConfig", "--from", "3.0"], "the table of defaults has no release 3.0"),
        (["LlamaConfig", "--from", "5.2", "--to", "4.57"], "swap them"),
    ],
)
def test_a_mistake_says_what_to_change(capsys, arguments, says):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_broken_file_is_named(tmp_path, capsys, text):
    (tmp_path / "config.json").write_text(text, "utf-8")
    with pytest.raises(SystemExit):
        main([str(tmp_path / "config.json")])
    assert "config.json" in capsys.readouterr().err


def test_a_field_that_a_config_inside_decides_did_not_move_where_the_file_gives_it_there(made):
    text = "class TextConfig(PreTrainedConfig):\n    {}: int = {}\n"
    for release, size in (("5.2.0", 1), ("5.3.0", 2)):
        stated = of_file(text.format("n", size), "config")
        stated["TextConfig"].needs["n"] = ("part.n",)
        written.add(made, release, stated)
    assert set(found(made, {"part": {"m": 1}}, "5.2.0", "5.3.0")) == {"n"}
    assert found(made, {"part": {"n": 1}}, "5.2.0", "5.3.0") == {}


def arguments(count, optim):
    """Return what a source of TrainingArguments states, with the code for an older form of ``count``."""
    text = (
        "class TrainingArguments:\n"
        f"    usual = 'slow'\n    {optim}\n"
        f"    count: str | bool = {count}\n"
        "    optim: str = field(default=usual)\n"
        "    def __post_init__(self):\n"
        "        if isinstance(self.count, bool):\n"
        "            self.count = 'all' if self.count else 'no'\n"
    )
    return of_file(text, "training")


@pytest.mark.parametrize(("old", "is_move"), [("False", False), ("True", True), ("None", True)])
def test_a_default_that_the_newer_code_takes_from_the_older_one_is_no_move(old, is_move):
    made = Table([], {})
    written.add(made, "4.1.0", arguments(old, "pass"))
    written.add(made, "5.0.0", arguments("'no'", "pass"))
    defaults = from_text(written.text(made))
    assert ("count" in found(defaults, {}, "4.1.0", "5.0.0", "TrainingArguments")) is is_move


def test_a_default_of_newer_torch_is_shown_with_that_torch(monkeypatch, capsys):
    made = Table([], {})
    newer = "if is_torch_greater_or_equal_than_2_8: usual = 'fast'"
    written.add(made, "4.1.0", arguments("'no'", "pass"))
    written.add(made, "5.0.0", arguments("'no'", newer))
    monkeypatch.setattr("samebits.defaults.command.table", lambda: made)
    assert main(["TrainingArguments", "--from", "4.1.0", "--to", "5.0.0"]) == 1
    assert "5.0.0, with torch 2.8 or newer" in capsys.readouterr().out
