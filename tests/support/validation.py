"""Validating TrainJobs with all plugins, the patches that they bring, and patches of lists."""

from typing import Any

from support.resolutions import FRAMEWORK, FakeListers

from trainmaster.runtime import validation
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.strategicpatch import definition, strategic_merge_patch
from trainmaster.runtime.validation import ValidationResult, validate_trainjob


def validate(
    obj: JsonObject, *known: JsonObject, old: JsonObject | None = None, framework: Framework = FRAMEWORK
) -> ValidationResult:
    return validate_trainjob(obj, old, framework=framework, listers=FakeListers(*known))


def validate_runtime(obj: JsonObject, old: JsonObject | None, framework: Framework = FRAMEWORK) -> ValidationResult:
    return validation.validate_runtime(obj, old, framework=framework)


def patch(replicated_job: JsonObject, manager: str = "acme.io/a") -> JsonObject:
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated_job]}}}}


def pods(name: str = "node", **spec: Any) -> JsonObject:
    return {"name": name, "template": {"spec": {"template": {"spec": spec}}}}


POD_SPEC = definition("io.k8s.api.core.v1.PodSpec")
POD = definition("io.k8s.api.core.v1.Pod")


def names(elements: list[JsonObject]) -> list[str]:
    return [element["name"] for element in elements]


def named(*elements: str, **fields: Any) -> list[JsonObject]:
    return [{"name": element, **fields} for element in elements]


def containers(original: list[str], patch: list[Any]) -> list[str]:
    merged = strategic_merge_patch({"containers": named(*original)}, {"containers": patch}, POD_SPEC)
    return names(merged["containers"])


def finalizers(original: list[str], patch: JsonObject) -> list[str] | None:
    merged = strategic_merge_patch({"metadata": {"finalizers": original}}, {"metadata": patch}, POD)
    found: list[str] | None = merged["metadata"].get("finalizers")
    return found
