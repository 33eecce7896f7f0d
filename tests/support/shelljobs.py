"""TrainJobs that run a shell script on each node, their runtime, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from trainmaster.runtime.jsontree import JsonObject


def runtime(name: str, *, nodes: int = 1, restart_policy: str = "Never", backoff_limit: int = 0) -> JsonObject:
    container = {"name": "node", "image": "none", "command": ["true"]}
    pod = {"spec": {"restartPolicy": restart_policy, "containers": [container]}}
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": backoff_limit, "template": pod},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name},
        "spec": {
            "mlPolicy": {"numNodes": nodes},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
        },
    }


def trainjob(name: str, script: str, *, runtime: str = "shell", **spec: Any) -> JsonObject:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"name": runtime, "kind": "TrainingRuntime"},
            "trainer": {"command": ["sh", "-c", script]},
            **spec,
        },
    }


def write(directory: Path, *objects: JsonObject) -> str:
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path.name
