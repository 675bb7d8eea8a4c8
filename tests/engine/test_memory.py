"""How much memory there is, and models that are too large for it."""

from pathlib import Path

import pytest

from antiphon.engine import memory
from antiphon.engine.checkpoints.checkpoint import LoadError

GIB = 2**30


def container(tmp_path: Path, limit: str, used: str) -> Path:
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text(used)
    return tmp_path


def test_this_machine_has_some_memory():
    available = memory.available_bytes()
    assert available is not None and available > 2**20


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [("1000\n", "400\n", 600), ("1000\n", "2000\n", 0), ("max\n", "400\n", 5000), ("?", "?", 5000)],
)
def test_a_container_s_limit_counts_if_it_is_less(tmp_path, monkeypatch, limit, used, expected):
    monkeypatch.setattr(memory, "_machine", lambda: 5000)
    monkeypatch.setattr(memory, "_CGROUP", container(tmp_path, limit, used))
    assert memory.available_bytes() == expected


def test_a_machine_s_memory_counts_if_it_is_less(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_machine", lambda: 50)
    monkeypatch.setattr(memory, "_CGROUP", container(tmp_path, "1000", "400"))
    assert memory.available_bytes() == 50


def test_where_nothing_is_known_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_machine", lambda: None)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.available_bytes() is None
    memory.check_room("a model", 10**18, None)


def test_what_does_not_fit_is_refused_with_both_sizes():
    memory.check_room("a model", GIB, GIB)
    with pytest.raises(LoadError) as caught:
        memory.check_room("models/large", 7 * GIB + GIB // 2, 300 * 2**20)
    assert str(caught.value) == (
        "models/large needs about 7.5 GiB of memory, and 300 MiB are free. "
        "Take a smaller model, or set cache_mib lower."
    )
