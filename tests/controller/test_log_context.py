"""What the log lines of a reconcile say of it."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

import pytest

from trainmaster.controller.log_context import RECONCILED, merge_reconciled


def merged(line: dict[str, Any]) -> dict[str, Any]:
    return dict(merge_reconciled(None, "info", line))


@pytest.mark.parametrize(("key", "namespace", "name"), [("team/demo", "team", "demo"), ("demo", "", "demo")])
def test_a_line_names_what_is_reconciled_and_by_which_reconcile(key: str, namespace: str, name: str) -> None:
    def reconcile() -> dict[str, Any]:
        RECONCILED.set(("trainjob_controller", key, 0xABC))
        return merged({"event": "applied"})

    of_reconcile = {"controller": "trainjob_controller", "namespace": namespace, "name": name}
    assert copy_context().run(reconcile) == {"event": "applied", **of_reconcile, "reconcile_id": "00000abc"}
    assert merged({"event": "elsewhere"}) == {"event": "elsewhere"}


def test_what_a_line_says_itself_stays() -> None:
    def reconcile() -> dict[str, Any]:
        RECONCILED.set(("trainjob_controller", "team/demo", 1))
        return merged({"event": "applied", "name": "other"})

    assert copy_context().run(reconcile)["name"] == "other"
