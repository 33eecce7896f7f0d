"""Workloads and PodGroups of `scheduling.k8s.io/v1alpha2`, as in kube-apiserver 1.36 with the gate GenericWorkload.

Fields of its other gates (topology, disruption modes, priorities, claims of devices) are dropped silently, as there.
"""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trainmaster.devcluster.apiserver.errors import FieldError, immutable, too_many
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.fields import invalid, needs, one_of, optional_name, required
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, protect, restore
from trainmaster.devcluster.apiserver.resources import WORKLOADS
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import NameRule, dns_label, dns_subdomain, path_segment

POD_GROUP_PROTECTION_FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
_MOST_TEMPLATES: Final = 8


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
        """Return a spec without the fields of closed gates, and with those that the real server cannot leave out."""
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
            {
                "name": each.get("name") or "",
                "schedulingPolicy": each.get("schedulingPolicy") or {},
                "schedulingConstraints": None,
            }
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
        obj.setdefault("status", {}).pop("resourceClaimStatuses", None)

    def stored_spec(self, spec: JsonObject) -> JsonObject:
        """Return the spec in its stored form: the mode is Pod even if its gate is closed."""
        return {
            "podGroupTemplateRef": spec.get("podGroupTemplateRef"),
            "schedulingPolicy": spec.get("schedulingPolicy") or {},
            "disruptionMode": "Pod",
        }

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return list(validate_pod_group_spec(obj["spec"]))

    def validate_status(self, obj: JsonObject) -> list[FieldError]:
        """Check conditions."""
        return list(_validate_conditions(obj["status"].get("conditions") or ()))


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
        yield from _validate_policy(template["schedulingPolicy"], f"{path}[{index}].schedulingPolicy")


def validate_pod_group_spec(spec: JsonObject) -> Iterator[FieldError]:
    """Check the spec of a PodGroup."""
    if (reference := spec.get("podGroupTemplateRef")) is not None:
        path = "spec.podGroupTemplateRef"
        if (workload := reference.get("workload")) is None:
            yield FieldError(path, "Invalid", "", "must specify one of: `workload`")
        else:
            rules = {"workloadName": dns_subdomain, "podGroupTemplateName": dns_label}
            yield from _names(workload, f"{path}.workload", rules)
    yield from _validate_policy(spec.get("schedulingPolicy") or {}, "spec.schedulingPolicy")


def _names(obj: JsonObject, path: str, rules: Mapping[str, NameRule]) -> Iterator[FieldError]:
    """Check names that have to be there."""
    for field, rule in rules.items():
        yield from needs(obj, path, field)
        yield from optional_name(obj, path, field, rule)


def _validate_policy(policy: JsonObject, path: str) -> Iterator[FieldError]:
    if (count := len(policy)) != 1:
        given, exactly = ("{basic, gang}", "exactly ") if count else ("", "")
        yield FieldError(path, "Invalid", given, f"must specify {exactly}one of: `basic`, `gang`")
    if (gang := policy.get("gang")) is not None:
        yield from needs(gang, f"{path}.gang", "minCount")
        if (least := gang.get("minCount") or 0) < 0:
            yield from invalid(f"{path}.gang.minCount", least, ["must be greater than or equal to 1"])


def _validate_conditions(conditions: Iterable[JsonObject]) -> Iterator[FieldError]:
    for index, condition in enumerate(conditions):
        path = f"status.conditions[{index}]"
        yield from needs(condition, path, "type")
        yield from one_of(f"{path}.status", condition.get("status") or "", ("False", "True", "Unknown"))
        yield from needs(condition, path, "lastTransitionTime", "reason")


def kinds() -> list[Kind]:
    """Return the kinds as the API serves them."""
    group, version = WORKLOADS.group, "v1alpha2"
    return [
        builtin_kind(group, "Workload", WORKLOADS.resource, version=version, strategy=WorkloadStrategy()),
        builtin_kind(
            group, "PodGroup", "podgroups", version=version, strategy=PodGroupStrategy(), subresources=("status",)
        ),
    ]
