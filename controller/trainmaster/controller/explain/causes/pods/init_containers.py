"""InitContainerFailed: init containers that do not end; of those that fail, `failures.containers` knows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.evidence import one_line, spec_of, waiting_pods, who
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, parse_time, reference_to
from trainmaster.controller.explain.state import PATIENCE
from trainmaster.controller.explain.view import JobView, kubectl
from trainmaster.runtime.jsontree import JsonObject


def init_container_runs(view: JobView) -> Iterator[Finding]:
    """Find init containers that have been running for a while, and for which the others of their pods wait."""
    by_name: dict[str, list[tuple[datetime, JsonObject]]] = {}
    for pod in waiting_pods(view):
        running = running_init_container(pod)
        if running is not None and view.now - running[1] > PATIENCE:
            by_name.setdefault(running[0], []).append((running[1], pod))
    for name, found in by_name.items():
        first, pods = found[0][1], [pod for _, pod in found]
        about = reference_to({"kind": "Pod", **first})
        text = f"{who(pods)}: init container {name} still runs, and the others start when it has ended"
        evidence = [Evidence(about, text, found[0][0])]
        lines = next((lines for pod in pods if (lines := view.log_of(pod, name))), ())
        if said := next((line for line in reversed(lines) if line.strip()), ""):
            evidence.append(Evidence(about, f"it said last: {one_line(said)}"))
        advice = [f"see what it waits for: {kubectl(view, 'logs', first['metadata']['name'], '-c', name)}"]
        yield Finding(Cause.INIT_CONTAINER_FAILED, Certainty.LIKELY, evidence, min(since for since, _ in found), advice)


def running_init_container(pod: JsonObject) -> tuple[str, datetime] | None:
    """Return the name of the init container that runs, and since when; sidecars do not count."""
    beside = [
        each.get("name") for each in spec_of(pod).get("initContainers") or () if each.get("restartPolicy") == "Always"
    ]
    for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
        since = parse_time(((status.get("state") or {}).get("running") or {}).get("startedAt"))
        if since is not None and status.get("name") not in beside:
            return str(status["name"]), since
    return None
