"""Rules of asyncio that nothing but a look at the sources can check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import trainmaster.controller

SOURCES = Path(trainmaster.controller.__path__[0])


def names() -> Iterator[tuple[str, str]]:
    """Each attribute of the module asyncio that the controller uses, with its place."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "asyncio":
                yield node.attr, f"{path.relative_to(SOURCES)}:{node.lineno}"


def test_p31_nothing_is_waited_for_in_a_way_that_can_lose_it() -> None:
    assert [place for name, place in names() if name == "wait_for"] == []


def test_p32_nothing_holds_a_lock_while_it_waits_for_the_server() -> None:
    """Reconciles of one key are kept apart by the queue. Only credentials are renewed by one for all who wait."""
    locks = {"Condition", "BoundedSemaphore", "Semaphore", "Lock"}
    assert {place.partition(":")[0] for name, place in names() if name in locks} <= {"kube/auth/refresh.py"}
