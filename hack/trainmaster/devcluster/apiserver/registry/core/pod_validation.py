"""Rules of pods and of pod templates: those that manifests break, and what of a pod may change.

They are told in the words of kube-apiserver 1.36; docs/embedded-cluster.md lists what is judged by the schema alone.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.container_validation import (
    field_ref,
    validate_containers,
    validate_resources,
)
from trainmaster.devcluster.apiserver.registry.fields import (
    between,
    forbidden,
    invalid,
    label,
    local_path,
    needs,
    one_of,
    optional_name,
    required,
    subdomain,
)
from trainmaster.devcluster.apiserver.registry.labels import (
    label_key,
    label_key_problems,
    label_selector,
    labels,
    number_of_values,
)
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, label_value

_LARGEST = 2**31 - 1
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_CLAIM_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_IMMUTABLE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_MAY_CHANGE = ("activeDeadlineSeconds", "schedulingGates", "tolerations")
"""Fields with rules of their own."""
_STEERED = ("nodeSelector", "affinity")
"""What may change as well while a gate keeps a pod from being scheduled."""

_SHORTEST_TOKEN = 600
_PROJECTIONS = ("secret", "configMap", "downwardAPI", "serviceAccountToken")
_VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
"""What a file of a volume may show of the pod."""
_NEEDED = {
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "hostPath": "path",
    "csi": "driver",
    "ephemeral": "volumeClaimTemplate",
}
"""What says which one is meant, by the kind of the source."""


def validate_pod(pod: JsonObject) -> list[FieldError]:
    """Check a pod, new or changed, apart from what all metadata have in common."""
    return validate_pod_spec(pod["spec"], "spec", is_pod=True)


def validate_new_pod(pod: JsonObject) -> Iterator[FieldError]:
    """Check what only a new pod may not have."""
    spec = pod["spec"]
    if spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def validate_pod_template(template: JsonObject, path: str) -> list[FieldError]:
    """Check the template of pods at a path."""
    metadata, spec = template.get("metadata") or {}, template["spec"]
    errors = list(labels(f"{path}.labels", metadata.get("labels")))
    for key in metadata.get("annotations") or ():
        errors += label_key(f"{path}.annotations", key.lower())
    errors += validate_pod_spec(spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        errors.append(forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))
    return errors


def validate_pod_spec(spec: JsonObject, path: str, *, is_pod: bool = False) -> list[FieldError]:
    """Check a defaulted pod spec at a path, of a pod or a template."""
    volumes, errors = validate_volumes(f"{path}.volumes", spec.get("volumes") or ())
    errors += _claims(f"{path}.resourceClaims", spec.get("resourceClaims") or ())
    errors += validate_containers(path, spec, volumes)
    errors += validate_resources(f"{path}.resources", spec.get("resources") or {})
    errors += _scalars(path, spec)
    errors += labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    errors += _affinity(f"{path}.affinity", spec.get("affinity") or {})
    errors += _tolerations(f"{path}.tolerations", spec.get("tolerations") or ())
    errors += _spreading(f"{path}.topologySpreadConstraints", spec.get("topologySpreadConstraints") or ())
    if spec.get("hostNetwork"):
        errors += _host_network(path, spec, is_pod=is_pod)
    if (group := spec.get("schedulingGroup")) is not None:
        errors += _scheduling_group(f"{path}.schedulingGroup.podGroupName", group.get("podGroupName"))
    return errors


def _scheduling_group(path: str, name: str | None) -> Iterator[FieldError]:
    if name is None:
        yield FieldError(path, "Invalid", None, "must specify one of: `podGroupName`")
    else:
        yield from subdomain(path, name)


def _scalars(path: str, spec: JsonObject) -> Iterator[FieldError]:
    yield from one_of(f"{path}.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES)
    for field in ("serviceAccountName", "nodeName", "priorityClassName"):
        yield from optional_name(spec, path, field)
    for field in ("hostname", "subdomain"):
        yield from optional_name(spec, path, field, dns_label)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        yield from between(f"{path}.activeDeadlineSeconds", deadline, 1, _LARGEST)
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        yield from label_key(f"{path}.schedulingGates[{index}]", gate.get("name") or "")


def _claims(path: str, claims: Iterable[JsonObject]) -> Iterator[FieldError]:
    """Check the claims of devices that a pod has."""
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name = f"{path}[{index}]", claim.get("name") or ""
        if not name:
            yield required(f"{here}.name")
        elif name in seen:
            yield FieldError(f"{here}.name", "Duplicate", name)
        else:
            yield from label(f"{here}.name", name)
            seen.add(name)
        if (count := sum(claim.get(field) is not None for field in _CLAIM_SOURCES)) != 1:
            shown = {"Name": name} | {f"{field[0].upper()}{field[1:]}": claim.get(field) for field in _CLAIM_SOURCES}
            names = "`resourceClaimName` or `resourceClaimTemplateName`"
            many, none = f"at most one of {names} may be specified", f"must specify one of: {names.replace(' or', ',')}"
            yield FieldError(here, "Invalid", shown, many if count else none)


def _host_network(path: str, spec: JsonObject, *, is_pod: bool) -> Iterator[FieldError]:
    """Check that ports are those of the host where its network is used; a template may leave them to the pod."""
    for number, container in enumerate(spec.get("containers") or ()):
        for index, port in enumerate(container.get("ports") or ()):
            given = port.get("hostPort") or 0
            if (given or is_pod) and given != (port.get("containerPort") or 0):
                here = f"{path}.containers[{number}].ports[{index}].hostPort"
                yield FieldError(here, "Invalid", given, "must match `containerPort` when `hostNetwork` is true")


# What the scheduler reads


def _affinity(path: str, affinity: JsonObject) -> Iterator[FieldError]:
    """Check what a pod wants of its node, and of the pods on it."""
    to_node = affinity.get("nodeAffinity") or {}
    if (selector := to_node.get(_REQUIRED)) is not None:
        here = f"{path}.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
        terms = selector.get("nodeSelectorTerms") or []
        if not terms:
            yield required(here, "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _node_term(f"{here}[{index}]", term)
    for index, preferred in enumerate(to_node.get(_PREFERRED) or ()):
        yield from _weight(f"{path}.nodeAffinity.{_PREFERRED}[{index}]", preferred)
    for field in ("podAffinity", "podAntiAffinity"):
        given = affinity.get(field) or {}
        for index, term in enumerate(given.get(_REQUIRED) or ()):
            yield from _pod_term(f"{path}.{field}.{_REQUIRED}[{index}]", term)
        for index, weighted in enumerate(given.get(_PREFERRED) or ()):
            here = f"{path}.{field}.{_PREFERRED}[{index}]"
            yield from _weight(here, weighted)
            yield from _pod_term(f"{here}.podAffinityTerm", weighted.get("podAffinityTerm") or {})


def _weight(path: str, weighted: JsonObject) -> Iterator[FieldError]:
    weight = weighted.get("weight") or 0
    if not 1 <= weight <= 100:
        yield FieldError(f"{path}.weight", "Invalid", weight, "must be in the range 1-100")


def _node_term(path: str, term: JsonObject) -> Iterator[FieldError]:
    """Check a term about the labels of a node."""
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = requirement.get("operator") or "", requirement.get("values") or []
        if operator not in ("Gt", "Lt"):
            yield from number_of_values(here, operator, values)
        elif len(values) != 1:
            yield required(f"{here}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        yield from label_key(f"{here}.key", requirement.get("key") or "")
        for position, value in enumerate(values):
            yield from invalid(f"{here}.values[{position}]", value, label_value(value))


def _pod_term(path: str, term: JsonObject) -> Iterator[FieldError]:
    for field in ("labelSelector", "namespaceSelector"):
        yield from label_selector(f"{path}.{field}", term.get(field))
    topology = term.get("topologyKey") or ""
    if not topology:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from invalid(f"{path}.topologyKey", topology, label_key_problems(topology))


def _tolerations(path: str, tolerations: Iterable[JsonObject]) -> Iterator[FieldError]:
    """Check which taints a pod bears."""
    for index, toleration in enumerate(tolerations):
        here = f"{path}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            yield from label_key(f"{here}.key", key)
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield FieldError(f"{here}.operator", "Invalid", operator, text)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield FieldError(f"{here}.effect", "Invalid", effect, text)
        if operator in ("", "Equal"):
            problems = label_value(value)
            yield from invalid(f"{here}.operator", value, [";".join(problems)] if problems else [])
        elif operator != "Exists":
            yield from one_of(f"{here}.operator", operator, ("Equal", "Exists"))  # comparisons are not allowed yet
        elif value:
            yield FieldError(f"{here}.operator", "Invalid", value, "value must be empty when `operator` is 'Exists'")
        if effect:
            yield from one_of(f"{here}.effect", effect, _EFFECTS)


def _spreading(path: str, constraints: Iterable[JsonObject]) -> Iterator[FieldError]:
    """Check how pods spread over the cluster."""
    for index, constraint in enumerate(constraints):
        here, skew = f"{path}[{index}]", constraint.get("maxSkew") or 0
        if skew <= 0:
            yield FieldError(f"{here}.maxSkew", "Invalid", skew, "must be greater than zero")
        if not constraint.get("topologyKey"):
            yield required(f"{here}.topologyKey", "can not be empty")
        action = constraint.get("whenUnsatisfiable") or ""
        yield from one_of(f"{here}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        yield from label_selector(f"{here}.labelSelector", constraint.get("labelSelector"))


# What may change


def validate_pod_update(spec: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check a changed spec against the old one; the new one by itself is checked elsewhere."""
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) != len(old.get(field) or ()):
            yield forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
    deadline, before = spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if before is not None and (deadline is None or deadline > before):
        unset = "must not update from a positive integer to nil value"
        text = unset if deadline is None else "must be less than or equal to previous value"
        yield FieldError("spec.activeDeadlineSeconds", "Invalid", deadline, text)
    given = [_without(each, "tolerationSeconds") for each in spec.get("tolerations") or ()]
    if any(_without(each, "tolerationSeconds") not in given for each in old.get("tolerations") or ()):
        text = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden("spec.tolerations", text)
    known = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", text)
    free = (*_MAY_CHANGE, *_STEERED) if known else _MAY_CHANGE
    new, was = _comparable(spec, free), _comparable(old, free)
    if new != was:
        yield forbidden("spec", f"{_IMMUTABLE_TEXT}\n{_difference(was, new)}")


def _difference(old: JsonObject, new: JsonObject) -> str:
    """Show what should change, as a unified diff."""
    before, after = (json.dumps(each, indent=2, sort_keys=True).splitlines() for each in (old, new))
    return "\n".join(list(difflib.unified_diff(before, after, lineterm=""))[2:])


def _comparable(spec: JsonObject, free: Iterable[str]) -> JsonObject:
    """Return a spec without what may change, and without empty members: those are the same as none."""
    kept = _without(spec, *free)
    for field in ("containers", "initContainers"):
        kept[field] = [_without(container, "image") for container in kept.get(field) or ()]
    trimmed: JsonObject = _trimmed(kept)
    return trimmed


def _trimmed(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _trimmed(value) for key, value in node.items() if value not in ("", [], False, None)}
    if isinstance(node, list):
        return [_trimmed(value) for value in node]
    return node


def _without(obj: JsonObject, *fields: str) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in fields}


def validate_ephemeral_containers_update(pod: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check that containers for debugging are only added."""
    given = {each.get("name"): each for each in pod["spec"].get("ephemeralContainers") or ()}
    for container in old["spec"].get("ephemeralContainers") or ():
        name = container["name"]
        if given.get(name) != container:
            done = "changed" if name in given else "removed"
            text = f'existing ephemeral containers "{name}" may not be {done}\n'
            yield forbidden("spec.ephemeralContainers", text)


def validate_volumes(path: str, volumes: Iterable[JsonObject]) -> tuple[set[str], list[FieldError]]:
    """Check volumes; returns the names of the sound ones, which containers may mount, and what is wrong with others."""
    sound: set[str] = set()
    errors: list[FieldError] = []
    for index, volume in enumerate(volumes):
        here = f"{path}[{index}]"
        problems = [*_source(here, volume), *_name(f"{here}.name", volume.get("name") or "", sound)]
        if not problems:
            sound.add(volume["name"])
        errors += problems
    return sound, errors


def _name(path: str, name: str, others: set[str]) -> Iterator[FieldError]:
    if name:
        yield from label(path, name)
    else:
        yield required(path)
    if name in others:
        yield FieldError(path, "Duplicate", name)


def _source(path: str, volume: JsonObject) -> Iterator[FieldError]:
    kinds = [kind for kind, value in volume.items() if kind != "name" and value is not None]
    if not kinds:
        yield required(path, "must specify a volume type")
        return
    kind, source = kinds[0], volume[kinds[0]]
    here = f"{path}.{kind}"
    if kind in _NEEDED:
        yield from needs(source, here, _NEEDED[kind])
    if kind in ("secret", "configMap"):
        yield from _items(here, source)
    elif kind == "downwardAPI":
        yield from _fields(here, source)
    elif kind == "projected":
        yield from _projected(here, source)
    for other in kinds[1:]:
        yield forbidden(f"{path}.{other}", "may not specify more than 1 volume type")


def _items(path: str, source: JsonObject) -> Iterator[FieldError]:
    for index, item in enumerate(source.get("items") or ()):
        here = f"{path}.items[{index}]"
        yield from needs(item, here, "key", "path")
        yield from local_path(f"{here}.path", item.get("path") or "")


def _fields(path: str, source: JsonObject) -> Iterator[FieldError]:
    """Check fields of the pod as files; errors do not say which file they are of, as in the real server."""
    for item in source.get("items") or ():
        yield from needs(item, path, "path")
        yield from local_path(f"{path}.path", item.get("path") or "")
        if (field := item.get("fieldRef")) is not None:
            yield from field_ref(f"{path}.fieldRef", field, _VOLUME_FIELDS)
        elif item.get("resourceFieldRef") is None:
            yield required(path, "one of fieldRef and resourceFieldRef is required")


def _projected(path: str, volume: JsonObject) -> Iterator[FieldError]:
    """Check several sources in one volume."""
    for index, source in enumerate(volume.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if (given := source.get(kind)) is not None:
                yield from needs(given, f"{here}.{kind}", "name")
                yield from _items(f"{here}.{kind}", given)
        yield from _fields(f"{here}.downwardAPI", source.get("downwardAPI") or {})
        if (token := source.get("serviceAccountToken")) is not None:
            if (seconds := token.get("expirationSeconds") or 0) < _SHORTEST_TOKEN:
                text = "may not specify a duration less than 10 minutes"
                yield FieldError(f"{here}.serviceAccountToken.expirationSeconds", "Invalid", seconds, text)
            yield from needs(token, path, "path")
        if sum(source.get(kind) is not None for kind in _PROJECTIONS) > 1:
            yield forbidden(here, "may not specify more than 1 volume type per source")
