"""Control tokens that people write, kept apart from those of the template."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import InvalidPrompt
from antiphon.formats.base import Prompt
from antiphon.formats.guard import Guard, control_pattern

CONTROLS = ["<|im_start|>", "<|im_end|>", "<|im_end|>+", "</s>", "[INST]", "ll<", "<|"]
PATTERN = control_pattern(CONTROLS)
PRIVATE = [chr(0x100000), chr(0x10FFFD), chr(0x10ABCD), "\ue000"]

# Texts full of whole control tokens, halves of them, and characters like the markers.
TEXTS = st.lists(
    st.one_of(
        st.sampled_from([*CONTROLS, "<|im_", "end|>", "<", "|>", "\n", " ", *PRIVATE]),
        st.text(max_size=5),
    ),
    max_size=8,
).map("".join)


def text_of(prompt: Prompt) -> str:
    return "".join(prompt)


def effective(prompt: Prompt) -> list[str]:
    """The control tokens that would be encoded as such."""
    return [token for piece in prompt for token in PATTERN.findall(piece)]


def guarded(template: Callable[[str], str], *texts: str) -> Prompt:
    """What comes of texts that a template puts one after the other."""
    guard = Guard(PATTERN, texts)
    return guard.cut("".join(template(guard.mark(text)) for text in texts))


def chatml(content: str) -> str:
    return f"<|im_start|>user\n{content}<|im_end|>\n"


def test_a_template_s_own_control_tokens_stay_whole():
    assert guarded(chatml, "Hi") == ("<|im_start|>user\nHi<|im_end|>\n",)


def test_a_control_token_in_a_message_is_parted():
    assert guarded(chatml, "a</s>b") == (
        "<|im_start|>user\na<",
        "/s>b<|im_end|>\n",
    )


def test_control_tokens_that_overlap_are_parted_each():
    prompt = guarded(chatml, "ll<|im_end|>")
    assert text_of(prompt) == chatml("ll<|im_end|>")
    assert effective(prompt) == ["<|im_start|>", "<|im_end|>"]


def test_without_control_tokens_nothing_is_parted():
    pattern = control_pattern([])
    guard = Guard(pattern, ["<|im_end|>"])
    assert guard.cut(guard.mark("<|im_end|>")) == ("<|im_end|>",)


def test_control_tokens_of_one_character_are_left_alone():
    assert control_pattern(["§", "ab"]).findall("§ab") == ["ab"]


def test_control_tokens_are_taken_as_text_not_as_patterns():
    pattern = control_pattern(["[INST]", "a.c", "(("])
    assert pattern.findall("I abc [INST] a.c ((") == ["[INST]", "a.c", "(("]


@settings(deadline=None, max_examples=150)
@given(st.lists(TEXTS, max_size=4))
def test_any_text_comes_through_unchanged_and_none_of_its_control_tokens_counts(texts):
    prompt = guarded(chatml, *texts)
    assert text_of(prompt) == "".join(map(chatml, texts))
    assert effective(prompt) == ["<|im_start|>", "<|im_end|>"] * len(texts)
    assert all(prompt)


TEARS: dict[str, Callable[[str], str]] = {
    "trims": str.strip,
    "drops the first character": lambda text: text[1:],
    "drops the last character": lambda text: text[:-1],
    "keeps what follows a token": lambda text: text.split("<|im_end|>")[-1],
    "keeps what precedes a token": lambda text: text.split("<|im_end|>")[0],
    "keeps the last line": lambda text: text.split("\n")[-1],
    "takes a token out": lambda text: text.replace("<|im_end|>", ""),
    "takes a token out twice": lambda text: text.replace("</s>", "").replace("ll<", ""),
    "drops both ends": lambda text: text[1:-1],
    "takes the markup off": lambda text: text.replace("<", "").replace("|", ""),
}


@pytest.mark.parametrize("tear", TEARS.values(), ids=TEARS)
@settings(deadline=None, max_examples=100)
@given(TEXTS)
def test_a_template_that_tears_markers_off_still_frees_no_control_token(tear, text):
    prompt = guarded(lambda content: f"user: {tear(content)}\n", text)
    assert effective(prompt) == []
    assert text_of(prompt).startswith("user: ") and text_of(prompt).endswith("\n")


@settings(deadline=None, max_examples=100)
@given(TEXTS, st.integers(0, 40), st.booleans())
def test_a_text_cut_anywhere_still_frees_no_control_token(text, place, keep_start):
    prompt = guarded(
        lambda content: f"user: {content[:place] if keep_start else content[place:]}\n", text
    )
    assert effective(prompt) == []


def test_halves_that_a_template_joins_around_a_removed_token_do_not_become_one():
    # The template looks for a token that it does not find, as it is marked.
    prompt = guarded(lambda content: content.replace("</s>", ""), "<|im_</s>end|>")
    assert text_of(prompt) == "<|im_</s>end|>"
    assert effective(prompt) == []


def test_a_template_that_splits_at_its_own_tokens_keeps_them():
    # As reasoning templates do that look for `</think>` in what the assistant said.
    prompt = guarded(lambda content: f"</s>{content.split('</s>')[-1]}</s>", "thought</s>answer")
    assert text_of(prompt) == "</s>thought</s>answer</s>"
    assert effective(prompt) == ["</s>", "</s>"]


def test_a_marker_is_a_character_of_no_text_not_even_of_a_harmless_one(monkeypatch):
    drawn = itertools.count()
    monkeypatch.setattr("antiphon.formats.guard.secrets.randbelow", lambda _: next(drawn))
    first = chr(0x100000)
    prompt = guarded(chatml, "<|im_end|>", f"an unguarded {first}")
    assert text_of(prompt) == chatml("<|im_end|>") + chatml(f"an unguarded {first}")


def test_a_private_use_character_comes_through_where_nothing_is_guarded(monkeypatch):
    drawn = itertools.count()
    monkeypatch.setattr("antiphon.formats.guard.secrets.randbelow", lambda _: next(drawn))
    text = f"just {chr(0x100000)}{chr(0x100001)}"
    assert text_of(guarded(chatml, text)) == chatml(text)


def test_a_text_with_every_possible_marker_is_refused_instead_of_searched_for_ever():
    everything = "".join(map(chr, range(0x100000, 0x10FFFE)))
    with pytest.raises(InvalidPrompt) as caught:
        Guard(PATTERN, ["<|im_end|>", everything])
    assert caught.value.param == "input"
    assert "private-use" in caught.value.message


def test_a_text_with_half_of_all_possible_markers_is_guarded():
    half = "".join(map(chr, range(0x100000, 0x108000)))
    prompt = guarded(chatml, f"<|im_end|>{half}")
    assert text_of(prompt) == chatml(f"<|im_end|>{half}")
    assert effective(prompt) == ["<|im_start|>", "<|im_end|>"]


def test_a_marker_that_a_template_prints_as_python_does_is_cut_out_as_well():
    prompt = guarded(lambda content: f"{[content]}\n", "a<|im_end|>b")
    assert prompt == ("['a<", "|im_end|>b']\n")


def test_a_marker_is_none_whose_escape_somebody_wrote(monkeypatch):
    drawn = itertools.count()
    monkeypatch.setattr("antiphon.formats.guard.secrets.randbelow", lambda _: next(drawn))
    text = "<|im_end|> and \\U00100000"
    assert text_of(guarded(chatml, text)) == chatml(text)
