"""Logs: readable, without what nobody may see, and with what a reconcile is about."""

import json
import logging
import re
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from trainmaster.controller.log_config import Format, configure_logs, set_log_level
from trainmaster.controller.log_context import RECONCILED, merge_reconciled


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


TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


@pytest.mark.guarantee("K-13")
def test_a_line_begins_with_time_level_and_event_before_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(style="json", level=logging.DEBUG)
    with bound_contextvars(controller="c", name="demo"):
        structlog.get_logger("trainmaster.test").warning("applied", kind="JobSet", again=False, ready=1)
    logging.getLogger("aiohttp.server").error("of a library")
    structlog.get_logger("trainmaster.test").critical("the end")
    first, second, third = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert list(first) == ["ts", "level", "event", "logger", "controller", "name", "kind", "again", "ready"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first["ts"])
    assert [line["level"] for line in (first, second, third)] == ["warn", "error", "fatal"]
    assert (list(second)[:4], second["event"]) == (["ts", "level", "event", "logger"], "of a library")


@pytest.mark.guarantee("K-13")
def test_on_a_terminal_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(style="console")
    logger = structlog.get_logger("trainmaster.controller.manager.caches")
    logger.info("short", zebra=1, ape=2)
    logger.warning("a bit longer")
    logger.critical("the end")
    lines = capsys.readouterr().err.splitlines()
    assert len({line.index("[manager.caches]") for line in lines}) == 1
    assert "zebra=1 ape=2" in lines[0]
    assert [line.split("[")[1].split("]")[0].strip() for line in lines] == ["info", "warn", "fatal"]


@pytest.mark.guarantee("M-11")
@pytest.mark.parametrize("style", ["json", "console"])
def test_no_line_has_a_credential(style: Format, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(style=style)
    logger = structlog.get_logger("trainmaster.test")
    quoting = f"refused {TOKEN}"
    logger.warning(quoting, error=ValueError(TOKEN), headers={"Authorization": f"Bearer {TOKEN}"})
    logging.getLogger("library").error("sent %s", TOKEN)

    def fail() -> None:
        raise RuntimeError(TOKEN)

    try:
        fail()
    except RuntimeError:
        logger.exception("unforeseen")
    text = capsys.readouterr().err
    assert text.count("[redacted]") == 5
    assert "c2lnbmF0dXJl" not in text
    assert "Traceback (most recent call last)" in text


def test_the_level_changes_for_loggers_that_are_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    """They are cached, and cost nothing for what they do not write; so does the standard library's."""
    configure_logs(style="json")
    ours, bound = structlog.get_logger("trainmaster.test"), structlog.get_logger("trainmaster.test").bind(a=1)
    library = logging.getLogger("aiohttp.test")
    for level in (logging.INFO, logging.DEBUG, logging.INFO):
        set_log_level(level)
        for logger in (ours, bound, library):
            logger.debug("detail")
            logger.error("told")
    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == ["told"] * 3 + ["detail", "told"] * 3 + ["told"] * 3


def merged(line: dict[str, Any]) -> dict[str, Any]:
    return dict(merge_reconciled(None, "info", line))


def in_reconcile(key: str, number: int, line: dict[str, Any]) -> dict[str, Any]:
    def reconcile() -> dict[str, Any]:
        RECONCILED.set(("trainjob_controller", key, number))
        return merged(line)

    return copy_context().run(reconcile)


def test_a_line_names_what_is_reconciled_and_by_which_reconcile_unless_it_says_so_itself() -> None:
    for key, namespace, name in (("team/demo", "team", "demo"), ("demo", "", "demo")):
        of_reconcile = {"controller": "trainjob_controller", "namespace": namespace, "name": name}
        told = {"event": "applied", **of_reconcile, "reconcile_id": "00000abc"}
        assert in_reconcile(key, 0xABC, {"event": "applied"}) == told
    assert merged({"event": "elsewhere"}) == {"event": "elsewhere"}
    assert in_reconcile("team/demo", 1, {"event": "applied", "name": "other"})["name"] == "other"
