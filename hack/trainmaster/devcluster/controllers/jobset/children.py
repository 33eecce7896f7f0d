"""The children of a JobSet: labels and names, how Jobs are built and resumed, the headless Service, claims. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from trainmaster.devcluster.controllers.objects import new_controller_ref
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_PREFIX = "jobset.sigs.k8s.io/"
JOBSET_NAME = _PREFIX + "jobset-name"
JOBSET_UID = _PREFIX + "jobset-uid"
REPLICATED_JOB_NAME = _PREFIX + "replicatedjob-name"
REPLICATED_JOB_REPLICAS = _PREFIX + "replicatedjob-replicas"
GLOBAL_REPLICAS = _PREFIX + "global-replicas"
JOB_INDEX = _PREFIX + "job-index"
JOB_GLOBAL_INDEX = _PREFIX + "job-global-index"
JOB_KEY = _PREFIX + "job-key"
RESTART_ATTEMPT = _PREFIX + "restart-attempt"
GROUP_NAME = _PREFIX + "group-name"
GROUP_REPLICAS = _PREFIX + "group-replicas"
JOB_GROUP_INDEX = _PREFIX + "job-group-index"
COORDINATOR = _PREFIX + "coordinator"

CONTROLLER_NAME = "jobset.sigs.k8s.io/jobset-controller"


def job_name(jobset_name: str, replicated_job: str, index: int) -> str:
    """Name a child Job."""
    return f"{jobset_name}-{replicated_job}-{index}"


def job_key(namespace: str, name: str) -> str:
    """Return the value of the label that identifies a Job across namespaces."""
    return hashlib.sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest()


def subdomain(jobset: JsonObject) -> str:
    """Return the DNS subdomain of the pods, which is also the name of the headless Service."""
    name: str = (jobset["spec"].get("network") or {}).get("subdomain") or jobset["metadata"]["name"]
    return name


def has_dns_hostnames(jobset: JsonObject) -> bool:
    """Tell whether the pods are to be found by name."""
    return bool((jobset["spec"].get("network") or {}).get("enableDNSHostnames", False))


def coordinator_endpoint(jobset: JsonObject) -> str:
    """Return the DNS name of the pod that the JobSet names as its coordinator."""
    coordinator = jobset["spec"]["coordinator"]
    job = job_name(jobset["metadata"]["name"], coordinator["replicatedJob"], coordinator.get("jobIndex", 0))
    return f"{job}-{coordinator.get('podIndex', 0)}.{subdomain(jobset)}"


def claim_name(jobset: JsonObject, template: JsonObject) -> str:
    """Name the PersistentVolumeClaim of a volume claim template."""
    return f"{template['metadata']['name']}-{jobset['metadata']['name']}"


_EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODE_SELECTOR_STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"
_NAMESPACED_JOB = "alpha.jobset.sigs.k8s.io/namespaced-job"
_NO_SCHEDULE = "alpha.jobset.sigs.k8s.io/no-schedule"


def replicas_of(replicated_job: JsonObject) -> int:
    """Return the number of Jobs of a replicated Job."""
    count: int = replicated_job.get("replicas", 1)
    return count


def build_jobs(jobset: JsonObject, replicated_job: JsonObject) -> Iterator[JsonObject]:
    """Build the Jobs of one replicated Job, in the order of their indexes."""
    for index in range(replicas_of(replicated_job)):
        yield build_job(jobset, replicated_job, index)


def build_job(jobset: JsonObject, replicated_job: JsonObject, index: int) -> JsonObject:
    """Build one child Job."""
    metadata = jobset["metadata"]
    template: JsonObject = copy_tree(replicated_job["template"])
    job: JsonObject = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(metadata["name"], replicated_job["name"], index),
            "namespace": metadata["namespace"],
            "labels": dict((template.get("metadata") or {}).get("labels") or {}),
            "annotations": dict((template.get("metadata") or {}).get("annotations") or {}),
            "ownerReferences": [new_controller_ref(jobset)],
        },
        "spec": template["spec"],
    }
    pod_template = job["spec"]["template"]
    identity = _labels_of(jobset, replicated_job, index)
    annotations = {**identity, **_exclusive_placement(jobset, replicated_job)}
    for holder in (job, pod_template):
        own = holder.setdefault("metadata", {})
        own["labels"] = {**(own.get("labels") or {}), **identity}
        own["annotations"] = {**(own.get("annotations") or {}), **annotations}
    pod_spec = pod_template["spec"]
    if has_dns_hostnames(jobset):
        pod_spec["subdomain"] = subdomain(jobset)
    if _EXCLUSIVE_TOPOLOGY in annotations and _NODE_SELECTOR_STRATEGY in annotations:
        name = job["metadata"]["name"]
        pod_spec["nodeSelector"] = {
            **pod_spec.get("nodeSelector", {}),
            _NAMESPACED_JOB: f"{metadata['namespace']}_{name}",
        }
        toleration = {"key": _NO_SCHEDULE, "operator": "Exists", "effect": "NoSchedule"}
        pod_spec["tolerations"] = [*pod_spec.get("tolerations", []), toleration]
    _mount_claims(jobset, pod_spec)
    job["spec"]["suspend"] = bool(jobset["spec"].get("suspend"))
    return job


def _labels_of(jobset: JsonObject, replicated_job: JsonObject, index: int) -> dict[str, str]:
    """Return the place of a Job in the JobSet; the same pairs serve as labels and annotations."""
    metadata, every = jobset["metadata"], jobset["spec"]["replicatedJobs"]
    position = next(at for at, each in enumerate(every) if each["name"] == replicated_job["name"])
    group = replicated_job.get("groupName", "default")
    before = every[:position]
    identity = {
        JOBSET_NAME: metadata["name"],
        JOBSET_UID: metadata["uid"],
        REPLICATED_JOB_NAME: replicated_job["name"],
        REPLICATED_JOB_REPLICAS: replicas_of(replicated_job),
        GLOBAL_REPLICAS: sum(map(replicas_of, every)),
        JOB_INDEX: index,
        JOB_GLOBAL_INDEX: index + sum(map(replicas_of, before)),
        JOB_KEY: job_key(metadata["namespace"], job_name(metadata["name"], replicated_job["name"], index)),
        RESTART_ATTEMPT: jobset.get("status", {}).get("restarts", 0),
        GROUP_NAME: group,
        GROUP_REPLICAS: sum(map(replicas_of, _in_group(every, group))),
        JOB_GROUP_INDEX: index + sum(map(replicas_of, _in_group(before, group))),
    }
    if "coordinator" in jobset["spec"]:
        identity[COORDINATOR] = coordinator_endpoint(jobset)
    return {key: str(value) for key, value in identity.items()}


def _in_group(replicated_jobs: list[JsonObject], group: str) -> list[JsonObject]:
    return [each for each in replicated_jobs if each.get("groupName", "default") == group]


def _exclusive_placement(jobset: JsonObject, replicated_job: JsonObject) -> dict[str, str]:
    """Return the annotations on exclusive placement; those of the JobSet win."""
    own = (replicated_job["template"].get("metadata") or {}).get("annotations") or {}
    given = {**own, **(jobset["metadata"].get("annotations") or {})}
    return {key: given[key] for key in (_EXCLUSIVE_TOPOLOGY, _NODE_SELECTOR_STRATEGY) if key in given}


def _mount_claims(jobset: JsonObject, pod_spec: JsonObject) -> None:
    """Add a volume for each claim template that some container of the pod mounts."""
    containers = [*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())]
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts") or ()}
    for template, _ in claim_templates(jobset):
        if template["metadata"]["name"] in mounted:
            claim = {"claimName": claim_name(jobset, template)}
            volume = {"name": template["metadata"]["name"], "persistentVolumeClaim": claim}
            pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), volume]


def resume_job(job: JsonObject, template: JsonObject) -> JsonObject:
    """Return the Job, not suspended any more, with the mutable scheduling fields of the template merged into its own.

    While a JobSet is suspended its owner, or a queue that admits it, may change where its pods run; the Jobs exist
    already.
    """
    new: JsonObject = copy_tree(job)
    new["spec"]["suspend"] = False
    pod_template = new["spec"]["template"]
    own, given = pod_template.setdefault("metadata", {}), template.get("metadata") or {}
    for field in ("labels", "annotations"):
        _merge_map(own, given, field)
    pod_spec, wanted = pod_template["spec"], template["spec"]
    _merge_map(pod_spec, wanted, "nodeSelector")
    _append(pod_spec, wanted, "tolerations")
    gates = {
        gate["name"]: gate
        for gate in [*(pod_spec.get("schedulingGates") or ()), *(wanted.get("schedulingGates") or ())]
    }
    if gates:
        pod_spec["schedulingGates"] = list(copy_tree(gates).values())
    return new


def _merge_map(own: JsonObject, given: JsonObject, field: str) -> None:
    if given.get(field):
        own[field] = {**(own.get(field) or {}), **given[field]}


def _append(own: JsonObject, given: JsonObject, field: str) -> None:
    missing = [entry for entry in given.get(field) or () if entry not in (own.get(field) or ())]
    if missing:
        own[field] = [*(own.get(field) or ()), *copy_tree(missing)]


def claim_templates(jobset: JsonObject) -> Iterator[tuple[JsonObject, bool]]:
    """Yield the volume claim templates, each with whether its claim goes when the JobSet goes."""
    for policy in jobset["spec"].get("volumeClaimPolicies") or ():
        deleted = (policy.get("retentionPolicy") or {}).get("whenDeleted", "Delete") == "Delete"
        for template in policy.get("templates") or ():
            yield template, deleted


def build_claims(jobset: JsonObject) -> Iterator[JsonObject]:
    """Build the PersistentVolumeClaims; one that outlives the JobSet has no owner."""
    for template, deleted in claim_templates(jobset):
        claim: JsonObject = copy_tree(template)
        metadata: JsonObject = {
            "name": claim_name(jobset, template),
            "namespace": jobset["metadata"]["namespace"],
            "labels": {**(claim["metadata"].get("labels") or {}), JOBSET_NAME: jobset["metadata"]["name"]},
        }
        if claim["metadata"].get("annotations"):
            metadata["annotations"] = claim["metadata"]["annotations"]
        if deleted:
            metadata["ownerReferences"] = [new_controller_ref(jobset)]
        yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim.get("spec", {})}


def build_service(jobset: JsonObject) -> JsonObject:
    """Build the headless Service that gives the pods their names."""
    network = jobset["spec"].get("network") or {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": subdomain(jobset),
            "namespace": jobset["metadata"]["namespace"],
            "ownerReferences": [new_controller_ref(jobset)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {JOBSET_NAME: jobset["metadata"]["name"]},
            "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
        },
    }
