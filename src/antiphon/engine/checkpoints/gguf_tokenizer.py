"""Makes a tokenizer of what a GGUF file says of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as HubTokenizer

from antiphon.engine.checkpoints.checkpoint import LoadError

_DIGITS = "digits"
#: How pre-tokenizers named in GGUF files cut a text (llama.cpp's `llama-vocab.cpp`). None stands
#: for GPT-2's own rule, which `ByteLevel` has built in; `_DIGITS` for that after single digits.
_PRE_TOKENIZERS: Mapping[str, str | None] = {
    "default": None,
    "gpt-2": None,
    "smollm": _DIGITS,
    "llama-bpe": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
#: Vocabularies with words that no merges lead to.
_WHOLE_WORDS = {"llama-bpe"}
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # Token types.
_SPACE = "▁"


def gguf_tokenizer(path: Path, meta: Mapping[str, Any]) -> HubTokenizer:
    """The tokenizer that a file's metadata describes. Raises `LoadError`."""
    try:
        return _tokenizer(path, meta)
    except LoadError:
        raise
    except Exception as error:  # The library raises nothing more exact.
        raise LoadError(f"{path} has a tokenizer that makes no sense: {error}") from error


def _tokenizer(path: Path, meta: Mapping[str, Any]) -> HubTokenizer:
    kind, pre = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre", "default")
    if kind == "gpt2" and pre in _PRE_TOKENIZERS:
        tokenizer = _byte_level(meta, pre)
    elif kind == "llama":
        tokenizer = _sentencepiece(meta)
    else:
        raise LoadError(
            f"{path} has a tokenizer ({kind!r}, {pre!r}) that is not supported yet. "
            "Use its folder of safetensors instead."
        )
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    controls, others = [], []
    for number, token_type in enumerate(meta["tokenizer.ggml.token_type"]):
        if token_type == _CONTROL or (token_type == _UNKNOWN and kind == "llama"):
            controls.append(AddedToken(tokens[number], special=True, normalized=False))
        elif token_type == _USER_DEFINED:
            others.append(AddedToken(tokens[number], normalized=False))
    tokenizer.add_special_tokens(controls)
    tokenizer.add_tokens(others)
    return tokenizer


def _byte_level(meta: Mapping[str, Any], pre: str) -> HubTokenizer:
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    whole_words = pre in _WHOLE_WORDS
    tokenizer = HubTokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=whole_words))
    rule = _PRE_TOKENIZERS[pre]
    own_rule = rule is None or rule == _DIGITS
    steps: list[Any] = []
    if rule == _DIGITS:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    elif rule is not None:
        steps.append(pre_tokenizers.Split(Regex(rule), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own_rule))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(meta: Mapping[str, Any]) -> HubTokenizer:
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = meta.get("tokenizer.ggml.unknown_token_id", 0)
    tokenizer = HubTokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges(
                vocabulary, meta["tokenizer.ggml.scores"], meta["tokenizer.ggml.token_type"]
            ),
            unk_token=tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    opens = "first" if meta.get("tokenizer.ggml.add_space_prefix", True) else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=_SPACE, prepend_scheme=opens, split=False
    )
    steps: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if opens == "first":
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _merges(
    vocabulary: Mapping[str, int], scores: list[float], types: list[int]
) -> list[tuple[str, str]]:
    """SentencePiece joins whichever neighbours make the token of the highest score: as merges, the
    best first. No text comes to a control token or to the name of a byte."""
    found = []
    for token, number in vocabulary.items():
        if types[number] != _NORMAL:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                found.append((-scores[number], vocabulary[left], vocabulary[right], left, right))
    return [(left, right) for _, _, _, left, right in sorted(found)]
