"""Every error that a client can be told of, one class for each code.

    APIError
    ├── InvalidRequest  400  the request is at fault, and sending it again will not help
    │   ├── InvalidJSON
    │   ├── MissingParameter
    │   ├── InvalidType
    │   ├── InvalidValue
    │   │   ├── IntegerBelowMinimum, IntegerAboveMaximum
    │   │   ├── DecimalBelowMinimum, DecimalAboveMaximum
    │   │   ├── StringTooShort, StringTooLong
    │   │   ├── ArrayTooShort, ArrayTooLong
    │   │   └── TooManyProperties
    │   ├── UnknownParameter
    │   ├── UnsupportedParameter
    │   ├── UnsupportedValue
    │   ├── InvalidTool
    │   ├── InvalidJSONSchema
    │   ├── InvalidEncryptedContent
    │   ├── InvalidPrompt
    │   ├── ContextLengthExceeded
    │   ├── PreviousResponseNotFound
    │   ├── ChainTooLong
    │   ├── MissingKey, InvalidKey     401
    │   ├── UnknownURL, ModelNotFound  404
    │   ├── ResponseNotFound, ConversationNotFound, ItemNotFound  404
    │   ├── MethodNotAllowed           405
    │   ├── RequestTimeout             408
    │   ├── ResponseInProgress, ConversationLocked, EventLogExpired, ResponseCancelled  409
    │   ├── EventsExpired              410
    │   ├── PayloadTooLarge            413
    │   │   └── HistoryTooLarge
    │   ├── UnsupportedMediaType       415
    │   ├── IdempotencyKeyReused       422
    │   ├── TooManyRequests            429
    │   └── UpgradeRequired            426
    └── ServerError     5xx  the server is at fault
        ├── ServerRestarted, DeadlineExceeded
        ├── InvalidToolCall, InvalidAnswer
        ├── ShuttingDown, StorageUnavailable, StorageCorrupt, HistoryBusy  503
        ├── ModelUnavailable           503
        └── GatewayTimeout             504

The codes are the document's `ErrorCode`; a test holds the two against each other.

`StartError` is for the one who runs the server: it cannot start, or a command cannot be done.
"""

from collections.abc import Mapping
from typing import ClassVar


class StartError(Exception):
    """A command cannot be done. The message says why and, where possible, what to do instead."""


class APIError(Exception):
    """An error with a status, an OpenAI error body and perhaps headers.

    `param` is where in the request the mistake is, such as `input[3].content[0].type`.
    """

    status: ClassVar[int]
    type: ClassVar[str]
    code: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.headers = dict(headers or {})

    def detail(self) -> dict[str, str | None]:
        """The four fields of the document's `ErrorDetail`."""
        return {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }


class InvalidRequest(APIError):
    """The request is at fault. Abstract: raise the class of the code."""

    status = 400
    type = "invalid_request_error"


class InvalidJSON(InvalidRequest):
    code = "invalid_json"


class MissingParameter(InvalidRequest):
    code = "missing_required_parameter"


class InvalidType(InvalidRequest):
    code = "invalid_type"


class InvalidValue(InvalidRequest):
    code = "invalid_value"


class IntegerBelowMinimum(InvalidValue):
    code = "integer_below_min_value"


class IntegerAboveMaximum(InvalidValue):
    code = "integer_above_max_value"


class DecimalBelowMinimum(InvalidValue):
    code = "decimal_below_min_value"


class DecimalAboveMaximum(InvalidValue):
    code = "decimal_above_max_value"


class StringTooShort(InvalidValue):
    code = "string_below_min_length"


class StringTooLong(InvalidValue):
    code = "string_above_max_length"


class ArrayTooShort(InvalidValue):
    code = "array_below_min_length"


class ArrayTooLong(InvalidValue):
    code = "array_above_max_length"


class TooManyProperties(InvalidValue):
    code = "object_above_max_properties"


class UnknownParameter(InvalidRequest):
    code = "unknown_parameter"


class UnsupportedParameter(InvalidRequest):
    code = "unsupported_parameter"


class UnsupportedValue(InvalidRequest):
    code = "unsupported_value"


class InvalidTool(InvalidRequest):
    code = "invalid_tool"


class InvalidJSONSchema(InvalidRequest):
    """A schema or a grammar is broken, or more than what answers and arguments can be held to."""

    code = "invalid_json_schema"


class InvalidEncryptedContent(InvalidRequest):
    """Sealed reasoning that was not sealed here for the caller, or was changed since."""

    code = "invalid_encrypted_content"


class InvalidPrompt(InvalidRequest):
    """The conversation cannot be put before the model, for instance as its template refuses it."""

    code = "invalid_prompt"


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"

    @classmethod
    def by(cls, window: int, size: str) -> "ContextLengthExceeded":
        """An input of `size` that leaves an answer no room in a context of `window` tokens. Several
        clients know the case by the message's first words alone."""
        return cls(
            f"The prompt is too long: this model's maximum context length is {window} tokens, the "
            f"input is {size}, and an answer needs room there, too.",
            param="input",
        )


class PreviousResponseNotFound(InvalidRequest):
    """What is to be continued is not there for the caller, or cannot be continued."""

    code = "previous_response_not_found"


class ChainTooLong(InvalidRequest):
    code = "chain_too_long"


class MissingKey(InvalidRequest):
    status = 401
    code = "missing_api_key"


class InvalidKey(InvalidRequest):
    status = 401
    code = "invalid_api_key"


class UnknownURL(InvalidRequest):
    status = 404
    code = "unknown_url"


class ModelNotFound(InvalidRequest):
    status = 404
    code = "model_not_found"


class ResponseNotFound(InvalidRequest):
    status = 404
    code = "response_not_found"


class ConversationNotFound(InvalidRequest):
    status = 404
    code = "conversation_not_found"


class ItemNotFound(InvalidRequest):
    status = 404
    code = "item_not_found"


class MethodNotAllowed(InvalidRequest):
    status = 405
    code = "method_not_allowed"


class RequestTimeout(InvalidRequest):
    status = 408
    code = "request_timeout"


class ResponseInProgress(InvalidRequest):
    """The response must have ended for this."""

    status = 409
    code = "response_in_progress"


class ConversationLocked(InvalidRequest):
    """A response is being made in the conversation."""

    status = 409
    code = "conversation_locked"


class EventLogExpired(InvalidRequest):
    """The response is kept, its events are not any more."""

    status = 409
    code = "event_log_expired"


class ResponseCancelled(InvalidRequest):
    """Ends the stream of a response that was cancelled."""

    status = 409
    code = "response_cancelled"


class EventsExpired(InvalidRequest):
    """The events asked for are not kept any more, later ones are."""

    status = 410
    code = "events_expired"


class PayloadTooLarge(InvalidRequest):
    status = 413
    code = "payload_too_large"


class HistoryTooLarge(PayloadTooLarge):
    """The input with all that came before it is too many bytes."""

    code = "history_too_large"


class UnsupportedMediaType(InvalidRequest):
    status = 415
    code = "unsupported_media_type"


class IdempotencyKeyReused(InvalidRequest):
    """The same `Idempotency-Key` came with another body."""

    status = 422
    code = "idempotency_key_reused"


class TooManyRequests(InvalidRequest):
    """There is no room for the request now. `retry-after` says when to try again."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"


class UpgradeRequired(InvalidRequest):
    status = 426
    code = "upgrade_required"


class ServerError(APIError):
    """The server is at fault. The message holds nothing of the cause, which is logged."""

    status = 500
    type = "server_error"
    code = "server_error"


class ServerRestarted(ServerError):
    """The process that made the response is gone, and part of the answer had been published."""

    code = "server_restarted"


class DeadlineExceeded(ServerError):
    """The response took longer than the server allows."""

    code = "deadline_exceeded"


class InvalidToolCall(ServerError):
    """The model called what it may not call, or not in the form of a call."""

    code = "invalid_tool_call"


class InvalidAnswer(ServerError):
    """The model's answer does not have the form that was asked for."""

    code = "invalid_answer"


class StorageUnavailable(ServerError):
    """What is stored cannot be reached now."""

    status = 503
    code = "storage_unavailable"


class StorageCorrupt(ServerError):
    """What was stored cannot be read any more."""

    status = 503
    code = "storage_corrupt"


class HistoryBusy(ServerError):
    """Too many bytes of history are being read at once."""

    status = 503
    code = "history_busy"


class ModelUnavailable(ServerError):
    """No process that has a model is there."""

    status = 503
    code = "model_unavailable"


class ShuttingDown(ServerError):
    status = 503
    code = "server_shutting_down"


class GatewayTimeout(ServerError):
    status = 504
    code = "gateway_timeout"
