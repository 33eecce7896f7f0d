"""What a line of `kubectl get pods` says of a pod: how much of it is ready, what it does, how often it was restarted.

- While init containers have something to do, that is what the status tells: `Init:0/1`, `Init:Error`. Their restarts
  count until then.
- Afterwards it is what the first container that has not simply run says; `Completed` beside others that run is no end.
- Sidecars count as containers.
"""

from __future__ import annotations

from datetime import datetime

from trainmaster.devcluster.apiserver.registry.times import age
from trainmaster.runtime.jsontree import JsonObject

_TERMINAL = ("Succeeded", "Failed")


def readiness(pod: JsonObject) -> str:
    """Return how many containers are ready, of how many."""
    sidecars = _sidecars(pod)
    ready = [each for each in _main(pod) if each.get("ready") and "running" in _state(each)]
    ready += [each for each in _init(pod) if each["name"] in sidecars and each.get("ready") and each.get("started")]
    return f"{len(ready)}/{len(pod['spec']['containers']) + len(sidecars)}"


def state(pod: JsonObject) -> str:
    """Return the status in a word or two."""
    status = pod.get("status", {})
    phase: str = status.get("phase", "Unknown")
    if "deletionTimestamp" in pod["metadata"] and phase not in _TERMINAL:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    text: str = status.get("reason") or phase
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            text = "SchedulingGated"
    pending = _pending_init(pod)
    if pending is not None:
        text = _init_state(pod, pending)
    return text if pending is not None and not _holds(pod, "Initialized") else _main_state(pod, text)


def restarts(pod: JsonObject, now: datetime) -> str:
    """Return the number of restarts, and how long the last one is past."""
    sidecars = _sidecars(pod)
    if _pending_init(pod) is not None and not _holds(pod, "Initialized"):
        counted = _init(pod)
    else:
        counted = [*(each for each in _init(pod) if each["name"] in sidecars), *_main(pod)]
    number = sum(each.get("restartCount", 0) for each in counted)
    ended = [((each.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for each in counted]
    last = max(filter(None, ended), default=None)
    return f"{number} ({age(last, now)} ago)" if number and last else str(number)


def _main(pod: JsonObject) -> list[JsonObject]:
    return pod.get("status", {}).get("containerStatuses") or []


def _init(pod: JsonObject) -> list[JsonObject]:
    return pod.get("status", {}).get("initContainerStatuses") or []


def _sidecars(pod: JsonObject) -> set[str]:
    return {each["name"] for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always"}


def _state(container: JsonObject) -> JsonObject:
    return container.get("state") or {}


def _holds(pod: JsonObject, condition: str) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _pending_init(pod: JsonObject) -> int | None:
    """Return the number of the first init container that is not done; None if all are."""
    sidecars = _sidecars(pod)
    for number, container in enumerate(_init(pod)):
        ended = _state(container).get("terminated")
        done = ended is not None and ended.get("exitCode") == 0
        if not done and not (container["name"] in sidecars and container.get("started")):
            return number
    return None


def _init_state(pod: JsonObject, number: int) -> str:
    now = _state(_init(pod)[number])
    if (ended := now.get("terminated")) is not None:
        return f"Init:{_ending(ended)}"
    waiting = (now.get("waiting") or {}).get("reason")
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{number}/{len(pod['spec'].get('initContainers') or ())}"


def _main_state(pod: JsonObject, text: str) -> str:
    running = False
    for container in reversed(_main(pod)):
        now = _state(container)
        if waiting := (now.get("waiting") or {}).get("reason"):
            text = waiting
        elif (ended := now.get("terminated")) is not None:
            text = _ending(ended)
        elif container.get("ready") and "running" in now:
            running = True
    if text == "Completed" and running:
        return "Running" if _holds(pod, "Ready") else "NotReady"
    return text


def _ending(ended: JsonObject) -> str:
    if reason := ended.get("reason"):
        return str(reason)
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
