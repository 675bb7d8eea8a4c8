"""A figure and the limit it is to keep."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured. `limit` is the most it may be, where there is one; with `at_least`, the
    least."""

    title: str
    value: float
    unit: str = ""
    limit: float | None = None
    at_least: bool = False

    @property
    def missed(self) -> bool:
        """Whether it is beyond its limit."""
        if self.limit is None:
            return False
        return self.value < self.limit if self.at_least else self.value > self.limit

    def __str__(self) -> str:
        value = f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.3g}"
        said = f"{self.title:<58} {value:>9} {self.unit}"
        if self.limit is not None:
            sign = "≥" if self.at_least else "≤"
            said += f" ({sign} {self.limit:g}: {'MISSED' if self.missed else 'met'})"
        return said.rstrip()
