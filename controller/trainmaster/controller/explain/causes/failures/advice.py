"""What to do about a container that failed: by cause, exit code and what it said last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from trainmaster.controller.container_failures import LOST_A_PEER, ContainerFailure
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.last_said import clients_joined, unresolved_host
from trainmaster.controller.explain.view import JobView, kubectl, trainmaster
from trainmaster.runtime.quantity import Quantity, QuantityError

READ_ITS_LOG: Final = "read its log"
"""With what the advice begins that helps only while the pod is there."""

_START_ERRORS: Final = frozenset({"StartError", "ContainerCannotRun"})
_NOT_FOUND: Final = (126, 127)
_DEVICE_MEMORY: Final = re.compile(
    r"CUDA out of memory|OutOfMemoryError|RESOURCE_EXHAUSTED|HIP out of memory|cudaErrorMemory"
)
_MISSING_MODULE: Final = re.compile(r"(?:(?:ModuleNotFoundError|ImportError): |python\S*: )No module named '?([\w.]+)")
_PORT_TAKEN: Final = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)
_DISK_FULL: Final = re.compile(r"No space left on device|ENOSPC|Disk quota exceeded")
_SEGFAULT, _ABORT, _BUS, _KILLED = 139, 134, 135, 137
_DNS: Final = ("get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns")


def advice_for(
    view: JobView, cause: Cause, failure: ContainerFailure, *, limit: str, lines: Sequence[str]
) -> Sequence[str]:
    """Return what to do, a line each; none where the cause says all there is to say.

    Args:
        view: The job.
        cause: Why the container failed.
        failure: How it failed.
        limit: Its limit of memory; empty if it has none.
        lines: The last that it said.
    """
    if cause is Cause.OUT_OF_MEMORY:
        return _more_memory(view, limit)
    if cause is Cause.INIT_CONTAINER_FAILED:
        return _initializer(view, failure, lines)
    if cause is Cause.NAME_RESOLUTION_FAILED:
        return _names(view, lines)
    if cause is Cause.RENDEZVOUS_TIMEOUT:
        return _rendezvous(view, lines)
    if cause is Cause.CONTAINER_FAILED:
        return _program(view, failure, lines)
    return ()


def run_again(view: JobView) -> Sequence[str]:
    """Return what is left to do where a pod is gone, and its log with it; or may not be seen."""
    if view.pods is None and not view.is_deleted:
        return [f"{READ_ITS_LOG}: {trainmaster(view, 'logs')}"]
    again = "its pod is gone, and its log too: run it again, and follow it"
    again += "" if view.is_deleted else f": {trainmaster(view, 'restart')}"
    return [again] if view.is_trainjob else [again, "runPolicy.cleanPodPolicy: None keeps pods and logs after the end"]


def _more_memory(view: JobView, limit: str) -> Sequence[str]:
    where = "spec.trainer.resourcesPerNode.limits" if view.is_trainjob else "the limits of the container"
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
    advice = [f"{READ_ITS_LOG}: {kubectl(view, 'logs', failure.pod, '-c', failure.container)}"]
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
    return [
        f"see whether {about} is the name of a rank of this job, and whether the pod of that rank runs",
        f"see whether the cluster's DNS answers: {kubectl(view, *_DNS, namespaced=False)}",
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


def _program(view: JobView, failure: ContainerFailure, lines: Sequence[str]) -> Sequence[str]:
    log = f"{READ_ITS_LOG}: {trainmaster(view, 'logs')}"
    text = "\n".join(lines)
    if failure.reason in _START_ERRORS or failure.exit_code in _NOT_FOUND:
        where = "trainer.command, or the command of the runtime" if view.is_trainjob else "the command of the container"
        return [f"correct the command, or use an image that has the program: {where}"]
    if missing := _MISSING_MODULE.search(text):
        return [
            f"correct the name {missing[1]}, or install the package that has it: in the image, or as the command begins"
        ]
    if _DEVICE_MEMORY.search(text):
        return [
            "a GPU has too little memory: smaller batches, mixed precision, or a model that is spread over more GPUs"
        ]
    if _PORT_TAKEN.search(text):
        return [
            "another process of the pod, or with hostNetwork of the node, has the port: give one of them another",
            log,
        ]
    if _DISK_FULL.search(text):
        return ["make room on the volume to which it writes, or write less: fewer checkpoints, a larger claim", log]
    if LOST_A_PEER.search(failure.message):
        return [
            f"it lost another rank: see which one ended first, and why: {trainmaster(view, 'logs', '--all')}",
            "if that had done its work, let all ranks take the same number of steps: their shares of the data differ",
        ]
    if failure.exit_code == _KILLED:
        nodes = kubectl(view, "describe", "nodes", namespaced=False)
        return [
            f"nobody says who killed it; mostly it is the kernel, of a node that runs out of memory: {nodes}",
            "give the container a limit of memory: then Kubernetes tells when it needs more",
            log,
        ]
    if failure.exit_code in (_SEGFAULT, _ABORT, _BUS):
        return [
            log,
            "native code crashed: a full /dev/shm, or versions of libraries that do not fit, are common reasons",
        ]
    return [log]
