"""Takes requests in: what of a body is done, by which model, and whether it makes sense."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from antiphon.errors import IntegerBelowMinimum, InvalidJSONSchema, InvalidValue
from antiphon.responses.answer_format import SCHEMA_PLACE, answer_format
from antiphon.responses.gate import Dropped, Gate
from antiphon.responses.request import EffectiveRequest, RequestReader
from antiphon.responses.tools import BRINGING, check_tools, grammars, strict_schemas, tool_places
from antiphon.schemas import SchemaLimits


class IntakeOptions(Protocol):
    """The smallest `max_output_tokens` there may be, whether responses are stored where a request
    does not say, how strictly items must go together, and how many tools there may be and how
    large their schemas."""

    @property
    def min_output_tokens(self) -> int: ...
    @property
    def store_by_default(self) -> bool: ...
    @property
    def history_rules(self) -> Literal["lenient", "strict"]: ...
    @property
    def max_tools(self) -> int: ...
    @property
    def max_schema_bytes(self) -> int: ...
    @property
    def max_schema_depth(self) -> int: ...
    @property
    def max_schema_properties(self) -> int: ...
    @property
    def max_schema_enum_values(self) -> int: ...


class Intake:
    """Reads bodies as the document allows them. `stores` is whether anything is stored here."""

    def __init__(
        self,
        gate: Gate,
        reader: RequestReader,
        *,
        stores: bool,
        options: IntakeOptions,
    ) -> None:
        self._gate = gate
        self._reader = reader
        self._stores = stores and options.store_by_default
        self._options = options
        self._limits = SchemaLimits(
            num_bytes=options.max_schema_bytes,
            depth=options.max_schema_depth,
            properties=options.max_schema_properties,
            enum_values=options.max_schema_enum_values,
        )

    async def accept(self, body: Mapping[str, Any]) -> tuple[EffectiveRequest, list[Dropped]]:
        """What is asked, and what was left out of it. Raises what is wrong with it in itself.

        Schemas are looked at away from the event loop.
        """
        model = self._reader.router.find(body.get("model")).model
        kept, dropped = self._gate.apply(body)
        effort = (kept.get("reasoning") or {}).get("effort")
        if effort not in (None, "none") and model.effort(effort) is None:
            why = "This model knows no efforts."
            self._gate.leave_out(kept, "reasoning.effort", why, dropped)
        fewest = self._options.min_output_tokens
        limit = kept.get("max_output_tokens", fewest)
        if limit < fewest:
            raise IntegerBelowMinimum(
                f"Invalid 'max_output_tokens': expected at least {fewest}, but got {limit}.",
                param="max_output_tokens",
            )
        request = self._reader.read(kept, stores=self._stores)
        request.check()
        if (
            self._options.history_rules == "strict"
            and request.seals_reasoning
            and "previous_response_id" in kept
        ):
            raise InvalidValue(
                "Invalid 'include': 'reasoning.encrypted_content' cannot be given with "
                "'previous_response_id', which brings the reasoning itself.",
                param="include",
            )
        schemas = []
        places: dict[str, str] = {}
        for declared in _declared(body, kept, {entry.path for entry in dropped}):
            check_tools(
                declared.tools,
                declared.places,
                param=declared.field,
                most=self._options.max_tools,
            )
            self._check_grammars(declared)
            places |= tool_places(declared.tools, declared.places)
            schemas += [(*one, True) for one in strict_schemas(declared.tools, declared.places)]
        wanted = answer_format(kept.get("text"))
        if wanted is not None and wanted.schema is not None:
            schemas.append((SCHEMA_PLACE, wanted.schema, wanted.strict))
        if schemas:
            asked = [(schema, strict) for _, schema, strict in schemas]
            invalid = await request.comparing.find_invalid(asked, self._limits)
            if invalid is not None:
                place = schemas[invalid.number][0]
                raise InvalidJSONSchema(f"Invalid '{place}': {invalid.error}.", param=place)
        request.tool_places = places
        return request, dropped

    def _check_grammars(self, declared: "_Declared") -> None:
        most = self._options.max_schema_bytes
        for place, definition in grammars(declared.tools, declared.places):
            size = len(definition.encode("utf-8", "surrogatepass"))
            if size > most:
                raise InvalidJSONSchema(
                    f"Invalid '{place}': the grammar has {size} bytes, and {most} are allowed.",
                    param=place,
                )


class _Declared(NamedTuple):
    """Tools that are declared together in a field of the request, and where each stands."""

    field: str
    tools: list[dict[str, Any]]
    places: list[str]


def _declared(
    body: Mapping[str, Any], kept: Mapping[str, Any], dropped: Collection[str]
) -> Iterator[_Declared]:
    """All tools that were kept of a body, of which `dropped` are the places of what was not."""

    def left(field: str, number: int) -> list[str]:
        places = (f"{field}[{index}]" for index in range(number))
        return [place for place in places if place not in dropped]

    tools = kept.get("tools", [])
    yield _Declared("tools", tools, left("tools", len(body.get("tools") or ())))
    given, items = body.get("input"), kept.get("input")
    if not isinstance(given, list) or not isinstance(items, list):
        return
    sent = {f"input[{index}]": item for index, item in enumerate(given)}
    for place, item in zip(left("input", len(given)), items, strict=True):
        if item.get("type") in BRINGING:
            field = f"{place}.tools"
            yield _Declared(field, item["tools"], left(field, len(sent[place]["tools"])))
