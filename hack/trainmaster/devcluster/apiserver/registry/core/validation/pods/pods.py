"""Rules of whole pods and of whole templates, new and changed through their subresources."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.annotations import (
    MIRROR_POD,
    validate_pod_annotations,
    validate_profiles_match,
)
from trainmaster.devcluster.apiserver.registry.core.validation.fields import forbidden
from trainmaster.devcluster.apiserver.registry.core.validation.pods.podspec import validate_pod_spec
from trainmaster.devcluster.apiserver.registry.core.validation.volumes.file_volumes import validate_tokens_have_account
from trainmaster.devcluster.apiserver.registry.labels import label_key, labels
from trainmaster.runtime.jsontree import JsonObject


def validate_pod(pod: JsonObject) -> list[FieldError]:
    """Check a pod, new or changed, apart from what all metadata have in common."""
    metadata, spec = pod["metadata"], pod["spec"]
    annotations = metadata.get("annotations") or {}
    return [
        *validate_pod_annotations("metadata.annotations", annotations, spec),
        *validate_pod_spec(spec, "spec", pod_name=metadata["name"]),
        *validate_tokens_have_account("spec", spec),
    ]


def validate_new_pod(pod: JsonObject) -> Iterator[FieldError]:
    """Check what only a new pod may not have."""
    metadata, spec = pod["metadata"], pod["spec"]
    if spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
    yield from validate_profiles_match("spec", metadata.get("annotations") or {}, spec, is_pod=True)


def validate_pod_template(template: JsonObject, path: str) -> list[FieldError]:
    """Check the template of pods at a path."""
    metadata, spec = template.get("metadata") or {}, template["spec"]
    annotations = metadata.get("annotations") or {}
    errors = list(labels(f"{path}.labels", metadata.get("labels")))
    for key in annotations:
        errors += label_key(f"{path}.annotations", key.lower())
    errors += validate_pod_annotations(f"{path}.annotations", annotations, spec)
    errors += validate_pod_spec(spec, f"{path}.spec")
    errors += validate_profiles_match(f"{path}.spec", annotations, spec, is_pod=False)
    if spec.get("ephemeralContainers"):
        errors.append(forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))
    return errors


def validate_ephemeral_containers_update(pod: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check that containers for debugging are only added."""
    if MIRROR_POD in (old["metadata"].get("annotations") or {}):
        yield forbidden("", "static pods do not support ephemeral containers")
        return
    given = {each.get("name"): each for each in pod["spec"].get("ephemeralContainers") or ()}
    for container in old["spec"].get("ephemeralContainers") or ():
        name = container["name"]
        if name not in given:
            text = f'existing ephemeral containers "{name}" may not be removed\n'
            yield forbidden("spec.ephemeralContainers", text)
        elif given[name] != container:
            text = f'existing ephemeral containers "{name}" may not be changed\n'
            yield forbidden("spec.ephemeralContainers", text)
