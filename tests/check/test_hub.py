"""What is read of the hub: from its cache where there is no network, and a message per failure."""

from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from samebits.base.hub import is_reached
from samebits.check import hub
from samebits.check.hub import HubError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Make a cache of the hub that holds one model, without a network."""
    model = tmp_path / "models--org--tiny"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    (model / "snapshots" / COMMIT).mkdir(parents=True)
    (model / "snapshots" / COMMIT / "config.json").write_text("{}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return model


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_the_cache_serves_without_a_network_and_names_the_commit(cache, revision):
    file = hub.config_file("org/tiny", revision)
    assert (file.commit, file.path.read_text()) == (COMMIT, "{}")


def test_a_model_that_is_not_in_the_cache_needs_a_network(cache):
    with pytest.raises(HubError, match="HF_HUB_OFFLINE") as caught:
        hub.config_file("org/other", None)
    assert caught.value.is_offline


RESPONSE = SimpleNamespace(status_code=404, headers={}, request=SimpleNamespace(url="https://hub"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.RepositoryNotFoundError("x", response=RESPONSE), "the hub has no such model"),
        (errors.GatedRepoError("x", response=RESPONSE), "the model is gated"),
        (errors.RevisionNotFoundError("x", response=RESPONSE), "no revision v9"),
        (errors.EntryNotFoundError("x"), "no config.json"),
        (errors.LocalEntryNotFoundError("x"), "cannot be reached"),
        (errors.HfHubHTTPError("500 oops\nmore", response=RESPONSE), "500 oops"),
        (errors.HFValidationError("bad id"), "bad id"),
        (ConnectionError("reset"), "reset"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_failure_says_what_to_change(monkeypatch, error, words):
    def download(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda *_, **__: None)
    with pytest.raises(HubError) as caught:
        hub.config_file("org/tiny", "v9")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    is_unknown = type(error) is errors.RepositoryNotFoundError
    assert caught.value.is_unknown == is_unknown


def test_what_says_whether_a_model_has_code_is_asked_for_at_once(monkeypatch, tmp_path):
    asked = []

    def snapshot(id_, **options):
        asked.append((id_, options["revision"], options["allow_patterns"]))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert hub.settings_folder("org/tiny", COMMIT) == tmp_path
    ((id_, revision, patterns),) = asked
    assert (id_, revision) == ("org/tiny", COMMIT)
    assert {"tokenizer_config.json", "custom_generate/generate.py"} <= set(patterns)


def test_without_a_network_the_cache_says_whether_a_model_has_code(cache):
    (cache / "snapshots" / COMMIT / "tokenizer_config.json").write_text("{}")
    assert hub.settings_folder("org/tiny", COMMIT) == cache / "snapshots" / COMMIT
    assert hub.settings_folder("org/other", None) is None


@pytest.mark.parametrize(("error", "local"), [(None, False), (ConnectionError("refused"), True)])
def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch, error, local):
    asked = []

    def metadata(*_, **__):
        if error:
            raise error

    def download(*_, local_files_only, **__):
        asked.append(local_files_only)
        return f"/c/snapshots/{COMMIT}/config.json"

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", metadata)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    is_reached.cache_clear()
    assert hub.config_file("org/tiny", None).commit == COMMIT
    assert asked == [local]
    is_reached.cache_clear()
