"""Names of models and their aliases."""

import pytest
from serving import scripted

from antiphon.errors import ModelNotFound, ModelUnavailable, StartError
from antiphon.models.router import Route, Router

ONE, TWO = scripted({"text": "1"}, name="one"), scripted({"text": "2"}, name="two")


def test_a_model_is_found_by_its_name():
    router = Router([ONE, TWO], {})
    assert router.find("one") == Route("one", ONE)
    assert router.find("two") == Route("two", TWO)


def test_without_a_name_the_first_model_answers():
    assert Router([TWO, ONE], {}).find(None) == Route("two", TWO)


def test_an_alias_answers_under_its_own_name():
    assert Router([ONE, TWO], {"gpt-5": "two"}).find("gpt-5") == Route("gpt-5", TWO, "two")


def test_the_alias_for_every_other_name_leaves_models_and_aliases_alone():
    router = Router([ONE, TWO], {"*": "two", "gpt-5": "one"})
    assert router.find("one").model is ONE
    assert router.find("gpt-5").model is ONE
    assert router.find("whatever") == Route("whatever", TWO, "two")
    assert router.find("") == Route("", TWO, "two")


def test_a_model_wins_over_an_alias_of_its_name():
    assert Router([ONE, TWO], {"one": "two"}).find("one") == Route("one", ONE)


@pytest.mark.parametrize("name", ["three", "", "ONE", "one ", "*"])
def test_an_unknown_name_is_an_error_of_the_field_model(name):
    with pytest.raises(ModelNotFound) as caught:
        Router([ONE], {"alias": "one"}).find(name)
    assert caught.value.param == "model"
    assert caught.value.status == 404
    assert f"'{name}'" in caught.value.message


def test_an_error_does_not_repeat_a_name_of_any_length():
    with pytest.raises(ModelNotFound) as caught:
        Router([ONE], {}).find("x" * 10_000)
    assert len(caught.value.message) < 200


def test_every_name_is_listed_models_first_and_the_catch_all_not():
    router = Router([ONE, TWO], {"*": "one", "b": "two", "a": "one"})
    assert router.routes() == [
        Route("one", ONE),
        Route("two", TWO),
        Route("b", TWO, "two"),
        Route("a", ONE, "one"),
    ]
    assert router.models == [ONE, TWO]


@pytest.mark.parametrize("alias", ["gpt-5", "*"])
def test_an_alias_for_what_is_not_served_stops_the_start(alias):
    with pytest.raises(StartError, match=r"stands for 'three', which is not served"):
        Router([ONE, TWO], {alias: "three"})


def test_an_alias_of_an_alias_stops_the_start():
    with pytest.raises(StartError, match="'b'"):
        Router([ONE], {"b": "one", "a": "b"})


def test_models_are_replaced_as_a_whole():
    router = Router([ONE], {"gpt-5": "one"})
    router.replace([TWO], {})
    assert router.routes() == [Route("two", TWO)]
    assert router.find(None) == Route("two", TWO)
    with pytest.raises(ModelNotFound):
        router.find("gpt-5")


def test_what_cannot_be_served_replaces_nothing():
    router = Router([ONE], {})
    with pytest.raises(StartError):
        router.replace([TWO], {"gpt-5": "one"})
    assert router.routes() == [Route("one", ONE)]


@pytest.mark.parametrize("name", [None, "one"])
def test_without_any_model_the_server_is_at_fault_and_not_the_name(name):
    with pytest.raises(ModelUnavailable) as caught:
        Router([], {}).find(name)
    assert caught.value.status == 503
    assert caught.value.headers["retry-after"]
