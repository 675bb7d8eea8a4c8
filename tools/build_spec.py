"""Make from `openapi/` what the package carries: the bundled document, its coverage and its types.

What the conformance suite carries of it, and the settings it runs antiphon with, are made along
with it; see `build_conformance`, `conformance_script` and `recorded_script`.

    python tools/build_spec.py           write them
    python tools/build_spec.py --check   fail if what is written is not what would be

Either way the document is checked first; see `lint_spec`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import build_conformance
import conformance_script
import lint_spec
import recorded_script
import yaml
from bundle import bundle

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "openapi"
TARGET = ROOT / "src" / "antiphon" / "spec"

_OVERLAY_TITLES = {
    "stateless": "Where the setting `state` is `off`",
    "unsummarised": "Where the setting `reasoning_summary` is `none`",
}
_COVERAGE_TITLES = {
    "request": "Request fields",
    "conversation": "Fields of requests about conversations",
    "include": "Values of include",
    "input_items": "Input items",
    "content_parts": "Content parts",
    "tools": "Tools",
    "output_items": "Output items",
    "events": "Stream events",
}


def main() -> int:
    """Write or check the generated files; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    coverage = yaml.safe_load((SOURCE / "coverage.yaml").read_text(encoding="utf-8"))
    document = bundle(SOURCE)
    problems = lint_spec.problems(document, coverage)
    for problem in problems:
        print(f"openapi: {problem}", file=sys.stderr)
    if problems:
        return 1
    document["tags"].append(
        {
            "name": "What is served",
            "description": coverage_tables(coverage),
            "x-traitTag": True,  # Redoc: a chapter without operations.
        }
    )
    made = {
        "openapi.json": json.dumps(document, ensure_ascii=False, indent=1) + "\n",
        "openapi.yaml": yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120),
        "coverage.json": json.dumps(coverage, ensure_ascii=False, indent=1) + "\n",
        "types.py": types_module(document),
    }
    generated = {TARGET / name: text for name, text in made.items()}
    generated |= build_conformance.generated(document) | conformance_script.generated()
    generated |= recorded_script.generated()
    stale = [file for file, text in generated.items() if read(file) != text]
    if arguments.check:
        for file in stale:
            print(f"{file} is out of date: run tools/build_spec.py", file=sys.stderr)
        return 1 if stale else 0
    for file in stale:
        file.write_text(generated[file], encoding="utf-8")
        print(f"wrote {file}")
    return 0


def read(file: Path) -> str | None:
    """A file's text, None if there is no such file."""
    return file.read_text(encoding="utf-8") if file.exists() else None


def coverage_tables(coverage: dict[str, Any]) -> str:
    """The chapter of the reference that says what is served today."""
    lines = [
        "*served*: does what this reference says. *dropped*: left out, named in",
        "`antiphon-dropped` and counted; refused with the setting `strict`. *rejected*: refused",
        "with a 400 that names it.",
        "Of what the server sends, *dropped* means that it is never sent.",
    ]
    for section, title in _COVERAGE_TITLES.items():
        lines += [f"\n### {title}\n", *_table(coverage[section])]
    for overlay, title in _OVERLAY_TITLES.items():
        rules = {k: v for section in coverage[overlay].values() for k, v in section.items()}
        lines += [f"\n### {title}\n", *_table(rules)]
    return "\n".join(lines) + "\n"


def _table(rules: dict[str, Any]) -> list[str]:
    lines = ["| Name | Status | |", "|---|---|---|"]
    for name, line in rules.items():
        why = line.get("why", "")
        if "neutral" in line:
            values = ", ".join(f"`{json.dumps(value)}`" for value in line["neutral"])
            why += f" Always let through: {values}."
        lines.append(f"| `{name}` | {line['status']} | {why.strip()} |")
    return lines


def types_module(document: dict[str, Any]) -> str:
    """TypedDicts and aliases for every schema, made by datamodel-code-generator."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "openapi.json"), Path(folder, "types.py")
        source.write_text(json.dumps(document), encoding="utf-8")
        command = ["datamodel-codegen", "--input", source, "--output", target]
        command += ["--input-file-type", "openapi", "--output-model-type", "typing.TypedDict"]
        command += ["--target-python-version", "3.11", "--enum-field-as-literal", "all"]
        command += ["--use-union-operator", "--use-schema-description", "--disable-timestamp"]
        command += ["--formatters", "builtin"]
        command += ["--custom-file-header", '"""Generated by tools/build_spec.py."""']
        subprocess.run([str(part) for part in command], check=True)
        text = target.read_text(encoding="utf-8")
    # `closed` is of a later Python than the oldest one served; mypy does not need it.
    text = text.replace(", closed=True", "")
    text = text.replace("from typing_extensions import TypedDict\n", "")
    return text.replace(
        "import Literal, NotRequired, TypeAlias",
        "import Literal, NotRequired, TypeAlias, TypedDict",
    )


if __name__ == "__main__":
    sys.exit(main())
