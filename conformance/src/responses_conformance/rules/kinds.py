"""The events of the API by what they mean for a stream."""

LIFECYCLE = {
    "response.created": ("queued", "in_progress"),
    "response.queued": ("queued",),
    "response.in_progress": ("in_progress",),
    "response.completed": ("completed",),
    "response.incomplete": ("incomplete",),
    "response.failed": ("failed",),
}
TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})

#: Text events: the list of the item that holds the part, the part's type, and whether it is done.
TEXT = {
    "response.output_text.delta": ("content", "output_text", False),
    "response.output_text.done": ("content", "output_text", True),
    "response.refusal.delta": ("content", "refusal", False),
    "response.refusal.done": ("content", "refusal", True),
    "response.reasoning_text.delta": ("content", "reasoning_text", False),
    "response.reasoning_text.done": ("content", "reasoning_text", True),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", False),
    "response.reasoning_summary_text.done": ("summary", "summary_text", True),
}
#: The list of the item that a part is added to or closed in, and whether it is closed.
PARTS = {
    "response.content_part.added": ("content", False),
    "response.content_part.done": ("content", True),
    "response.reasoning_summary_part.added": ("summary", False),
    "response.reasoning_summary_part.done": ("summary", True),
}
#: The item's type, the field that is filled, and whether it is done.
CALLS = {
    "response.function_call_arguments.delta": ("function_call", "arguments", False),
    "response.function_call_arguments.done": ("function_call", "arguments", True),
    "response.custom_tool_call_input.delta": ("custom_tool_call", "input", False),
    "response.custom_tool_call_input.done": ("custom_tool_call", "input", True),
}
CALL_FIELDS = {"function_call": "arguments", "custom_tool_call": "input"}
#: What events fill of an item, by its type. Other items may be announced whole.
FILLED = {
    "message": ("content",),
    "reasoning": ("content", "summary"),
    "function_call": ("arguments",),
    "custom_tool_call": ("input",),
    "mcp_call": ("arguments",),
}
#: Which parts an item may hold, by its type and the name of its list.
HOLDS = {
    ("message", "content"): frozenset({"output_text", "refusal"}),
    ("reasoning", "content"): frozenset({"reasoning_text"}),
    ("reasoning", "summary"): frozenset({"summary_text"}),
}
#: The parts that the API defines; any other may stand anywhere.
KNOWN_PARTS = frozenset().union(*HOLDS.values())
INDEX = {"content": "content_index", "summary": "summary_index"}
ANNOTATION = "response.output_text.annotation.added"
ITEMS = frozenset({"response.output_item.added", "response.output_item.done"})
#: All events that belong to an item.
OF_ITEMS = frozenset(TEXT) | frozenset(PARTS) | frozenset(CALLS) | ITEMS | {ANNOTATION}


def text_field(part_type: str) -> str:
    """The field that holds a part's text."""
    return "refusal" if part_type == "refusal" else "text"
