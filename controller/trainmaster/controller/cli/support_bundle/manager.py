"""The manager: what is in its namespace, its configuration, its logs, its metrics and its pages below `/debug/`; and
what an embedded cluster keeps beside its API, in its state directory.

Options of plugins may be anything, so that no text in them is kept.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.cli.config.text import KEY, held_files
from trainmaster.controller.cli.doctor.facts import Unknown, find_managers
from trainmaster.controller.cli.options import MANAGER_NAMESPACE
from trainmaster.controller.cli.probes import DEPLOYMENTS, ENDPOINT_SLICES, SERVICE_ACCOUNTS, read_local, read_page
from trainmaster.controller.cli.rbac import AS_DEPLOYED
from trainmaster.controller.cli.support_bundle.bundle import LOG_LINES, Bundle, Reading, end_of_log
from trainmaster.controller.cli.support_bundle.redaction import Redactor
from trainmaster.controller.configuration import (
    OFF,
    Configuration,
    ConfigurationFile,
    ConfigurationInvalid,
    EffectiveConfiguration,
    complete,
    decode_configuration,
    parse_address,
)
from trainmaster.controller.configuration.loading import merged
from trainmaster.controller.container_failures import container_statuses
from trainmaster.controller.debugging import state
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import (
    CONFIGMAPS,
    EVENTS,
    LEASES,
    PODS,
    SERVICES,
)
from trainmaster.controller.manager.roles import NAME
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import YamlError, load_yaml

_LISTED: Final = (DEPLOYMENTS, SERVICES, SERVICE_ACCOUNTS, ENDPOINT_SLICES, LEASES, CONFIGMAPS, EVENTS)

_LOGS: Final = 20
"""Runs of containers whose logs are read."""

_PAGES: Final = ("tasks", "threads", "cache", "queue", "plugins", "leader", "configuration")
"""Those below `/debug/`; a profile would take its time."""

_LOG_FILES: Final = ("cluster.log", "manager.log")


def add_configuration(
    bundle: Bundle, redactor: Redactor, directory: str, files: Sequence[ConfigurationFile]
) -> EffectiveConfiguration:
    """Add a configuration; returns what is in effect: with none, or with one that is wrong, that of our manifests."""
    deployed = complete(AS_DEPLOYED)
    if not files:
        bundle.lacks(f"{directory}/configuration.json", "no ConfigMap of the configuration was found")
        return deployed
    _add_given(bundle, redactor, directory, files)
    try:
        effective = complete(decode_configuration(files))
    except ConfigurationInvalid as error:
        bundle.lacks(f"{directory}/configuration.json", f"it cannot be used: {error}")
        return deployed
    shown = {
        "inEffect": state.configuration(effective.configuration),
        "featureGates": dict(effective.features),
        "notices": [str(each) for each in effective.notices],
        "problems": [str(each) for each in effective.problems],
    }
    bundle.add(f"{directory}/configuration.json", shown)
    return effective


def _add_given(bundle: Bundle, redactor: Redactor, directory: str, files: Sequence[ConfigurationFile]) -> None:
    """Add what the files say together, without their comments."""
    try:
        given: Any = functools.reduce(merged, (load_yaml(file.text) for file in files))
    except YamlError:
        return  # what is wrong with it has been said
    redactor.learn(given)  # before it is taken out
    plugins = given.get("plugins") if isinstance(given, dict) else None
    if isinstance(plugins, dict) and "options" in plugins:
        plugins["options"] = state.without_texts(plugins["options"])
    bundle.add(f"{directory}/configuration.given.json", given)


async def find_namespaces(reading: Reading, wanted: str | None) -> list[str]:
    """Return the namespaces in which a manager is installed."""
    if wanted:
        return [wanted]
    default = MANAGER_NAMESPACE
    try:
        managers = (await find_managers(reading.client)).value
    except (Unknown, KubeError) as error:
        reading.bundle.lacks("the namespace of the manager", f"{error}; {default} was looked at, see -m")
        return [default]
    found = sorted({str(each["metadata"]["namespace"]) for each in managers})
    if not found:
        reading.bundle.lacks("the manager", f"no Deployment of one is installed; {default} was looked at")
    return found or [default]


async def gather_manager(
    reading: Reading, redactor: Redactor, namespace: str, *, token: str = ""
) -> EffectiveConfiguration:
    """Gather what is in the namespace of a manager, and the logs and pages of its pods; returns its configuration."""
    directory = f"manager/{namespace}"
    found = {kind: await reading.add_listed(f"{directory}/{kind.name}.json", kind, namespace) for kind in _LISTED}
    configuration = next((held_files(each) for each in found[CONFIGMAPS] if KEY in (each.get("data") or {})), [])
    pods: list[JsonObject] = []
    for deployment in filter(_is_manager, found[DEPLOYMENTS]):
        labels = (deployment["spec"].get("selector") or {}).get("matchLabels") or {}
        selector = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
        path = f"{directory}/{PODS.name}.{deployment['metadata']['name']}.json"
        pods += await reading.add_listed(path, PODS, namespace, labels=selector)
    logs = [log for pod in pods for log in _logs(pod)]
    for pod, container, previous in logs[:_LOGS]:
        await _add_log(reading, namespace, pod, container, previous=previous)
    if len(logs) > _LOGS:
        reading.bundle.lacks(f"{len(logs) - _LOGS} more logs in namespace {namespace}", f"{_LOGS} are read at most")
    effective = add_configuration(reading.bundle, redactor, directory, configuration)
    if pods:
        await gather_pages(reading, namespace, pods, effective.configuration, token=token)
    return effective


def _is_manager(deployment: JsonObject) -> bool:
    metadata = deployment["metadata"]
    labels = metadata.get("labels") or {}
    return metadata["name"] == NAME or (
        labels.get("app.kubernetes.io/component") == "manager"
        and labels.get("app.kubernetes.io/name") in ("trainer", "kubeflow-trainer")
    )


def _logs(pod: JsonObject) -> Iterator[tuple[str, str, bool]]:
    """Return the runs of a pod's containers that have logs: pod, container, and whether it is the one before."""
    for status in container_statuses(pod):
        yield pod["metadata"]["name"], status["name"], False
        if status.get("restartCount"):
            yield pod["metadata"]["name"], status["name"], True


async def _add_log(reading: Reading, namespace: str, pod: str, container: str, *, previous: bool) -> None:
    path = f"manager/{namespace}/logs/{pod}/{container}{'.previous' if previous else ''}.log"
    params = {"container": container, "tailLines": str(LOG_LINES), "timestamps": "true"}
    if previous:
        params["previous"] = "true"
    most, kept = reading.bundle.log_bytes, deque[bytes]()
    size = whole = 0
    try:
        async with reading.client.stream(PODS.path(namespace, pod, "log"), params) as chunks:
            async for chunk in chunks:
                kept.append(chunk)
                size += len(chunk)
                whole += len(chunk)
                while size - len(kept[0]) >= most:
                    size -= len(kept.popleft())
    except KubeError as error:
        reading.failed(path, "get", error)
        if not kept:
            return
    content = b"".join(kept)[-most:]
    is_cut = whole > len(content)
    reading.bundle.add(
        path, end_of_log(content, is_cut=is_cut), remark=f"the last {most} bytes of {whole}" if is_cut else ""
    )


async def gather_pages(
    reading: Reading, namespace: str, pods: Sequence[JsonObject], configuration: Configuration, *, token: str = ""
) -> None:
    """Gather what the manager serves: metrics, and pages below `/debug/`, by way of the API server.

    `token` is shown to the manager, by way of the API server. It is one that somebody gave for this: whoever makes a
    pod that looks like a manager gets to see it.
    """
    address = configuration.metrics.bind_address
    if address == OFF:
        reading.bundle.lacks(f"metrics of the manager in namespace {namespace}", "metrics.bindAddress is 0")
        return
    paths = {"metrics": "metrics.txt"}
    if configuration.enable_debugging_handlers:
        paths |= {f"debug/{page}": f"debug/{page}" for page in _PAGES}
    else:
        reading.bundle.lacks("/debug/ of the manager", "enableDebuggingHandlers is false")
    scheme = "https" if configuration.metrics.secure_serving else "http"
    port = parse_address(address)[1]
    for pod in pods:
        for path, file in paths.items():
            added = f"manager/{namespace}/pages/{pod['metadata']['name']}/{file}"
            try:
                page = await read_page(reading.client, pod, path, scheme=scheme, port=port, token=token)
            except KubeError as error:
                reading.failed(added, "get pods/proxy for", error)
                if path == "metrics":
                    break  # nor any other
            else:
                reading.bundle.add(added, page)


def gather_files(bundle: Bundle, redactor: Redactor, directory: Path) -> str | None:
    """Gather the logs of an embedded cluster; returns the configuration file of its manager, if it has one."""
    if token := _read(bundle, directory / "token"):
        redactor.learn_value(token.strip())
    for name in _LOG_FILES:
        _add_log_file(bundle, directory / name)
    return _read(bundle, directory / "manager.yaml")


async def gather_metrics(bundle: Bundle, address: str, *, secure: bool) -> None:
    """Gather the metrics of a manager that serves them on this machine."""
    url = f"{'https' if secure else 'http'}://{address}/metrics"
    try:
        bundle.add("embedded/metrics.txt", await read_local(url))
    except OSError as error:
        bundle.lacks("metrics of the manager", str(error))


def _add_log_file(bundle: Bundle, path: Path) -> None:
    most = bundle.log_bytes
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            text = end_of_log(file.read(), is_cut=size > most)
    except FileNotFoundError:
        bundle.lacks(str(path), "it does not exist")
    except OSError as error:
        bundle.lacks(str(path), error.strerror or str(error))
    else:
        remark = f"the last {most} bytes of {size}" if size > most else ""
        bundle.add(f"embedded/{path.name}", text, remark=remark)


def _read(bundle: Bundle, path: Path) -> str | None:
    """Read a small file, if it is there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        bundle.lacks(str(path), error.strerror or str(error))
        return None
