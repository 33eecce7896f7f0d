"""What the rules of pods find wrong with a pod that tests describe by what is special about it."""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.podspec import default_pod, default_pod_spec
from trainmaster.devcluster.apiserver.registry.core.validation.pods.podspec import validate_pod_spec
from trainmaster.runtime.jsontree import JsonObject, copy_tree


def container(**fields: Any) -> JsonObject:
    """A container with an image."""
    return {"name": "c", "image": "img:1", **fields}


def pod_spec(**fields: Any) -> JsonObject:
    """The spec of a pod with one container, as the server completes it."""
    spec: JsonObject = copy_tree({"containers": [container()], **fields})
    default_pod(spec)
    return spec


def in_short(errors: list[FieldError]) -> list[str]:
    """Each error once, as its path below the spec and its type, in alphabetical order."""
    return sorted({f"{error.field.removeprefix('spec.')} {error.type}" for error in errors})


def wrong(**fields: Any) -> list[str]:
    """What is wrong with a pod that has these fields in its spec."""
    return in_short(validate_pod_spec(pod_spec(**fields), "spec", pod_name="demo"))


def wrong_in_template(**fields: Any) -> list[str]:
    """What is wrong with the template of pods that has these fields in its spec."""
    spec: JsonObject = copy_tree({"containers": [container()], **fields})
    default_pod_spec(spec)
    return in_short(validate_pod_spec(spec, "spec"))


def wrong_in_container(spec: JsonObject | None = None, /, **fields: Any) -> list[str]:
    """What is wrong with a pod whose only container has these fields; paths are below that container."""
    found = wrong(**(spec or {}), containers=[container(**fields)])
    return sorted(each.removeprefix("containers[0].") for each in found)
