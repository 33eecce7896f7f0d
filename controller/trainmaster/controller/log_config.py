"""Logging: structured events, as JSON in a cluster and readable on a terminal.

Guarantees:
- K-13: a line of JSON begins with `ts` (RFC 3339, UTC), `level` (debug, info, warn, error or fatal, as zap names them)
  and `event`, then the name of the logger, what is reconciled, and the fields in the order in which they were given. A
  traceback is the text `stacktrace`.
- M-11: no line has what looks like a credential, whoever wrote it, and no traceback has values of variables.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, Literal

import structlog
from structlog.typing import EventDict

from trainmaster.controller.log_context import merge_reconciled
from trainmaster.controller.redaction import redact_all

Format = Literal["json", "console"]

_RECONCILED: Final = ("controller", "namespace", "name", "reconcile_id", "trace_id", "span_id")
_FIRST: Final = ("ts", "level", "event", "logger", *_RECONCILED)
_LEVELS: Final = {"warning": "warn", "critical": "fatal"}
_OURS: Final = "trainmaster.controller."


_Logger: Final = type("Logger", (structlog.make_filtering_bound_logger(logging.INFO),), {})
"""The class of all loggers; its base says which levels are written, and can be changed."""


def configure_logs(*, level: int = logging.INFO, style: Format | None = None, colors: bool = False) -> None:
    """Set up structlog and route the standard library's loggers through it.

    Args:
        style: `json` or `console`; by default console if standard error is a terminal.
        colors: Whether there are colours on a console that is a terminal.
    """
    if style is None:
        style = "console" if sys.stderr.isatty() else "json"
    shared: list[structlog.typing.Processor] = [
        merge_reconciled,
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    renderer: list[structlog.typing.Processor]
    if style == "json":
        renderer = [_name_stacktrace, structlog.processors.JSONRenderer()]
    else:
        colors = colors and sys.stderr.isatty()
        styles = structlog.dev.ConsoleRenderer.get_default_level_styles(colors)
        renderer = [
            _shorten_logger,
            structlog.dev.ConsoleRenderer(
                colors=colors,
                timestamp_key="ts",
                sort_keys=False,
                level_styles={_LEVELS.get(name, name): each for name, each in styles.items()},
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=_Logger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Without local variables: they hold whole objects, Secrets and tokens included.
                structlog.processors.format_exc_info,
                _in_order,
                *renderer,
            ],
        )
    )
    logging.getLogger().handlers = [handler]
    set_log_level(level)


def set_log_level(level: int) -> None:
    """Change the lowest level that is written, also for loggers that are in use."""
    _Logger.__bases__ = (structlog.make_filtering_bound_logger(level),)
    logging.getLogger().setLevel(max(level, logging.WARNING) if level > logging.DEBUG else level)
    logging.getLogger("trainmaster").setLevel(level)


def _in_order(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Put first what every line has, name levels as zap does, and take out what looks like a credential."""
    line["level"] = _LEVELS.get(line["level"], line["level"])
    first = {key: line.pop(key) for key in _FIRST if key in line}
    redacted: EventDict = redact_all({**first, **line})
    return redacted


def _name_stacktrace(_logger: object, _method: str, line: EventDict) -> EventDict:
    if "exception" in line:
        line["stacktrace"] = line.pop("exception")
    return line


def _shorten_logger(_logger: object, _method: str, line: EventDict) -> EventDict:
    line["logger"] = str(line["logger"]).removeprefix(_OURS)
    return line
