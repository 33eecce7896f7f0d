"""What no pod can have of resource claims: the checks of the plugin Claims, after everything is merged.

A claim has exactly one source and a name of its own, and a container uses only what its pod declares. Each complaint
names the field that the claim comes from: the TrainJob's own, a runtime patch, or the runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.claims import CLAIM, TEMPLATE, claims_of, containers_of, references, sources, trainer_claims
from trainmaster.runtime.extension import FieldError
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label
from trainmaster.runtime.validation.runtime_lookup import shown
from trainmaster.runtime.validation.suggestions import did_you_mean

FIELD: Final = "spec.trainer.resourceClaimsPerNode"


def check_claims(info: Info, job: TrainJob) -> Iterator[FieldError]:
    """Find what no pod can have."""
    for position, claim in enumerate(trainer_claims(job)):
        path = f"{FIELD}[{position}]"
        if any(each.name == claim.name for each in trainer_claims(job)[:position]):
            yield FieldError(f"{path}.name", "must be unique: another claim has this name", value=claim.name)
        for number, name in enumerate(claim.container_names):
            for pods in filter(info.is_node, info.pod_sets):
                if pods.any_container(name) is None:
                    known = did_you_mean(name, [container["name"] for container in containers_of(pods)])
                    message = f'the ReplicatedJob "{pods.name}" has no such container {known}'
                    yield FieldError(f"{path}.containerNames[{number}]", message, value=name)
    for pods in info.pod_sets:
        yield from _check_declared(info, job, pods)
        yield from _check_references(job, pods)


def _check_declared(info: Info, job: TrainJob, pods: PodSet) -> Iterator[FieldError]:
    claims = claims_of(pods)
    for name, count in Counter(claim["name"] for claim in claims).items():
        if count > 1:
            message = f'the ReplicatedJob "{pods.name}" declares the claim "{name}" {count} times; names must be unique'
            yield FieldError(claim_path(info, job, pods, name), message, value=name)
    for claim in claims:
        path = claim_path(info, job, pods, claim["name"])
        for problem in dns_label(claim["name"]):
            yield FieldError(f"{path}.name", problem, value=claim["name"])
        if len(sources(claim)) != 1:
            which = "and has none" if not sources(claim) else "and has both"
            message = (
                f'the claim "{claim["name"]}" of the ReplicatedJob "{pods.name}" must have exactly one of {CLAIM} and '
                f"{TEMPLATE}, {which}"
            )
            yield FieldError(path, message, value=claim)


def _check_references(job: TrainJob, pods: PodSet) -> Iterator[FieldError]:
    declared = [claim["name"] for claim in claims_of(pods)]
    users = job.spec.trainer.resources_per_node if job.spec.trainer else None
    asked = {claim["name"] for claim in (users or {}).get("claims") or []}
    for container in containers_of(pods):
        for name in [each["name"] for each in references(container) if each["name"] not in declared]:
            message = (
                f'the container "{container["name"]}" of the ReplicatedJob "{pods.name}" uses the claim "{name}", '
                f"which its pod does not declare {did_you_mean(name, declared)}"
            )
            if name in asked:
                yield FieldError(
                    "spec.trainer.resourcesPerNode.claims", f"{message}; declare it in {FIELD}", value=name
                )
            else:
                yield FieldError("spec.runtimeRef", message, value=shown(job.spec.runtime_ref))


def claim_path(info: Info, job: TrainJob, pods: PodSet, name: str) -> str:
    """Name the field that a claim comes from."""
    for position, claim in enumerate(trainer_claims(job)):
        if claim.name == name and info.is_node(pods):
            return f"{FIELD}[{position}]"
    for position, patch in enumerate(job.spec.runtime_patches):
        template = (patch.training_runtime_spec or {}).get("template") or {}
        for replicated_job in (template.get("spec") or {}).get("replicatedJobs") or []:
            if replicated_job["name"] == pods.name and name in _patched_claims(replicated_job):
                return f"spec.runtimePatches[{position}]"
    return "spec.runtimeRef"


def _patched_claims(replicated_job: JsonObject) -> list[str]:
    job_spec = (replicated_job.get("template") or {}).get("spec") or {}
    pod_spec = (job_spec.get("template") or {}).get("spec") or {}
    return [claim["name"] for claim in pod_spec.get("resourceClaims") or []]
