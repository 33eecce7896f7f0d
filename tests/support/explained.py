"""`trainmaster doctor` and `explain`, asked in this process."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from support.commands import trainmaster
from support.stack import Stack
from support.training import runtime, until

from trainmaster.controller.cli.doctor.checks import look
from trainmaster.controller.configuration import Configuration, complete, parse_configuration
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject


async def explanation(home: Path, name: str, namespace: str = "default") -> JsonObject:
    """What the command says of a job, as JSON."""
    done = await trainmaster("explain", name, "--namespace", namespace, "--output", "json", cwd=home)
    assert done.code == 0, done.err
    said: JsonObject = json.loads(done.out)
    return said


async def explained(
    home: Path, name: str, cause: str, *words: str, namespace: str = "default", among: int = 1
) -> JsonObject:
    """Wait until a cause comes first, with certain words in its evidence or its advice; returns the explanation.

    Args:
        home: Where the cluster is at home.
        name: The job.
        cause: The cause.
        words: What evidence and advice have to say, somewhere.
        namespace: Of the job.
        among: Among how many of the first it has to be.
    """
    last: JsonObject = {}

    async def found() -> bool:
        last.update(await explanation(home, name, namespace))
        return any(each["cause"] == cause and says(each, *words) for each in last["causes"][:among])

    try:
        await until(found)
    except TimeoutError:
        shown = json.dumps({"state": last.get("state"), "causes": last.get("causes")}, indent=1)
        raise AssertionError(f"{cause} with {words} is not among the first {among}: {shown}") from None
    await _told_alike(home, name, namespace)
    return last


async def _told_alike(home: Path, name: str, namespace: str) -> None:
    """Wait until tables say of a job what explain says: its state, its restarts, and no cause that it does not know.

    They look at less, so the first cause may be another one or none.
    """
    told: dict[str, Any] = {}

    async def agree() -> bool:
        said = await explanation(home, name, namespace)
        told["explain"] = said["state"]["name"], str(said["restarts"]), [each["cause"] for each in said["causes"]]
        listed = (await trainmaster("list", "-n", namespace, cwd=home)).out.splitlines()[1:]
        cells = [cells for cells in map(str.split, listed) if cells[1] == said["job"]["name"]]
        shown = json.loads((await trainmaster("top", "--once", "-o", "json", "-n", namespace, cwd=home)).out)
        rows = [each for each in shown["jobs"] if each["name"] == said["job"]["name"]]
        told["list"] = [(each[2], each[5], each[3].strip("-")) for each in cells]
        told["top"] = [(each["state"], str(each["restarts"]), each["cause"] or "") for each in rows]
        state, restarts, causes = told["explain"]
        if said["failedContainer"] is not None:
            causes = [*causes, "ContainerFailed"]  # all that is known without its pod, which may be gone, or its words
        return all(each[:2] == (state, restarts) and each[2] in ("", *causes) for each in told["list"] + told["top"])

    try:
        await until(agree)
    except TimeoutError:
        raise AssertionError(f"{name} is in different states, for different causes or restarts: {told}") from None


def says(finding: JsonObject, *words: str) -> bool:
    """Whether evidence and advice of a cause have these words."""
    said = "\n".join([*(each["text"] for each in finding["evidence"]), *finding["whatNext"]])
    return all(word in said for word in words)


async def delete_runtimes(client: KubeClient, prefix: str) -> None:
    """Delete the ClusterTrainingRuntimes of these names: others read all of a cluster, and not everybody can."""
    for each in (await client.list(CLUSTER_TRAINING_RUNTIMES))["items"]:
        if each["metadata"]["name"].startswith(prefix):
            await client.delete(CLUSTER_TRAINING_RUNTIMES, None, each["metadata"]["name"])


def runtime_with(name: str, *, replicas: JsonObject | None = None, **pod: Any) -> JsonObject:
    """A runtime whose pods have more than those of `runtime`; `container` adds to their container."""
    obj = runtime(name, backoff_limit=pod.pop("backoff_limit", 0), restart_policy=pod.pop("restart_policy", "Never"))
    (node,) = obj["spec"]["template"]["spec"]["replicatedJobs"]
    node["template"]["spec"] |= replicas or {}
    spec = node["template"]["spec"]["template"]["spec"]
    spec["containers"][0] |= {"terminationMessagePolicy": "FallbackToLogsOnError", **pod.pop("container", {})}
    spec |= pod
    return obj


HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
NAMESPACE = "kubeflow"
"""Which every cluster has."""


@functools.cache
def _framework() -> Framework:
    """That of the installed plugins; loading them takes as long as a look at a cluster."""
    return Framework(load_plugins())


async def findings(
    stack: Stack,
    *,
    access: RestConfig | None = None,
    namespace: str = NAMESPACE,
    configuration: Configuration | None = None,
    **sections: Any,
) -> dict[str, list[str]]:
    """What it tells about a cluster with a configuration: `status: message; what next`, by check."""
    given = configuration or parse_configuration({**HEAD, "leaderElection": {"leaderElect": True}, **sections})
    effective = complete(given)
    lines = await look(access or stack.access, effective, _framework(), namespace=namespace)
    found: dict[str, list[str]] = {}
    for line in lines:
        what_next = f"; {line.what_next}" if line.what_next else ""
        found.setdefault(line.check, []).append(f"{line.status}: {line.message}{what_next}")
    return found


async def only_finding(stack: Stack, check: str, **options: Any) -> str:
    """The only line that it tells of a check."""
    (line,) = (await findings(stack, **options))[check]
    return line
