"""What the API server refuses of the Jobs that JobSet's controller makes: the rules of Job and of its pods.

A contradiction is refused for certain. What is merely missing (an image, a volume, the limit of a GPU) may be added by
an admission plugin of the cluster before the API server looks at the Job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label
from trainmaster.runtime.quantity import Quantity, QuantityError
from trainmaster.runtime.validation.problems import Consequence, Problem, check_labels, check_metadata, each, unique

_MOST_PODS: Final = 100_000  # of an Indexed Job
_LARGEST_PORT: Final = 65_535
_OVERCOMMITTED: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources of which a container may request less than its limit."""

_VARIABLE_NAME: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)


def check_job_template(template: JsonObject, path: str, mountable: set[str]) -> Iterator[Problem]:
    """Check a JobTemplateSpec.

    Args:
        mountable: Names of volumes that are not looked for in the pod.
    """
    yield from check_metadata(template, path, Consequence.JOB_REFUSED)
    job_spec, path = template["spec"], f"{path}.spec"
    if number(job_spec, "parallelism") > _MOST_PODS and job_spec.get("completionMode") != "NonIndexed":
        detail = f"must be less than or equal to {_MOST_PODS} when completionMode is Indexed"
        yield Problem(f"{path}.parallelism", detail)
    yield from check_pod_template(job_spec["template"], f"{path}.template", mountable)


def is_incomplete(template: JsonObject, mountable: set[str]) -> bool:
    """Tell whether the check of a JobTemplateSpec, with these arguments, finds that something is missing."""
    spec = template["spec"]["template"]["spec"]
    containers: list[JsonObject] = spec.get("containers") or []
    if volumes := spec.get("volumes"):
        mountable = mountable | {volume["name"] for volume in volumes}
    return not containers or any(
        _lacks_something(container, mountable) for container in [*containers, *(spec.get("initContainers") or ())]
    )


def _lacks_something(container: JsonObject, mountable: set[str]) -> bool:
    if not container.get("image"):
        return True
    for mount in container.get("volumeMounts") or ():
        if mount.get("name") not in mountable:
            return True
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    return any(name not in limits and name not in _OVERCOMMITTED for name in resources.get("requests") or ())


def number(holder: JsonObject, field: str) -> int:
    """Read a number that is 1 by default."""
    value = holder.get(field, 1)
    return value if isinstance(value, int) else 1


def check_pod_template(template: JsonObject, path: str, mountable: set[str]) -> Iterator[Problem]:
    """Check a PodTemplateSpec, with the arguments of `check_job_template`."""
    yield from check_metadata(template, path, Consequence.JOB_REFUSED)
    spec, path = template["spec"], f"{path}.spec"
    containers: list[JsonObject] = spec.get("containers") or []
    init_containers: list[JsonObject] = spec.get("initContainers") or []
    volumes: list[JsonObject] = spec.get("volumes") or []
    if not containers:
        yield Problem(f"{path}.containers", "Required value", Consequence.JOB_INCOMPLETE)
    if spec.get("restartPolicy", "Never") not in ("Never", "OnFailure"):
        yield Problem(f"{path}.restartPolicy", "must be Never or OnFailure")
    yield from check_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector", Consequence.JOB_REFUSED)
    yield from _check_container_names(containers, init_containers, path)
    yield from unique(f"{path}.volumes", volumes, _name)
    for position, volume in enumerate(volumes):
        yield from _check_volume(volume, f"{path}.volumes[{position}]")
    mountable = mountable | {volume["name"] for volume in volumes}
    for field, members in (("initContainers", init_containers), ("containers", containers)):
        for position, container in enumerate(members):
            yield from _check_container(container, f"{path}.{field}[{position}]", mountable)


def _check_container_names(
    containers: list[JsonObject], init_containers: list[JsonObject], path: str
) -> Iterator[Problem]:
    yield from unique(f"{path}.containers", containers, _name)
    yield from unique(f"{path}.initContainers", init_containers, _name)
    names = {container["name"] for container in containers}
    for position, container in enumerate(init_containers):
        if container["name"] in names:
            yield Problem(f"{path}.initContainers[{position}].name", f"Duplicate value: {container['name']!r}")


def _check_volume(volume: JsonObject, path: str) -> Iterator[Problem]:
    yield from each(f"{path}.name", dns_label(volume["name"]))
    sources = sorted(volume.keys() - {"name"})
    if len(sources) > 1:
        yield Problem(path, f"may not specify more than 1 volume type, and has {', '.join(sources)}")
    # Without any source it is an emptyDir.


def _check_container(container: JsonObject, path: str, mountable: set[str]) -> Iterator[Problem]:
    yield from each(f"{path}.name", dns_label(container["name"]))
    if not container.get("image"):
        yield Problem(f"{path}.image", "Required value", Consequence.JOB_INCOMPLETE)
    mounts: list[JsonObject] = container.get("volumeMounts") or []
    for position, mount in enumerate(mounts):
        if not mount.get("mountPath"):
            yield Problem(f"{path}.volumeMounts[{position}].mountPath", "Required value")
        if mount.get("name") not in mountable:
            detail = f'Not found: "{mount.get("name")}"'
            yield Problem(f"{path}.volumeMounts[{position}].name", detail, Consequence.JOB_INCOMPLETE)
    yield from unique(f"{path}.volumeMounts", mounts, lambda mount: mount.get("mountPath"))
    yield from _check_env(container.get("env") or [], f"{path}.env")
    ports: list[JsonObject] = container.get("ports") or []
    for position, port in enumerate(ports):
        if not 1 <= port.get("containerPort", 0) <= _LARGEST_PORT:
            yield Problem(f"{path}.ports[{position}].containerPort", f"must be between 1 and {_LARGEST_PORT}")
    yield from unique(f"{path}.ports", ports, lambda port: (port.get("containerPort"), port.get("protocol", "TCP")))
    yield from _check_resources(container.get("resources") or {}, f"{path}.resources")


def _check_env(env: list[JsonObject], path: str) -> Iterator[Problem]:
    yield from unique(path, env, _name)
    for position, variable in enumerate(env):
        name = variable["name"]
        if not name or "=" in name or not (name.isascii() and name.isprintable()):
            yield Problem(f"{path}[{position}].name", _VARIABLE_NAME)
        if variable.get("value") and variable.get("valueFrom"):
            yield Problem(f"{path}[{position}].valueFrom", "may not be specified when `value` is not empty")


def _check_resources(resources: JsonObject, path: str) -> Iterator[Problem]:
    limits, requests = _amounts(resources, "limits"), _amounts(resources, "requests")
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if "/" not in name and name not in _OVERCOMMITTED and not name.startswith("hugepages-"):
                yield Problem(f"{path}.{part}[{name}]", "must be a standard resource for containers")
            if amount.nano < 0:
                yield Problem(f"{path}.{part}[{name}]", "must be greater than or equal to 0")
    for name, requested in requests.items():
        limit = limits.get(name)
        if limit is not None and requested > limit:
            yield Problem(f"{path}.requests", f"{requested} must be less than or equal to {name} limit of {limit}")
        elif limit is not None and requested != limit and name not in _OVERCOMMITTED:
            yield Problem(f"{path}.requests", f"{requested} must be equal to {name} limit of {limit}")
        elif limit is None and name not in _OVERCOMMITTED:
            detail = f"Limit must be set for non overcommitable resources: {name}"
            yield Problem(f"{path}.limits", detail, Consequence.JOB_INCOMPLETE)


def _amounts(resources: JsonObject, part: str) -> dict[str, Quantity]:
    try:
        return {name: Quantity.parse(value) for name, value in (resources.get(part) or {}).items()}
    except QuantityError as error:
        raise ValueError(str(error)) from error


def _name(item: JsonObject) -> str:
    name: str = item["name"]
    return name
