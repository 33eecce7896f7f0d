"""The canonical form of JobSet templates.

The Go controllers read a runtime into typed structures and write it out again. That leaves traces which others can see
and compare: embedded `metadata` and container `resources` are always present, quantities are spelled canonically.
Kueue, for instance, builds the same JobSet from the same runtime and compares. So both the snapshot and the JobSet are
brought into this form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.quantity import QuantityError, canonical


class TemplateInvalid(ValueError):
    """A template holds something that no JobSet can hold; the message says what."""


# Fields that Go leaves out when they are zero, beside empty lists and maps; those it holds by pointer are kept.
_POD_ZEROS = (
    *("hostNetwork", "hostPID", "hostIPC", "hostname", "subdomain", "nodeName", "schedulerName", "priorityClassName"),
    *("serviceAccountName", "serviceAccount", "restartPolicy", "dnsPolicy"),
)
_CONTAINER_ZEROS = (
    *("stdin", "stdinOnce", "tty", "workingDir", "imagePullPolicy", "terminationMessagePath"),
    "terminationMessagePolicy",
)
_MOUNT_ZEROS = ("readOnly", "subPath", "subPathExpr")
_PORT_ZEROS = ("hostPort", "hostIP", "name")
_VOLUME_ZEROS = ("readOnly", "medium", "partition", "fsType")
_POINTERS_IN_VOLUMES = ("csi",)
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_ZEROS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")

_MAPS = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "limits", "requests", "overhead"})
"""Fields that are maps; other empty objects may mean something, as `emptyDir: {}` does."""


def without_blanks(node: Any) -> Any:
    """Copy a JSON tree without the fields that mean the same as absent ones: nulls, and empty lists and maps."""
    if isinstance(node, dict):
        return {key: without_blanks(value) for key, value in node.items() if not _is_blank(key, value)}
    if isinstance(node, list):
        return [without_blanks(value) for value in node]
    return node


def _is_blank(key: str, value: Any) -> bool:
    return value is None or value == [] or (key in _MAPS and value == {})


def canonicalize_template(template: JsonObject) -> None:
    """Bring a runtime's `spec.template` (metadata and JobSetSpec) into canonical form, in place.

    Raises:
        TemplateInvalid: It holds something that no JobSet can hold.
    """
    template.setdefault("metadata", {})
    canonicalize_jobset_spec(template.setdefault("spec", {}))


def canonicalize_jobset_spec(spec: JsonObject) -> None:
    """Bring a JobSetSpec without blanks into canonical form, in place.

    Raises:
        TemplateInvalid: It holds something that no JobSet can hold.
    """
    try:
        _canonicalize(spec)
    except (AttributeError, TypeError) as error:
        # Reading checks only the skeleton (`api.shapes`); what is odd deeper down shows in stepping through it.
        raise TemplateInvalid(f"spec.template.spec is not shaped like a JobSet: {error}") from error


def _canonicalize(spec: JsonObject) -> None:
    for replicated_job in spec.get("replicatedJobs") or []:
        job_template = replicated_job.setdefault("template", {})
        job_template.setdefault("metadata", {})
        pod_template = job_template.setdefault("spec", {}).setdefault("template", {})
        pod_template.setdefault("metadata", {})
        _canonicalize_pod_spec(pod_template.setdefault("spec", {}))
    for policy in spec.get("volumeClaimPolicies") or []:
        for claim in policy.get("templates") or []:
            _canonicalize_claim(claim)
            claim.setdefault("status", {})
    if spec.get("coordinator"):
        _drop_zeros(spec["coordinator"], ("jobIndex", "podIndex"))
    if spec.get("network"):
        _drop_zeros(spec["network"], ("subdomain",))
    if spec.get("failurePolicy"):
        _drop_zeros(spec["failurePolicy"], ("maxRestarts",))


def spelled_out(env: Iterable[JsonObject]) -> list[JsonObject]:
    """Copy variables of a TrainJob as the original applies them: with every field that it sets, even if it is empty."""
    variables: list[JsonObject] = copy_tree(list(env))
    for variable in variables:
        source = variable.get("valueFrom")
        if source is None:
            variable.setdefault("value", "")
        elif source.get("resourceFieldRef"):
            source["resourceFieldRef"].setdefault("containerName", "")
    _canonicalize_divisors(variable.get("valueFrom") for variable in variables)
    return variables


def canonicalize_resources(resources: JsonObject) -> None:
    """Spell the quantities of ResourceRequirements canonically, in place.

    Raises:
        TemplateInvalid: One of them is no quantity.
    """
    for part in ("limits", "requests"):
        if resources.get(part):
            resources[part] = _quantities(resources[part])


def _canonicalize_pod_spec(spec: JsonObject) -> None:
    _drop_zeros(spec, _POD_ZEROS)
    for container in _containers(spec):
        _drop_zeros(container, _CONTAINER_ZEROS)
        canonicalize_resources(container.setdefault("resources", {}))
        for probe in _PROBES:
            if container.get(probe):
                _drop_zeros(container[probe], _PROBE_ZEROS)
        for mount in container.get("volumeMounts") or []:
            _drop_zeros(mount, _MOUNT_ZEROS)
        for port in container.get("ports") or []:
            _drop_zeros(port, _PORT_ZEROS)
        for variable in container.get("env") or []:
            _drop_zeros(variable, ("value",))
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
    for kind, source in volume.items():
        if isinstance(source, dict) and kind not in _POINTERS_IN_VOLUMES:
            _drop_zeros(source, _VOLUME_ZEROS)
    empty_dir = volume.get("emptyDir")
    if empty_dir and "sizeLimit" in empty_dir:
        empty_dir["sizeLimit"] = _quantity("sizeLimit", empty_dir["sizeLimit"])
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
            reference["divisor"] = _quantity("divisor", reference.get("divisor", "0"))


def _quantities(values: JsonObject) -> dict[str, Any]:
    return {name: _quantity(name, value) for name, value in values.items()}


def _quantity(name: str, value: Any) -> str:
    try:
        return canonical(value)
    except QuantityError as error:
        raise TemplateInvalid(f"{name}: {error}") from error


def _drop_zeros(holder: JsonObject, fields: tuple[str, ...]) -> None:
    for field in fields:
        if field in holder and not holder[field]:
            del holder[field]
