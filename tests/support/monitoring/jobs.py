"""What is submitted: TrainJobs and jobs of `kubeflow.org/v1` whose pods are shell scripts of a few seconds."""

from __future__ import annotations

from typing import Final

from trainmaster.runtime.jsontree import JsonObject

TEAMS: Final = ("team-vision", "team-speech")
RUNTIMES: Final = ("torch-finetune", "torch-vision", "tabular")
RESTARTING: Final = RUNTIMES[1]
"""Its JobSets are restarted once."""

_TRAINER: Final = "trainer.kubeflow.org/v1alpha1"
_IMAGE: Final = "example.com/train:1.4"

REPORT: Final = """\
import json, math, os, ssl, sys, time, urllib.request
from datetime import datetime, timezone

if os.environ.get("JOB_COMPLETION_INDEX", "0") != "0":
    time.sleep(float(sys.argv[1]))
    sys.exit(int(sys.argv[2]))
trust = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
began, lasts = time.monotonic(), float(sys.argv[1])
while (done := time.monotonic() - began) < lasts:
    loss = 0.3 + 2.1 * math.exp(-4 * done / lasts)
    status = {"progressPercentage": int(100 * done / lasts), "lastUpdatedTime":
              datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "metrics": [{"name": "loss", "value": f"{loss:.4f}"},
                          {"name": "accuracy", "value": f"{1 - loss / 2.6:.4f}"}]}
    token = open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps({"trainerStatus": status}).encode()
    try:
        request = urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], body, headers)
        urllib.request.urlopen(request, context=trust, timeout=10).close()
    except OSError:
        pass
    time.sleep(min(4, max(0.1, lasts - done)))
sys.exit(int(sys.argv[2]))
"""
"""A trainer that reports its progress; its arguments are for how many seconds, and how it ends."""


def namespace(name: str) -> JsonObject:
    """Build a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def runtime(name: str) -> JsonObject:
    """Build a runtime."""
    container = {"name": "node", "image": _IMAGE, "command": ["true"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
    policy: JsonObject = {"numNodes": 1, "torch": {}} if name.startswith("torch") else {"numNodes": 1}
    restarts = {"failurePolicy": {"maxRestarts": 1}} if name == RESTARTING else {}
    return {
        "apiVersion": _TRAINER,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {
            "mlPolicy": policy,
            "template": {"spec": {**restarts, "replicatedJobs": [{"name": "node", "template": job}]}},
        },
    }


def trainjob(
    name: str, team: str, runtime_name: str, script: str, *, nodes: int = 1, gpus: int = 0, reports: bool = False,
    image: str = _IMAGE, **spec: object,
) -> JsonObject:  # fmt: skip
    """Build a TrainJob; its script is one of Python with two arguments if it reports, else one of a shell."""
    command = ["python3", "-c", REPORT, *script.split()] if reports else ["sh", "-c", script]
    trainer: JsonObject = {"numNodes": nodes, "image": image, "command": command}
    if gpus:
        trainer["resourcesPerNode"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {
        "apiVersion": _TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": team},
        "spec": {
            "runtimeRef": {"name": runtime_name, "kind": "ClusterTrainingRuntime"},
            "trainer": trainer,
            **spec,
        },
    }


_REPLICAS: Final = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", "Master"),
    "TFJob": ("tfReplicaSpecs", "tensorflow", "Chief"),
}


def v1_job(kind: str, name: str, team: str, script: str, *, restarts: bool) -> JsonObject:
    """Build a job of `kubeflow.org/v1` with a worker besides its first replica."""
    replicas, container, first = _REPLICAS[kind]
    pod = {"containers": [{"name": container, "image": _IMAGE, "command": ["sh", "-c", script]}]}
    # With the policy ExitCode, 130 is a code that another try may mend.
    replica = {"replicas": 1, "restartPolicy": "ExitCode" if restarts else "Never", "template": {"spec": pod}}
    policy = {"backoffLimit": 2, "ttlSecondsAfterFinished": 60}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": team},
        "spec": {"runPolicy": policy, replicas: {first: replica, "Worker": replica}},
    }
