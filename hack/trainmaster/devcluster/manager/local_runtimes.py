"""Which runtimes have on this machine what their images would have, and who uses one that has not.

No image is pulled: a TrainJob trains with the programs and the packages of the environment that the cluster runs in.
What its runtime needs of them follows from the framework that the runtime is labelled with, and from its own command.
Whether it is there is looked up each time, since packages may be installed meanwhile.

A TrainJob that lacks something gets an Event that says what to install. It is not refused, since it may install that
itself, or need it for nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import find
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject

FRAMEWORK_LABEL: Final = "trainer.kubeflow.org/framework"
REASON: Final = "RuntimeIncomplete"

_PROGRAMS: Final = {"torch": ("torchrun", "torch"), "torchtune": ("tune", "torchtune torchao huggingface_hub")}
"""By framework: the program that starts the training, and the packages that bring it."""

_MODULES: Final = {"jax": "jax", "xgboost": "xgboost"}
"""By framework: the package that scripts import."""

_OF_IMAGES: Final = frozenset({"deepspeed", "mlx"})
"""Frameworks whose runtimes name what is in the images of Kubeflow Trainer: an SSH server of the user mpiuser."""

_SSH_CONFIGURATION: Final = "/home/mpiuser/.sshd_config"
_MPI_GUIDE: Final = "examples/mpi (docs/guides/mpi.md)"


def missing_for(runtime: JsonObject) -> str | None:
    """Say what a runtime needs that this machine does not have, and how to get it; None if nothing is missing."""
    framework = (runtime["metadata"].get("labels") or {}).get(FRAMEWORK_LABEL, "")
    if framework in _OF_IMAGES and not Path(_SSH_CONFIGURATION).exists():
        return f"needs {_SSH_CONFIGURATION}, for sshd, which its image has: take a runtime as in {_MPI_GUIDE}"
    if framework in _PROGRAMS:
        program, packages = _PROGRAMS[framework]
        words = json.dumps([each.get("command") for each in _containers(runtime) if each.get("command")])
        # As pods search: what is in the environment of the cluster comes first.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        starts_otherwise = words != "[]" and program not in words
        return (
            None if starts_otherwise or shutil.which(program, path=path) else f"needs {program}: {_install(packages)}"
        )
    if framework in _MODULES:
        package = _MODULES[framework]
        importlib.invalidate_caches()
        return None if importlib.util.find_spec(package) else f"needs {package}: {_install(package)}"
    return None


def _containers(runtime: JsonObject) -> Iterator[JsonObject]:
    for job in (((runtime.get("spec") or {}).get("template") or {}).get("spec") or {}).get("replicatedJobs") or ():
        yield from job["template"]["spec"]["template"]["spec"].get("containers") or ()


def _install(packages: str) -> str:
    return f"{sys.executable} -m pip install {packages}"


def missing_by_runtime(api: Api) -> dict[str, str | None]:
    """Say of each ClusterTrainingRuntime, by name, what it needs that this machine does not have."""
    records = api.list(CLUSTER_TRAINING_RUNTIMES)[0] if api.registry.serves(CLUSTER_TRAINING_RUNTIMES) else []
    return {record.metadata["name"]: missing_for(record.object) for record in records}


class LocalRuntimesController(SingleLoopController):
    """Tells new TrainJobs what their runtimes lack."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._events = EventRecorder(api, "trainmaster-cluster")
        self._loop = ControlLoop("local-runtimes", self._reconcile, api=api)
        self._loop.watch(TRAINJOBS, self._job_changed)

    def _job_changed(self, event: Event) -> None:
        # Once: those that an earlier cluster has known have conditions.
        if event.type == "ADDED" and not (event.record.object.get("status") or {}).get("conditions"):
            self._loop.add(event.key)

    async def _reconcile(self, key: ObjectKey) -> None:
        job = find(self._api, key)
        runtime = None if job is None else self._runtime_of(job)
        if job is None or runtime is None:
            return  # the manager tells of a runtime that is not there
        missing = missing_for(runtime)
        if missing is not None and _concerns(job, runtime):
            name = runtime["metadata"]["name"]
            text = f'runtime "{name}" runs on this machine without its image, and {missing}'
            await self._events.record(job, Note("Warning", REASON, text))

    def _runtime_of(self, job: JsonObject) -> JsonObject | None:
        reference = job["spec"].get("runtimeRef") or {}
        namespaced = reference.get("kind") == "TrainingRuntime"
        resource = TRAINING_RUNTIMES if namespaced else CLUSTER_TRAINING_RUNTIMES
        try:
            return self._api.get(resource, job["metadata"]["namespace"] if namespaced else None, reference["name"])
        except (StatusError, KeyError):
            return None


def _concerns(job: JsonObject, runtime: JsonObject) -> bool:
    """Tell whether a TrainJob needs what its runtime does: its own command may do without, or install it."""
    trainer = job["spec"].get("trainer") or {}
    words = json.dumps([trainer.get("command"), trainer.get("args")])
    if "pip install" in words:
        return False
    program, _ = _PROGRAMS.get((runtime["metadata"].get("labels") or {}).get(FRAMEWORK_LABEL, ""), ("", ""))
    return not trainer.get("command") or program in words
