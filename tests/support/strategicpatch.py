"""Strategic merge patches of lists of containers and of finalizers."""

from __future__ import annotations

from typing import Any

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.strategicpatch import definition, strategic_merge_patch

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
