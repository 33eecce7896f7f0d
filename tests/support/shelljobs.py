"""TrainJobs that run a shell script on each node, their runtime, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from support.training import runtime as cluster_runtime
from support.training import trainjob as made

from trainmaster.runtime.jsontree import JsonObject


def runtime(name: str, *, nodes: int = 1, **options: Any) -> JsonObject:
    obj = cluster_runtime(name, **options)
    obj |= {"kind": "TrainingRuntime", "metadata": {"name": name}}
    obj["spec"]["mlPolicy"] = {"numNodes": nodes}
    return obj


def trainjob(name: str, script: str, *, runtime: str = "shell", **spec: Any) -> JsonObject:
    reference = {"name": runtime, "kind": "TrainingRuntime"}
    job = made(name, runtimeRef=reference, trainer={"command": ["sh", "-c", script]}, **spec)
    del job["metadata"]["namespace"]
    return job


def write(directory: Path, *objects: JsonObject) -> str:
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path.name
