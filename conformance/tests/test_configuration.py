"""Flags go before the file, the file before the environment."""

import pytest

from responses_conformance.config import Config, ConfigError, configured


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "conformance.toml"
    path.write_text('model = "of the file"\nbase-url = "http://file/v1"\n', encoding="utf-8")
    return path


ENVIRONMENT = {
    "RESPONSES_CONFORMANCE_MODEL": "of the environment",
    "RESPONSES_CONFORMANCE_API_KEY": "key",
    "RESPONSES_CONFORMANCE_NOT_CLAIMED": "media, websocket",
    "RESPONSES_CONFORMANCE_KEYS_REQUIRED": "true",
    "RESPONSES_CONFORMANCE_TIMEOUT": "2.5",
    "OTHER": "x",
}


def test_a_flag_goes_before_the_file_and_the_file_before_the_environment(file):
    flags = {"base_url": "http://flag/v1", "model": None, "keys_required": False}
    config = configured(flags, file, ENVIRONMENT)
    assert config.base_url == "http://flag/v1"
    assert config.model == "of the file"
    assert config.api_key == "key"


def test_the_environment_is_read_as_the_types_say():
    config = configured({}, None, ENVIRONMENT)
    assert config.not_claimed == ("media", "websocket")
    assert (config.keys_required, config.timeout) == (True, 2.5)


def test_all_profiles_but_the_exact_one_are_claimed_unless_some_are_named():
    assert "exact" not in Config().profiles
    assert configured({"claims": ("core", "exact")}, None, {}).profiles == ("core", "exact")
    assert "media" not in configured({"not_claimed": ("media",)}, None, {}).profiles


@pytest.mark.parametrize(
    "environment",
    [
        {"RESPONSES_CONFORMANCE_MODLE": "x"},
        {"RESPONSES_CONFORMANCE_TIMEOUT": "soon"},
        {"RESPONSES_CONFORMANCE_CLAIMS": "everything"},
    ],
)
def test_what_cannot_be_used_is_refused(environment):
    with pytest.raises(ConfigError):
        configured({}, None, environment)
