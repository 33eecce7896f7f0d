"""Logs: readable, and without what nobody may see."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from trainmaster.controller.log_config import Format, configure_logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    logging.getLogger("trainmaster").setLevel(logging.NOTSET)
    structlog.reset_defaults()


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_shows_no_values(style: Format, capsys: pytest.CaptureFixture[str]) -> None:
    """The local variables of a reconcile hold whole objects: environment, Secrets, tokens."""
    configure_logs(style=style)

    def fail() -> None:
        password = f"hunter-{1 + 1}"
        raise RuntimeError(f"out of {len(password)} ideas")

    for logger in (structlog.get_logger("trainmaster.test"), logging.getLogger("asyncio")):
        try:
            fail()
        except RuntimeError:
            logger.exception("unforeseen")
    text = capsys.readouterr().err
    assert text.count("out of 8 ideas") == 2
    assert "hunter-2" not in text
    if style == "json":
        assert [json.loads(line)["event"] for line in text.splitlines()] == ["unforeseen", "unforeseen"]
