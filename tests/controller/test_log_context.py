"""What the log lines of a reconcile say of it."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

from trainmaster.controller.log_context import RECONCILED, merge_reconciled


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
