"""Rules of asyncio that nothing but a look at the sources can check."""

import ast
import functools
from pathlib import Path

import pytest

import trainmaster.controller

SOURCES = Path(trainmaster.controller.__path__[0])


@functools.cache
def names() -> list[tuple[str, str]]:
    """Each attribute of the module asyncio that the controller uses, with its place."""
    return [
        (node.attr, f"{path.relative_to(SOURCES)}:{node.lineno}")
        for path in SOURCES.rglob("*.py")
        if "asyncio." in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "asyncio"
    ]


@pytest.mark.guarantee("P-31")
def test_nothing_is_waited_for_in_a_way_that_can_lose_it() -> None:
    assert [place for name, place in names() if name == "wait_for"] == []


LOCKS = {"Condition", "BoundedSemaphore", "Semaphore", "Lock"}


@pytest.mark.guarantee("P-32")
def test_nothing_holds_a_lock_while_it_waits_for_the_server() -> None:
    """Reconciles of one key are kept apart by the queue. Only credentials are renewed by one for all who wait.

    The semaphores of the webhooks and of the metrics count requests, each under a timeout, and exclude nobody; the lock
    of the webhooks' worker lets one review a turn onto the loop and is never held across a wait. That of the threads
    for plugins counts threads, which decide and send nothing. The semaphore of the HTTP client counts connections, and
    its lock has one look up a name for all who dial, under the timeout of dialing. That of the debugging pages is never
    waited for: whoever comes second is refused.
    """
    found: dict[str, set[str]] = {}
    for name, place in names():
        if name in LOCKS:
            found.setdefault(place.partition(":")[0], set()).add(name)
    assert found == {
        "debugging/handlers.py": {"Lock"},
        "kube/auth/refresh.py": {"Lock"},
        "kube/rest/http1/dialer.py": {"Lock"},
        "kube/rest/http1/transport.py": {"Semaphore"},
        "plugins/threads.py": {"Semaphore"},
        "webhooks/handlers.py": {"Semaphore"},
        "webhooks/workers.py": {"Lock"},
        "server/filters.py": {"Semaphore"},
    }


@pytest.mark.guarantee("P-32")
def test_a_place_among_the_lookups_of_the_webhooks_is_waited_for_within_a_timeout() -> None:
    tree = ast.parse((SOURCES / "webhooks/handlers.py").read_text(encoding="utf-8"))
    entered = [node.items for node in ast.walk(tree) if isinstance(node, ast.AsyncWith)]
    blocks = [[ast.unparse(item.context_expr) for item in items] for items in entered]
    taken = [block for block in blocks if "self._lookups" in block]
    assert taken == [["self._clock.timeout(LOOKUP_TIMEOUT)", "self._lookups"]]
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "_lookups"]
    assert len(uses) == 2  # where it is made, and that block
