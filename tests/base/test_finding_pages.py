"""A page of docs/findings/ is read whole, and what is wrong in one is named with file and line."""

import re

import pytest

from samebits.base.finding_pages import PageError, read

PAGE = """\
---
code: SB999
kind: silent
scope: release
seen_in: usage.cache
---

# SB999 `a_name` is not `a b`

*silent: wrong numbers and no exception*

**Hit if** `use_cache` is
set.

**Looks for** a \\<mask> with
`__init__`.

**Cause.** `call(x)` and `1 / x`.

**Remedy.** Do \\*this\\*.

```python
first()

second()
```

| name | instead |
|:-----|:--------|
| `A`  | `x.y` \\| `some/path` |

**Releases.** All.

**See** <https://example.org/1>; `a/b.py`, note

[all findings](README.md)
"""


@pytest.fixture
def read_text(tmp_path):
    def read_it(text):
        path = tmp_path / "SB999.md"
        path.write_text(text, "utf-8")
        return read(path)

    return read_it


def test_a_page_is_read_whole(read_text):
    page = read_text(PAGE)
    assert (page.code, page.kind, page.scope, page.seen_in) == (
        "SB999",
        "silent",
        "release",
        "usage.cache",
    )
    assert page.name == "a_name is not `a b`"
    assert page.hit_if == "use_cache is set"
    assert page.looks_for == "a <mask> with __init__"
    assert page.cause == "call(x) and `1 / x`."
    assert page.remedy == "Do *this*."
    assert page.example == "first()\n\nsecond()"
    assert page.instead == {"A": "`x.y` | some/path"}
    assert page.references == ("https://example.org/1", "a/b.py, note")


def test_what_is_optional_may_be_absent(read_text):
    optional = r"```python.*?(?=\*\*Releases)|\*\*(See|Hit).*?\n\n"
    text = re.sub(optional, "", PAGE, flags=re.DOTALL)
    page = read_text(text.replace("scope: release\nseen_in: usage.cache", "scope: model"))
    assert (page.seen_in, page.hit_if, page.example) == ("", "", "")
    assert (page.instead, page.references) == ({}, ())


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("---\ncode", "code", 1, "front matter"),
        ("kind: silent\n", "kind: silent\narea: loading\n", 4, "'area'"),
        ("kind: silent\n", "kind: silent\nkind: silent\n", 4, "'kind'"),
        ("kind: silent", "kind: loud", 3, "'loud'"),
        ("seen_in: usage.cache\n", "", 1, "seen_in"),
        ("scope: release", "scope: model", 1, "code, kind, scope"),
        ("code: SB999", "code: SB998", 2, "SB998"),
        ("# SB999", "# SB998", 8, "'# SB999 ' is expected"),
        ("*silent: wrong", "*crash: wrong", 10, "'*silent: wrong"),
        ("**Remedy.** Do \\*this\\*.\n\n", "", 20, "'**Remedy.** ' is expected"),
        ("**Cause.**", "**Cuase.**", 18, "'**Cause.** ' is expected"),
        ("**Releases.** All.\n\n", "", 32, "'**Releases.** ' is expected"),
        ("| `A`  | `x.y` \\|", "| A  | `x.y` \\|", 30, "no row"),
        ("[all findings](README.md)\n", "", 35, "ends without '[all"),
        ("README.md)\n", "README.md)\n\nMore.\n", 38, "nothing is expected"),
    ],
)
def test_a_fault_is_named_with_file_and_line(read_text, old, new, line, what):
    assert old in PAGE
    with pytest.raises(PageError, match=rf"SB999\.md:{line}: .*{re.escape(what)}"):
        read_text(PAGE.replace(old, new, 1))
