"""Converted jobs: the recorded ones of Training Operator V1, what they become, and what its pods see."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from support.resolutions import FRAMEWORK, jobset

from trainmaster.controller.cli.files.manifests import scan_manifests
from trainmaster.controller.cli.files.offline import OfflineValidation
from trainmaster.controller.cli.printers import to_yaml
from trainmaster.runtime.api.trainingruntime import TrainingRuntime
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.conversion import training_operator
from trainmaster.runtime.conversion.notes import Conversion
from trainmaster.runtime.conversion.training_operator import KINDS
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject, copy_tree

RECORDED_FILE = Path(__file__).parents[1] / "runtime/conversion/recorded.yaml"
GANG_SCHEDULERS = {"volcano": "volcano", "scheduler-plugins": "scheduler-plugins-scheduler"}
"""The gang scheduler of each profile that has one."""


JOB_KINDS = {kind.kind: kind for kind in load_job_kinds() if kind.kind in KINDS}
"""The kinds of jobs, as Trainmaster runs them."""


def convert_job(obj: JsonObject, *, gang_scheduler: str = "") -> Conversion:
    """What a job becomes."""
    return training_operator.convert_job(JOB_KINDS[obj["kind"]], obj, gang_scheduler=gang_scheduler)


@functools.cache
def recorded() -> dict[str, JsonObject]:
    """The recorded jobs by the names of their cases."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {case["name"]: case for case in yaml.load(RECORDED_FILE.read_text(), Loader=loader)}


def converted(case: JsonObject) -> Conversion:
    """What a recorded job becomes."""
    return convert_job(case["job"], gang_scheduler=GANG_SCHEDULERS.get(case["profile"], ""))


def problems(objects: Any, directory: Path) -> list[str]:
    """What a cluster with Trainmaster would refuse of these objects."""
    file = directory / "converted.yaml"
    file.write_text("---\n".join(map(to_yaml, objects)))
    validation = OfflineValidation(scan_manifests([str(file)]), FRAMEWORK, namespace="default")
    assert len(validation.validated) == len(objects)
    return [str(each) for each in validation.diagnostics if each.severity == "error"]


def built(conversion: Conversion) -> JsonObject:
    """The JobSet of a converted job."""
    runtime, trainjob = conversion.objects
    return jobset(TrainJob.model_validate(trainjob), TrainingRuntime.model_validate(runtime))


def pods(obj: JsonObject) -> Iterator[tuple[str, JsonObject, dict[str, str]]]:
    """Each pod of a JobSet: its host name, its spec, and the fields that variables can refer to."""
    name, total = obj["metadata"]["name"], 0
    for job in obj["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        for replica in range(job.get("replicas", 1)):
            for index in range(spec.get("parallelism", 1)):
                labels = spec["template"].get("metadata", {}).get("labels", {})
                fields = {f"metadata.labels['{key}']": value for key, value in labels.items()} | {
                    "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
                    "metadata.annotations['jobset.sigs.k8s.io/job-global-index']": str(total),
                    "metadata.labels['jobset.sigs.k8s.io/job-index']": str(replica),
                    "metadata.labels['jobset.sigs.k8s.io/jobset-name']": name,
                    "status.podIP": "POD_IP",
                    "metadata.name": "POD_NAME",
                }
                yield f"{name}-{job['name']}-{replica}-{index}.{name}", spec["template"]["spec"], fields
            total += 1


def environment(container: JsonObject, fields: dict[str, str]) -> dict[str, str]:
    """The variables of a container as its process sees them: `$(NAME)` stands for what was set before."""
    seen: dict[str, str] = {}
    for variable in container.get("env", []):
        if "value" in variable or "valueFrom" not in variable:
            text = variable.get("value", "")
            seen[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda found: seen.get(found[1], found[0]), text)
        else:
            source = variable["valueFrom"]
            known = "fieldRef" in source
            seen[variable["name"]] = fields[source["fieldRef"]["fieldPath"]] if known else str(source)
    return seen


MAPS = {kind: each.replica_specs_field for kind, each in JOB_KINDS.items()}
"""The field of the replicas of each kind."""


def replicas(
    kind: str, count: int = 1, *, policy: str | None = None, pod: JsonObject | None = None, **container: Any
) -> JsonObject:
    """Replicas of one type, with the container that trains."""
    main = {"name": JOB_KINDS[kind].container_name, "image": "image:1", **container}
    found: JsonObject = {"replicas": count, "template": {"spec": {"containers": [main], **(pod or {})}}}
    return found | ({"restartPolicy": policy} if policy else {})


def job(kind: str, types: JsonObject, *, run_policy: JsonObject | None = None, **spec: Any) -> JsonObject:
    """A job."""
    policy = {"runPolicy": run_policy} if run_policy is not None else {}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "demo", "namespace": "team"},
        "spec": {MAPS[kind]: types, **policy, **spec},
    }


def simple(kind: str = "JAXJob", count: int = 2, **more: Any) -> JsonObject:
    """A job with replicas of one type."""
    type_ = {"XGBoostJob": "Master", "MPIJob": "Launcher"}.get(kind, "Worker")
    return job(kind, {type_: replicas(kind, 1 if type_ != "Worker" else count)}, **more)


def runtime_of(conversion: Conversion) -> JsonObject:
    """The spec of the runtime."""
    spec: JsonObject = conversion.objects[0]["spec"]
    return spec


def trainjob_of(conversion: Conversion) -> JsonObject:
    """The spec of the TrainJob."""
    spec: JsonObject = conversion.objects[1]["spec"]
    return spec


def groups_of(conversion: Conversion) -> dict[str, JsonObject]:
    """The ReplicatedJobs by their names."""
    return {each["name"]: each for each in runtime_of(conversion)["template"]["spec"]["replicatedJobs"]}


def job_spec(conversion: Conversion, group: str = "node") -> JsonObject:
    """The spec of a Job."""
    spec: JsonObject = groups_of(conversion)[group]["template"]["spec"]
    return spec


def lost(conversion: Conversion) -> list[str]:
    """The paths of what has no equivalent."""
    return [note.path for note in conversion.notes if note.lost]


def told(conversion: Conversion) -> list[str]:
    """The paths of what is told and kept."""
    return [note.path for note in conversion.notes if not note.lost]


def new_host(jobset: JsonObject, job: JsonObject, old: str) -> str:
    """The host that has the role of a pod of V1, by the documented rules."""
    name = job["metadata"]["name"]
    groups = {each["name"]: each for each in jobset["spec"]["replicatedJobs"]}
    type_, _, number = old.removeprefix(f"{name}-").partition("-")
    index = int(number or 0)
    specs = next(value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    if type_ == "launcher":
        return f"{name}-launcher-0-0.{name}"
    if job["kind"] == "MPIJob":
        return f"{name}-node-0-{index}.{name}"
    if set(groups) == {"node"}:
        rank = index + (1 if type_ == "worker" and "Master" in specs else 0)
        return f"{name}-node-0-{rank}.{name}"
    if job["kind"] == "PaddleJob" and type_ == ("master" if "Master" in specs else "worker"):
        others = "server" if "Master" in specs else "worker"
        return f"{name}-master-0-0.{name}" if index == 0 else f"{name}-{others}-0-{index - 1}.{name}"
    if job["kind"] in ("PyTorchJob", "XGBoostJob"):
        return f"{name}-{type_}-{index}-0.{name}"
    return f"{name}-{type_}-0-{index}.{name}"


def expected_environment(
    seen: dict[str, object], hosts: dict[str, str], fields: dict[str, str], *, is_torch: bool
) -> dict[str, str]:
    """What V1 set, in the names of the JobSet."""
    wanted = {}
    for variable, value in seen.items():
        if variable.startswith(("OMPI_", "PRTE_", "I_MPI_")):
            continue  # these are of the way to the workers, which is ssh now
        if isinstance(value, dict):
            wanted[variable] = fields[value["fieldRef"]["fieldPath"]]
            continue
        text = str(value).replace("$(POD_IP_DUMMY)", fields["status.podIP"])
        for old, new in hosts.items():
            text = re.sub(rf"(?<![\w-]){re.escape(old)}(?:\.[A-Za-z0-9-]*\.svc)?(?![\w.-])", new, text)
        wanted[variable] = text
    if "PET_MASTER_PORT" in wanted and is_torch:
        wanted["PET_MASTER_PORT"] = "29500"  # torchrun meets at the port of TrainJobs
    if wanted.get("PET_NPROC_PER_NODE") in ("auto", "cpu") and is_torch:
        del wanted["PET_NPROC_PER_NODE"]  # without GPUs, mlPolicy.torch counts CPUs itself
    if "TF_CONFIG" in wanted:
        wanted["TF_CONFIG"] = wanted["TF_CONFIG"].replace('"ps":null', '"ps":[]')  # V1-B39
    if "PET_STANDALONE" in wanted:
        wanted["PET_STANDALONE"] = "1"  # torchrun cannot read the empty text of V1
    return wanted


def with_commands(job: JsonObject, command: list[str]) -> JsonObject:
    """A job that runs a command in its containers that train, and nothing in others; it asks for no resources."""
    changed: JsonObject = copy_tree(job)
    kind = JOB_KINDS[job["kind"]]
    for type_, each in changed["spec"][kind.replica_specs_field].items():
        containers = each["template"]["spec"]["containers"]
        names = [container["name"] for container in containers]
        main = names.index(kind.container_name) if kind.container_name in names else 0
        for place, container in enumerate(containers):
            container.pop("resources", None)
            container.pop("args", None)
            # Workers of an MPIJob have to run something that looks like sshd.
            sshd = ["# sshd"] if type_ == "Worker" and kind.kind == "MPIJob" else []
            container["command"] = [*command, *sshd] if place == main else ["true"]
    return changed
