"""What may not be read, is not served or does not answer keeps nobody from the rest, and is noted once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from trainmaster.controller.cli.explain.reader import MOST, Reader
from trainmaster.controller.cli.explain.resources import NODES, POD_GROUPS
from trainmaster.controller.explain.view import WhyUnread
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotConnected, NotFound, Unauthorized
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.jsontree import JsonObject


class Client:
    """Answers every request with the same, or in pages without end."""

    def __init__(self, answer: KubeError | JsonObject | None) -> None:
        self.answer = answer
        self.requests = 0

    async def list(self, *_: Any, limit: int, **__: Any) -> JsonObject:
        self.requests += 1
        if isinstance(self.answer, KubeError):
            raise self.answer
        if self.answer is not None:
            return self.answer
        return {"items": [{"metadata": {"name": "x"}}] * limit, "metadata": {"continue": "more"}}

    async def get(self, *_: Any) -> JsonObject:
        self.requests += 1
        if isinstance(self.answer, KubeError):
            raise self.answer
        return {"metadata": {"name": "x"}}


def reader(answer: KubeError | JsonObject | None) -> Reader:
    return Reader(cast("KubeClient", Client(answer)), "team")


@pytest.mark.parametrize(
    ("error", "why", "text"),
    [
        (Forbidden(status=403), WhyUnread.FORBIDDEN, "you have no right to list them in namespace team"),
        (NotConnected("GET https://a/b: refused"), WhyUnread.FAILED, "GET https://a/b: refused"),
    ],
)
async def test_what_cannot_be_read_is_unknown_and_noted_once(error: KubeError, why: WhyUnread, text: str) -> None:
    found = reader(error)
    assert await found.read_all(PODS) is None
    assert await found.read(PODS, "x") is None
    assert [(each.what, each.why, each.text) for each in found.unread] == [("pods", why, text)]


async def test_what_a_cluster_may_lack_is_no_fault() -> None:
    # A kind that a cluster may lack has no objects there.
    found = reader(NotFound(status=404))
    assert await found.read_all(POD_GROUPS[0]) == []
    assert not found.unread
    assert await found.read_all(JOBSETS, is_optional=False) is None
    assert [each.why for each in found.unread] == [WhyUnread.NOT_SERVED]
    assert "https://jobset.sigs.k8s.io" in found.unread[0].text
    # An object that does not exist is none of the list.
    assert await reader(NotFound(status=404)).read(PODS, "x") == []
    objects = await reader({}).read(PODS, "x")
    assert objects is not None
    assert [(each["kind"], each["apiVersion"]) for each in objects] == [("Pod", "v1")]


async def test_where_something_may_not_be_read_is_told() -> None:
    found = reader(Forbidden(status=403))
    await found.read_all(PODS, everywhere=True)
    await found.read_all(NODES)
    assert {each.what: each.text for each in found.unread} == {
        "pods": "you have no right to list them in all namespaces",
        "nodes": "you have no right to list them",
    }
    with pytest.raises(Unauthorized):
        await reader(Unauthorized(status=401)).read_all(PODS)


async def test_what_is_read_is_bounded() -> None:
    found = reader(None)
    assert len(await found.read_all(PODS) or ()) == MOST
    assert found.unread[0].text == f"there are more than {MOST} of them; the first were read"
    assert found.has_more(PODS)
    assert not found.has_more(NODES)
