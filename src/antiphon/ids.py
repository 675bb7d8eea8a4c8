"""Ids and the clock.

An id is a prefix that tells its kind and 128 random bits, so that it can be neither guessed nor
made twice.
"""

import secrets
import time


def response_id() -> str:
    return f"resp_{secrets.token_hex(16)}"


def message_id() -> str:
    return f"msg_{secrets.token_hex(16)}"


def reasoning_id() -> str:
    return f"rs_{secrets.token_hex(16)}"


def function_call_id() -> str:
    return f"fc_{secrets.token_hex(16)}"


def function_call_output_id() -> str:
    return f"fco_{secrets.token_hex(16)}"


def custom_tool_call_id() -> str:
    return f"ctc_{secrets.token_hex(16)}"


def custom_tool_call_output_id() -> str:
    return f"ctco_{secrets.token_hex(16)}"


def additional_tools_id() -> str:
    return f"at_{secrets.token_hex(16)}"


def tool_search_call_id() -> str:
    return f"tsc_{secrets.token_hex(16)}"


def tool_search_output_id() -> str:
    return f"tso_{secrets.token_hex(16)}"


def local_shell_call_id() -> str:
    return f"lsh_{secrets.token_hex(16)}"


def local_shell_call_output_id() -> str:
    return f"lsho_{secrets.token_hex(16)}"


def shell_call_id() -> str:
    return f"sh_{secrets.token_hex(16)}"


def shell_call_output_id() -> str:
    return f"sho_{secrets.token_hex(16)}"


def apply_patch_call_id() -> str:
    return f"apc_{secrets.token_hex(16)}"


def apply_patch_call_output_id() -> str:
    return f"apco_{secrets.token_hex(16)}"


def call_id() -> str:
    return f"call_{secrets.token_hex(16)}"


def request_id() -> str:
    return f"req_{secrets.token_hex(16)}"


def now() -> int:
    """Seconds since 1970 (UTC)."""
    return int(time.time())
