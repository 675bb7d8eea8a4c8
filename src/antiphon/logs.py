"""Log lines, as JSON for machines or coloured for people.

The standard library's loggers, such as uvicorn's, end in the same place.
"""

import logging
import sys
from typing import Any, Literal

import structlog

#: Loggers that repeat what the request log says, or warn of what is meant.
_QUIET = ("alembic", "connexion", "httpx")
# What uvicorn advises when it is told to serve no WebSockets and a client asks for one.
_ADVICE = ("Unsupported upgrade request", "No supported WebSocket library")


def configure(
    level: Literal["debug", "info", "warning", "error"],
    form: Literal["auto", "console", "json"],
) -> None:
    """Set up logging for the process, to standard error."""
    if form == "auto":
        form = "console" if sys.stderr.isatty() else "json"
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: list[Any]
    if form == "json":
        # Without local variables, which may be prompts.
        traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        renderer = [
            structlog.processors.ExceptionRenderer(traceback),
            structlog.processors.JSONRenderer(),
        ]
    else:
        renderer = [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.setLevel(logging.WARNING)
    uvicorn.addFilter(lambda record: not record.getMessage().startswith(_ADVICE))
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
