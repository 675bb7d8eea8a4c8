"""Prompts to tokens and tokens to bytes."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import (
    BYTE_LEVEL_CONTROLS,
    SENTENCEPIECE_CONTROLS,
    byte_level_tokenizer,
    sentencepiece_tokenizer,
)
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HubTokenizer

from antiphon.engine.tokenizer import PromptTokenizer
from antiphon.formats.base import Prompt
from antiphon.formats.guard import Guard, control_pattern

BYTE_LEVEL = PromptTokenizer(byte_level_tokenizer())
SENTENCEPIECE = PromptTokenizer(sentencepiece_tokenizer())
BOTH = {
    "byte-level": (BYTE_LEVEL, byte_level_tokenizer(), BYTE_LEVEL_CONTROLS),
    "sentencepiece": (SENTENCEPIECE, sentencepiece_tokenizer(), SENTENCEPIECE_CONTROLS),
}
both = pytest.mark.parametrize(("tokenizer", "hub", "controls"), BOTH.values(), ids=BOTH)

WORDS = [" ", "  ", "\n", "\n\n", "hello", " world", "user", "日本", "é", "😀", "▁", "<0x41>"]
TEXTS = st.lists(
    st.one_of(
        st.sampled_from([*WORDS, *BYTE_LEVEL_CONTROLS, *SENTENCEPIECE_CONTROLS]),
        st.text(max_size=4),
    ),
    max_size=6,
).map("".join)
HARMLESS = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=4)), max_size=6).map(
    lambda parts: "".join(parts).replace("<", "").replace("▁", "")
)


def whole(hub: HubTokenizer, text: str) -> list[int]:
    """What the library makes of a text as a whole."""
    tokens: list[int] = hub.encode(text, add_special_tokens=False).ids
    return tokens


def data_of(tokenizer: PromptTokenizer, tokens: list[int]) -> bytes:
    return b"".join(map(tokenizer.bytes_of, tokens))


def guarded(controls: Sequence[str], text: str) -> Prompt:
    """A text that somebody wrote, as it is tokenised."""
    guard = Guard(control_pattern(controls), [text])
    return guard.cut(guard.mark(text))


# --- pieces ---


@both
def test_a_control_token_in_a_piece_of_the_template_is_one_token(tokenizer, hub, controls):
    for control in controls:
        assert tokenizer.encode([control]) == [hub.token_to_id(control)]


@both
@settings(deadline=None, max_examples=70)
@given(TEXTS)
def test_sec_02_a_guarded_text_never_comes_to_a_control_token(tokenizer, hub, controls, text):
    tokens = tokenizer.encode(guarded(controls, f"x{text}"))
    assert not set(tokens) & set(tokenizer.controls)
    # SentencePiece vocabularies cannot tell this character from a space.
    shown = text.replace("▁", " ") if tokenizer is SENTENCEPIECE else text
    assert data_of(tokenizer, tokens).decode().removeprefix(" ") == f"x{shown}"


@both
@settings(deadline=None, max_examples=70)
@given(st.data())
def test_a_prompt_in_pieces_is_the_same_tokens_as_the_whole(tokenizer, hub, controls, data):
    parts = data.draw(st.lists(st.tuples(HARMLESS, st.sampled_from(controls)), max_size=4))
    pieces = [text for part in parts for text in part if text]
    joined = "".join(pieces)
    assert tokenizer.encode([joined]) == whole(hub, joined)
    assert tokenizer.encode(pieces) == whole(hub, joined)


def test_no_space_is_put_before_a_later_piece():
    control, word = SENTENCEPIECE.encode(["</s>", "user"])[0:2]
    assert control == SENTENCEPIECE.id_of("</s>")
    assert SENTENCEPIECE.bytes_of(word) == b"user"


def test_nothing_is_no_tokens():
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        assert tokenizer.encode([]) == []
        assert tokenizer.encode(["hello", ""]) == tokenizer.encode(["hello"])


def test_truncation_and_padding_that_a_file_asks_for_are_off():
    hub = byte_level_tokenizer()
    hub.enable_truncation(3)
    hub.enable_padding(length=10)
    tokens = PromptTokenizer(hub).encode(["abcdefgh", "ijkl"])
    assert data_of(BYTE_LEVEL, tokens) == b"abcdefghijkl"


# --- tokens as bytes ---


@both
@settings(deadline=None, max_examples=70)
@given(TEXTS)
def test_the_bytes_of_a_text_s_tokens_are_the_text(tokenizer, hub, controls, text):
    data = data_of(tokenizer, tokenizer.encode(guarded(controls, text)))
    shown = text.replace("▁", " ") if tokenizer is SENTENCEPIECE else text
    assert data.removeprefix(b" ") == shown.encode().removeprefix(b" ")


def test_every_byte_has_a_token():
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        known = {tokenizer.bytes_of(number) for number in range(tokenizer.num_tokens)}
        assert {bytes([byte]) for byte in range(256)} <= known


def test_a_token_may_be_part_of_a_character():
    assert BYTE_LEVEL.bytes_of(BYTE_LEVEL.id_of("ðŁĺ")) == b"\xf0\x9f\x98"
    assert SENTENCEPIECE.bytes_of(SENTENCEPIECE.id_of("<0xF0>")) == b"\xf0"


@both
def test_a_control_token_has_no_bytes(tokenizer, hub, controls):
    assert set(tokenizer.controls.values()) == set(controls)
    assert all(tokenizer.bytes_of(number) == b"" for number in tokenizer.controls)


def test_a_token_beyond_the_vocabulary_has_no_bytes():
    assert BYTE_LEVEL.bytes_of(BYTE_LEVEL.num_tokens + 7) == b""


def test_an_added_token_that_is_no_control_stands_for_its_text():
    hub = byte_level_tokenizer()
    hub.add_tokens([AddedToken("<tool_call>é")])
    tokenizer = PromptTokenizer(hub)
    assert tokenizer.bytes_of(hub.token_to_id("<tool_call>é")) == "<tool_call>é".encode()


def test_added_tokens_that_are_no_controls_are_told():
    hub = byte_level_tokenizer()
    hub.add_tokens(["<think>"])
    tokenizer = PromptTokenizer(hub)
    assert tokenizer.added == ["<think>"]
    assert hub.token_to_id("<think>") not in tokenizer.controls


def test_a_word_of_a_byte_level_vocabulary_that_is_not_written_in_bytes_stands_for_itself():
    state = json.loads(byte_level_tokenizer().to_str())
    state["added_tokens"] = []
    state["model"]["vocab"]["<pad 日本>"] = len(state["model"]["vocab"])
    tokenizer = PromptTokenizer(HubTokenizer.from_str(json.dumps(state)))
    assert tokenizer.bytes_of(tokenizer.id_of("<pad 日本>")) == "<pad 日本>".encode()


def test_only_sentencepiece_vocabularies_open_a_text_with_a_space():
    assert SENTENCEPIECE.strips_first_space
    assert not BYTE_LEVEL.strips_first_space


# --- the fewest tokens ---


def unbounded() -> list[tuple[str, HubTokenizer]]:
    """Tokenizers of which nothing can be said, as one token may stand for any number of bytes."""
    normalizing = byte_level_tokenizer()
    normalizing.normalizer = normalizers.Strip()
    unknown = HubTokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    unknown.pre_tokenizer = pre_tokenizers.Whitespace()
    stripping = byte_level_tokenizer()
    stripping.add_special_tokens([AddedToken("<|end|>", special=True, rstrip=True)])
    return [("normalizing", normalizing), ("unknown", unknown), ("stripping", stripping)]


@pytest.mark.parametrize("hub", [hub for _, hub in unbounded()], ids=[n for n, _ in unbounded()])
@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(["<|end|>", " " * 50, "\n" * 50, "a", "ß" * 50]), max_size=5))
def test_the_fewest_tokens_are_a_lower_bound_where_tokens_swallow_text(hub, parts):
    tokenizer, text = PromptTokenizer(hub), "".join(parts)
    assert len(tokenizer.encode([text])) >= tokenizer.fewest_tokens(len(text.encode()))


@both
@settings(deadline=None, max_examples=100)
@given(st.one_of(TEXTS, st.tuples(TEXTS, st.integers(1, 40)).map(lambda t: t[0] * t[1])))
def test_the_fewest_tokens_are_a_lower_bound_for_any_text(tokenizer, hub, controls, text):
    tokens = tokenizer.encode([text])
    assert len(tokens) >= tokenizer.fewest_tokens(len(text.encode()))


def test_the_fewest_tokens_count_an_added_token_by_its_bytes():
    hub = byte_level_tokenizer()
    hub.add_special_tokens(["<｜end▁of▁sentence｜>"])
    tokenizer = PromptTokenizer(hub)
    text = "<｜end▁of▁sentence｜>" * 10
    assert len(tokenizer.encode([text])) == 10
    assert tokenizer.fewest_tokens(len(text.encode())) <= 10


def test_the_fewest_tokens_are_known_for_long_texts():
    assert BYTE_LEVEL.fewest_tokens(0) == 0
    assert BYTE_LEVEL.fewest_tokens(1) == 1
    assert BYTE_LEVEL.fewest_tokens(13_000) == 1000
    assert SENTENCEPIECE.fewest_tokens(13_000) > 1000
