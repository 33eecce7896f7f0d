"""Workloads: a PodGroup refers to one that exists, and a Job keeps the size of its gang.

The real server checks this after the object itself. So an object that breaks its own rules passes here.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Api, Operation
from trainmaster.devcluster.apiserver.registry.workload import validate_pod_group_spec
from trainmaster.devcluster.apiserver.resources import JOBS, WORKLOAD_POD_GROUPS, WORKLOADS
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject


def drop_scheduling_groups(_operation: Operation, obj: JsonObject, old: JsonObject | None) -> JsonObject:
    """Drop the group from pods and templates, valid or not, as a server does that does not serve PodGroups."""
    for spec, before in zip(_pod_specs(obj), _pod_specs(old or {}), strict=True):
        if "schedulingGroup" not in before:  # it stays in an object that has it already
            spec.pop("schedulingGroup", None)
    return obj


def _pod_specs(obj: JsonObject) -> tuple[JsonObject, JsonObject]:
    spec = obj.get("spec") or {}
    return spec, (spec.get("template") or {}).get("spec") or {}


def pod_group_admission(api: Api) -> AdmissionHook:
    """Return the hook for PodGroups."""

    def admit(operation: Operation, group: JsonObject, _old: JsonObject | None) -> JsonObject:
        metadata, reference = group["metadata"], (group["spec"].get("podGroupTemplateRef") or {}).get("workload")
        if operation == "CREATE" and reference and not list(validate_pod_group_spec(group["spec"])):
            workload, template = reference["workloadName"], reference["podGroupTemplateName"]
            record = api.store.get(ObjectKey(WORKLOADS, metadata["namespace"], workload))
            text = f'PodGroup rejected: Workload "{workload}" not found'
            if record is not None:
                text = f'PodGroup rejected: PodGroupTemplate "{template}" not found in Workload "{workload}"'
            templates = () if record is None else record.object["spec"]["podGroupTemplates"]
            if all(each["name"] != template for each in templates):
                raise errors.forbidden(text, resource=WORKLOAD_POD_GROUPS, name=metadata.get("name", ""))
        return group

    return admit


def job_admission(api: Api) -> AdmissionHook:
    """Return the hook for Jobs."""

    def admit(_operation: Operation, job: JsonObject, old: JsonObject | None) -> JsonObject:
        if old is None or job["spec"]["parallelism"] == old["spec"]["parallelism"]:
            return job
        metadata = old["metadata"]
        name = (old["spec"]["template"]["spec"].get("schedulingGroup") or {}).get("podGroupName") or ""
        group = api.store.get(ObjectKey(WORKLOAD_POD_GROUPS, metadata["namespace"], name))
        if group is not None and "gang" in group.object["spec"]["schedulingPolicy"]:
            text = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{name}"'
            raise errors.forbidden(text, resource=JOBS, name=metadata["name"])
        return job

    return admit
