"""What the metrics of a manager tell, read through the API server's proxy to its pod, as far as that is allowed.

The API server does not pass tokens on. So a manager that asks who reads its metrics, as the manifests have it, refuses
this, and that is told; `metrics.auth.enabled: false` opens them to whoever reaches its port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from trainmaster.controller.cli.responses import error_lines
from trainmaster.controller.cli.top.cluster.managers import ManagerMetrics
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, KubeError, from_response
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.runtime.jsontree import JsonObject

_DEPTH: Final = "workqueue_depth"
_RECONCILES: Final = "controller_runtime_reconcile_total"
_ERRORS: Final = "controller_runtime_reconcile_errors_total"
_READ: Final = (_DEPTH, _RECONCILES, _ERRORS)

_PORT_NAME: Final = "metrics"
_USUAL_PORTS: Final = (("https", 8443), ("http", 8080))
_TIMEOUT: Final = 5.0
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


async def read_pod(client: KubeClient, pod: JsonObject) -> ManagerMetrics | str:
    """Return the metrics of a manager in a pod, or why they cannot be read."""
    metadata, refusal = pod["metadata"], ""
    for scheme, port in _ports(pod):
        name = f"{scheme}:{metadata['name']}:{port}"
        path = f"{PODS.path(metadata['namespace'])}/{name}/proxy/metrics"
        try:
            status, headers, body = await client.raw("GET", path, accept="*/*")
        except KubeError as error:
            refusal = refusal or str(error)
            continue
        if status == 200:
            return parse(body.decode(errors="replace"))
        refusal = _refusal(from_response(status, headers, body, request=f"GET {path}", source=""), metadata)
        if status in {401, 403}:
            return refusal
    return refusal or "its pod has no port for metrics"


async def read_url(url: str) -> ManagerMetrics | str:
    """Return the metrics at a URL on this machine, or why they cannot be read."""
    if urlsplit(url).hostname not in _LOOPBACK:
        return "they are on another machine"
    try:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=False) as response:
            if response.status != 200:
                return f"{url} answers {response.status}"
            body = await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return f"{url}: {str(error) or 'no answer'}"
    return parse(body.decode(errors="replace"))


def parse(text: str) -> ManagerMetrics | str:
    """Read the text of the metrics; an error if it is none."""
    lines = [line for line in text.splitlines() if line.startswith(_READ)]
    if not lines:
        return "it has no metrics of a controller"
    try:
        samples = list(_samples(lines))
    except ValueError as error:
        return f"its metrics cannot be read: {error}"
    return ManagerMetrics(
        queue_depth=_sum(samples, _DEPTH),
        reconciles=_sum(samples, _RECONCILES),
        reconcile_errors=_sum(samples, _ERRORS),
    )


def _samples(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            yield sample.name, sample.value


def _sum(samples: Iterable[tuple[str, float]], name: str) -> int:
    return int(sum(value for each, value in samples if each == name))


def _ports(pod: JsonObject) -> Sequence[tuple[str, int]]:
    """Return by which schemes and at which ports the metrics may be, the likeliest first."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    named = [
        port["containerPort"]
        for container in containers
        for port in container.get("ports") or ()
        if port.get("name") == _PORT_NAME
    ]
    if named:
        return [(scheme, named[0]) for scheme in ("https", "http")]
    return _USUAL_PORTS


def _refusal(error: ApiError, metadata: JsonObject) -> str:
    if error.reason == "Forbidden":
        return f"no permission; grant the verb get on pods/proxy in namespace {metadata['namespace']}"
    if error.status in {401, 403}:
        return "the manager asks who reads them (metrics.auth), and the API server's proxy does not tell it"
    return error_lines(error)[0]
