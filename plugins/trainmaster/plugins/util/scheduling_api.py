"""Versions of the API `scheduling.k8s.io` by which Kubernetes itself schedules gangs, each a class of its own.

Which one counts is found by discovery: the first of `APIS` that the cluster serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from trainmaster.runtime.api.constants import GROUP, POD_GROUP_KIND, SCHEDULING_API_VERSION, WORKLOAD_KIND
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.scheduling import Group


class SchedulingAPI(Protocol):
    """One version."""

    @property
    def api_version(self) -> str:
        """Of its kinds."""

    def pod_group_spec(self, group: Group, *, count: int, priority_class: str | None) -> JsonObject:
        """Return the spec of a group of so many pods."""

    def workload(self, name: str, job: TrainJob, groups: Iterable[tuple[str, JsonObject]]) -> JsonObject:
        """Build the Workload, given the names of its templates and the specs of their groups."""

    def pod_group(self, name: str, spec: JsonObject, *, workload: str, template: str) -> JsonObject:
        """Build a PodGroup."""

    def pod_fields(self, pod_group: str) -> JsonObject:
        """Return what makes a pod a member, as fields of its spec."""

    def dropped(self, wanted: JsonObject, stored: JsonObject) -> list[tuple[str, str]]:
        """Return the fields of the spec of a PodGroup that the API server has dropped, with the gates they take."""

    def is_tried(self, pod_group: JsonObject) -> bool:
        """Return whether the scheduler has looked for nodes for pods of a stored PodGroup, ever."""


class V1Alpha2:
    """That of Kubernetes 1.36."""

    api_version = SCHEDULING_API_VERSION

    def pod_group_spec(self, group: Group, *, count: int, priority_class: str | None) -> JsonObject:
        """Return the spec of a group of so many pods."""
        rules = group.rules
        policy: JsonObject = {"gang": {"minCount": count}} if group.is_gang else {"basic": {}}
        spec: JsonObject = {"schedulingPolicy": policy}
        if group.claims:
            spec["resourceClaims"] = list(group.claims)
        if rules.scheduling_constraints and rules.scheduling_constraints.topology:
            topology = [{"key": each.key} for each in rules.scheduling_constraints.topology]
            spec["schedulingConstraints"] = {"topology": topology}
        if rules.disruption_mode:
            spec["disruptionMode"] = rules.disruption_mode
        if priority_class:
            spec["priorityClassName"] = priority_class
        return spec

    def workload(self, name: str, job: TrainJob, groups: Iterable[tuple[str, JsonObject]]) -> JsonObject:
        """Build the Workload, given the names of its templates and the specs of their groups."""
        owner = {"apiGroup": GROUP, "kind": job.kind, "name": job.metadata.name}
        templates = [{"name": template, **spec} for template, spec in groups]
        spec = {"controllerRef": owner, "podGroupTemplates": templates}
        return {"apiVersion": self.api_version, "kind": WORKLOAD_KIND, "metadata": {"name": name}, "spec": spec}

    def pod_group(self, name: str, spec: JsonObject, *, workload: str, template: str) -> JsonObject:
        """Build a PodGroup."""
        reference = {"workload": {"workloadName": workload, "podGroupTemplateName": template}}
        body = {"podGroupTemplateRef": reference, **spec}
        return {"apiVersion": self.api_version, "kind": POD_GROUP_KIND, "metadata": {"name": name}, "spec": body}

    def pod_fields(self, pod_group: str) -> JsonObject:
        """Return what makes a pod a member, as fields of its spec."""
        return {"schedulingGroup": {"podGroupName": pod_group}}

    def dropped(self, wanted: JsonObject, stored: JsonObject) -> list[tuple[str, str]]:
        """Return the fields of the spec of a PodGroup that the API server has dropped, with the gates they take."""
        gates = {
            "schedulingConstraints": "TopologyAwareWorkloadScheduling",
            "disruptionMode": "WorkloadAwarePreemption",
            "resourceClaims": "DRAWorkloadResourceClaims",
        }
        return [
            (field, gate) for field, gate in gates.items() if field in wanted and wanted[field] != stored.get(field)
        ]

    def is_tried(self, pod_group: JsonObject) -> bool:
        """Return whether the scheduler has looked for nodes for pods of a stored PodGroup, ever."""
        conditions = (pod_group.get("status") or {}).get("conditions") or ()
        # Its status counts for nothing: of a group that was scheduled it may be False, if a pod came right after that.
        return any(each.get("type") == "PodGroupScheduled" for each in conditions)


APIS: Final[Sequence[SchedulingAPI]] = (V1Alpha2(),)
"""All versions, the better first."""
