"""Bundle the hand-written document in `openapi/` into one OpenAPI 3.1 object.

Every file under `schemas/` is a map of named schemas, `parameters.yaml`, `headers.yaml` and
`responses.yaml` are maps of named components, every file under `examples/` is one Example Object,
and the files under `paths/` are maps of path items. A `$ref` to any of them becomes a `$ref` into
`components`; path items are written in place. Names are global: two files that define the same name
are an error. A `discriminator` gets its `mapping` from its branches' tags, and has none of its own.
"""

from pathlib import Path
from typing import Any

import yaml

FOLDERS = {"schemas": "schemas", "examples": "examples"}
FILES = {"parameters.yaml": "parameters", "headers.yaml": "headers", "responses.yaml": "responses"}
#: Schemas appear in this order of files, which is the order a reader wants them in.
SCHEMA_ORDER = (
    "request",
    "items_in",
    "content_in",
    "response",
    "items_out",
    "content_out",
    "items_stored",
    "conversations",
    "stream",
    "events",
    "tools",
    "errors",
    "models",
    "codex",
    "server",
    "common",
    "hosted_tools",
    "hosted_items_in",
    "hosted_items_out",
    "hosted_events",
)


class BundleError(Exception):
    """The source files do not fit together."""


def bundle(source: Path) -> dict[str, Any]:
    """Return the document under `source` as one object without references to other files."""
    return _Bundler(source).run()


class _Bundler:
    def __init__(self, source: Path) -> None:
        self._source = source.resolve()
        self._files: dict[Path, Any] = {}
        self._components: dict[str, dict[str, Any]] = {}
        self._origin: dict[tuple[str, str], Path] = {}

    def run(self) -> dict[str, Any]:
        root_file = self._source / "antiphon.yaml"
        root = self._resolve(self._load(root_file), root_file)
        components = root.setdefault("components", {})
        for kind in ("schemas", "parameters", "headers", "responses", "examples"):
            if kind in self._components:
                components[kind] = self._ordered(kind)
        self._map_discriminators(components["schemas"])
        return dict(root)

    def _load(self, file: Path) -> Any:
        if file not in self._files:
            if not file.is_file():
                raise BundleError(f"{file} does not exist")
            self._files[file] = yaml.safe_load(file.read_text(encoding="utf-8"))
        return self._files[file]

    def _resolve(self, node: Any, file: Path) -> Any:
        if isinstance(node, list):
            return [self._resolve(child, file) for child in node]
        if not isinstance(node, dict):
            return node
        if isinstance(node.get("$ref"), str):
            siblings = {k: self._resolve(v, file) for k, v in node.items() if k != "$ref"}
            target = self._target(node["$ref"], file)
            if not isinstance(target, str):
                return target
            return {"$ref": target, **siblings}
        return {key: self._resolve(child, file) for key, child in node.items()}

    def _target(self, ref: str, file: Path) -> str | dict[str, Any]:
        """The reference into `components` that `ref` becomes, or the path item itself."""
        location, _, pointer = ref.partition("#")
        target_file = (file.parent / location).resolve() if location else file
        name = pointer.removeprefix("/")
        relative = target_file.relative_to(self._source)
        if relative.parts[0] == "paths":
            item: dict[str, Any] = self._resolve(self._named(target_file, name, ref), target_file)
            return item
        kind = FOLDERS.get(relative.parts[0]) or FILES.get(relative.name)
        if kind is None:
            raise BundleError(f"{file.name} refers to {ref}, which is no place of components")
        if kind == "examples":
            name = target_file.stem
            value = self._load(target_file)
        else:
            value = self._named(target_file, name, ref)
        self._add(kind, name, value, target_file)
        return f"#/components/{kind}/{name}"

    def _named(self, file: Path, name: str, ref: str) -> Any:
        content = self._load(file)
        if not isinstance(content, dict) or name not in content:
            raise BundleError(f"{ref} does not exist")
        return content[name]

    def _add(self, kind: str, name: str, value: Any, file: Path) -> None:
        known = self._origin.setdefault((kind, name), file)
        if known != file:
            raise BundleError(f"{name} is defined in {known.name} and in {file.name}")
        named = self._components.setdefault(kind, {})
        if name not in named:
            named[name] = None  # Holds the place, so that recursion ends here.
            named[name] = value if kind == "examples" else self._resolve(value, file)

    def _ordered(self, kind: str) -> dict[str, Any]:
        named = self._components[kind]
        if kind != "schemas":
            return dict(sorted(named.items()))
        ordered: dict[str, Any] = {}
        for stem in SCHEMA_ORDER:
            for name in self._load(self._source / "schemas" / f"{stem}.yaml"):
                if name not in named:
                    raise BundleError(f"nothing refers to {name} in {stem}.yaml")
                ordered[name] = named[name]
        for name in named:
            if name not in ordered:
                raise BundleError(f"{name} is in a file that SCHEMA_ORDER does not name")
        return ordered

    @staticmethod
    def _map_discriminators(schemas: dict[str, Any]) -> None:
        for name, schema in schemas.items():
            discriminator = schema.get("discriminator")
            if not discriminator:
                continue
            if "mapping" in discriminator:
                # It would have to name what is bundled, which no file knows.
                raise BundleError(f"{name}: a mapping is made from the branches' tags")
            tag = discriminator["propertyName"]
            mapping = discriminator["mapping"] = {}
            for branch in schema["oneOf"]:
                tagged = schemas[branch["$ref"].rpartition("/")[2]]["properties"][tag]
                if "const" not in tagged:
                    raise BundleError(f"{name}: {branch['$ref']} has no constant {tag}")
                mapping[tagged["const"]] = branch["$ref"]
