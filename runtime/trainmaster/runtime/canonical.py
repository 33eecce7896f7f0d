"""The canonical form of JobSet templates.

The Go controllers read a runtime into typed structures and write it out again. That leaves traces which others can see
and compare: embedded `metadata` and container `resources` are always present, quantities are spelled canonically.
Kueue, for instance, builds the same JobSet from the same runtime and compares. So both the snapshot and the JobSet are
brought into this form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantities import canonical


def canonicalize_template(template: JsonObject) -> None:
    """Bring a runtime's `spec.template` (metadata and JobSetSpec) into canonical form, in place."""
    template.setdefault("metadata", {})
    canonicalize_jobset_spec(template.setdefault("spec", {}))


def canonicalize_jobset_spec(spec: JsonObject) -> None:
    """Bring a JobSetSpec into canonical form, in place."""
    for replicated_job in spec.get("replicatedJobs") or []:
        job_template = replicated_job.setdefault("template", {})
        job_template.setdefault("metadata", {})
        pod_template = job_template.setdefault("spec", {}).setdefault("template", {})
        pod_template.setdefault("metadata", {})
        _canonicalize_pod_spec(pod_template.setdefault("spec", {}))
    for policy in spec.get("volumeClaimPolicies") or []:
        for claim in policy.get("templates") or []:
            _canonicalize_claim(claim)


def canonicalize_resources(resources: JsonObject) -> None:
    """Spell the quantities of ResourceRequirements canonically, in place."""
    for part in ("limits", "requests"):
        if resources.get(part):
            resources[part] = _quantities(resources[part])


def _canonicalize_pod_spec(spec: JsonObject) -> None:
    for container in _containers(spec):
        canonicalize_resources(container.setdefault("resources", {}))
        _canonicalize_divisors(variable.get("valueFrom") for variable in container.get("env") or [])
    if "resources" in spec:
        canonicalize_resources(spec["resources"])
    if spec.get("overhead"):
        spec["overhead"] = _quantities(spec["overhead"])
    for volume in spec.get("volumes") or []:
        _canonicalize_volume(volume)


def _containers(spec: JsonObject) -> Iterator[JsonObject]:
    yield from spec.get("initContainers") or []
    yield from spec.get("containers") or []


def _canonicalize_volume(volume: JsonObject) -> None:
    empty_dir = volume.get("emptyDir")
    if empty_dir and "sizeLimit" in empty_dir:
        empty_dir["sizeLimit"] = canonical(empty_dir["sizeLimit"])
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim:
        _canonicalize_claim(claim)
    _canonicalize_divisors((volume.get("downwardAPI") or {}).get("items") or [])
    for source in (volume.get("projected") or {}).get("sources") or []:
        _canonicalize_divisors((source.get("downwardAPI") or {}).get("items") or [])


def _canonicalize_claim(claim: JsonObject) -> None:
    claim.setdefault("metadata", {})
    canonicalize_resources(claim.setdefault("spec", {}).setdefault("resources", {}))


def _canonicalize_divisors(holders: Iterable[JsonObject | None]) -> None:
    for holder in holders:
        reference = (holder or {}).get("resourceFieldRef")
        if reference is not None:
            reference["divisor"] = canonical(reference.get("divisor", "0"))


def _quantities(values: JsonObject) -> dict[str, Any]:
    return {name: canonical(value) for name, value in values.items()}
