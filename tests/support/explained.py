"""`trainmaster doctor` and `explain`, asked in this process."""

import functools
import json
from pathlib import Path
from typing import Any

from support.job_faces import agreed, explanation
from support.stack import Stack
from support.training import runtime, until

from trainmaster.controller.cli.doctor.checks import look
from trainmaster.controller.configuration import Configuration, complete, parse_configuration
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject


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
    return await agreed(home, name, namespace)


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
