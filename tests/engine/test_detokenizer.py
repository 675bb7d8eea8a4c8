"""Tokens back to text, in whole characters."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import byte_level_tokenizer, byte_tokens, sentencepiece_tokenizer

from antiphon.engine.detokenizer import Detokenizer
from antiphon.engine.tokenizer import PromptTokenizer

BYTE_LEVEL = PromptTokenizer(byte_level_tokenizer())
SENTENCEPIECE = PromptTokenizer(sentencepiece_tokenizer())
both = pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["byte", "spm"])

TXT_01 = "a😀é日本e\u0301👨‍👩‍👧 z"


def fed(tokenizer: PromptTokenizer, tokens: list[int]) -> list[str]:
    """What every token yields, and the end."""
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.feed(token) for token in tokens), detokenizer.finish()]


@both
def test_txt_01_characters_come_whole_when_their_last_byte_does(tokenizer):
    shown = fed(tokenizer, byte_tokens(tokenizer, TXT_01.encode()))
    assert [text for text in shown if text] == list(TXT_01)
    assert "\ufffd" not in "".join(shown)
    ends = [len(TXT_01[: number + 1].encode()) - 1 for number in range(len(TXT_01))]
    assert [place for place, text in enumerate(shown) if text] == ends


@both
def test_txt_01_a_replacement_character_that_is_meant_is_passed_on_and_stalls_nothing(tokenizer):
    shown = fed(tokenizer, byte_tokens(tokenizer, "a\ufffdb\ufffd\ufffdc".encode()))
    assert "".join(shown) == "a\ufffdb\ufffd\ufffdc"
    assert [text for text in shown if text] == list("a\ufffdb\ufffd\ufffdc")


@both
@pytest.mark.parametrize("kept", [1, 2, 3])
def test_txt_01_an_end_inside_a_character_is_one_replacement_character(tokenizer, kept):
    shown = fed(tokenizer, byte_tokens(tokenizer, b"ok" + "😀".encode()[:kept]))
    assert shown[:-1] == ["o", "k"] + [""] * kept
    assert shown[-1] == "\ufffd"


@both
def test_a_whole_text_leaves_nothing_for_the_end(tokenizer):
    assert fed(tokenizer, byte_tokens(tokenizer, "é".encode()))[-1] == ""
    assert fed(tokenizer, []) == [""]


@both
def test_bytes_that_are_no_text_do_not_hold_up_what_follows(tokenizer):
    shown = fed(tokenizer, byte_tokens(tokenizer, b"a\xf0\x9fb\xffc\x80d"))
    assert "".join(shown) == "a\ufffdb\ufffdc\ufffdd"
    assert shown[-1] == ""


def test_a_token_that_ends_inside_a_character_waits_for_the_rest_of_it_only():
    start, straddling, end = (BYTE_LEVEL.id_of(token) for token in ("ðŁĺ", "ĢÃ", "©"))
    assert fed(BYTE_LEVEL, [start, straddling, end]) == ["", "😀", "é", ""]


def test_control_tokens_show_nothing_and_part_no_character():
    start, end = BYTE_LEVEL.id_of("<|im_start|>"), BYTE_LEVEL.id_of("<|im_end|>")
    first, second = byte_tokens(BYTE_LEVEL, "é".encode())
    assert fed(BYTE_LEVEL, [start, first, end, second, end]) == ["", "", "", "é", "", ""]


def test_the_space_that_opens_a_sentencepiece_text_is_left_out_and_no_other():
    hello, world = SENTENCEPIECE.id_of("▁hello"), SENTENCEPIECE.id_of("▁world")
    assert fed(SENTENCEPIECE, [hello, world, hello]) == ["hello", " world", " hello", ""]


def test_only_one_space_that_opens_a_sentencepiece_text_is_left_out():
    spaces, hello = SENTENCEPIECE.id_of("▁▁"), SENTENCEPIECE.id_of("▁hello")
    assert fed(SENTENCEPIECE, [spaces, hello]) == [" ", " hello", ""]


def test_a_control_token_does_not_count_as_the_opening_of_a_sentencepiece_text():
    start, hello = SENTENCEPIECE.id_of("<s>"), SENTENCEPIECE.id_of("▁hello")
    assert fed(SENTENCEPIECE, [start, hello]) == ["", "hello", ""]


def test_a_space_that_opens_a_byte_level_text_is_kept():
    assert fed(BYTE_LEVEL, [BYTE_LEVEL.id_of("Ġworld")]) == [" world", ""]


def ends_a_character(data: bytes) -> bool:
    """Whether the last bytes are a whole character."""
    for length in (1, 2, 3, 4):
        try:
            return len(data[-length:].decode()) == 1
        except UnicodeDecodeError:
            continue
    return False


@both
@settings(deadline=None, max_examples=100)
@given(st.data())
def test_txt_01_any_tokens_in_any_order_are_the_text_of_their_bytes(tokenizer, data):
    tokens = data.draw(
        st.lists(
            st.one_of(
                st.integers(0, tokenizer.num_tokens + 2),
                st.sampled_from(byte_tokens(tokenizer, bytes(range(128, 256)))),
                st.sampled_from(byte_tokens(tokenizer, TXT_01.encode())),
            ),
            max_size=30,
        )
    )
    detokenizer, shown, raw = Detokenizer(tokenizer), "", b""
    for token in tokens:
        raw += tokenizer.bytes_of(token)
        shown += detokenizer.feed(token)
        told = raw.removeprefix(b" ") if tokenizer is SENTENCEPIECE else raw
        # All is shown but the bytes that may still become a character.
        held = told.decode("utf-8", "replace").removeprefix(shown)
        assert held in ("", "\ufffd", "\ufffd\ufffd", "\ufffd\ufffd\ufffd")
        assert not held or not ends_a_character(told)
    shown += detokenizer.finish()
    assert shown == (raw.removeprefix(b" ") if tokenizer is SENTENCEPIECE else raw).decode(
        "utf-8", "replace"
    )


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=20))
def test_txt_01_the_joined_text_is_the_tokenizer_s_own_decoding_of_the_whole(text):
    hub = byte_level_tokenizer()
    tokens = hub.encode(text, add_special_tokens=False).ids
    assert "".join(fed(BYTE_LEVEL, tokens)) == hub.decode(tokens) == text


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=20))
def test_txt_01_bytes_that_are_no_text_read_as_the_tokenizer_s_own_decoding_has_them(data):
    tokens = byte_tokens(BYTE_LEVEL, data)
    assert "".join(fed(BYTE_LEVEL, tokens)) == byte_level_tokenizer().decode(tokens)
