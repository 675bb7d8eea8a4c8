"""What tests with a real server begin with."""

import shutil
from pathlib import Path

import pytest

from responses_conformance.config import Config
from responses_conformance.starting import started

SCRIPT = Path(__file__).parent.parent / "antiphon.toml"


@pytest.fixture(scope="module")
def antiphon():
    """How to judge a sound server that runs."""
    if shutil.which("antiphon") is None:
        pytest.skip("antiphon is not installed beside the suite")
    config = Config(
        base_url="http://127.0.0.1:{port}/v1",
        api_key="sk-conformance-first",
        model="scripted",
        model_follows_script=True,
        start=f"antiphon serve --config {SCRIPT} --port {{port}}",
    )
    with started(config) as running:
        yield running
