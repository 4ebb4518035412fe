"""No token, no password and no home of the user stands in what is published."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_report import sample_report

from samebits.redaction import Redaction

TOKEN = "hf_abcdefgh12345678"
ENVIRON = {
    "HF_TOKEN": TOKEN,
    "MY_API_KEY": 'quote"and\\backslash',
    "HTTPS_PROXY": "http://jo:pa%40ssword@proxy:3128",
    "UV_EXTRA_INDEX_URL": "https://a:firstsecret@one/ https://b:secondsecret@two/",
    "HOME": "/home/jo",
    "SHORT_TOKEN": "a",
    "TOKEN_PATH": "/etc/some/token",
    "PATH": "/usr/bin",
}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"401 for {TOKEN}!", "401 for (HF_TOKEN)!"),
        ("x" + TOKEN + "x", "x(HF_TOKEN)x"),
        ("via jo:pa%40ssword@proxy", "via jo:(HTTPS_PROXY)@proxy"),
        ("the word pa@ssword", "the word (HTTPS_PROXY)"),
        ("firstsecret secondsecret", "(UV_EXTRA_INDEX_URL) (UV_EXTRA_INDEX_URL)"),
        ('a quote"and\\backslash', "a (MY_API_KEY)"),
        ("in /home/jo/models and '/home/jo'", "in ~/models and '~'"),
        ("file:///home/jo/x", "file://~/x"),
        (
            "of /home/joan, /home/jo.bak and /mnt/home/jo",
            "of /home/joan, /home/jo.bak and /mnt/home/jo",
        ),
        ("a /usr/bin and /etc/some/token", "a /usr/bin and /etc/some/token"),
    ],
)
def test_a_text(text, told):
    assert Redaction(ENVIRON).text(text) == told


@pytest.mark.parametrize("home", ["", "/", "//"])
def test_a_home_that_is_none_is_not_looked_for(home):
    assert Redaction({"HOME": home}).text("/a/b") == "/a/b"


@pytest.mark.parametrize("name", ["home", "path"])
def test_the_token_of_a_login_is_known(tmp_path, name):
    file = tmp_path / ".cache" / "huggingface" / "token"
    file.parent.mkdir(parents=True)
    file.write_text(f"{TOKEN}\n")
    environ = {"HOME": str(tmp_path)} if name == "home" else {"HF_TOKEN_PATH": str(file)}
    assert Redaction(environ).text(f"<{TOKEN}>") == "<(HF_TOKEN)>"


def test_a_token_file_that_is_no_text_is_none(tmp_path):
    (tmp_path / "token").write_bytes(b"\xff" * 20)
    assert Redaction({"HF_HOME": str(tmp_path)}).text("a") == "a"


def test_a_record_that_holds_none_stays_itself():
    report = sample_report()
    harmless = {name: text for name, text in ENVIRON.items() if name != "MY_API_KEY"}
    assert Redaction(harmless).record(report) is report
    assert Redaction({}).record(report) is report
    assert Redaction(ENVIRON).record(report) == report


def test_a_record_is_redacted_at_every_depth_and_keeps_its_form():
    report = sample_report()
    row = report.rows[0]
    cell = row.cells[0].model_copy(update={"reproduce": f"nox {TOKEN} /home/jo/x"})
    rows = (row.model_copy(update={"cells": (cell, *row.cells[1:])}), *report.rows[1:])
    machine = report.machine.model_copy(update={"flags": {'quote"and\\backslash': TOKEN}})
    told = report.model_copy(update={"rows": rows, "machine": machine})
    clean = Redaction(ENVIRON).record(told)
    assert clean.rows[0].cells[0].reproduce == "nox (HF_TOKEN) ~/x"
    assert clean.machine.flags == {"(MY_API_KEY)": "(HF_TOKEN)"}
    assert type(clean).model_validate_json(clean.model_dump_json()) == clean
    assert TOKEN not in clean.model_dump_json()
    assert clean.rows[1:] == report.rows[1:]


@given(st.text(max_size=30), st.text(max_size=30), st.text(min_size=8, max_size=12))
def test_no_secret_gets_through_whatever_it_is(before, after, secret):
    redaction = Redaction({"A_TOKEN": secret, "HOME": "/home/jo"})
    if "/" not in secret and secret not in "(A_TOKEN)":
        assert secret not in redaction.text(f"{before}{secret}{after}").replace("(A_TOKEN)", "\0")
