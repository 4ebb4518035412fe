"""Tests that published files contain no token, no password and no home folder of the user."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.base.redaction import Redaction
from samebits.questions.crossings.records import Crossing, CrossingsOfRow
from samebits.records.capsule import Capsule
from samebits.records.capture import Failure, Skip
from samebits.reports.write import write
from samebits_wire.folders import without_folders
from tests.support.sample_report import sample_report

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
    ("text", "expected"),
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
def test_a_text(text, expected):
    assert Redaction(ENVIRON).text(text) == expected


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


# folders

FOLDERS = [
    ("error:/home/x/secret/a.py:3", "error:…/a.py:3"),
    ("open('/home/joan doe/my x/file.bin')", "open('…/file.bin')"),
    ('File "/home/x/secret/model.py", line 3', 'File "…/model.py", line 3'),
    ("(/x/lib/python3.11/site-packages/transformers/utils/__init__.py)", "(…/utils/__init__.py)"),
    ("file:///home/x/secret/z.py", "…/z.py"),
    ("PATH=/a/b:/c/d", "PATH=…/b:…/d"),
    ("in /home/joan or '/Users/joan'", "in … or '…'"),
    ("/tmp/tmpabc/w.bin\n/tmp/other", "…/w.bin\n…/other"),
    ("-I/home/x/include", "-I…/include"),
    (r"a repr: '\n/home/x/secret/y'", r"a repr: '\n…/y'"),
    (r"C:\Users\jo\x.py", r"…\x.py"),
    # none of these is a folder of this machine
    ("https://host/a/b/c", None),
    ("s3://bucket/a/b", None),
    ("n/a/b, ./x/y, ../x/y, ~/a/b, …/a/b, 1/2/3", None),
    ("</s>/</a> and a / b / c", None),
    ("models/x.md#a/b", None),
]


@pytest.mark.parametrize(("text", "cut"), FOLDERS)
def test_an_absolute_path_is_cut(text, cut):
    assert without_folders(text) == (cut or text)


AROUND = ["", " ", "'", '"', "(", ":", "=", ",", "\n", "[", "<", "`", "|", "@", "b'", "\t", "\\n"]


@pytest.mark.parametrize("before", [*AROUND, "file://", "-I", "x='"])
@pytest.mark.parametrize("after", AROUND)
def test_whatever_stands_around_it(before, after):
    assert "joan" not in without_folders(f"{before}/home/joan/secret/x.py{after}")


PIECES = ["/home/jo", "/a", "file://", "'", '"', "\\", "C:\\x", "\n", " -I", "https://h", "…", "~"]


@settings(max_examples=500)
@given(
    st.text("/ab.:'\" \n~-\\ILC…()\x01\u2028", max_size=14)
    | st.lists(st.sampled_from([*PIECES, ":", "/lib/python3.11/", "b c"]), max_size=6).map("".join)
)
def test_a_record_with_an_absolute_path_is_never_taken_for_one_without(text):
    """The record is searched as JSON, where a line feed and a backslash are two characters each."""
    failure = Failure(phase="load", type="x", message=text, traceback="")
    assert Redaction({}).record(failure).message == without_folders(text)


SECRETS = ("/home/x/secret/project/code.py", "/tmp/tmpx1/secret/w.bin", "/opt/secret/lib.so")


def planted():
    """Return the sample report with absolute paths in every field for a message of a process."""
    report = sample_report()
    text = "\n".join(f"said {path!r} and {path}:3" for path in SECRETS)
    failure = Failure(phase="process", type="no result", message=text, traceback=text)

    def cell(result):
        return result.model_copy(
            update={
                "failure": failure,
                "headline": f"failed in phase process: no result: {text}",
                "notes": (text,),
                "skips": (Skip(what="greedy", reason=text),),
                "capsule": Capsule(reason=text),
            }
        )

    stacks = tuple(stack.model_copy(update={"failure": text}) for stack in report.stacks)
    crossed = tuple(
        Crossing(saver=saver, loader=loader, outcome=outcome, failure=failure, reason=text)
        for saver in ("4.48", "5.x")
        for loader, outcome in (("4.48", "load failed"), ("5.x", "not tried"))
    )
    answers = {"crossings": CrossingsOfRow(crossings=crossed)}
    rows = tuple(
        row.model_copy(
            update={"cells": tuple(map(cell, row.cells)), "answers": row.answers | answers}
        )
        for row in report.rows
    )
    update = {"rows": rows, "stacks": stacks, "reasons": (text,)}
    return report.model_copy(update=update)


def test_no_file_of_a_report_says_where_anything_lies_on_this_machine(tmp_path):
    beside = {"repro/a@b/ISSUE.md": f"see {SECRETS[0]}".encode(), "locks/5.x.txt": "torch==1\n"}
    for guarded in (False, True):
        folder = tmp_path / str(guarded)
        redaction = Redaction({"HOME": "/home/other"})
        report = redaction.record(planted()) if guarded else planted()
        files = {n: redaction.file(n, text) if guarded else text for n, text in beside.items()}
        write(report, folder, files)
        texts = {p: p.read_text("utf-8") for p in folder.rglob("*") if p.is_file()}
        told = {
            path.name
            for path, text in texts.items()
            if "secret" in text or "/home/x" in text or "/tmp/" in text or "/opt/" in text
        }
        assert told == set() if guarded else {"report.md", "report.json", "ISSUE.md"} <= told


SECRET_NAMES = [
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_CONNECTION_STRING",
    "GITHUB_PAT",
    "PAT",
    "NPM_AUTH",
    "HTTP_AUTHORIZATION",
    "SSH_PRIVATE_KEY",
    "SIGNING_KEY",
    "WANDB_API_KEY",
    "wandb_api_key",
    "GOOGLE_CREDENTIAL",
    "GPG_PASSPHRASE",
    "PGPASSWORD",
    "DB_PWD",
    "KEY",
]
HARMLESS_NAMES = ["PATH", "GIT_AUTHOR_NAME", "KEYBOARD", "PATCH", "MONKEY", "PATTERN", "LANG"]
secrets = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=", min_size=20)


@given(st.sampled_from(SECRET_NAMES), secrets, st.text(max_size=9), st.text(max_size=9))
def test_no_secret_of_the_environment_is_published(name, secret, before, after):
    redacted = Redaction({name: secret})
    text = f"{before}{secret}{after}"
    assert secret not in redacted.published(text)
    assert f"({name})" in redacted.text(text)
    skip = Skip(what="forward", reason=text)
    assert secret not in redacted.record(skip).reason


@given(st.sampled_from(HARMLESS_NAMES), secrets)
def test_what_no_name_calls_a_secret_stays(name, value):
    assert Redaction({name: value}).text(f"it is {value}.") == f"it is {value}."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("AUTH", "none"),
        ("SSH_AUTH_SOCK", "/run/user/1000/keyring/ssh"),
        ("GOOGLE_APPLICATION_CREDENTIALS", __file__),
        ("ACTIONS_ID_TOKEN_REQUEST_URL", "https://pipelines.example.org/a"),
        ("SSL_KEY_FILE", "~/keys/one"),
    ],
)
def test_a_switch_a_path_and_an_address_are_no_secrets(name, value):
    assert Redaction({name: value}).text(f"it is {value}.") == f"it is {value}."


def test_each_line_of_a_private_key_is_one():
    key = "-----BEGIN KEY-----\nAAAAB3NzaC1yc2EAAAADAQ/+\nBBBB\n-----END KEY-----"
    text = Redaction({"SSH_PRIVATE_KEY": key}).text("near AAAAB3NzaC1yc2EAAAADAQ/+ in line 2, BBBB")
    assert text == "near (SSH_PRIVATE_KEY) in line 2, BBBB"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET https://u:pw@host/x failed", "GET https://host/x failed"),
        ("'https://ghp_abc@host/x'", "'https://host/x'"),
        ("https://h/x?sv=1&sig=a%2Fb&se=2", "https://h/x?sv=1&sig=…&se=2"),
        (
            "https://h/x?X-Amz-Signature=abc&X-Amz-Date=1",
            "https://h/x?X-Amz-Signature=…&X-Amz-Date=1",
        ),
        ("https://h/x?access_token=abc", "https://h/x?access_token=…"),
        (
            "ssh://git@github.com/a and abfss://c@acc/p",
            "ssh://git@github.com/a and abfss://c@acc/p",
        ),
        ("https://h/x?keyword=a&page=2", "https://h/x?keyword=a&page=2"),
        ("mail a@b.org, see https://h/a@b", "mail a@b.org, see https://h/a@b"),
    ],
)
def test_credentials_of_any_address_are_left_out(text, expected):
    redacted = Redaction({})
    assert redacted.text(text) == expected
    assert redacted.record(Skip(what="x", reason=text)).reason == expected
