"""Recorded cases of V1 jobs: what was done on a cluster, and what the Training Operator made of it.

A case is a YAML file. `given` names the settings of the operator (`profile`) and objects that were there before; each
of the `steps` is a stage with actions; `expect` has by stage the answers of the API server and all objects, once
nothing changed any more. `varies` lists values that differed between runs of the original.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.golden import load_yaml

from trainmaster.runtime.jsontree import JsonObject, copy_tree

ABSENT: Final = "<absent>"
_SAME: Final = "="
_WHOLE: Final = ("results", "events")
"""Sections that are lists, and written down in full at each stage."""

Stages = dict[str, JsonObject]
"""By stage: sections, and in each of them objects by name."""


@dataclass(frozen=True)
class Case:
    """One recorded case."""

    name: str
    """That of the file, as `016-pytorch-restart-onfailure-worker`."""

    profile: str
    namespace: str
    """`NS` stands for one of its own."""

    objects: list[JsonObject]
    steps: list[JsonObject]
    expected: Stages
    varies: list[JsonObject]


def load_case(path: Path) -> Case:
    """Load a case, with every stage in full."""
    data = load_yaml(path.read_text())
    given = data["given"]
    return Case(
        name=path.stem,
        profile=given.get("profile", "none"),
        namespace=given.get("namespace", "NS"),
        objects=given.get("objects") or [],
        steps=data["steps"],
        expected=_expanded(data["expect"]),
        varies=data.get("varies") or [],
    )


def _expanded(stages: Stages) -> Stages:
    """Put in the place of `=` what the stage before has."""
    full: Stages = {}
    before: JsonObject = {}
    for stage, sections in stages.items():
        seen: JsonObject = {}
        for section, objects in sections.items():
            if section in _WHOLE:
                seen[section] = objects
                continue
            known = before.get(section, {})
            seen[section] = {name: _filled_in(obj, known.get(name)) for name, obj in objects.items()}
        full[stage] = seen
        before = {**before, **seen}
    return full


def _filled_in(obj: Any, before: Any) -> Any:
    if obj == _SAME:
        return copy_tree(before)
    return {key: copy_tree(before[key] if value == _SAME else value) for key, value in obj.items()}


def settled(stages: Stages, varies: list[JsonObject]) -> Stages:
    """Leave out what differed between runs of the original, if it has one of the values that it had there.

    And when a job that waits for its gang was looked at last: whether it was seen waiting is a matter of who is faster.
    """
    stages = copy_tree(stages)
    for sections in stages.values():
        for job in sections.get("jobs", {}).values():
            job["status"].pop("lastReconcileTime", None)
    for each in varies:
        *parents, last = each["path"]
        node: Any = stages
        for key in parents:
            node = node.get(key) if isinstance(node, dict) else None
        if isinstance(node, dict) and node.get(last, ABSENT) in each["values"]:
            node.pop(last, None)
    return {
        stage: {section: objects for section, objects in sections.items() if objects or section in ("jobs", "results")}
        for stage, sections in stages.items()
    }
