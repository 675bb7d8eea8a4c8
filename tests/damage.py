"""Damages the bodies of requests, and judges the answers to them.

Everything is decided by the `random.Random` that is handed in, so a seed repeats a run.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

import orjson

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "openapi" / "examples" / "recorded"

_JUNK: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    7,
    2.5,
    16.0,
    1e300,
    2**63,
    -(2**63),
    2**64 - 1,
    "",
    "junk",
    "x" * 600,
    "\u2028\u0000\U0001f600",
    [],
    [None],
    [[]],
    [{"type": "junk"}],
    {},
    {"type": "junk"},
    {"role": "junk"},
)
#: Names that mean something in some place, and may stand in any other as a client's own.
_NAMES = (
    "annotations arguments call_id content detail effort file_id format id image_url include "
    "input instructions max_tokens messages name output parameters phase refusal role schema "
    "status store stream strict summary text tool_choice tools type variables x-own"
).split()
_ELSEWHERE = ("annotations", "output", "refusal", "variables", "x-own")
_TAGS = (
    "message function_call function_call_output reasoning item_reference compaction input_text "
    "output_text refusal input_image input_file function custom namespace mcp json_schema text "
    "user assistant system developer tool function summary_text junk"
).split()

Steps = tuple[str | int, ...]


def recorded_bodies() -> list[tuple[str, dict[str, Any]]]:
    """What real clients sent, each with the client's name and the flow it was in."""
    bodies = []
    for file in sorted(RECORDED.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            bodies.append((f"{entry['client']} {entry['flow']}", entry["body"]))
    return bodies


def damaged(body: dict[str, Any], random: Random) -> Any:
    """A copy of `body` with one mistake, which may happen to be none."""
    body = copy.deepcopy(body)
    action = random.choice(
        (_retype, _retype, _delete, _rename, _change_tag, _insert, _add_field, _clutter, _stretch)
    )
    return action(body, random)


def refused(
    body: dict[str, Any], random: Random, accepts: Callable[[object], bool], *, tries: int = 100
) -> Any:
    """A damaged copy of `body` that `accepts` refuses; the last one tried if none is found."""
    found: Any = None
    for _ in range(tries):
        found = damaged(body, random)
        if not accepts(found):
            break
    return found


def _places(value: Any, path: Steps = ()) -> Iterator[Steps]:
    """The path of everything inside `value`."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for step, child in children:
        yield (*path, step)
        if isinstance(child, (dict, list)):
            yield from _places(child, (*path, step))


def _pick(body: Any, random: Random, wanted: Callable[[Any], bool]) -> Steps | None:
    """The path of something inside `body`, every kind of place being as likely as another."""
    kinds: dict[Steps, list[Steps]] = {}
    for path in _places(body):
        if wanted(_at(body, path)):
            kind = tuple(0 if isinstance(step, int) else step for step in path)
            kinds.setdefault(kind, []).append(path)
    return random.choice(random.choice(list(kinds.values()))) if kinds else None


def _at(body: Any, path: Steps) -> Any:
    for step in path:
        body = body[step]
    return body


def _retype(body: Any, random: Random) -> Any:
    if random.random() < 0.01:
        return random.choice([junk for junk in _JUNK if not isinstance(junk, dict)])
    path = _pick(body, random, lambda _: True)
    if path is not None:
        old = type(_at(body, path))
        others = [junk for junk in _JUNK if type(junk) is not old]
        _at(body, path[:-1])[path[-1]] = copy.deepcopy(random.choice(others))
    return body


def _delete(body: Any, random: Random) -> Any:
    path = _pick(body, random, lambda _: True)
    if path is not None:
        del _at(body, path[:-1])[path[-1]]
    return body


def _rename(body: Any, random: Random) -> Any:
    path = _pick(body, random, lambda value: isinstance(value, dict) and bool(value))
    holder = _at(body, path or ())
    name = random.choice(list(holder))
    value = holder.pop(name)
    holder[random.choice((name.upper(), f"{name}_", name[:-1], random.choice(_NAMES)))] = value
    return body


def _change_tag(body: Any, random: Random) -> Any:
    path = _pick(body, random, lambda value: isinstance(value, dict) and bool(_tags(value)))
    if path is not None:
        holder = _at(body, path)
        holder[random.choice(_tags(holder))] = random.choice((*_TAGS, None, 5))
    return body


def _tags(value: dict[str, Any]) -> list[str]:
    return [name for name in ("type", "role") if name in value]


def _insert(body: Any, random: Random) -> Any:
    path = _pick(body, random, lambda value: isinstance(value, list))
    if path is not None:
        holder = _at(body, path)
        holder.insert(random.randint(0, len(holder)), copy.deepcopy(random.choice(_JUNK)))
    return body


def _add_field(body: Any, random: Random) -> Any:
    path = _pick(body, random, lambda value: isinstance(value, dict))
    _at(body, path or ())[random.choice(_NAMES)] = copy.deepcopy(random.choice(_JUNK))
    return body


def _clutter(body: Any, random: Random) -> Any:
    """Adds fields that mean something elsewhere to whatever is inside."""
    for path in list(_places(body)):
        holder = _at(body, path)
        if isinstance(holder, dict):
            for name in _ELSEWHERE:
                if name not in holder and random.random() < 0.5:
                    holder[name] = copy.deepcopy(random.choice(_JUNK))
    return body


def _stretch(body: Any, random: Random) -> Any:
    """Takes a value out of its range and leaves its type."""
    path = _pick(body, random, lambda value: isinstance(value, (str, int, float)))
    if path is not None:
        holder, step = _at(body, path[:-1]), path[-1]
        if isinstance(holder[step], str):
            holder[step] = random.choice(("", "y" * 600, holder[step] + "?"))
        elif not isinstance(holder[step], bool):
            holder[step] = random.choice((-3, 0, 21, 0.5, 1e300, 2**64 - 1))
    return body


@dataclass(frozen=True, slots=True)
class Sent:
    """A request's body as bytes. `kind` says what was done to it; `media_type` None sends none."""

    kind: str
    content: bytes
    media_type: str | None = "application/json"


def damaged_bytes(body: dict[str, Any], random: Random) -> Sent:
    """`body` written as JSON, and this spoilt."""
    kind = random.choice(list(_SPOILERS))
    return _SPOILERS[kind](kind, json.dumps(body).encode(), random)


def _cut(kind: str, data: bytes, random: Random) -> Sent:
    return Sent(kind, data[: random.randrange(len(data))])


def _not_utf_8(kind: str, data: bytes, random: Random) -> Sent:
    wrong = random.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80"))
    return Sent(kind, _inserted(data, random, rb'"', wrong))


def _no_number(kind: str, data: bytes, random: Random) -> Sent:
    return Sent(kind, _with_field(data, random.choice((b"NaN", b"-Infinity", b"01", b"+1", b".5"))))


def _huge_number(kind: str, data: bytes, random: Random) -> Sent:
    number = random.choice((b"1e999", b"-1e999", b"9" * 5000, b"1e308", b"0." + b"3" * 5000))
    name = random.choice((b"temperature", b"seed", b"max_output_tokens", b"zz", b"max_tool_calls"))
    return Sent(kind, _with_field(data, number, name))


def _lone_surrogate(kind: str, data: bytes, random: Random) -> Sent:
    half = random.choice((rb"\ud800", rb"\udfff", rb"\ud800\ud800", rb"\udc00\ud800x"))
    return Sent(kind, _inserted(data, random, rb'"', half))


def _bomb(kind: str, data: bytes, random: Random) -> Sent:
    depth = random.choice((1000, 100_000))
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    nested = opening * depth + b"1" + closing * (depth if random.random() < 0.5 else 0)
    return Sent(kind, nested if random.random() < 0.5 else _with_field(data, nested))


def _twice(kind: str, data: bytes, random: Random) -> Sent:
    again = random.choice((b"model", b"input", b"stream", b"temperature"))
    return Sent(kind, _with_field(data, random.choice((b"null", b"5", b'"a"', b"[]")), again))


def _other_type(kind: str, data: bytes, random: Random) -> Sent:
    media_types = (
        None,
        "",
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json, text/plain",
        "application/problem+json",
        "*/*",
        "APPLICATION/JSON; charset=utf-16",
        "j" * 3000,
    )
    return Sent(kind, data, random.choice(media_types))


def _other_encoding(kind: str, data: bytes, random: Random) -> Sent:
    text = data.decode()
    return Sent(kind, text.encode(random.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7"))))


def _no_json(kind: str, data: bytes, random: Random) -> Sent:
    texts = (b"", b" ", b"not json", b"<xml/>", b"a=1&b=2", data + b"}", data + data, b"'a'", b"\0")
    return Sent(kind, random.choice(texts))


def _control_character(kind: str, data: bytes, random: Random) -> Sent:
    return Sent(kind, _inserted(data, random, rb'"', random.choice((b"\n", b"\x00", b"\x1f"))))


def _inserted(data: bytes, random: Random, after: bytes, what: bytes) -> bytes:
    """`what` put in behind one of the matches of `after`."""
    ends = [match.end() for match in re.finditer(after, data)]
    place = random.choice(ends)
    return data[:place] + what + data[place:]


def _with_field(data: bytes, value: bytes, name: bytes = b"zz") -> bytes:
    """The object `data` with one more field, written as it is."""
    return b'%b, "%b": %b}' % (data.removesuffix(b"}"), name, value)


_SPOILERS: dict[str, Callable[[str, bytes, Random], Sent]] = {
    "cut short": _cut,
    "not UTF-8": _not_utf_8,
    "no number": _no_number,
    "huge number": _huge_number,
    "lone surrogate": _lone_surrogate,
    "nesting bomb": _bomb,
    "field twice": _twice,
    "media type": _other_type,
    "encoding": _other_encoding,
    "no JSON": _no_json,
    "control character": _control_character,
}


def campaign(
    count: int, seed: int, accepts: Callable[[object], bool], *, refused_share: float = 0.6
) -> Iterator[Sent]:
    """`count` bodies: this share of them JSON that the document refuses, an eighth damaged in a way
    that it may allow, the rest no sound bytes."""
    random = Random(seed)
    bodies = [body for _, body in recorded_bodies()]
    # Most clients offer tools, so that little of theirs goes all the way.
    plain = [body for body in bodies if not {"tools", "text", "conversation"} & set(body)]
    for number in range(count):
        body = random.choice(bodies)
        place = (number * 0.618033988749895) % 1  # Spreads the kinds evenly over any stretch.
        if place < refused_share:
            value = refused(body, random, accepts)
            yield Sent("refused by the document", json.dumps(value).encode())
        elif place < refused_share + 0.125:
            value = damaged(random.choice(plain), random)
            yield Sent("damaged somehow", json.dumps(value).encode())
        else:
            yield damaged_bytes(body, random)


Place = Literal["there", "null", "missing"]


def whereabouts(body: Any, param: str) -> Place | None:
    """Where a dotted path leads in `body`: to something, to null, to a field that its object
    lacks, or nowhere (None). Keys that hold dots or brackets are found as well."""
    index = re.match(r"\[(\d+)\]", param)
    if index and isinstance(body, list):
        number = int(index[1])
        return _beyond(body[number], param[index.end() :]) if number < len(body) else None
    if not isinstance(body, dict):
        return None
    for name in body:
        rest = param.removeprefix(name) if param.startswith(name) else None
        if rest is not None and (not rest or rest[0] in ".["):
            found = _beyond(body[name], rest)
            if found:
                return found
    return "missing" if re.fullmatch(r"\w+", param) and param not in body else None


def _beyond(value: Any, rest: str) -> Place | None:
    if rest:
        return whereabouts(value, rest.removeprefix("."))
    return "null" if value is None else "there"


def violations(sent: Sent, status: int, media_type: str, text: str) -> Sequence[str]:
    """What is wrong with an answer to a damaged body, whatever the body was."""
    if status >= 500:
        return [f"status {status}"]
    if status == 200:
        return []
    if media_type != "application/json":
        return [f"an error as {media_type}"]
    try:
        answer = json.loads(text)
    except ValueError:
        return ["an error that is no JSON"]
    if not isinstance(answer, dict) or set(answer) != {"error"}:
        return ["an error without the envelope"]
    error = answer["error"]
    if not isinstance(error, dict) or set(error) != {"message", "type", "param", "code"}:
        return ["an error without its four fields"]
    found = []
    texts = [error[name] for name in ("message", "type", "code")]
    if not all(isinstance(text, str) and text for text in texts):
        found.append("an error whose message, type or code is no text")
    if error["param"] is not None:
        found += _misplaced(sent, error)
    return found


def _misplaced(sent: Sent, error: dict[str, Any]) -> Sequence[str]:
    try:
        body = orjson.loads(sent.content)  # json gives up on less nesting than is accepted.
    except ValueError:
        return [f"param {error['param']} of what is no JSON"]
    place = whereabouts(body, error["param"])
    # Null means absent.
    lacks = error["code"] == "missing_required_parameter"
    if place not in (("missing", "null") if lacks else ("there", "null")):
        return [f"param {error['param']} for {error['code']} is {place or 'nowhere'}"]
    return []


def kind_of_place(param: str | None) -> str:
    """A path without its indices: the place in the document rather than the one in the body."""
    return re.sub(r"\[\d+\]", "[]", param or "")
