"""What the author of a pod or of a template is told although it is sound (kube-apiserver's pkg/api/pod/warnings.go)."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_DEPRECATED_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_DEPRECATED_VOLUMES = {
    "photonPersistentDisk": ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    "gitRepo": ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    "scaleIO": ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    "flocker": ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    "storageos": ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    "quobyte": ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    "glusterfs": ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    "cephfs": ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    "rbd": ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_BYTES = ("memory", "ephemeral-storage")
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP_TEXT = 'non-functional in v1.27+; use the "seccompProfile" field instead'


def pod_warnings(obj: JsonObject, prefix: str = "") -> list[str]:
    """Return the warnings about a pod, or about a template that stands at `prefix` (`spec.template.`)."""
    spec = obj["spec"]
    path = f"{prefix}spec"
    return [
        *_labels(path, spec),
        *_annotations(prefix, (obj.get("metadata") or {}).get("annotations") or {}, spec),
        *_volumes(path, spec),
        *_lists(path, spec),
        *_containers(path, spec),
        *_ports(path, spec),
        *_affinities(f"{path}.affinity", spec.get("affinity")),
    ]


def _labels(path: str, spec: JsonObject) -> Iterator[str]:
    for key in spec.get("nodeSelector") or ():
        if text := _DEPRECATED_LABELS.get(key):
            yield f"{path}.nodeSelector[{key}]: {text}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    here = f"{path}.affinity.nodeAffinity"
    for index, term in enumerate((affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield from _term(f"{here}.{_REQUIRED}.nodeSelectorTerms[{index}]", term)
    for index, preferred in enumerate(affinity.get(_PREFERRED) or ()):
        yield from _term(f"{here}.{_PREFERRED}[{index}].preference", preferred.get("preference") or {})
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        place, key = f"{path}.topologySpreadConstraints[{index}]", constraint.get("topologyKey") or ""
        if text := _DEPRECATED_LABELS.get(key):
            yield f"{place}.topologyKey: {key} is {text}"
        if constraint.get("labelSelector") is None:
            yield f"{place}.labelSelector: a null labelSelector results in matching no pod"


def _term(path: str, term: JsonObject) -> Iterator[str]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        key = expression.get("key") or ""
        if text := _DEPRECATED_LABELS.get(key):
            yield f"{path}.matchExpressions[{index}].key: {key} is {text}"


def _annotations(prefix: str, annotations: JsonObject, spec: JsonObject) -> Iterator[str]:
    if not annotations:
        return
    path = f"{prefix}metadata.annotations"
    for key, text in _DEPRECATED_ANNOTATIONS.items():
        if key in annotations:
            yield f"{path}[{key}]: {text}"
    if _SECCOMP_POD in annotations and (spec.get("securityContext") or {}).get("seccompProfile") is None:
        yield f"{path}[{_SECCOMP_POD}]: {_SECCOMP_TEXT}"
    for field in _CONTAINERS:
        for container in spec.get(field) or ():
            key = f"{_SECCOMP_CONTAINER}{container.get('name', '')}"
            if key in annotations and (container.get("securityContext") or {}).get("seccompProfile") is None:
                yield f"{path}[{key}]: {_SECCOMP_TEXT}"


def _volumes(path: str, spec: JsonObject) -> Iterator[str]:
    volumes = spec.get("volumes") or ()
    for index, volume in enumerate(volumes):
        for kind, (name, text) in _DEPRECATED_VOLUMES.items():
            if volume.get(kind) is not None:
                yield f"{path}.volumes[{index}].{name}: {text}"
        projected = volume.get("projected")
        for source in (projected or {}).get("sources") or ():
            if not any(value is not None for value in source.values()):
                yield f'volume "{volume.get("name", "")}" (Projected) has no sources provided'
    tokens = {
        (source.get("serviceAccountToken") or {}).get("path")
        for volume in volumes
        for source in (volume.get("projected") or {}).get("sources") or ()
    } - {None}
    if tokens:
        for index, volume in enumerate(volumes):
            yield from _hidden_tokens(f"{path}.volumes[{index}].projected.sources", volume, tokens)


def _hidden_tokens(path: str, volume: JsonObject, tokens: set[str | None]) -> Iterator[str]:
    for source in (volume.get("projected") or {}).get("sources") or ():
        for kind, name in (("configMap", "configMap"), ("secret", "secrets"), ("downwardAPI", "downwardAPI")):
            for index, item in enumerate((source.get(kind) or {}).get("items") or ()):
                if item.get("path") in tokens:
                    yield f'{path}.{name}[{index}]: has duplicated path with ServiceAccountToken "{item["path"]}"'


def _lists(path: str, spec: JsonObject) -> Iterator[str]:
    seen: set[str] = set()
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        ip = alias.get("ip") or ""
        if ip in seen:
            yield f'{path}.hostAliases[{index}].ip: duplicate ip "{ip}"'
        seen.add(ip)
    seen = set()
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        name = secret.get("name") or ""
        if name in seen:
            yield f'{path}.imagePullSecrets[{index}].name: duplicate name "{name}"'
        if not name:
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
        seen.add(name)
    for name in _BYTES:
        yield from _fraction(f"{path}.overhead", spec.get("overhead"), name)
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{path}.terminationGracePeriodSeconds: {text}"


def _fraction(path: str, amounts: JsonObject | None, name: str) -> Iterator[str]:
    if amounts and name in amounts and Quantity.parse(amounts[name]).nano % 10**9:
        yield f'{path}[{name}]: fractional byte value "{amounts[name]}" is invalid, must be an integer'


def _containers(path: str, spec: JsonObject) -> Iterator[str]:
    for field in _CONTAINERS:
        for index, container in enumerate(spec.get(field) or ()):
            here = f"{path}.{field}[{index}]"
            resources = container.get("resources") or {}
            for name in _BYTES:
                for side in ("limits", "requests"):
                    yield from _fraction(f"{here}.resources.{side}", resources.get(side), name)
            if len(container.get("env") or ()) > 1:
                yield from _hidden_variables(f"{here}.env", container["env"])


def _hidden_variables(path: str, variables: list[JsonObject]) -> Iterator[str]:
    """Warn of variables that replace an earlier one of the same name without building on it."""
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable.get("name") or "", variable.get("value") or ""
        reference = f"$({name})"
        if name in seen and (variable.get("valueFrom") is not None or value == reference or reference not in value):
            yield f'{path}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)


def _ports(path: str, spec: JsonObject) -> Iterator[str]:
    known: dict[tuple[int, str], list[tuple[str, JsonObject]]] = {}
    named: dict[str, str] = {}
    for field in _CONTAINERS:
        for number, container in enumerate(spec.get(field) or ()):
            for index, port in enumerate(container.get("ports") or ()):
                here = f"{path}.{field}[{number}].ports[{index}]"
                key = (port.get("containerPort") or 0, port.get("protocol") or "")
                if port.get("hostIP") and not port.get("hostPort"):
                    shown = f"Name:{port.get('name', '')} HostPort:0 ContainerPort:{key[0]} Protocol:{key[1]}"
                    yield f"{here}: hostIP set without hostPort: {{{shown} HostIP:{port['hostIP']}}}"
                for place, other in known.get(key, ()):
                    yield from _same_port(here, port, place, other)
                known.setdefault(key, []).append((here, port))
                name = port.get("name")
                if name and (first := named.setdefault(name, here)) != here:
                    yield (
                        f'{here}: duplicate port name "{name}" with {first}, '
                        f"services and probes that select ports by name will use {first}"
                    )


def _same_port(path: str, port: JsonObject, place: str, other: JsonObject) -> Iterator[str]:
    mine, theirs = ((each.get("hostIP") or "", each.get("hostPort") or 0) for each in (port, other))
    if mine == theirs:
        yield f"{path}: duplicate port definition with {place}"
    elif not mine[1] or not theirs[1]:
        yield f"{path}: overlapping port definition with {place}"
    elif mine[1] == theirs[1] and bool(mine[0]) != bool(theirs[0]):
        yield f"{path}: dangerously ambiguous port definition with {place}"


def _affinities(path: str, affinity: JsonObject | None) -> Iterator[str]:
    text = "a null labelSelector results in matching no pod"
    for field in ("podAffinity", "podAntiAffinity"):
        given = (affinity or {}).get(field) or {}
        for index, term in enumerate(given.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.{field}.{_REQUIRED}[{index}].labelSelector: {text}"
        for index, weighted in enumerate(given.get(_PREFERRED) or ()):
            if (weighted.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{path}.{field}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {text}"
