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


def test_data_keys_values_and_raw_text():
    yaml = yamltext.parse(b'a: 4.50\nb:\n  - x\n  - {c: "2"}\n')
    assert yaml.data == {"a": 4.5, "b": ["x", {"c": "2"}]}
    assert yaml.problems == ()
    assert yaml.keys[("a",)] == Place(1, 1)
    assert yaml.values[("a",)] == Place(1, 4)
    assert yaml.raw[("a",)] == "4.50"
    assert yaml.keys["b", 1, "c"] == Place(4, 6)
    assert yaml.values["b", 1, "c"] == Place(4, 9)


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (("b",), Place(2, 1)),
        (("b", 0), Place(3, 5)),
        (("b", 1), Place(4, 5)),
        (("b", 1, "nowhere", 3), Place(4, 5)),
        (("nowhere",), Place(1, 1)),
        (("a",), Place(1, 4)),
    ],
    ids=str,
)
def test_place_is_the_key_of_a_list_the_value_of_a_text_and_else_what_is_around(keys, place):
    assert yamltext.parse(b"a: 1\nb:\n  - x\n  - {c: 2}\n").place(keys) == place


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
def test_scalars(text, value):
    yaml = yamltext.parse(f"a: {text}".encode())
    assert yaml.data == {"a": value}
    assert type(yaml.data["a"]) is type(value)
    assert yaml.problems == ()


def test_merge_keys_lose_to_the_mapping_and_to_earlier_sources():
    text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {c: 3, <<: [*x, *y]}\n"
    yaml = yamltext.parse(text.encode())
    assert yaml.data["z"] == {"a": 1, "b": 1, "c": 3}
    assert yaml.problems == ()
    assert yaml.keys["z", "a"] == Place(1, 8)


def test_an_alias_is_followed_as_often_as_it_occurs():
    assert yamltext.parse(b"a: &a [1]\nb: [*a, *a]").data == {"a": [1], "b": [[1], [1]]}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", (1, 1), "says nothing"),
        ("# only a comment\n", (1, 1), "says nothing"),
        ("~", (1, 1), "says nothing"),
        ("a: 1\nb: 2\na: 3\n", (3, 1), 'the key "a" is given twice, first on line 1'),
        ("a:\n  4.50: x\n", (2, 3), 'the key 4.50 is a number to YAML: quote it: "4.50"'),
        ("no: x\n", (1, 1), 'quote it: "no"'),
        ("? [a, b]\n: x\n", (1, 3), "cannot be a key"),
        ("~: x\n", (1, 1), "a key is missing before the colon"),
        ("a:\n\t- b\n", (2, 1), "indent with spaces"),
        ("a: [1,\n", (2, 1), "is not valid YAML"),
        ("a: 'x\n", (2, 1), "is not valid YAML"),
        ("a: *b\n", (1, 4), "undefined alias 'b'"),
        ("a: 1\n---\nb: 2\n", (2, 1), "a second document begins here"),
        ("a: !!python/name:os.system x\n", (1, 4), "python/name:os.system"),
        ("a: !mine [x]\n", (1, 4), 'the tag "!mine" is not known here'),
        ("!mine a: x\n", (1, 1), 'the tag "!mine" is not known here'),
        ("a: !!int x\n", (1, 4), '"x" cannot be read as int'),
        ("a: !!bool x\n", (1, 4), '"x" cannot be read as bool'),
        (f"a: {'1' * 5000}\n", (1, 4), "cannot be read as int: quote it"),
        ("a: {<<: 1}\n", (1, 9), "<< takes a mapping"),
        ("a: &a [*a]\n", (1, 4), "an alias is used inside of what it names"),
        ("a: &a {<<: *a}\n", (1, 4), "an alias is used inside of what it names"),
        ("a\x00b", (1, 2), r"the character \"\x00\""),
        ("a: x\nb: \x1b[31m", (2, 4), r"the character \"\x1b\""),
        (b"a: x\nb: \xff", (2, 4), "the byte 0xff is not UTF-8"),
        ("a: x".encode("utf-16"), (1, 1), "is not UTF-8"),
        ('a: "\\ud800"', (1, 4), "half of a character"),
        ('a: "\\UFFFFFFFF"', (1, 7), "is not valid YAML here"),
        (f"%YAML 1.{'9' * 5000}\n---\na: x", (1, 9), "is not valid YAML here"),
        ("[" * 100_000, (1, MAX_DEPTH + 1), "nested deeper than 60"),
        ("a: x\n" * 300_000, FILE, "is larger than 1,000,000 bytes"),
    ],
    ids=range(31),
)
def test_problems(text, place, words):
    (reported,) = problems(text)
    assert reported[0] == place
    assert words.replace('\\"', '"') in reported[1]
    assert reported[1].isprintable()


@pytest.mark.parametrize("form", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merges"])
def test_an_alias_bomb_is_refused(form):
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {form.format(f'*a{n - 1}, ' * 9)}" for n in range(1, 9)]
    (reported,) = problems("\n".join(lines))
    assert "more than 50,000 values" in reported[1]


def test_aliases_that_nest_deeply_are_refused():
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000))]
    (reported,) = problems("\n".join(lines))
    assert "nested deeper than" in reported[1]


def test_several_problems_at_once_and_each_once():
    reported = problems("a: &a {4.5: x}\nb: *a\nc: 1\nc: 2\n")
    assert [place for place, _ in reported] == [(1, 8), (4, 1)]


def test_a_bom_is_no_problem():
    assert yamltext.parse(b"\xef\xbb\xbfa: 1").data == {"a": 1}


def test_read(tmp_path):
    (tmp_path / "matrix.yaml").write_text("a: 1", encoding="utf-8")
    assert yamltext.read(tmp_path / "matrix.yaml").data == {"a": 1}


def test_read_of_what_is_no_file(tmp_path):
    assert yamltext.read(tmp_path).problems[0] == (FILE, "this is a folder: name the file in it")
    assert "there is no such file" in yamltext.read(tmp_path / "none").problems[0].text
    assert "cannot be read" in yamltext.read(tmp_path / "x\0").problems[0].text
    (tmp_path / "matrix.yml").touch()
    assert 'mean "matrix.yml"?' in yamltext.read(tmp_path / "matrix.yaml").problems[0].text
    assert "there is no such file" in yamltext.read(tmp_path / "no" / "x").problems[0].text


def test_a_relative_path_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = yamltext.read(Path("mine") / "matrix.yaml").problems[0].text
    assert said == f"there is no such file (seen from {tmp_path})"
    assert yamltext.read(tmp_path / "none").problems[0].text == "there is no such file"


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
