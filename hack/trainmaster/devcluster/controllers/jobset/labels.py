"""The labels and names of everything that a JobSet creates. Pure."""

from __future__ import annotations

import hashlib

from trainmaster.runtime.jsontree import JsonObject

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
