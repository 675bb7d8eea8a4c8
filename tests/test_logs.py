"""What the log holds."""

import json
import logging

import pytest
import structlog

from antiphon import logs


@pytest.fixture
def written(capsys):
    """Says what was logged."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield lambda: capsys.readouterr().err
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def fail_with(prompt):
    length = len(prompt)
    raise RuntimeError(f"a text of {length} characters")


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_variables(written, form):
    logs.configure("info", form)
    private = "-".join(["a", "private", "matter"])
    try:
        fail_with(private)
    except RuntimeError:
        structlog.get_logger("test").exception("failed")
    text = written()
    assert "a text of 16 characters" in text
    assert "fail_with" in text
    assert private not in text


def test_lines_are_json_where_nobody_watches(written):
    logs.configure("info", "auto")
    structlog.get_logger("test").info("said", count=1)
    logging.getLogger("some.library").warning("said by a library")
    first, second = (json.loads(line) for line in written().splitlines())
    assert (first["event"], first["count"], first["level"]) == ("said", 1, "info")
    assert (second["event"], second["level"]) == ("said by a library", "warning")


def test_less_severe_lines_are_left_out(written):
    logs.configure("error", "json")
    structlog.get_logger("test").warning("said")
    logging.getLogger("some.library").warning("said")
    assert written() == ""


def test_uvicorns_advice_on_websockets_is_left_out(written):
    logs.configure("info", "json")
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.warning("Unsupported upgrade request.")
    uvicorn.warning("Something else.")
    text = written()
    assert "Unsupported" not in text
    assert "Something else." in text
