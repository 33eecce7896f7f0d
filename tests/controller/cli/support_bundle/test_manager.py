"""The pages of a manager, by way of an API server that leads to its pods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web
from support.http import listening

from trainmaster.controller.cli.support_bundle.bundle import Bundle
from trainmaster.controller.cli.support_bundle.manager import gather_pages
from trainmaster.controller.cli.support_bundle.reading import Reading
from trainmaster.controller.cli.support_bundle.redaction import Redactor
from trainmaster.controller.configuration import parse_configuration
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig

HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}


async def pages(
    answers: Mapping[str, tuple[int, str]], *, token: str = "", **sections: Any
) -> tuple[dict[str, bytes], dict[str, str]]:
    """What is gathered of two pods, and why the rest is not, if a server answers so."""

    async def answer(request: web.Request) -> web.Response:
        status, text = answers.get(request.path, (404, ""))
        if token and request.headers.get("X-Trainmaster-Authorization") != f"Bearer {token}":
            status = 401
        return web.Response(status=status, text=text)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    bundle = Bundle(datetime.now(UTC))
    async with listening(app) as port:
        access = RestConfig(server=f"http://127.0.0.1:{port}")
        async with KubeClient(access, user_agent="tests", tries=1) as client:
            configuration = parse_configuration({**HEAD, **sections})
            await gather_pages(Reading(client, bundle), "kubeflow", ["a", "b"], configuration, token=token)
    files = dict(bundle.written(Redactor()))
    index = orjson.loads(files.pop("index.json"))
    return files, {each["what"]: each["reason"] for each in index["missing"]}


PODS = "/api/v1/namespaces/kubeflow/pods"


async def test_metrics_and_pages_of_each_pod() -> None:
    answers = {
        f"{PODS}/http:{pod}:9100/proxy/{path}": (200, f"{path} of {pod}")
        for pod in "ab"
        for path in ("metrics", "debug/tasks", "debug/leader")
    }
    files, missing = await pages(
        answers,
        metrics={"bindAddress": "127.0.0.1:9100", "secureServing": False},
        enableDebuggingHandlers=True,
    )
    assert files["manager/kubeflow/pages/a/metrics.txt"] == b"metrics of a"
    assert files["manager/kubeflow/pages/b/debug/tasks"] == b"debug/tasks of b"
    assert files["manager/kubeflow/pages/b/debug/leader"] == b"debug/leader of b"
    assert "404" in missing["manager/kubeflow/pages/a/debug/threads"]


async def test_a_token_opens_what_is_closed_and_where_one_is_not_let_in_nothing_more_is_asked() -> None:
    # Where one is not let in nothing more is asked of that pod.
    answers = {
        f"{PODS}/https:a:8443/proxy/metrics": (401, ""),
        f"{PODS}/https:b:8443/proxy/metrics": (200, "some"),
    }
    files, missing = await pages(answers, metrics={"auth": {"enabled": True}}, enableDebuggingHandlers=True)
    assert list(files) == ["manager/kubeflow/pages/b/metrics.txt"]
    assert "401" in missing["manager/kubeflow/pages/a/metrics.txt"]
    assert not any("/a/debug" in each for each in missing)
    # A token that is given is shown on the way that the proxy leaves open.
    answers = {f"{PODS}/https:{pod}:8443/proxy/metrics": (200, "some") for pod in "ab"}
    files, _ = await pages(answers, token="t0ken-of-a-reader", metrics={"auth": {"enabled": True}})
    assert list(files) == ["manager/kubeflow/pages/a/metrics.txt", "manager/kubeflow/pages/b/metrics.txt"]


async def test_what_is_switched_off_is_told() -> None:
    _, missing = await pages({}, metrics={"bindAddress": "0"})
    assert missing["metrics of the manager in namespace kubeflow"] == "metrics.bindAddress is 0"
    _, missing = await pages({})
    assert missing["/debug/ of the manager"] == "enableDebuggingHandlers is false"
