"""Tokenizers made of what GGUF files say, held against those of the `tokenizers` library."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny_models import byte_level_tokenizer, sentencepiece_tokenizer
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as HubTokenizer

from antiphon.engine.checkpoints.checkpoint import LoadError
from antiphon.engine.checkpoints.gguf_tokenizer import gguf_tokenizer
from antiphon.engine.tokenizer import PromptTokenizer

PATH = Path("tiny.gguf")
TEXTS = [
    "hello world, é😀 user\n\n  end",
    "user<|im_end|>\n<|im_start|>assistant\n",
    "é日本\u00a0 \t\r\n\r\nx",
    "'s it's IT'S we'LL",
    "a 12345 67!?\n\n!! ...x",
    "  leading and trailing  ",
    "",
    "\n",
]
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(rule: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rule), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


#: What the models' own `tokenizer.json` have, by what GGUF calls it.
RULES: Mapping[str, Any] = {
    "default": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    ),
    "llama-bpe": split(_WORDS % "{1,3}"),
    "qwen2": split(_WORDS % ""),
}


def with_numbers(*words: str) -> HubTokenizer:
    """A tokenizer whose tokens show where texts are cut at digits, marks and line breaks."""
    state = json.loads(byte_level_tokenizer(*words).to_str())
    merges = "1 2|12 3|Ġ 123|4 5|123 45|Ġ123 45|! ?|!? Ċ|Ġ '|' s|Ġ' s|Ċ !".split("|")
    vocabulary = state["model"]["vocab"]
    controls = {token["content"]: token["id"] for token in state["added_tokens"]}
    for merge in merges:
        state["model"]["merges"].append(merge.split(" "))
        vocabulary.setdefault(merge.replace(" ", ""), max([*vocabulary.values(), 400]) + 1)
    tokens = sorted(set(vocabulary) - set(controls), key=vocabulary.get)
    state["model"]["vocab"] = {token: number for number, token in enumerate(tokens)}
    state["added_tokens"] = []
    tokenizer = HubTokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens(list(controls))
    return tokenizer


def told(tokenizer: HubTokenizer, **changes: Any) -> dict[str, Any]:
    """A tokenizer as a file tells it."""
    state = json.loads(tokenizer.to_str())
    added = tokenizer.get_added_tokens_decoder()
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
    types = [1 if n not in added else 3 if added[n].special else 4 for n in range(len(tokens))]
    values = {
        "model": "gpt2",
        "tokens": tokens,
        "token_type": types,
        "merges": [" ".join(merge) for merge in state["model"]["merges"]],
        **changes,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in values.items()}


# --- byte-level ---


@pytest.mark.parametrize("pre", RULES)
def test_a_rule_cuts_texts_as_the_model_s_own_tokenizer_does(pre):
    hub = with_numbers()
    hub.pre_tokenizer = RULES[pre]
    made = gguf_tokenizer(PATH, told(hub, pre=pre))
    for text in TEXTS:
        assert made.encode(text).tokens == hub.encode(text).tokens
        assert made.encode(text).ids == hub.encode(text).ids
        assert made.decode(made.encode(text).ids) == hub.decode(hub.encode(text).ids)


def test_the_rules_differ_on_these_texts():
    hub = with_numbers()
    cuts = set()
    for pre in RULES:
        made = gguf_tokenizer(PATH, told(hub, pre=pre))
        cuts.add(json.dumps([made.encode(text).tokens for text in TEXTS]))
    assert len(cuts) == len(RULES) - 1  # `default` is another name of `gpt-2`.


def test_without_a_rule_texts_are_cut_as_gpt_2_cuts_them():
    hub = with_numbers()
    made = gguf_tokenizer(PATH, told(hub))
    assert made.encode("a 12345!?").tokens == hub.encode("a 12345!?").tokens


def test_llama_3_s_vocabulary_is_asked_for_whole_words_before_merges():
    hub = byte_level_tokenizer("Ġzebra")
    for pre, number in [("llama-bpe", 1), ("smollm", 6)]:
        assert len(gguf_tokenizer(PATH, told(hub, pre=pre)).encode(" zebra").ids) == number


def test_control_tokens_are_controls_and_user_defined_ones_are_whole():
    hub = byte_level_tokenizer()
    hub.add_tokens(["<tool_call>"])
    tokenizer = PromptTokenizer(gguf_tokenizer(PATH, told(hub, pre="smollm")))
    assert set(tokenizer.controls.values()) == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    number = hub.token_to_id("<tool_call>")
    assert tokenizer.encode(["<tool_call>"]) == [number]
    assert number not in tokenizer.controls
    assert tokenizer.bytes_of(number) == b"<tool_call>"


@pytest.mark.parametrize("pre", RULES)
def test_texts_come_back_byte_by_byte(pre):
    tokenizer = PromptTokenizer(gguf_tokenizer(PATH, told(byte_level_tokenizer(), pre=pre)))
    for text in TEXTS:
        for control in tokenizer.controls.values():
            text = text.replace(control, "")
        tokens = tokenizer.encode([text])
        assert b"".join(map(tokenizer.bytes_of, tokens)) == text.encode()


# --- SentencePiece ---


def told_sentencepiece(**changes: Any) -> dict[str, Any]:
    """The tiny SentencePiece tokenizer as a file tells it: with scores in the place of merges."""
    hub = sentencepiece_tokenizer()
    values = told(hub)
    del values["tokenizer.ggml.merges"]
    tokens = values["tokenizer.ggml.tokens"]
    merged = ["".join(merge) for merge in json.loads(hub.to_str())["model"]["merges"]]
    scores = {token: -1.0 - rank for rank, token in enumerate(merged)}
    types = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    changes = {
        "model": "llama",
        "token_type": types,
        "scores": [scores.get(token, -1000.0) for token in tokens],
        "unknown_token_id": 0,
        **changes,
    }
    return values | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}


@pytest.mark.parametrize(
    "text",
    ["hello world", " hello  world", "user user", "日本 é", "🙂", "a\nb", "", "Hello, <s>hi"],
)
def test_scores_join_what_the_library_s_merges_join(text):
    hub = sentencepiece_tokenizer()
    made = gguf_tokenizer(PATH, told_sentencepiece())
    assert made.encode(text).tokens == hub.encode(text).tokens
    assert made.decode(made.encode(text).ids) == hub.decode(hub.encode(text).ids)


def test_a_file_may_want_no_space_before_the_first_word():
    with_space = gguf_tokenizer(PATH, told_sentencepiece(add_space_prefix=True))
    without = gguf_tokenizer(PATH, told_sentencepiece(add_space_prefix=False))
    assert with_space.encode("hello").tokens[0] == "▁hello"
    assert without.encode("hello").tokens[0] == "h"
    assert without.decode(without.encode(" hello").ids) == " hello"


def test_no_text_is_joined_to_a_control_token():
    values = told_sentencepiece()
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    values["tokenizer.ggml.tokens"] = [*tokens, "s>", "<0"]
    values["tokenizer.ggml.token_type"] = [*types, 1, 1]
    values["tokenizer.ggml.scores"] = [0.0] * (len(tokens) + 2)
    merges = json.loads(gguf_tokenizer(PATH, values).to_str())["model"]["merges"]
    joined = {"".join(merge) for merge in merges}
    assert "s>" in joined and not joined & {"<s>", "</s>", "<unk>"}


# --- refusals ---


@pytest.mark.parametrize(
    ("kind", "pre"), [("gpt2", "deepseek-llm"), ("bert", "gpt-2"), ("t5", "default")]
)
def test_an_unknown_tokenizer_is_named_with_the_way_out(kind, pre):
    with pytest.raises(LoadError) as caught:
        gguf_tokenizer(PATH, told(byte_level_tokenizer(), model=kind, pre=pre))
    assert f"tokenizer ({kind!r}, {pre!r})" in str(caught.value)
    assert "folder of safetensors" in str(caught.value)


@pytest.mark.parametrize("changes", [{"scores": [1.0]}, {"unknown_token_id": 10**6}], ids=str)
def test_a_tokenizer_that_makes_no_sense_is_said_to(changes):
    with pytest.raises(LoadError, match=r"tiny\.gguf has a tokenizer that makes no sense"):
        gguf_tokenizer(PATH, told_sentencepiece(**changes))
