"""Validating TrainJobs with all plugins, and the patches that they bring."""

from __future__ import annotations

from typing import Any

from support.resolutions import FRAMEWORK, FakeListers

from trainmaster.runtime import validation
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject
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
