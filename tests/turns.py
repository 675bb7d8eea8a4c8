"""Anything that a model may say, for property tests."""

from hypothesis import strategies as st
from writing import FAILURE, STOP

from antiphon.errors import ServerError
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
)

TEXTS = st.text(st.sampled_from(' \nab\u2028é\U0001f600{}"'), max_size=6)
LOGPROBS = st.lists(
    st.builds(
        lambda text, value: TokenLogprob(
            text, text.encode(), value, (TokenLogprob("x", b"x", -1),)
        ),
        TEXTS,
        st.floats(-50, 0),
    ),
    max_size=2,
).map(tuple)


@st.composite
def turns(draw: st.DrawFn) -> tuple[list[Delta], Finish | ServerError]:
    """Anything a model may say in a turn, and how the turn ends."""
    deltas: list[Delta] = []
    is_open: list[int] = []
    begun = 0
    for step in draw(st.lists(st.sampled_from("TTTRRCAAE"), max_size=14)):
        if step == "T":
            deltas.append(TextDelta(draw(TEXTS), draw(LOGPROBS)))
        elif step == "R":
            deltas.append(ReasoningDelta(draw(TEXTS)))
        elif step == "C":
            deltas.append(CallStart(begun, draw(st.sampled_from(["f", "get_weather"]))))
            is_open.append(begun)
            begun += 1
        elif is_open and step == "A":
            deltas.append(CallArguments(draw(st.sampled_from(is_open)), draw(TEXTS)))
        elif is_open and step == "E":
            call = draw(st.sampled_from(is_open))
            deltas.append(CallEnd(call))
            is_open.remove(call)
    if draw(st.booleans()):
        deltas += [CallEnd(call) for call in is_open]
    end = draw(st.sampled_from([STOP, STOP, Finish("length"), Finish("content_filter"), FAILURE]))
    return deltas, end
