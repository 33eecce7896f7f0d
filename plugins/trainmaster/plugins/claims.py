"""Claims: whether resource claims fit together, and how many GPUs they give to each node.

What a claim asks for is in its ResourceClaim or ResourceClaimTemplate, which are read from the cluster. Its devices are
GPUs if they are of one of the device classes that the option `gpu_device_classes` names. A claim that nothing is known
about counts as no GPU, and whoever depends on the number is warned at admission.

A claim has exactly one source and a name of its own, and a container uses only what its pod declares. Each error names
the field that the claim comes from: the TrainJob's own, a runtime patch, or the runtime.

First of its phases: plugins of frameworks start processes by the number of GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from trainmaster.runtime.api.constants import NODE, RESOURCE_API_VERSION
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning, did_you_mean
from trainmaster.runtime.framework.interface import Rejected
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import JobKey, Listers, Watch
from trainmaster.runtime.names import dns_label
from trainmaster.runtime.resource_claims import (
    CLAIM,
    TEMPLATE,
    claims_of,
    containers_of,
    references,
    sources,
    trainer_claims,
)
from trainmaster.runtime.resource_requirements import accelerator_count, gpu_count

GPU_DEVICE_CLASSES: Final = ("gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gpu.example.com")
"""The classes that the drivers of NVIDIA, AMD, Intel, and the example driver of Kubernetes come with."""

_FIELD: Final = "spec.trainer.resourceClaimsPerNode"
_RUNTIME_FIELD: Final = "spec.runtimeRef"


class _Uncountable(Exception):
    """How many GPUs a claim has cannot be said; the text is why."""


class Claims:
    """Checks claims and counts their GPUs.

    Args:
        gpu_device_classes: Names of the device classes whose devices are GPUs; `*` stands for any text.
    """

    name = "claims"
    priority = 1000

    def __init__(self, *, gpu_device_classes: Sequence[str] = GPU_DEVICE_CLASSES) -> None:
        if isinstance(gpu_device_classes, str) or not all(isinstance(each, str) for each in gpu_device_classes):
            raise TypeError(f"gpu_device_classes must be a list of names, not {gpu_device_classes!r}")
        self._gpu_classes = tuple(gpu_device_classes)

    def watch_extension(self) -> Iterable[Watch]:
        """What can be claimed; clusters without dynamic resource allocation do not serve it."""
        for kind, plural in (("ResourceClaim", "resourceclaims"), ("ResourceClaimTemplate", "resourceclaimtemplates")):
            yield Watch(RESOURCE_API_VERSION, kind, plural, jobs=_nobody, optional=True)

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Refuse claims that no pod can have, and count the GPUs of the others."""
        problem = next(_check_claims(info, job), None)
        if problem is not None:
            raise Rejected(f"{problem.path}: {problem.detail}")
        self._count(info, job, info.listers)

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterator[FieldError | FieldWarning]:
        """Check the claims of all pods; also counts GPUs, for the validators that come later."""
        yield from _check_claims(info, job)
        uncountable = self._count(info, job, listers)
        for pods in info.pod_sets:
            yield from _unused(info, job, pods)
        nodes = [pods for pods in info.pod_sets if info.is_node(pods)]
        if trainer_claims(job) and not nodes:
            yield FieldWarning(_FIELD, "has no effect: the runtime has no trainer")
        for pods in nodes:
            yield from _twice(info, job, pods)
            if references(pods.container(NODE) or {}) and not pods.gpus:
                yield from _underived(info, job, pods, uncountable.get(pods.name, []))

    def _count(self, info: Info, job: TrainJob, listers: Listers) -> dict[str, list[str]]:
        """Set the GPUs that claims give to each pod set; returns why some cannot be counted, by ReplicatedJob."""
        uncountable: dict[str, list[str]] = {}
        for pods in info.pod_sets:
            pods.claimed_gpus = 0
            used = references(pods.container(NODE) or {})
            declared = {claim["name"]: claim for claim in claims_of(pods)} if used else {}
            for reference in used:
                claim = declared.get(reference["name"])
                try:
                    pods.claimed_gpus += self._gpus(claim or {}, reference.get("request"), job, listers)
                except _Uncountable as error:
                    uncountable.setdefault(pods.name, []).append(str(error))
        return uncountable

    def _gpus(self, claim: JsonObject, request: str | None, job: TrainJob, listers: Listers) -> int:
        """Count the GPUs of a claim, or of the one of its requests that a container uses."""
        found, title = _claimed(claim, job, listers)
        # A container may name one alternative of a request as well: "request/alternative".
        wanted, _, alternative = (request or "").partition("/")
        requests = (found.get("devices") or {}).get("requests") or []
        return sum(self._gpus_of_request(each, alternative, title) for each in requests if wanted in ("", each["name"]))

    def _gpus_of_request(self, request: JsonObject, alternative: str, title: str) -> int:
        choices = [each for each in request.get("firstAvailable") or [] if alternative in ("", each["name"])] or [
            request.get("exactly") or {}
        ]
        counts = {self._gpus_of_choice(choice, title) for choice in choices}
        if len(counts) > 1:
            raise _Uncountable(f'{title} leaves it open how many devices request "{request["name"]}" gets')
        return counts.pop()

    def _gpus_of_choice(self, choice: JsonObject, title: str) -> int:
        device_class = choice.get("deviceClassName", "")
        if choice.get("adminAccess") or not any(fnmatchcase(device_class, each) for each in self._gpu_classes):
            return 0
        if choice.get("allocationMode") == "All":
            raise _Uncountable(f"{title} asks for all devices of a node, however many there are")
        count: int = choice.get("count", 1)
        return count


def _nobody(_: JsonObject) -> Iterable[JobKey]:
    """Whom a change concerns: claims are read when a job is built, and a running one is left alone."""
    return ()


def _claimed(claim: JsonObject, job: TrainJob, listers: Listers) -> tuple[JsonObject, str]:
    """Return what a claim asks for, and what to call it."""
    kind = "ResourceClaim" if claim.get(CLAIM) else "ResourceClaimTemplate"
    name, namespace = claim.get(CLAIM) or claim.get(TEMPLATE) or "", job.metadata.namespace
    found = listers.get(RESOURCE_API_VERSION, kind, namespace, name)
    title = f'{kind} "{name}"'
    if found is None:
        raise _Uncountable(f'{title} was not found in namespace "{namespace}"')
    spec: JsonObject = found["spec"]
    return (spec if kind == "ResourceClaim" else spec["spec"]), title


def _unused(info: Info, job: TrainJob, pods: PodSet) -> Iterator[FieldWarning]:
    used = {each["name"] for container in containers_of(pods) for each in references(container)}
    unused = [claim["name"] for claim in claims_of(pods) if claim["name"] not in used]
    paths = _claim_paths(info, job, pods) if unused else {}
    for name in unused:
        detail = (
            f'the ReplicatedJob "{pods.name}" declares the claim "{name}", and no container uses it: the '
            "pods take its devices and nobody has them"
        )
        yield FieldWarning(paths.get(name, _RUNTIME_FIELD), detail)


def _twice(info: Info, job: TrainJob, pods: PodSet) -> Iterator[FieldWarning]:
    amount = gpu_count((pods.container(NODE) or {}).get("resources") or {})
    if amount and pods.claimed_gpus:
        name = references(pods.container(NODE) or {})[0]["name"]
        detail = (
            f'the container "{NODE}" of the ReplicatedJob "{pods.name}" asks for {amount} GPUs by its resources and '
            f"for {pods.claimed_gpus} by claims, and gets both; use one of the two ways"
        )
        yield FieldWarning(_claim_paths(info, job, pods).get(name, _RUNTIME_FIELD), detail)


def _underived(info: Info, job: TrainJob, pods: PodSet, reasons: list[str]) -> Iterator[FieldWarning]:
    """Warn about a number of processes that is made up because nobody knows the devices."""
    policy = info.ml_policy
    asked = job.spec.trainer.num_proc_per_node if job.spec.trainer else None
    resources = (pods.container(NODE) or {}).get("resources") or {}
    if policy is None:
        return
    if policy.xgboost is not None:
        consequence = "each node is taken to have one worker"
    elif asked is not None:
        return
    elif policy.torch is not None and policy.torch.num_proc_per_node in (None, "auto"):
        if accelerator_count(resources):
            return
        consequence = "one process is started for each CPU of a node; set spec.trainer.numProcPerNode"
    elif (policy.mpi is not None and policy.mpi.num_proc_per_node == 1) or policy.flux is not None:
        consequence = "a node is taken to have no GPU; set spec.trainer.numProcPerNode"
    else:
        return
    reason = "; ".join(reasons) or "no device of its claims is of a class that is known as a GPU"
    detail = f'the GPUs of the ReplicatedJob "{pods.name}" cannot be counted ({reason}), so {consequence}'
    claim = references(pods.container(NODE) or {})[0]["name"]
    yield FieldWarning(_claim_paths(info, job, pods).get(claim, _RUNTIME_FIELD), detail)


def _check_claims(info: Info, job: TrainJob) -> Iterator[FieldError]:
    """Find what no pod can have."""
    for position, claim in enumerate(trainer_claims(job)):
        path = f"{_FIELD}[{position}]"
        if any(each.name == claim.name for each in trainer_claims(job)[:position]):
            yield FieldError(f"{path}.name", "must be unique: another claim has this name", value=claim.name)
        for number, name in enumerate(claim.container_names):
            for pods in filter(info.is_node, info.pod_sets):
                if pods.any_container(name) is None:
                    known = did_you_mean(name, [container["name"] for container in containers_of(pods)])
                    detail = f'the ReplicatedJob "{pods.name}" has no such container {known}'
                    yield FieldError(f"{path}.containerNames[{number}]", detail, value=name)
    for pods in info.pod_sets:
        yield from _check_declared(info, job, pods)
        yield from _check_references(job, pods)


def _check_declared(info: Info, job: TrainJob, pods: PodSet) -> Iterator[FieldError]:
    claims = claims_of(pods)
    if not claims:
        return
    paths = _claim_paths(info, job, pods)
    for name, count in Counter(claim["name"] for claim in claims).items():
        if count > 1:
            detail = f'the ReplicatedJob "{pods.name}" declares the claim "{name}" {count} times; names must be unique'
            yield FieldError(paths.get(name, _RUNTIME_FIELD), detail, value=name)
    for claim in claims:
        path = paths.get(claim["name"], _RUNTIME_FIELD)
        for problem in dns_label(claim["name"]):
            yield FieldError(f"{path}.name", problem, value=claim["name"])
        if len(sources(claim)) != 1:
            which = "and has none" if not sources(claim) else "and has both"
            detail = (
                f'the claim "{claim["name"]}" of the ReplicatedJob "{pods.name}" must have exactly one of {CLAIM} and '
                f"{TEMPLATE}, {which}"
            )
            yield FieldError(path, detail, value=claim)


def _check_references(job: TrainJob, pods: PodSet) -> Iterator[FieldError]:
    using = [container for container in containers_of(pods) if references(container)]
    if not using:
        return
    declared = dict.fromkeys(claim["name"] for claim in claims_of(pods))
    users = job.spec.trainer.resources_per_node if job.spec.trainer else None
    asked = {claim["name"] for claim in (users or {}).get("claims") or []}
    for container in using:
        for name in [each["name"] for each in references(container) if each["name"] not in declared]:
            detail = (
                f'the container "{container["name"]}" of the ReplicatedJob "{pods.name}" uses the claim "{name}", '
                f"which its pod does not declare {did_you_mean(name, declared)}"
            )
            if name in asked:
                yield FieldError(
                    "spec.trainer.resourcesPerNode.claims", f"{detail}; declare it in {_FIELD}", value=name
                )
            else:
                yield FieldError("spec.runtimeRef", detail, value=job.spec.runtime_ref.with_defaults())


def _claim_paths(info: Info, job: TrainJob, pods: PodSet) -> dict[str, str]:
    """Name, by claim, the field of the TrainJob that it comes from; all others come from the runtime."""
    paths: dict[str, str] = {}
    if info.is_node(pods):
        for position, claim in enumerate(trainer_claims(job)):
            paths.setdefault(claim.name, f"{_FIELD}[{position}]")
    for position, patch in enumerate(job.spec.runtime_patches):
        template = (patch.training_runtime_spec or {}).get("template") or {}
        for replicated_job in (template.get("spec") or {}).get("replicatedJobs") or []:
            if replicated_job["name"] == pods.name:
                for name in _patched_claims(replicated_job):
                    paths.setdefault(name, f"spec.runtimePatches[{position}]")
    return paths


def _patched_claims(replicated_job: JsonObject) -> list[str]:
    job_spec = (replicated_job.get("template") or {}).get("spec") or {}
    pod_spec = (job_spec.get("template") or {}).get("spec") or {}
    return [claim["name"] for claim in pod_spec.get("resourceClaims") or []]
