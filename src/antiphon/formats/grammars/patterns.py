"""Regexes of strings: of JSON Schema's `format`, `pattern` and lengths, in Rust's syntax."""

from collections.abc import Iterator, Mapping
from typing import Any

_DAY = "(?:0[1-9]|[12][0-9]|3[01])"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-" + _DAY + "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))|" + _LEAP + "-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+-]{_CLOCK})"
_LABEL = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,30}"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,5}}"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_WORD = "[A-Za-z0-9_+-]{1,15}"

#: What is surely of a format. Not all that is: what a model writes is usual, and has to fit.
FORMAT_PATTERNS: Mapping[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": "P(?:[0-9]{1,4}W|(?:[0-9]{1,4}Y(?:[0-9]{1,2}M(?:[0-9]{1,2}D)?)?"
    "|[0-9]{1,2}M(?:[0-9]{1,2}D)?|[0-9]{1,4}D)"
    "(?:T(?:[0-9]{1,4}H(?:[0-9]{1,2}M(?:[0-9]{1,2}S)?)?|[0-9]{1,4}M(?:[0-9]{1,2}S)?|[0-9]{1,5}S))?"
    "|T(?:[0-9]{1,4}H(?:[0-9]{1,2}M(?:[0-9]{1,2}S)?)?|[0-9]{1,4}M(?:[0-9]{1,2}S)?|[0-9]{1,5}S))",
    "email": rf"{_WORD}(?:\.{_WORD}){{0,3}}@{_LABEL}(?:\.{_LABEL}){{1,4}}",
    "hostname": _HOST,
    "ipv4": rf"{_OCTET}(?:\.{_OCTET}){{3}}",
    "ipv6": "(?:(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}"
    "|(?:[0-9A-Fa-f]{1,4}:){1,5}(?::[0-9A-Fa-f]{1,4}){1,2}|::(?:[0-9A-Fa-f]{1,4})?)",
    "uuid": "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
    "uri": rf"(?:https?|ftp|wss?)://{_HOST}(?::[0-9]{{1,4}})?(?:/[A-Za-z0-9._~-]{{0,200}}){{0,20}}"
    r"(?:\?[A-Za-z0-9._~&=-]{0,500})?(?:#[A-Za-z0-9._~-]{0,200})?"
    r"|(?:urn|mailto|tel):[A-Za-z0-9.:@+_-]{1,200}",
}

_ANYTHING = "(?s:.*)"
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_"}


def string_patterns(schema: Mapping[str, Any]) -> Iterator[str]:
    """Regexes of whole strings that together say what a schema says of one."""
    if "pattern" in schema:
        yield whole_pattern(schema["pattern"])
    if "format" in schema:
        yield FORMAT_PATTERNS.get(schema["format"], _ANYTHING)
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if least or most is not None:
        yield f"(?s:.{{{int(least)},{'' if most is None else int(most)}}})"


def whole_pattern(pattern: str) -> str:
    """A regex of the whole strings in which a `pattern`, of ECMA's syntax, is found."""
    branches = [_whole_branch(branch) for branch in _branches(_in_ascii(pattern))]
    return branches[0] if len(branches) == 1 else "|".join(f"(?:{branch})" for branch in branches)


def _whole_branch(branch: str) -> str:
    begins, ends = branch.startswith("^"), branch.endswith("$") and not _escaped_end(branch)
    inner = branch[begins : len(branch) - ends]
    return f"{'' if begins else _ANYTHING}(?:{inner}){'' if ends else _ANYTHING}"


def _escaped_end(branch: str) -> bool:
    before = branch[:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _branches(pattern: str) -> Iterator[str]:
    """The alternatives of a regex."""
    depth, in_class, begin, at = 0, False, 0, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            yield pattern[begin:at]
            begin = at + 1
        at += 1
    yield pattern[begin:]


def _in_ascii(pattern: str) -> str:
    r"""The regex with ECMA's meaning of `\d` and `\w`, and without what only ECMA may escape."""
    out: list[str] = []
    in_class, at = False, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            code = pattern[at + 1]
            ranges = _CLASSES.get(code.lower()) if code in "dDwW" else None
            if ranges is None:
                out.append("/" if code == "/" else char + code)
            elif in_class and code.islower():
                out.append(ranges)
            else:
                out.append(f"[{'^' if code.isupper() else ''}{ranges}]")
            at += 2
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        out.append(char)
        at += 1
    return "".join(out)
