"""Pod templates: all of V1's stays, but for what V1 itself replaced and what JobSets decide.

- The container that trains is called `node` where the TrainJob's `trainer` speaks of it.
- The variables that V1 set come with the template. V1 put them after those of the user, so that its own counted: what
  the user set of the same names is left out.
- Pods keep the labels by which V1's were found, as far as they say the same; fields that read others read those of
  JobSets.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from trainmaster.runtime.api.constants import COMPLETION_INDEX_FIELD_PATH, JOB_INDEX_FIELD_PATH, NODE
from trainmaster.runtime.conversion.hosts import HostNames
from trainmaster.runtime.conversion.notes import Notes
from trainmaster.runtime.conversion.replicas import Group, pod_restart_policy
from trainmaster.runtime.jobs.constants import (
    JOB_NAME_LABEL,
    JOB_ROLE_LABEL,
    OPERATOR_NAME_LABEL,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_JOBSET_DECIDES: Final = ("hostname", "subdomain")


def convert_template(group: Group, *, job: str, hosts: HostNames, notes: Notes) -> JsonObject:
    """Return the pod template of a group, without the variables that V1 sets.

    Args:
        job: The name of the job, nothing if it is generated.
        notes: Where to tell what is not simply found again.
    """
    for replicas, _ in group.members:
        _tell(replicas.template, f"{replicas.path}.template", notes)
    template: JsonObject = copy_tree(group.replicas.template)
    path = f"{group.replicas.path}.template"
    pod_spec = template["spec"]
    for field in _JOBSET_DECIDES:
        pod_spec.pop(field, None)
    pod_spec["restartPolicy"] = pod_restart_policy(group.replicas.restart_policy)
    for field in ("initContainers", "containers"):
        for place, container in enumerate(pod_spec.get(field) or []):
            hosts.rewrite_container(container, f"{path}.spec.{field}[{place}]", notes)
    if group.is_node:
        _name_node(pod_spec, group.main, f"{path}.spec", notes)
    _point_to_indexes(pod_spec, JOB_INDEX_FIELD_PATH if group.is_spread else COMPLETION_INDEX_FIELD_PATH)
    metadata = {
        field: value
        for field, value in (template.get("metadata") or {}).items()
        if field in ("labels", "annotations", "finalizers") and value
    }
    labels = {JOB_NAME_LABEL: job} if job else {}
    if len({replicas.type for replicas, _ in group.members}) == 1:
        labels[REPLICA_TYPE_LABEL] = group.replicas.word
    if labels:
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    return {"metadata": metadata, "spec": pod_spec} if metadata else {"spec": pod_spec}


def users_variables(users: list[JsonObject], names: Collection[str], path: str, notes: Notes) -> list[JsonObject]:
    """Return the variables of the user that counted: the last of each name, and none of `names`, which V1 set last."""
    kept: dict[str, JsonObject] = {}
    for place, each in enumerate(users):
        name = each["name"]
        if name in names:
            notes.tell(f"{path}[{place}]", f"left out: {name} is set for the job, as V1 set it")
            continue
        if name in kept:
            notes.tell(f"{path}[{place}]", f"is the value of {name} that is kept, as it was the one that counted")
        kept[name] = each
    return list(kept.values())


def depends_on_type(template: JsonObject) -> bool:
    """Tell whether a template reads labels in which the pods of one job differ."""
    text = json.dumps(template)
    return any(label in text for label in (REPLICA_TYPE_LABEL, REPLICA_INDEX_LABEL, JOB_ROLE_LABEL))


def _tell(template: JsonObject, path: str, notes: Notes) -> None:
    for field in template.get("metadata") or {}:
        if field not in ("labels", "annotations", "finalizers"):
            notes.tell(f"{path}.metadata.{field}", "left out: Training Operator V1 does not look at it either")
    for field in template:
        if field not in ("metadata", "spec"):
            notes.tell(f"{path}.{field}", "left out: pod templates have no such field")
    pod_spec = template["spec"]
    if pod_spec.get("restartPolicy"):
        notes.tell(f"{path}.spec.restartPolicy", "left out: V1 overwrites it with that of the replicas")
    for field in _JOBSET_DECIDES:
        if pod_spec.get(field):
            notes.lose(f"{path}.spec.{field}", "left out: the JobSet names its pods, and they find each other by that")
    text = json.dumps({"metadata": template.get("metadata"), "spec": pod_spec})
    for label in (OPERATOR_NAME_LABEL, JOB_ROLE_LABEL):
        if label in text:
            notes.lose(
                f"{path}.spec",
                f"speaks of the label {label}, which pods of TrainJobs do not have; they have "
                f"{JOB_NAME_LABEL} and those of JobSets, for instance jobset.sigs.k8s.io/replicatedjob-name",
            )


def _name_node(pod_spec: JsonObject, main: int, path: str, notes: Notes) -> None:
    """Call the container that trains `node`, as TrainJobs do."""
    taken = {each["name"] for field in ("initContainers", "containers") for each in pod_spec.get(field) or []}
    for field in ("initContainers", "containers"):
        for place, container in enumerate(pod_spec.get(field) or []):
            if container["name"] == NODE and (field, place) != ("containers", main):
                container["name"] = next(name for n in range(len(taken) + 1) if (name := f"{NODE}-{n}") not in taken)
                renamed = f'is called {container["name"]}: in TrainJobs "{NODE}" is the container that trains'
                notes.tell(f"{path}.{field}[{place}].name", renamed)
    container = pod_spec["containers"][main]
    if container["name"] != NODE:
        notes.tell(f"{path}.containers[{main}].name", f'"{container["name"]}" is called "{NODE}" in TrainJobs')
        container["name"] = NODE


def _point_to_indexes(node: object, index: str) -> None:
    """Let fields that read the index of a replica read that of the pod."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "fieldPath" and value == f"metadata.labels['{REPLICA_INDEX_LABEL}']":
                node[key] = index
            else:
                _point_to_indexes(value, index)
    elif isinstance(node, list):
        for member in node:
            _point_to_indexes(member, index)
