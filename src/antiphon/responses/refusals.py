"""What the store refuses, in the words of the API."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from antiphon import errors
from antiphon.store import failures as store

_logger = structlog.get_logger("antiphon.responses")
_RETRY = {"retry-after": "1"}


@contextmanager
def told() -> Iterator[None]:
    """Turn what only the store knows of into API errors: its own failures, and limits."""
    try:
        yield
    except store.Corrupt as error:
        _logger.error("stored data corrupt", reason=str(error))
        raise errors.StorageCorrupt(
            "What was stored cannot be read any more. The cause is in the server's log."
        ) from error
    except store.StoreError as error:
        _logger.error("storage failed", reason=str(error))
        raise errors.StorageUnavailable(
            "The storage cannot be reached now. Try again.", headers=_RETRY
        ) from error
    except store.TooMany as error:
        raise errors.TooManyRequests(
            f"There are too many {error.what}: at most {error.limit} at a time.", headers=_RETRY
        ) from error
    except store.TooLarge as error:
        raise errors.HistoryTooLarge(
            f"The input and all that came before it are larger than {error.limit} bytes.",
            param="input",
        ) from error


@contextmanager
def on_response(response_id: str) -> Iterator[None]:
    """For requests to `/v1/responses/{id}`."""
    with told():
        try:
            yield
        except store.NotFound as error:
            raise errors.ResponseNotFound(
                f"There is no response '{shortened(response_id)}'.", param="response_id"
            ) from error
        except store.StillActive as error:
            raise errors.ResponseInProgress(
                f"The response '{shortened(response_id)}' is still being made. Cancel it first.",
                param="response_id",
            ) from error


@contextmanager
def on_previous(response_id: str) -> Iterator[None]:
    """For requests that continue a response. Unknown, foreign, failed: all read the same."""
    with told():
        try:
            yield
        except store.TooDeep as error:
            raise errors.ChainTooLong(
                f"The chain of previous responses is longer than {error.limit}.",
                param="previous_response_id",
            ) from error
        except (store.NotFound, store.NotContinuable) as error:
            raise errors.PreviousResponseNotFound(
                f"Previous response with id '{shortened(response_id)}' not found.",
                param="previous_response_id",
            ) from error
        except store.StillActive as error:
            raise errors.ResponseInProgress(
                f"The previous response '{shortened(response_id)}' is still being made.",
                param="previous_response_id",
            ) from error


@contextmanager
def on_conversation(conversation_id: str, param: str = "conversation_id") -> Iterator[None]:
    """For requests to `/v1/conversations/{id}`, and those that name one."""
    with told():
        try:
            yield
        except store.NotFound as error:
            raise errors.ConversationNotFound(
                f"There is no conversation '{shortened(conversation_id)}'.", param=param
            ) from error
        except store.ConversationBusy as error:
            raise errors.ConversationLocked(
                f"Another response is being made in the conversation "
                f"'{shortened(conversation_id)}'. Try again when it has ended.",
                param=param,
                headers=_RETRY,
            ) from error


def shortened(value: str) -> str:
    """An id from a request as it may stand in a message."""
    return value[:64]
