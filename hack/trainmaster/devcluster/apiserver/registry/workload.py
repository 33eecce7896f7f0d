"""Workloads and PodGroups of `scheduling.k8s.io/v1alpha2`, as in kube-apiserver 1.36 with all their gates."""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from trainmaster.devcluster.apiserver.errors import FieldError, immutable, too_many
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.fields import needs, one_of, optional_name, required
from trainmaster.devcluster.apiserver.registry.labels import label_key_problems
from trainmaster.devcluster.apiserver.registry.priorityclass import HIGHEST_USER_PRIORITY
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, protect, restore
from trainmaster.devcluster.apiserver.resources import WORKLOADS
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import NameRule, dns_label, dns_subdomain, path_segment

POD_GROUP_PROTECTION_FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
_MOST_TEMPLATES: Final = 8
_MOST_CLAIMS: Final = 4
_CLAIM_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")


class _FixedSpecStrategy(Strategy):
    """Kinds whose spec cannot be changed."""

    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Give every object a spec."""
        obj.setdefault("spec", {})

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Bring the spec into the form in which it is stored."""
        obj["spec"] = self.stored_spec(obj["spec"])

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Bring the spec into the form in which it is stored."""
        obj["spec"] = self.stored_spec(obj["spec"])

    def stored_spec(self, spec: JsonObject) -> JsonObject:
        """Return a spec with the fields that the real server cannot leave out."""
        raise NotImplementedError

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse every change."""
        new, before = obj["spec"], old["spec"]
        return [immutable(f"spec.{field}", None) for field in new | before if new.get(field) != before.get(field)]


class WorkloadStrategy(_FixedSpecStrategy):
    """Workloads: templates of PodGroups."""

    def stored_spec(self, spec: JsonObject) -> JsonObject:
        """Return the spec with its templates in their stored form."""
        templates = [
            {"name": "", "schedulingPolicy": {}, "schedulingConstraints": None, **each}
            for each in spec.get("podGroupTemplates") or ()
        ]
        return {**spec, "podGroupTemplates": templates}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return list(_validate_workload(obj["spec"]))


class PodGroupStrategy(_FixedSpecStrategy):
    """PodGroups: a finalizer keeps them until their last pod has ended."""

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start without a status, and protected."""
        super().prepare_for_create(obj)
        obj["status"] = {}
        protect(obj, POD_GROUP_PROTECTION_FINALIZER)

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Restore everything else; labels, too."""
        super().prepare_for_status_update(obj, old)
        restore(obj["metadata"], old["metadata"], "labels")
        obj.setdefault("status", {})

    def stored_spec(self, spec: JsonObject) -> JsonObject:
        """Return the spec in its stored form; admission adds the priority."""
        return {"podGroupTemplateRef": None, "schedulingPolicy": {}, "disruptionMode": "Pod", **spec}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return list(validate_pod_group_spec(obj["spec"]))

    def validate_status(self, obj: JsonObject) -> list[FieldError]:
        """Check conditions, and that claims that were made are claims of the spec."""
        return list(_validate_status(obj["spec"], obj["status"]))


def _validate_workload(spec: JsonObject) -> Iterator[FieldError]:
    if (reference := spec.get("controllerRef")) is not None:
        yield from optional_name(reference, "spec.controllerRef", "apiGroup")
        yield from _names(reference, "spec.controllerRef", {"kind": path_segment, "name": path_segment})
    path, templates = "spec.podGroupTemplates", spec["podGroupTemplates"]
    if not templates:
        yield required(path)
    if len(templates) > _MOST_TEMPLATES:
        yield too_many(path, len(templates), _MOST_TEMPLATES)
    names = [each["name"] for each in templates]
    for index, template in enumerate(templates):
        if template["name"] in names[:index]:
            yield FieldError(f"{path}[{index}]", "Duplicate", template)
    for index, template in enumerate(templates):
        yield from _names(template, f"{path}[{index}]", {"name": dns_label})
        yield from _validate_group(template, f"{path}[{index}]")
        if (priority := template.get("priority") or 0) > HIGHEST_USER_PRIORITY:
            most = f"must be less than or equal to {HIGHEST_USER_PRIORITY}"
            yield FieldError(f"{path}[{index}].priority", "Invalid", priority, most)


def validate_pod_group_spec(spec: JsonObject) -> Iterator[FieldError]:
    """Check the spec of a PodGroup."""
    if (reference := spec.get("podGroupTemplateRef")) is not None:
        path = "spec.podGroupTemplateRef"
        yield from _union(reference, path, "workload")
        if (workload := reference.get("workload")) is not None:
            rules = {"workloadName": dns_subdomain, "podGroupTemplateName": dns_label}
            yield from _names(workload, f"{path}.workload", rules)
    yield from _validate_group(spec, "spec")


def _names(obj: JsonObject, path: str, rules: Mapping[str, NameRule]) -> Iterator[FieldError]:
    """Check names that have to be there."""
    for field, rule in rules.items():
        yield from needs(obj, path, field)
        yield from optional_name(obj, path, field, rule)


def _union(obj: JsonObject, path: str, *members: str) -> Iterator[FieldError]:
    """Check that exactly one of the members is set."""
    if len(given := [each for each in members if obj.get(each) is not None]) != 1:
        shown, exactly = (f"{{{', '.join(given)}}}", "exactly ") if given else ("", "")
        listed = ", ".join(f"`{each}`" for each in members)
        yield FieldError(path, "Invalid", shown, f"must specify {exactly}one of: {listed}")


def _validate_group(spec: JsonObject, path: str) -> Iterator[FieldError]:
    """Check what templates and PodGroups have in common."""
    policy = spec.get("schedulingPolicy") or {}
    yield from _union(policy, f"{path}.schedulingPolicy", "basic", "gang")
    if (gang := policy.get("gang")) is not None:
        yield from needs(gang, f"{path}.schedulingPolicy.gang", "minCount")
        if (least := gang.get("minCount") or 0) < 0:
            text = "must be greater than or equal to 1"
            yield FieldError(f"{path}.schedulingPolicy.gang.minCount", "Invalid", least, text)
    topology = (spec.get("schedulingConstraints") or {}).get("topology") or ()
    if len(topology) > 1:
        yield too_many(f"{path}.schedulingConstraints.topology", len(topology), 1)
    for index, constraint in enumerate(topology):
        yield from _names(constraint, f"{path}.schedulingConstraints.topology[{index}]", {"key": label_key_problems})
    yield from _validate_claims(spec.get("resourceClaims") or (), f"{path}.resourceClaims")
    if (mode := spec.get("disruptionMode")) is not None:
        yield from one_of(f"{path}.disruptionMode", mode, ("Pod", "PodGroup"))
    yield from optional_name(spec, path, "priorityClassName")


def _validate_claims(claims: Sequence[JsonObject], path: str) -> Iterator[FieldError]:
    if len(claims) > _MOST_CLAIMS:
        yield too_many(path, len(claims), _MOST_CLAIMS)
    names = [each.get("name") for each in claims]
    for index, claim in enumerate(claims):
        if claim.get("name") in names[:index]:
            yield FieldError(f"{path}[{index}]", "Duplicate", claim)
        yield from _names(claim, f"{path}[{index}]", {"name": dns_label})
        yield from _union(claim, f"{path}[{index}]", *_CLAIM_SOURCES)
        for source in _CLAIM_SOURCES:
            yield from optional_name(claim, f"{path}[{index}]", source)


def _validate_status(spec: JsonObject, status: JsonObject) -> Iterator[FieldError]:
    for index, condition in enumerate(status.get("conditions") or ()):
        path = f"status.conditions[{index}]"
        yield from needs(condition, path, "type")
        yield from one_of(f"{path}.status", condition.get("status") or "", ("False", "True", "Unknown"))
        yield from needs(condition, path, "lastTransitionTime", "reason")
    claimed = {each["name"] for each in spec.get("resourceClaims") or ()}
    for index, claim in enumerate(status.get("resourceClaimStatuses") or ()):
        if (name := claim.get("name")) not in claimed:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield FieldError(f"status.resourceClaimStatuses[{index}].name", "Invalid", name, text)


def kinds() -> list[Kind]:
    """Return the kinds as the API serves them."""
    group, version = WORKLOADS.group, "v1alpha2"
    return [
        builtin_kind(group, "Workload", WORKLOADS.resource, version=version, strategy=WorkloadStrategy()),
        builtin_kind(
            group, "PodGroup", "podgroups", version=version, strategy=PodGroupStrategy(), subresources=("status",)
        ),
    ]
