"""Settings from four layers, each value with its origin."""

import pytest

from antiphon.settings import Settings
from antiphon.settings_layers import SettingsError, load_settings

MODEL = '[models.demo]\nkind = "scripted"\n[[models.demo.scenes]]\nsteps = [{ text = "hi" }]\n'


@pytest.fixture
def config(tmp_path):
    return tmp_path / "antiphon.toml"


def load(config=None, environment=None, **flags):
    return load_settings(flags, config=config, environment=environment or {})


def test_later_layers_win_and_origins_are_told(config):
    config.write_text('port = 1\nhost = "::1"\nstrict = true\n')
    loaded = load(config, {"ANTIPHON_PORT": "2", "ANTIPHON_HOST": "localhost"}, port="3")
    assert (loaded.settings.port, loaded.settings.host) == (3, "localhost")
    assert loaded.settings.strict is True
    assert loaded.origins["port"] == "flag"
    assert loaded.origins["host"] == "environment"
    assert loaded.origins["strict"] == f"file {config}"
    assert loaded.origins["model"] == "default"


def test_lists_and_maps_are_one_line_in_the_environment():
    loaded = load(
        environment={
            "ANTIPHON_CORS_ORIGINS": "https://a.example, https://b.example",
            "ANTIPHON_ALIASES": "gpt-5.5=small,*=small",
        }
    )
    assert loaded.settings.cors_origins == ("https://a.example", "https://b.example")
    assert loaded.settings.aliases == {"gpt-5.5": "small", "*": "small"}


def test_the_environment_may_name_the_file(config):
    config.write_text("port = 7\n")
    assert load(environment={"ANTIPHON_CONFIG": str(config)}).settings.port == 7


def test_models_are_tables_in_the_file(config):
    config.write_text(MODEL)
    (name,) = load(config).settings.models
    assert name == "demo"
    assert load(config).settings.models["demo"].scenes[0].steps[0].text == "hi"


@pytest.mark.parametrize(
    ("environment", "flags", "said"),
    [
        ({"ANTIPHON_PORT": "abc"}, {}, ["port", "environment", "'abc'"]),
        ({"ANTIPHON_PROT": "1"}, {}, ["ANTIPHON_PROT"]),
        ({"ANTIPHON_MODELS": "x"}, {}, ["ANTIPHON_MODELS", "file"]),
        ({"ANTIPHON_API_KEYS": "sk-plain"}, {}, ["api_keys", "hash"]),
        ({}, {"port": "70000"}, ["port", "flag", "65535"]),
        ({}, {"log_level": "loud"}, ["log_level", "'loud'"]),
        ({}, {"keep_alive_seconds": "0"}, ["keep_alive_seconds"]),
        ({}, {"aliases": "a"}, ["aliases", "alias=model"]),
    ],
)
def test_a_wrong_value_names_itself_and_its_origin(environment, flags, said):
    with pytest.raises(SettingsError) as wrong:
        load(environment=environment, **flags)
    for part in said:
        assert part in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port =", "antiphon.toml"),
        ("prot = 1", "prot"),
        ("[models.a]\n", "models.a"),
        ('[models.a]\nkind = "scripted"\n', "scenes"),
        (MODEL.replace('text = "hi"', ""), "steps.0"),
        (MODEL.replace('text = "hi"', 'text = "hi", fail = "x"'), "exactly one"),
        (MODEL.replace("text", "txt"), "txt"),
    ],
)
def test_a_wrong_file_says_where(config, text, said):
    config.write_text(text)
    with pytest.raises(SettingsError, match=said):
        load(config)


def test_a_missing_file_is_an_error_if_it_was_named(tmp_path):
    with pytest.raises(SettingsError, match="nope"):
        load(tmp_path / "nope.toml")


def test_settings_cannot_be_changed():
    with pytest.raises(Exception, match="frozen"):
        Settings().port = 1


def test_every_setting_says_what_it_means():
    for name, field in Settings.model_fields.items():
        assert field.description, name


def test_none_stands_for_no_value_in_every_layer(tmp_path):
    file = tmp_path / "antiphon.toml"
    file.write_text('retention_seconds = "none"\nmodel = "none"\n')
    assert load_settings({}, config=file, environment={}).settings.retention_seconds is None
    environment = {"ANTIPHON_RETENTION_SECONDS": "none"}
    assert load_settings({}, environment=environment).settings.retention_seconds is None
    assert load_settings({"retention_seconds": "None"}, environment={}).settings.model is None
    with pytest.raises(SettingsError, match="port"):
        load_settings({"port": "none"}, environment={})
