"""Flags go before the file, the file before the environment."""

from pathlib import Path

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
        {"RESPONSES_CONFORMANCE_KEYS_REQUIRED": "perhaps"},
        {"RESPONSES_CONFORMANCE_API_KEY": "sk-é"},
        {"RESPONSES_CONFORMANCE_BASE_URL": "localhost:8080"},
    ],
)
def test_what_cannot_be_used_is_refused(environment):
    with pytest.raises(ConfigError):
        configured({}, None, environment)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("base-url = 5", "base-url: 5 is no text"),
        ('base-url = "ftp://x"', "base-url: ftp://x is no http"),
        ("timeout = [1]", r"timeout: \[1\] is no number"),
        ("timeout = true", "timeout: True is no number"),
        ("timeout = 0", "timeout: 0 is not above 0"),
        ("timeout = inf", "timeout: inf is not above 0"),
        ("max-output-tokens = 1.5", "max-output-tokens: 1.5 is no whole number"),
        ("max-output-tokens = -1", "max-output-tokens: -1 is not above 0"),
        ("claims = 3", "claims: 3 is no list"),
        ('claims = ["core", 3]', "claims: 3 is no text"),
        ("model = 7", "model: 7 is no text"),
        ("keys-required = 1", "keys-required: 1 is no true or false"),
        ("expected-failures = 1", "expected-failures: 1 is no path"),
        ('modle = "m"', "no option modle; is model meant"),
        ('[conformance]\nmodel = "m"', "no option conformance"),
        ("model = ", "Invalid value"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong_in_it(tmp_path, line, said):
    file = tmp_path / "wrong.toml"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        configured({}, file, {})


def test_every_option_can_be_told_by_a_file(tmp_path):
    file = tmp_path / "all.toml"
    file.write_text(
        'timeout = 5\nclaims = "core, stored"\ncases = ["a"]\nexpected-failures = "b.yaml"\n'
        "second-opinion = true\ncontext-window = 9\n",
        encoding="utf-8",
    )
    config = configured({}, file, {})
    assert (config.timeout, config.claims, config.context_window) == (5, ("core", "stored"), 9)
    assert (config.cases, config.expected_failures) == ((Path("a"),), Path("b.yaml"))
    assert config.second_opinion is True


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.toml"):
        configured({}, tmp_path / "nothing.toml", {})
