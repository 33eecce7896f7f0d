"""Logging: structured events, as JSON in a cluster and readable on a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

Format = Literal["json", "console"]


# Without local variables: they hold whole objects, Secrets and tokens included.
_TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


def configure_logs(*, level: int = logging.INFO, style: Format | None = None) -> None:
    """Set up structlog and route the standard library's loggers through it.

    Args:
        level: The lowest level that is written.
        style: `json` or `console`; by default console if standard error is a terminal.
    """
    if style is None:
        style = "console" if sys.stderr.isatty() else "json"
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    renderer: list[structlog.typing.Processor]
    if style == "json":
        renderer = [_TRACEBACKS, structlog.processors.JSONRenderer()]
    else:
        renderer = [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), timestamp_key="ts", exception_formatter=structlog.dev.plain_traceback
            )
        ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
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
    root.handlers = [handler]
    root.setLevel(max(level, logging.WARNING) if level > logging.DEBUG else level)
    logging.getLogger("trainmaster").setLevel(level)
