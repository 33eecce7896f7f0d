"""Write the built-in ClusterTrainingRuntimes, or check with --check that those in deploy/runtimes are up to date.

Names, labels and structure are those that Kubeflow Trainer ships: users' TrainJobs name these runtimes, and the
Kubeflow SDK reads the label `trainer.kubeflow.org/framework`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import yaml

import generator
from trainmaster.runtime.api.constants import (
    ANCESTOR_LABEL,
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME_KIND,
    DATASET_INITIALIZER,
    JOBSET_LABEL,
    MODEL_INITIALIZER,
    NODE,
    TRAINER_ANCESTOR,
)
from trainmaster.runtime.jsontree import JsonObject

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "deploy/runtimes"

RELEASE: Final = "v2.3.0"
"""The release of Kubeflow Trainer whose images the runtimes use."""

TORCH_IMAGE: Final = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"
JAX_IMAGE: Final = "nvcr.io/nvidia/jax:25.10-py3"

FRAMEWORK_LABEL: Final = "trainer.kubeflow.org/framework"
VALIDATION_LABEL: Final = "trainer.kubeflow.org/webhook-validation"
LAUNCHER: Final = "launcher"
WORKSPACE: Final = {"name": "initializer", "mountPath": "/workspace"}


def trainer_image(name: str) -> str:
    """Return an image of Kubeflow Trainer."""
    return f"ghcr.io/kubeflow/trainer/{name}:{RELEASE}"


def replicated_job(
    name: str,
    *,
    step: str | None = None,
    pod: JsonObject | None = None,
    after: tuple[str, ...] = (),
    state: str = "Complete",
    **container: Any,
) -> JsonObject:
    """Return a ReplicatedJob with one container, which is called like the step that it plays."""
    name_of_step = step if step and step != TRAINER_ANCESTOR else NODE
    # The end of the log is what tells everybody why it failed, when its pod is gone as well.
    containers = [{"name": name_of_step, "terminationMessagePolicy": "FallbackToLogsOnError", **container}]
    template: JsonObject = {"spec": {"template": {"spec": {**(pod or {}), "containers": containers}}}}
    if step:
        template = {"metadata": {"labels": {ANCESTOR_LABEL: step}}, **template}
    dependencies = {"dependsOn": [{"name": other, "status": state} for other in after]} if after else {}
    return {"name": name, **dependencies, "template": template}


def runtime(
    name: str,
    framework: str,
    policy: JsonObject,
    *jobs: JsonObject,
    labels: dict[str, str] | None = None,
    **template: Any,
) -> JsonObject:
    """Return a ClusterTrainingRuntime of one node."""
    return {
        "apiVersion": API_VERSION,
        "kind": CLUSTER_TRAINING_RUNTIME_KIND,
        "metadata": {"name": name, "labels": {FRAMEWORK_LABEL: framework, **(labels or {})}},
        "spec": {
            "mlPolicy": {"numNodes": 1, **policy},
            "template": {"spec": {**template, "replicatedJobs": list(jobs)}},
        },
    }


def mpi(framework: str) -> JsonObject:
    """Return a runtime whose launcher trains as well, and reaches the nodes by SSH as the user mpiuser.

    It meets the Pod Security Standard `restricted`. The images of the other runtimes run as root.
    """
    profile = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {"securityContext": {"fsGroup": 1000, **profile}}
    privileges = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container: JsonObject = {
        "image": trainer_image(f"{framework}-runtime"),
        "securityContext": {"runAsUser": 1000, **privileges},
    }
    return runtime(
        f"{framework}-distributed",
        framework,
        {
            "mpi": {
                "numProcPerNode": 1,
                "mpiImplementation": "OpenMPI",
                "sshAuthMountPath": "/home/mpiuser/.ssh",
                "runLauncherAsNode": True,
            }
        },
        replicated_job(
            NODE,
            pod=pod,
            command=["/usr/sbin/sshd"],
            args=["-De", "-f", "/home/mpiuser/.sshd_config"],
            readinessProbe={"tcpSocket": {"port": 2222}, "initialDelaySeconds": 5},
            **container,
        ),
        replicated_job(LAUNCHER, step=TRAINER_ANCESTOR, pod=pod, after=(NODE,), state="Ready", **container),
        network={"publishNotReadyAddresses": True},
        successPolicy={"operator": "All", "targetReplicatedJobs": [LAUNCHER]},
    )


def torchtune(name: str, model: str, config: str, *tokenizer: str) -> JsonObject:
    """Return a runtime that fetches a model and a data set and tunes the one on the other."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
    command = [
        "tune", "run", "--rdzv_endpoint=localhost:29500", "full_finetune_distributed", "--config", config,
        "dataset=torchtune.datasets.instruct_dataset", "dataset.source=parquet",
        "dataset.data_dir=/workspace/dataset/data", "output_dir=/workspace/output",
        *tokenizer, "checkpointer.checkpoint_dir=/workspace/model",
    ]  # fmt: skip
    return runtime(
        f"torchtune-{name}",
        "torchtune",
        {"torch": {}},
        _fetching(DATASET_INITIALIZER, "hf://tatsu-lab/alpaca"),
        _fetching(MODEL_INITIALIZER, model),
        replicated_job(
            NODE,
            step=TRAINER_ANCESTOR,
            after=(DATASET_INITIALIZER, MODEL_INITIALIZER),
            image=trainer_image("torchtune-trainer"),
            command=command,
            resources={"limits": {"nvidia.com/gpu": 2}},
            volumeMounts=[dict(WORKSPACE)],
        ),
        volumeClaimPolicies=[{"templates": [{"metadata": {"name": "initializer"}, "spec": claim}]}],
    )


def _fetching(step: str, source: str) -> JsonObject:
    return replicated_job(
        step,
        step=step,
        image=trainer_image(step),
        env=[{"name": "STORAGE_URI", "value": source}],
        volumeMounts=[dict(WORKSPACE)],
    )


def torch_with_cache() -> JsonObject:
    """Return a runtime that trains from a data cache which the initializer starts."""
    job_name = {
        "name": "TRAIN_JOB_NAME",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{JOBSET_LABEL}']"}},
    }
    initializer = replicated_job(
        DATASET_INITIALIZER,
        step=DATASET_INITIALIZER,
        pod={"serviceAccountName": "kubeflow-trainer-cache-initializer"},
        image=trainer_image(DATASET_INITIALIZER),
        env=[{"name": "CACHE_IMAGE", "value": trainer_image("data-cache")}, job_name],
    )
    return runtime(
        "torch-distributed-with-cache",
        "torch",
        {"torch": {}},
        {"name": initializer.pop("name"), "replicas": 1, **initializer},
        replicated_job(NODE, step=TRAINER_ANCESTOR, after=(DATASET_INITIALIZER,), image=TORCH_IMAGE, env=[job_name]),
        labels={VALIDATION_LABEL: "disabled"},
    )


def runtimes() -> list[JsonObject]:
    """Return all built-in runtimes."""
    llama = "tokenizer.path=/workspace/model/original/tokenizer.model"
    return [
        runtime(
            "torch-distributed", "torch", {"torch": {}}, replicated_job(NODE, step=TRAINER_ANCESTOR, image=TORCH_IMAGE)
        ),
        runtime("jax-distributed", "jax", {"jax": {}}, replicated_job(NODE, step=TRAINER_ANCESTOR, image=JAX_IMAGE)),
        runtime(
            "xgboost-distributed",
            "xgboost",
            {"xgboost": {}},
            replicated_job(NODE, step=TRAINER_ANCESTOR, image=trainer_image("xgboost-runtime")),
        ),
        mpi("deepspeed"),
        mpi("mlx"),
        torchtune("llama3.2-1b", "hf://meta-llama/Llama-3.2-1B-Instruct", "llama3_2/1B_full", llama),
        torchtune("llama3.2-3b", "hf://meta-llama/Llama-3.2-3B-Instruct", "llama3_2/3B_full", llama),
        torchtune(
            "qwen2.5-1.5b",
            "hf://Qwen/Qwen2.5-1.5B-Instruct",
            "qwen2_5/1.5B_full",
            "tokenizer.path=/workspace/model/vocab.json",
            "tokenizer.merges_file=/workspace/model/merges.txt",
        ),
        torch_with_cache(),
    ]


def files() -> dict[Path, str]:
    """Return the text of each generated file."""
    header = "# Generated by hack/generate_runtimes.py. Do not edit.\n"
    return {
        TARGET / f"{obj['metadata']['name']}.yaml": header
        + yaml.dump(obj, Dumper=generator.Dumper, sort_keys=False, width=120)
        for obj in runtimes()
    }


def main() -> int:
    """Run the command; the exit status is 1 if --check finds a difference."""
    return generator.write(files(), check=generator.parser(__doc__).parse_args().check)


if __name__ == "__main__":
    sys.exit(main())
