"""What a step costs, learnt from the steps that were taken."""

#: What one more row is taken to add to a step until it was measured, in steps of one row.
_ROW_SHARE = 0.1
#: How much of an estimate a new measurement replaces once there are many.
_LEAST_WEIGHT = 0.1


class StepCosts:
    """Seconds of steps, by the tokens in them.

    A row is one token of a sequence that speaks, or a guess after it; those are dear where the
    weights must be read for a few. Tokens of prompts are counted apart.
    """

    def __init__(self) -> None:
        self._rows: dict[int, _Mean] = {}
        self._prompt_token = _Mean()

    def learn(self, num_rows: int, num_prompt_tokens: int, seconds: float) -> None:
        """Take in a step."""
        if num_prompt_tokens:
            beyond = max(0.0, seconds - (self.of_rows(num_rows) or 0.0))
            self._prompt_token.add(beyond / num_prompt_tokens)
        elif num_rows:
            self._rows.setdefault(num_rows, _Mean()).add(seconds)

    def of_rows(self, num_rows: int) -> float | None:
        """Seconds of a step of so many rows, None if none was seen yet."""
        if num_rows <= 0 or not self._rows:
            return 0.0 if num_rows <= 0 else None
        if num_rows in self._rows:
            return self._rows[num_rows].value
        below = max((n for n in self._rows if n < num_rows), default=None)
        above = min((n for n in self._rows if n > num_rows), default=None)
        if below is None or above is None:
            known = below if above is None else above
            assert known is not None
            ratio = (1 + _ROW_SHARE * (num_rows - 1)) / (1 + _ROW_SHARE * (known - 1))
            return self._rows[known].value * ratio
        part = (num_rows - below) / (above - below)
        low, high = self._rows[below].value, self._rows[above].value
        return low + part * (high - low)

    def of_prompt_token(self) -> float | None:
        """Seconds that a token of a prompt adds, None if none was seen yet."""
        return self._prompt_token.value if self._prompt_token.count else None


class _Mean:
    """A mean in which what is long past counts little."""

    def __init__(self) -> None:
        self.value = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += max(_LEAST_WEIGHT, 1 / self.count) * (value - self.value)
