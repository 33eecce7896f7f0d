"""Rules that Deployments and ReplicaSets share: a number of pods of a template, found by a selector. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry.core.pod_validation import validate_pod_template
from trainmaster.devcluster.apiserver.registry.fields import forbidden, not_negative, one_of, required
from trainmaster.devcluster.apiserver.registry.labels import label_selector
from trainmaster.devcluster.apiserver.selectors import label_selector_from_object
from trainmaster.runtime.jsontree import JsonObject


def validate_workload(spec: JsonObject) -> Iterator[FieldError]:
    """Check replicas, selector and template of a spec that has its defaults."""
    for field in ("replicas", "minReadySeconds"):
        yield from not_negative(f"spec.{field}", spec.get(field, 0))
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
    else:
        yield from label_selector("spec.selector", selector)
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield FieldError("spec.selector", "Invalid", selector, "empty selector is invalid for deployment")
    yield from _validate_labels(spec)
    template = spec["template"]
    yield from validate_pod_template(template, "spec.template")
    yield from one_of("spec.template.spec.restartPolicy", template["spec"]["restartPolicy"], ["Always"])
    if template["spec"].get("activeDeadlineSeconds") is not None:
        yield forbidden(
            "spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds in ReplicaSet is not Supported"
        )


def _validate_labels(spec: JsonObject) -> Iterator[FieldError]:
    labels = (spec["template"].get("metadata") or {}).get("labels")
    try:
        selects = label_selector_from_object(spec.get("selector")).matches(labels or {})
    except ValueError:  # what is wrong with the selector itself is told already
        return
    if not selects:
        detail = "`selector` does not match template `labels`"
        yield FieldError("spec.template.metadata.labels", "Invalid", labels, detail)


def validate_workload_update(spec: JsonObject, before: JsonObject) -> Iterator[FieldError]:
    """Refuse another selector: the pods of the old one would be left behind."""
    if spec.get("selector") != before.get("selector"):
        yield immutable("spec.selector", spec.get("selector"))
