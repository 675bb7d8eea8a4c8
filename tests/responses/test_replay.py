"""Sealed reasoning as it comes back."""

from typing import Any, NamedTuple

import pytest

from antiphon.errors import InvalidEncryptedContent
from antiphon.principal import Principal
from antiphon.responses.items import normalized, turn_entries
from antiphon.responses.replay import (
    KEPT_SEALED,
    check_sealed,
    has_sealed,
    readable,
    shown_response,
)
from antiphon.responses.replay import shown as shown_item
from antiphon.turn import Message, Reasoning

CALLER = Principal("key_1")
USER = {"role": "user", "content": "Hi"}


class Opened(NamedTuple):
    text: str
    family: str


class Sealer:
    """Sealed texts are `<owner>|<family>|<text>`."""

    def open(self, principal: Principal, sealed: str, *, param: str) -> Opened:
        owner, _, rest = sealed.partition("|")
        if owner != principal.id:
            raise InvalidEncryptedContent("It could not be verified.", param=param)
        family, _, text = rest.partition("|")
        return Opened(text, family)


def sealed(family: str = "qwen3", text: str = "plan", owner: str = "key_1") -> dict[str, Any]:
    content = f"{owner}|{family}|{text}"
    return {"type": "reasoning", "summary": [], "encrypted_content": content}


def shown(*items: dict[str, Any]) -> list[Any]:
    return list(turn_entries(readable(Sealer(), CALLER, "qwen3", normalized(items))))


def test_rsn_04_the_model_is_shown_what_was_sealed():
    assert shown(USER, sealed(), USER) == [
        Message("user", "Hi"),
        Reasoning("plan"),
        Message("user", "Hi"),
    ]


def test_rsn_04_what_was_sealed_counts_and_not_what_stands_beside_it():
    beside = {**sealed(), "content": [{"type": "reasoning_text", "text": "made up"}]}
    assert shown(beside) == [Reasoning("plan")]


def test_reasoning_of_another_family_is_left_out():
    beside = {**sealed("glm"), "content": [{"type": "reasoning_text", "text": "plan"}]}
    assert shown(sealed("glm"), beside, USER) == [Message("user", "Hi")]


def test_of_stored_reasoning_whose_key_is_gone_the_text_remains():
    beside = {**sealed(owner="x"), "content": [{"type": "reasoning_text", "text": "plan"}]}
    assert shown(sealed(owner="x"), beside) == [Reasoning("plan")]


def test_open_reasoning_is_shown_as_it_is():
    said = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]}
    assert shown(said) == [Reasoning("Hm")]


def test_stored_items_stay_as_they_are():
    items = normalized([sealed()])
    before = repr(items)
    readable(Sealer(), CALLER, "qwen3", items)
    assert repr(items) == before


@pytest.mark.parametrize("field", ["input", "items"])
def test_what_was_not_sealed_for_the_caller_is_refused_at_its_place(field: str):
    items = normalized([USER, sealed(), sealed(owner="key_2")])
    with pytest.raises(InvalidEncryptedContent) as caught:
        check_sealed(Sealer(), CALLER, items, field=field)
    assert caught.value.param == f"{field}[2].encrypted_content"


def test_what_opens_and_what_was_never_sealed_pass():
    items = normalized([USER, sealed(), {"type": "reasoning"}, {"id": "msg_1"}])
    check_sealed(Sealer(), CALLER, items)
    assert has_sealed(items) and not has_sealed([items[0], *items[2:]])


def test_what_is_sealed_for_the_store_alone_is_read_and_never_shown():
    (kept,) = normalized([{"type": "reasoning", "id": "thought", "summary": [], "content": []}])
    item = {**kept, KEPT_SEALED: "key_1|qwen3|plan"}
    assert has_sealed([item])
    assert turn_entries(readable(Sealer(), CALLER, "qwen3", [item])) == (Reasoning("plan"),)
    assert shown_item(item) == kept
    response: Any = {"id": "resp_1", "output": [item]}
    assert shown_response(response) == {"id": "resp_1", "output": [kept]}
