"""Tests of parsing YAML with positions; no input ends in a traceback."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.matrix import yamltext
from samebits.matrix.yamltext import FILE, MAX_DEPTH, Place


def problems(text):
    content = text if isinstance(text, bytes) else text.encode()
    return [(tuple(place), message) for place, message in yamltext.parse(content).problems]


TEXT = b"""a: 4.50
b:
  - x
  - {c: "2"}
"""


def test_every_scalar_is_the_text_that_was_written():
    yaml = yamltext.parse(TEXT)
    assert yaml.data == {"a": "4.50", "b": ["x", {"c": "2"}]}
    assert yaml.problems == ()


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (("b",), Place(2, 1)),
        (("b", 0), Place(3, 5)),
        (("b", 1), Place(4, 5)),
        (("b", 1, "c"), Place(4, 9)),
        (("b", 1, "nowhere", 3), Place(4, 5)),
        (("nowhere",), Place(1, 1)),
        (("a",), Place(1, 4)),
    ],
    ids=str,
)
def test_place_is_the_key_of_a_list_the_value_of_a_text_and_else_what_is_around(keys, place):
    assert yamltext.parse(TEXT).place(keys) == place


@pytest.mark.parametrize(
    ("keys", "place"),
    [(("a",), Place(1, 1)), (("b", 1, "c"), Place(4, 6)), (("b", 0), Place(3, 5))],
    ids=str,
)
def test_place_of_key(keys, place):
    assert yamltext.parse(TEXT).place_of_key(keys) == place


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E3", 1000.0),
        ("1.5e+3", 1500.0),
        ("2026-11-20", "2026-11-20"),
        ("2.13.0", "2.13.0"),
        ("=", "="),
        ("~", None),
        ("yes", True),
        ("0x10", 16),
        ('"4.50"', "4.50"),
        (".inf", float("inf")),
    ],
)
def test_a_scalar_has_a_type_in_a_config_only(text, value):
    yaml = yamltext.parse(
        f"a: {text}\nmodels: {{m: {{config: {text}, build: {{config: {{a: [{text}]}}}}}}}}".encode()
    )
    assert yaml.problems == ()
    model = yaml.data["models"]["m"]
    ((typed,),) = model["build"]["config"].values()
    assert typed == value
    assert type(typed) is type(value)
    written = None if value is None else text.strip('"')
    assert yaml.data["a"] == model["config"] == written


@pytest.mark.parametrize("key", ["parts", "config"])
def test_what_goes_into_the_files_of_a_tokenizer_has_types_and_its_class_is_a_text(key):
    recipe = f"{{tokenizer_class: 1, {key}: {{a: true, b: [{{c: 3}}], d: null}}}}"
    yaml = yamltext.parse(f"models: {{m: {{build: {{tokenizer: {recipe}}}}}}}".encode())
    tokenizer = yaml.data["models"]["m"]["build"]["tokenizer"]
    assert tokenizer[key] == {"a": True, "b": [{"c": 3}], "d": None}
    assert tokenizer["tokenizer_class"] == "1"


def test_what_goes_into_the_files_of_a_processor_has_types():
    recipe = "{do_pad: false, size: {shortest_edge: 56}, image_processor_type: A}"
    yaml = yamltext.parse(f"models: {{m: {{build: {{processor: {recipe}}}}}}}".encode())
    processor = yaml.data["models"]["m"]["build"]["processor"]
    assert processor == {
        "do_pad": False,
        "size": {"shortest_edge": 56},
        "image_processor_type": "A",
    }


def test_merge_keys_lose_to_the_mapping_and_to_earlier_sources():
    text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {c: 3, <<: [*x, *y]}\n"
    yaml = yamltext.parse(text.encode())
    assert yaml.data["z"] == {"a": "1", "b": "1", "c": "3"}
    assert yaml.problems == ()
    assert yaml.place_of_key(("z", "a")) == Place(1, 8)


def config(value):
    return f"models: {{m: {{build: {{config: {{a: {value}}}}}}}}}\n"


def test_an_alias_is_followed_as_often_as_it_occurs():
    assert yamltext.parse(b"a: &a [1]\nb: [*a, *a]").data == {"a": ["1"], "b": [["1"], ["1"]]}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", (1, 1), "the file is empty"),
        ("# only a comment\n", (1, 1), "the file is empty"),
        ("~", (1, 1), "the file is empty"),
        ("a: 1\nb: 2\na: 3\n", (3, 1), 'the key "a" is already on line 1'),
        ("!!map a: x\n", (1, 1), "is not supported"),
        ("? [a, b]\n: x\n", (1, 3), "cannot be a key"),
        ("~: x\n", (1, 1), "the key before the colon is missing"),
        ("a:\n\t- b\n", (2, 1), "indent with spaces"),
        ("a: [1,\n", (2, 1), "is not valid YAML"),
        ("a: 'x\n", (2, 1), "is not valid YAML"),
        ("a: *b\n", (1, 4), "undefined alias 'b'"),
        ("a: 1\n---\nb: 2\n", (2, 1), "a second document starts here"),
        ("a: !!python/name:os.system x\n", (1, 4), "python/name:os.system"),
        ("a: !mine [x]\n", (1, 4), 'the tag "!mine" is not supported'),
        ("!mine a: x\n", (1, 1), 'the tag "!mine" is not supported'),
        (config("!!int x"), (1, 34), '"x" cannot be read as int'),
        (config("!!bool x"), (1, 34), '"x" cannot be read as bool'),
        (config("1" * 5000), (1, 34), "cannot be read as int: quote it"),
        ("a: {<<: 1}\n", (1, 9), "<< needs a mapping"),
        ("a: &a [*a]\n", (1, 4), "an alias is used inside the value that it names"),
        ("a: &a {<<: *a}\n", (1, 4), "an alias is used inside the value that it names"),
        ("a\x00b", (1, 2), r"the character \"\x00\""),
        ("a: x\nb: \x1b[31m", (2, 4), r"the character \"\x1b\""),
        (b"a: x\nb: \xff", (2, 4), "the byte 0xff is not UTF-8"),
        ("a: x".encode("utf-16"), (1, 1), "is not UTF-8"),
        ('a: "\\ud800"', (1, 4), "half of a character"),
        ('a: "\\UFFFFFFFF"', (1, 7), "is not valid YAML"),
        (f"%YAML 1.{'9' * 5000}\n---\na: x", (1, 9), "is not valid YAML"),
        ("[" * 100_000, (1, MAX_DEPTH + 1), "nested deeper than 60"),
        ("a: x\n" * 300_000, FILE, "is larger than 1,000,000 bytes"),
    ],
    ids=range(30),
)
def test_problems(text, place, words):
    (reported,) = problems(text)
    assert reported[0] == place
    assert words.replace('\\"', '"') in reported[1]
    assert reported[1].isprintable()


def test_an_alias_bomb_is_refused():
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 9)]
    (reported,) = problems("\n".join(lines))
    assert "more than 50,000 values" in reported[1]


def test_a_bomb_of_merge_keys_is_one_mapping():
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{f'*a{n - 1}, ' * 9}]}}" for n in range(1, 9)]
    yaml = yamltext.parse("\n".join(lines).encode())
    assert yaml.problems == ()
    assert yaml.data["a8"] == {"x": "1"}


def test_aliases_that_nest_deeply_are_refused():
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000))]
    (reported,) = problems("\n".join(lines))
    assert "nested deeper than" in reported[1]


def test_several_problems_at_once_and_each_once():
    reported = problems("a: &a {~: x}\nb: *a\nc: 1\nc: 2\n")
    assert [place for place, _ in reported] == [(1, 8), (4, 1)]


def test_a_bom_is_no_problem():
    assert yamltext.parse(b"\xef\xbb\xbfa: 1").data == {"a": "1"}


def test_read(tmp_path):
    (tmp_path / "matrix.yaml").write_text("a: 1", encoding="utf-8")
    assert yamltext.read(tmp_path / "matrix.yaml").data == {"a": "1"}


def test_read_of_what_is_no_file(tmp_path):
    assert yamltext.read(tmp_path).problems[0] == (
        FILE,
        "this is a folder: add the name of a file in it",
    )
    assert "the file does not exist" in yamltext.read(tmp_path / "none").problems[0].text
    assert "cannot be read" in yamltext.read(tmp_path / "x\0").problems[0].text
    (tmp_path / "matrix.yml").touch()
    assert 'mean "matrix.yml"?' in yamltext.read(tmp_path / "matrix.yaml").problems[0].text
    assert "the file does not exist" in yamltext.read(tmp_path / "no" / "x").problems[0].text


def test_a_relative_path_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = yamltext.read(Path("mine") / "matrix.yaml").problems[0].text
    start = ": samebits init writes one for your models, and samebits check MODEL needs none"
    assert said == f"the file does not exist in {tmp_path}{start}"
    assert yamltext.read(tmp_path / "none").problems[0].text == f"the file does not exist{start}"


def test_read_of_an_endless_file_ends():
    assert "is larger" in yamltext.read(Path("/dev/zero")).problems[0].text


yaml_like = st.text(alphabet=":-[]{}&*!|>'\"%#?,<~ \n\t\\.0159abxuU\ufeff\x85é", max_size=60)


@settings(max_examples=400, deadline=None)
@given(yaml_like.map(str.encode) | st.binary(max_size=60))
def test_anything_is_data_or_a_problem(content):
    yaml = yamltext.parse(content)
    assert yaml.data is not None or yaml.problems
    for place, text in yaml.problems:
        assert place == FILE or min(place) >= 1
        assert text.isprintable()
