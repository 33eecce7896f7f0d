"""Resource claims (dynamic resource allocation): devices that pods get by claiming them.

A pod declares its claims (`resourceClaims`), and each container names those of them that it uses (`resources.claims`).
Claims of a runtime are changed by runtime patches, and those by `spec.trainer.resourceClaimsPerNode`: a claim replaces
one of the same name as a whole, since a claim has one source. The claims of a group of pods (`spec.scheduling`) are
added where a pod has none of that name. How many devices a claim has is up to the administrator who wrote the
ResourceClaim or ResourceClaimTemplate; a TrainJob chooses among these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from trainmaster.runtime.api.constants import NODE
from trainmaster.runtime.api.scheduling import claim_entry
from trainmaster.runtime.api.trainjob import ResourceClaim, TrainJob
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.scheduling import groups_of

CLAIM: Final = "resourceClaimName"
TEMPLATE: Final = "resourceClaimTemplateName"
SOURCES: Final = (CLAIM, TEMPLATE)
"""Where a claim comes from: exactly one of them is set, and the empty text means that it is not."""


def trainer_claims(job: TrainJob) -> list[ResourceClaim]:
    """Return the claims that a TrainJob makes for each of its nodes."""
    return job.spec.trainer.resource_claims_per_node if job.spec.trainer else []


def sources(claim: JsonObject) -> list[str]:
    """Name the sources that a claim of a pod sets."""
    return [source for source in SOURCES if claim.get(source)]


def claims_of(pods: PodSet) -> list[JsonObject]:
    """Return the claims that pods declare."""
    return pods.pod_spec.get("resourceClaims") or []


def references(container: JsonObject) -> list[JsonObject]:
    """Return what a container names of its pod's claims."""
    return (container.get("resources") or {}).get("claims") or []


def containers_of(pods: PodSet) -> Iterator[JsonObject]:
    """Iterate over all containers of pods, init containers first."""
    yield from pods.pod_spec.get("initContainers") or []
    yield from pods.pod_spec.get("containers") or []


def add_group_claims(info: Info) -> None:
    """Declare the claims of a group of pods on each of them: the cluster matches claims that are wholly equal."""
    for group in groups_of(info.scheduling, info.template) if info.scheduling else ():
        for pods in info.pod_sets:
            if group.claims and pods.name in group.members:
                own = {each["name"] for each in claims_of(pods)}
                added = [each for each in group.claims if each["name"] not in own]
                pods.pod_spec["resourceClaims"] = [*claims_of(pods), *added]


def add_claims(info: Info, job: TrainJob) -> None:
    """Declare the TrainJob's claims on each pod that trains, and have its containers use them."""
    for claim in trainer_claims(job):
        for pods in info.pod_sets:
            if info.is_node(pods):
                _declare(pods, claim)
                for name in claim.container_names or [NODE]:
                    _use(pods.any_container(name), claim.name)


def _declare(pods: PodSet, claim: ResourceClaim) -> None:
    others = [each for each in claims_of(pods) if each["name"] != claim.name]
    pods.pod_spec["resourceClaims"] = [*others, claim_entry(claim)]


def _use(container: JsonObject | None, name: str) -> None:
    # A container that uses one request of the claim already keeps to that.
    if container is not None and all(each["name"] != name for each in references(container)):
        resources = container.get("resources") or {}
        container["resources"] = {**resources, "claims": [*references(container), {"name": name}]}


def with_whole_claims(patch: JsonObject) -> JsonObject:
    """Return a patch of a JobSetSpec whose claims replace those of the same name, rather than merge with them."""
    if not patch.get("replicatedJobs"):
        return patch
    return {**patch, "replicatedJobs": [_changed(job, _TO_CLAIMS, _whole) for job in patch["replicatedJobs"]]}


_TO_CLAIMS: Final = ("template", "spec", "template", "spec", "resourceClaims")


def _whole(claims: list[JsonObject]) -> list[JsonObject]:
    return [{**claim, "$retainKeys": list(claim)} for claim in claims]


def _changed(node: JsonObject, path: Sequence[str], change: Callable[[Any], Any]) -> JsonObject:
    """Copy a tree as far as a value is changed that may be in it."""
    step, *below = path
    if not node.get(step):
        return node
    return {**node, step: _changed(node[step], below, change) if below else change(node[step])}
