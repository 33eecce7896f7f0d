"""What to do about a container that failed: by cause, exit code and what it said last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from trainmaster.controller.container_failures import NOT_STARTED, ContainerFailure
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.last_said import (
    clients_joined,
    missing_module,
    said_cause,
    unresolved_host,
)
from trainmaster.controller.explain.view import JobView, kubectl, resource_field, trainmaster
from trainmaster.controller.last_words import failed_rank
from trainmaster.runtime.api.constants import LAUNCHER
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError

READ_ITS_LOG: Final = "read its log"
"""With what the advice begins that helps only while the pod is there."""

_START_ERRORS: Final = frozenset({"StartError", "ContainerCannotRun"})
_NOT_FOUND: Final = (126, 127)
_NEEDS: Final = re.compile(r"needs (\S+):")
_KILLED: Final = 137
_DNS: Final = ("get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns")


def advice_for(view: JobView, cause: Cause, failure: ContainerFailure, *, lines: Sequence[str]) -> Sequence[str]:
    """Return what to do, a line each; none where the cause says all there is to say.

    Args:
        view: The job.
        cause: Why the container failed.
        failure: How it failed.
        lines: The last that it said.
    """
    if cause is Cause.OUT_OF_MEMORY:
        return _more_memory(view, failure.memory_limit)
    if cause is Cause.INIT_CONTAINER_FAILED:
        return _initializer(view, failure, lines)
    if cause is Cause.NAME_RESOLUTION_FAILED:
        return _names(view, lines)
    if cause is Cause.COLLECTIVE_TIMEOUT:
        return _collective(view)
    if cause is Cause.RENDEZVOUS_TIMEOUT:
        return _rendezvous(view, lines)
    if cause is Cause.CONTAINER_FAILED:
        return _program(view, failure, lines)
    return ()


def _read_log(view: JobView, failure: ContainerFailure, lines: Sequence[str]) -> str:
    """Return the advice to read the log of a container, with the command."""
    previous = ["--previous"] if failure.superseded else []
    if not view.is_trainjob:
        return f"{READ_ITS_LOG}: {trainmaster(view, 'logs', '--all', *previous)}"
    if failure.rank is None and failure.replicated_job != LAUNCHER:
        return f"{READ_ITS_LOG}: {kubectl(view, 'logs', failure.pod, '-c', failure.container, *previous)}"
    first = failed_rank("\n".join(lines))
    if first is None or first not in (failure.ranks or ()):
        first = failure.ranks.start if failure.ranks else failure.rank
    rank = ["--rank", str(first)] if first else []
    return f"{READ_ITS_LOG}: {trainmaster(view, 'logs', *rank, *previous)}"


def run_again(view: JobView) -> Sequence[str]:
    """Return what is left to do where a pod is gone, mostly with its log; or may not be seen."""
    if view.former_pods:
        return [f"{READ_ITS_LOG} (of an earlier attempt with --attempt N): {trainmaster(view, 'logs', '--all')}"]
    if view.pods is None and not view.is_deleted:
        return [f"{READ_ITS_LOG}: {trainmaster(view, 'logs')}"]
    again = "its pod is gone, and its log too: run it again, and follow it"
    again += "" if view.is_deleted else f": {trainmaster(view, 'restart')}"
    return [again] if view.is_trainjob else [again, "runPolicy.cleanPodPolicy: None keeps pods and logs after the end"]


def _more_memory(view: JobView, limit: str) -> Sequence[str]:
    where = resource_field(view, "memory", limit=True)
    twice = _doubled(limit)
    more = f"raise the limit of memory ({where}): it is {limit}, {twice} would be twice that" if twice else ""
    other = more or f"give the container a limit, and a request, of the memory that it needs ({where})"
    return [other, "or use less: smaller batches, fewer workers that load data, no copy of the data set in each rank"]


def _doubled(amount: str) -> str:
    try:
        return str(Quantity.parse(amount) * 2)
    except QuantityError:
        return ""


def _initializer(view: JobView, failure: ContainerFailure, lines: Sequence[str]) -> Sequence[str]:
    of = failure.replicated_job or failure.container
    text = "\n".join(lines)
    advice = [_read_log(view, failure, lines)]
    if not view.is_trainjob:
        return advice
    if re.search(r"\b40[13]\b|gated|unauthorized|access .{0,40}restricted|forbidden", text, re.IGNORECASE):
        advice.insert(0, f"give {of} a token that may read what it fetches: spec.initializer, secretRef")
    elif re.search(r"\b404\b|not found|does not exist|no such", text, re.IGNORECASE):
        advice.insert(0, f"correct what {of} fetches: spec.initializer, storageUri")
    return advice


def _names(view: JobView, lines: Sequence[str]) -> Sequence[str]:
    host = unresolved_host(lines)
    services = [] if view.services is None else [service["metadata"]["name"] for service in view.services]
    if host and "." in host and not any(part in (view.name, *services) for part in host.split(".")):
        return [f"see whether pods may reach {host}: egress, a proxy, and the forwarding of the cluster's DNS"]
    if view.services is not None and not services:
        return [
            "the headless Service of the ranks is missing: see whether its controller runs: trainmaster doctor",
        ]
    about = host or "the name"
    if any(_asks_the_node(pod) for pod in view.pods or ()):
        return [
            f"set dnsPolicy: ClusterFirstWithHostNet: with hostNetwork alone pods ask the DNS of their node for {about}"
        ]
    if foreign := [each["metadata"]["name"] for each in view.services or () if _has_address(each)]:
        return [f"rename the job, or delete the Service {foreign[0]}, which has its name and is not its own"]
    return [
        f"see whether {about} is the name of a rank of this job, and whether the pod of that rank runs",
        f"see whether the cluster's DNS answers: {kubectl(view, *_DNS, namespaced=False)}",
    ]


def _has_address(service: JsonObject) -> bool:
    """Tell whether a Service has an address, so that names behind it are not those of nodes."""
    return (service.get("spec") or {}).get("clusterIP") not in (None, "None")


def _asks_the_node(pod: JsonObject) -> bool:
    spec = pod.get("spec") or {}
    return bool(spec.get("hostNetwork")) and spec.get("dnsPolicy") not in ("ClusterFirstWithHostNet", "None")


def _collective(view: JobView) -> Sequence[str]:
    return [
        f"see which rank did not take part, and what it said last: {trainmaster(view, 'logs', '--all')}",
        "let all ranks do the same operations in the same order, and the same number of steps",
    ]


def _rendezvous(view: JobView, lines: Sequence[str]) -> Sequence[str]:
    joined = clients_joined(lines)
    advice = []
    if joined:
        advice.append(f"{joined[0]} of {joined[1]} ranks were there: see why the others started late or not at all")
    return [
        *advice,
        f"see whether all pods ran at that time: {kubectl(view, 'get', 'pods', '-o', 'wide')}",
        "see whether a network policy, a firewall or the wrong network interface keeps ranks apart",
    ]


def _incomplete_runtime(view: JobView, lines: Sequence[str]) -> Sequence[str]:
    """Return what an embedded cluster says that the runtime needs, if it is the program that was not found."""
    notes = [event.note for event in view.events or () if event.reason == "RuntimeIncomplete"]
    return [note for note in notes if (needs := _NEEDS.search(note)) and needs[1] in "\n".join(lines)][:1]


def _program(view: JobView, failure: ContainerFailure, lines: Sequence[str]) -> Sequence[str]:
    has_started = failure.exit_code != NOT_STARTED
    log = [_read_log(view, failure, lines)] if has_started else []
    if (said := said_cause(lines)) is not None and said.advice:
        if view.installation and (module := missing_module(lines)):
            correct = f"correct the name {module}, or install the package that has it"
            return [f"{correct} for the Python of this cluster: {view.installation}"]
        return [said.advice, *log]
    if failure.reason in _START_ERRORS or failure.exit_code in _NOT_FOUND:
        where = "trainer.command, or the command of the runtime" if view.is_trainjob else "the command of the container"
        where = "what trainmaster run was given to run, and its --image" if view.is_made_by_run else where
        return _incomplete_runtime(view, lines) or [
            f"correct the command, or use an image that has the program: {where}"
        ]
    if failure.lost_a_peer:
        return [
            f"it lost another rank: see which one ended first, and why: {trainmaster(view, 'logs', '--all')}",
            "if that had done its work, let all ranks take the same number of steps: their shares of the data differ",
        ]
    if failure.exit_code == _KILLED:
        nodes = kubectl(view, "describe", "nodes", namespaced=False)
        return [
            f"nobody says who killed it; see whether a node ran out of memory: {nodes}",
            "give the container a limit of memory: then Kubernetes tells when it needs more",
            *log,
        ]
    return log or ["do what the message asks for, in the job or in its runtime"]
