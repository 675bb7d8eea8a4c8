"""Where things may lie: which parts know which, and how long a module may get.

A request goes down through the layers and no layer looks up again. `http` makes answers of what
`responses` gives it, `responses` asks `models` and keeps things in `store`, and of `models` only
the modules that stand for a model in this process know `formats` and `engine`. The three at the
bottom know nothing but themselves and the words that all share: a few modules at the root, and the
types made from the document. What wires the layers stands at the root and may know all of them, so
none of them may know it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "antiphon"

#: The words that all share.
SHARED = {
    *(
        "__init__",
        "comparing",
        "errors",
        "ids",
        "keys",
        "metrics",
        "principal",
        "schema_places",
        "schema_process",
        "schemas",
    ),
    *("settings", "turn"),
}
#: What wires the layers, and what starts it.
WIRING = {
    "__main__",
    "app",
    "cli",
    "config_option",
    "console",
    "kept",
    "logs",
    "model_commands",
    "reasoning_commands",
    "reasoning_keys",
    "server",
    "settings_layers",
    "storage",
    "store_commands",
    "worker_process",
}

#: What each layer may know besides itself, the shared words and the document's types.
MAY_KNOW = {
    "http": {"responses", "models", "spec"},
    "responses": {"models", "store", "spec"},
    "models": set(),
    "spec": set(),
    "engine": set(),
    "formats": set(),
    "store": set(),
    "webhooks": {"store"},
}
#: Modules that may know more than their layer, for they stand for a model in this process.
MAY_KNOW_MORE = {
    "models.build": {"engine", "formats"},
    "models.constraints": {"engine", "formats"},
    "models.culprits": {"engine", "formats"},
    "models.local": {"engine", "formats"},
    "models.output": {"engine", "formats"},
}

MAX_LINES = 400
#: Modules that may be longer, and why.
LONGER = {"spec/types.py": "generated from the document"}

#: Libraries that would tie what a response is to how it is carried, kept or made.
NOT_IN_RESPONSES = {
    *("connexion", "starlette", "uvicorn", "httpx", "aiohttp"),
    *("sqlite3", "sqlalchemy", "asyncpg", "psycopg"),
    *("torch", "transformers", "tokenizers", "numpy"),
}


def modules(source: Path) -> dict[str, Path]:
    """Every module by its dotted name inside the package."""
    names = {}
    for file in sorted(source.rglob("*.py")):
        parts = file.relative_to(source).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" and parts[1:] else parts)] = file
    return names


def imported(file: Path) -> Iterator[str]:
    """The full names of what a module imports, inside functions too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def known(file: Path, names: set[str]) -> set[str]:
    """The modules of ours that a module imports."""
    found = set()
    for name in imported(file):
        package, _, path = name.partition(".")
        if package == "antiphon":
            while path and path not in names:
                path = path.rpartition(".")[0]  # The rest names something inside the module.
            found.add(path or "__init__")
    return found


def wrong_arrows(source: Path) -> list[str]:
    """The imports that go against the arrows."""
    files = modules(source)
    wrong = []
    for name, file in files.items():
        layer = name.partition(".")[0]
        if layer in WIRING:
            continue
        allowed = {layer} | MAY_KNOW.get(layer, set()) | MAY_KNOW_MORE.get(name, set())
        for other in sorted(known(file, set(files))):
            target = other.partition(".")[0]
            if target not in allowed | SHARED and other != "spec.types":
                wrong.append(f"{name} imports {other}")
    return wrong


def test_every_module_belongs_to_a_layer_or_to_the_root():
    layers = {name.partition(".")[0] for name in modules(SOURCE)}
    assert layers <= SHARED | WIRING | set(MAY_KNOW)


def test_imports_go_one_way():
    assert wrong_arrows(SOURCE) == []


def test_shared_words_know_only_one_another():
    files = modules(SOURCE)
    for name in SHARED:
        assert known(files[name], set(files)) <= SHARED, name


def test_what_may_know_more_needs_to():
    files = modules(SOURCE)
    for name, more in MAY_KNOW_MORE.items():
        assert {other.partition(".")[0] for other in known(files[name], set(files))} & more, name


def test_what_a_response_is_has_nothing_to_do_with_how_it_is_carried_kept_or_made():
    for file in (SOURCE / "responses").rglob("*.py"):
        libraries = {name.partition(".")[0] for name in imported(file)}
        assert not libraries & NOT_IN_RESPONSES, file.name


def test_modules_are_short():
    long = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if len(file.read_text(encoding="utf-8").splitlines()) > MAX_LINES
    }
    assert long == set(LONGER)


@pytest.mark.parametrize(
    ("place", "text", "wrong"),
    [
        ("engine/a.py", "from antiphon.models.base import Model", "engine.a imports models.base"),
        ("engine/a.py", "def f():\n    import antiphon.http.edge", "engine.a imports http.edge"),
        ("formats/a.py", "from antiphon.spec import Contract", "formats.a imports spec"),
        ("formats/a.py", "from antiphon import app", "formats.a imports app"),
        ("models/base.py", "from antiphon.engine.a import b", "models.base imports engine.a"),
        ("responses/a.py", "from antiphon.http import edge", "responses.a imports http.edge"),
        ("responses/a.py", "from antiphon.engine import a", "responses.a imports engine.a"),
        ("http/a.py", "from antiphon.formats.a import b", "http.a imports formats.a"),
        ("turn.py", "from antiphon.models.base import Model", "turn imports models.base"),
        ("formats/a.py", "from antiphon.spec.types import Response", None),
        ("formats/a.py", "from antiphon import errors\nfrom antiphon.formats.b import c", None),
        ("models/local.py", "from antiphon.engine.a import b", None),
        ("http/a.py", "from antiphon.models.base import Model", None),
        ("app.py", "from antiphon.engine.a import b\nimport antiphon.http.edge", None),
    ],
)
def test_an_import_against_the_arrows_is_found(
    tmp_path: Path, place: str, text: str, wrong: str | None
):
    small = ["engine/a.py", "formats/a.py", "formats/b.py", "models/base.py", "models/local.py"]
    small += ["http/a.py", "http/edge.py", "spec/__init__.py", "spec/types.py", "responses/a.py"]
    small += ["app.py", "errors.py", "turn.py", "__init__.py"]
    for name in small:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    (tmp_path / place).write_text(text, encoding="utf-8")
    assert wrong_arrows(tmp_path) == ([wrong] if wrong else [])
