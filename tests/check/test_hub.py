"""What is read of the hub: from its cache where there is no network, and a message per failure."""

from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

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
    with pytest.raises(HubError) as caught:
        hub.config_file("org/tiny", "v9")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    is_unknown = type(error) is errors.RepositoryNotFoundError
    assert caught.value.is_unknown == is_unknown
