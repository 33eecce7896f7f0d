"""The objects that a JobSet creates: Jobs, the headless Service, PersistentVolumeClaims. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.controllers.jobset import names
from trainmaster.devcluster.controllers.objects import owned_by
from trainmaster.runtime.jsontree import JsonObject, copy_tree

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
            "name": names.job_name(metadata["name"], replicated_job["name"], index),
            "namespace": metadata["namespace"],
            "labels": dict((template.get("metadata") or {}).get("labels") or {}),
            "annotations": dict((template.get("metadata") or {}).get("annotations") or {}),
            "ownerReferences": [owned_by(jobset)],
        },
        "spec": template["spec"],
    }
    pod_template = job["spec"]["template"]
    identity = _identity(jobset, replicated_job, index)
    annotations = {**identity, **_placement(jobset, replicated_job)}
    for holder in (job, pod_template):
        own = holder.setdefault("metadata", {})
        own["labels"] = {**(own.get("labels") or {}), **identity}
        own["annotations"] = {**(own.get("annotations") or {}), **annotations}
    pod_spec = pod_template["spec"]
    if names.has_dns_hostnames(jobset):
        pod_spec["subdomain"] = names.subdomain(jobset)
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


def _identity(jobset: JsonObject, replicated_job: JsonObject, index: int) -> dict[str, str]:
    """Return what tells a Job its place in the JobSet; the same pairs serve as labels and annotations."""
    metadata, every = jobset["metadata"], jobset["spec"]["replicatedJobs"]
    position = next(at for at, each in enumerate(every) if each["name"] == replicated_job["name"])
    group = replicated_job.get("groupName", "default")
    before = every[:position]
    identity = {
        names.NAME: metadata["name"],
        names.UID: metadata["uid"],
        names.REPLICATED_JOB: replicated_job["name"],
        names.REPLICATED_JOB_REPLICAS: replicas_of(replicated_job),
        names.GLOBAL_REPLICAS: sum(map(replicas_of, every)),
        names.JOB_INDEX: index,
        names.JOB_GLOBAL_INDEX: index + sum(map(replicas_of, before)),
        names.JOB_KEY: names.job_key(
            metadata["namespace"], names.job_name(metadata["name"], replicated_job["name"], index)
        ),
        names.RESTART_ATTEMPT: jobset.get("status", {}).get("restarts", 0),
        names.GROUP_NAME: group,
        names.GROUP_REPLICAS: sum(map(replicas_of, _in_group(every, group))),
        names.JOB_GROUP_INDEX: index + sum(map(replicas_of, _in_group(before, group))),
    }
    if "coordinator" in jobset["spec"]:
        identity[names.COORDINATOR] = names.coordinator_endpoint(jobset)
    return {key: str(value) for key, value in identity.items()}


def _in_group(replicated_jobs: list[JsonObject], group: str) -> list[JsonObject]:
    return [each for each in replicated_jobs if each.get("groupName", "default") == group]


def _placement(jobset: JsonObject, replicated_job: JsonObject) -> dict[str, str]:
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
            claim = {"claimName": names.claim_name(jobset, template)}
            volume = {"name": template["metadata"]["name"], "persistentVolumeClaim": claim}
            pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), volume]


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
            "name": names.claim_name(jobset, template),
            "namespace": jobset["metadata"]["namespace"],
            "labels": {**(claim["metadata"].get("labels") or {}), names.NAME: jobset["metadata"]["name"]},
        }
        if claim["metadata"].get("annotations"):
            metadata["annotations"] = claim["metadata"]["annotations"]
        if deleted:
            metadata["ownerReferences"] = [owned_by(jobset)]
        yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim.get("spec", {})}


def build_service(jobset: JsonObject) -> JsonObject:
    """Build the headless Service that gives the pods their names."""
    network = jobset["spec"].get("network") or {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.subdomain(jobset),
            "namespace": jobset["metadata"]["namespace"],
            "ownerReferences": [owned_by(jobset)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {names.NAME: jobset["metadata"]["name"]},
            "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
        },
    }
