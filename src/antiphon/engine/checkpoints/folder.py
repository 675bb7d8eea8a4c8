"""Reads a model from a folder, as model hubs keep it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as HubTokenizer

from antiphon.engine.checkpoints.checkpoint import Checkpoint, LoadError, Tensor, flat
from antiphon.engine.checkpoints.safetensors_file import read_tensors

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


def read_folder(folder: Path) -> Checkpoint:
    """The model in a folder. Raises `LoadError`."""
    if not (folder / "config.json").is_file():
        raise LoadError(f"{folder} holds no model: there is no config.json in it")
    config = _json(folder / "config.json")
    generation = _json(folder / "generation_config.json")
    described = _json(folder / "tokenizer_config.json")
    tokenizer = _tokenizer(folder)
    variables = _special_tokens(folder, described)
    nested = config.get("text_config")
    stops = [said.get("eos_token_id") for said in (config, generation)]
    if isinstance(nested, dict):
        stops.append(nested.get("eos_token_id"))
    if tokenizer is not None and "eos_token" in variables:
        stops.append(tokenizer.token_to_id(variables["eos_token"]))
    sampled = bool(generation.get("do_sample"))
    return Checkpoint(
        path=folder,
        config=config,
        tensors=_tensors(folder),
        tokenizer=tokenizer,
        template=_template(folder, described),
        variables=variables,
        stop_tokens=flat(stops),
        temperature=generation.get("temperature") if sampled else None,
        top_p=generation.get("top_p") if sampled else None,
    )


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise LoadError(f"{path} holds no object")
    return content


def _tokenizer(folder: Path) -> HubTokenizer | None:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        return HubTokenizer.from_file(str(path))
    except Exception as error:  # The library raises nothing more exact.
        raise LoadError(f"{path} cannot be read: {error}") from None


def _special_tokens(folder: Path, described: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens that a template may name, by what they are for."""
    said = _json(folder / "special_tokens_map.json") | {
        name: value for name, value in described.items() if value is not None
    }
    tokens = {}
    for name in _SPECIAL:
        value = said.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def _template(folder: Path, described: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise LoadError(f"{path} is no text: {error}") from None
    template = described.get("chat_template")
    if isinstance(template, list):  # Several, named.
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get("default") or next(iter(named.values()), None)
    return template if isinstance(template, str) else None


def _tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors in safetensors files; none where the weights are kept in another way."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = _shards(index)
    elif (folder / "model.safetensors").is_file():
        files = ["model.safetensors"]
    else:
        return {}
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise LoadError(f"{folder} lacks {', '.join(missing)}, which its index names")
    return {tensor.name: tensor for name in files for tensor in read_tensors(folder / name)}


def _shards(index: Path) -> list[str]:
    weight_map = _json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(n, str) for n in weight_map.values()):
        raise LoadError(f"{index} names no files")
    return sorted(set(weight_map.values()))
