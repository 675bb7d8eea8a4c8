"""The forms that answers are to have."""

from typing import Literal

from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: str
    population: int


class Place(BaseModel):
    """What a place is. It has few words, as a small model with many says them for ever."""

    kind: Literal["city", "river"]
    is_capital: bool
