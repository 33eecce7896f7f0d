"""Rules of pod specs, which pods and the templates of jobs share."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.containers.containers import (
    PodContext,
    validate_containers,
)
from trainmaster.devcluster.apiserver.registry.core.validation.containers.resources import (
    validate_overhead,
    validate_pod_resources,
    validate_resource_claims,
)
from trainmaster.devcluster.apiserver.registry.core.validation.containers.security_context import (
    validate_host_users,
    validate_pod_security,
)
from trainmaster.devcluster.apiserver.registry.core.validation.containers.windows import (
    validate_host_process,
    validate_os,
)
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    between,
    one_of,
    optional_name,
    required,
    subdomain,
)
from trainmaster.devcluster.apiserver.registry.core.validation.network import (
    validate_dns,
    validate_host_aliases,
    validate_host_network,
    validate_hostname,
)
from trainmaster.devcluster.apiserver.registry.core.validation.pods.affinity import validate_affinity
from trainmaster.devcluster.apiserver.registry.core.validation.pods.scheduling import (
    validate_gates,
    validate_spreading,
    validate_tolerations,
)
from trainmaster.devcluster.apiserver.registry.core.validation.volumes.volumes import validate_volumes
from trainmaster.devcluster.apiserver.registry.labels import label_key, labels
from trainmaster.runtime.jsontree import JsonObject

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_NAMES = ("serviceAccountName", "nodeName", "priorityClassName")
_LARGEST = 2**31 - 1


def validate_pod_spec(spec: JsonObject, path: str, *, pod_name: str = "") -> list[FieldError]:
    """Check a defaulted pod spec at a path; `pod_name` is that of the pod, empty for a template."""
    volumes, errors = validate_volumes(f"{path}.volumes", spec.get("volumes") or [], pod_name)
    claims = spec.get("resourceClaims") or []
    pod = PodContext(
        volumes=volumes,
        claims={each["name"] for each in claims if each.get("name")},
        restart_policy=spec.get("restartPolicy") or "",
        grace_seconds=spec.get("terminationGracePeriodSeconds") or 0,
        host_users=spec.get("hostUsers") is not False,
        is_pod=bool(pod_name),
    )
    errors += validate_resource_claims(f"{path}.resourceClaims", claims)
    errors += validate_containers(path, spec, pod)
    errors += validate_pod_resources(f"{path}.resources", spec, pod.claims)
    errors += validate_host_network(path, spec, is_pod=pod.is_pod)
    errors += _scalars(path, spec)
    errors += validate_dns(path, spec)
    errors += _placement(path, spec)
    errors += validate_pod_security(f"{path}.securityContext", spec)
    errors += validate_host_process(path, spec)
    errors += validate_host_users(path, spec)
    errors += validate_hostname(path, spec)
    errors += validate_os(path, spec)
    return errors


def _scalars(path: str, spec: JsonObject) -> Iterator[FieldError]:
    if policy := spec.get("restartPolicy"):
        yield from one_of(f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    else:
        yield required(f"{path}.restartPolicy")
    for field in _NAMES:
        yield from optional_name(spec, path, field)
    if (runtime := spec.get("runtimeClassName")) is not None:
        yield from subdomain(f"{path}.runtimeClassName", runtime)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        yield from between(f"{path}.activeDeadlineSeconds", deadline, 1, _LARGEST)
    if (preemption := spec.get("preemptionPolicy")) is not None:
        yield from one_of(f"{path}.preemptionPolicy", preemption, _PREEMPTION_POLICIES)
    if (overhead := spec.get("overhead")) is not None:
        yield from validate_overhead(f"{path}.overhead", overhead)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        yield from label_key(f"{path}.readinessGates[{index}].conditionType", gate.get("conditionType") or "")
    if aliases := spec.get("hostAliases"):
        yield from validate_host_aliases(f"{path}.hostAliases", aliases)


def _placement(path: str, spec: JsonObject) -> Iterator[FieldError]:
    """Check what the scheduler reads."""
    yield from labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    if (affinity := spec.get("affinity")) is not None:
        yield from validate_affinity(f"{path}.affinity", affinity)
    if gates := spec.get("schedulingGates"):
        yield from validate_gates(f"{path}.schedulingGates", gates)
    if constraints := spec.get("topologySpreadConstraints"):
        yield from validate_spreading(f"{path}.topologySpreadConstraints", constraints)
    if tolerations := spec.get("tolerations"):
        yield from validate_tolerations(f"{path}.tolerations", tolerations)
