"""Scale (autoscaling/v1): how the scale subresource shows an object, and what a Scale makes of that. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.selectors import format_label_selector
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_GROUP: Final = "autoscaling"
SCALE: Final = {"kind": "Scale", "apiVersion": f"{_GROUP}/v1"}
UNSET: Final = -(2**31)
"""What a patch sees as the number of an object that has none."""

_LARGEST: Final = 2**31 - 1
_KEPT: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the objects of a kind hold what the scale subresource shows, as in `.spec.replicas`."""

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""

    def replicas(self, obj: JsonObject) -> int | None:
        """Return the wanted number of an object, if it has one."""
        found = _at(obj, self.spec_replicas)
        return found if isinstance(found, int) else None

    def scale_of(self, obj: JsonObject, *, absent: int = 0) -> JsonObject:
        """Return the Scale that shows an object."""
        found = self.replicas(obj)
        replicas = absent if found is None else found
        metadata = {field: obj["metadata"][field] for field in _KEPT if field in obj["metadata"]}
        status = {"replicas": _at(obj, self.status_replicas) or 0}
        if self.label_selector and (selector := _at(obj, self.label_selector)):
            status["selector"] = format_label_selector(selector) if isinstance(selector, dict) else selector
        return {**SCALE, "metadata": metadata, "spec": {"replicas": replicas} if replicas else {}, "status": status}

    def scaled(self, obj: JsonObject, scale: JsonObject) -> JsonObject:
        """Return an object with the number that a Scale wants; raises a StatusError if it wants none."""
        replicas = _replicas(scale)
        if replicas == UNSET:
            raise errors.bad_request(f'the spec replicas field "{self.spec_replicas}" cannot be empty')
        changed: JsonObject = copy_tree(obj)
        *parents, last = self.spec_replicas.strip(".").split(".")
        node = changed
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = replicas
        return changed


def _replicas(scale: JsonObject) -> int:
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or not UNSET <= replicas <= _LARGEST:
        raise errors.bad_request("spec.replicas of a Scale must be a whole number of 32 bits")
    if UNSET < replicas < 0:
        detail = "must be greater than or equal to 0"
        problem = FieldError("spec.replicas", "Invalid", replicas, detail)
        raise errors.invalid(_GROUP, "Scale", scale["metadata"].get("name", ""), [problem])
    return replicas


def _at(obj: JsonObject, path: str) -> Any:
    node: Any = obj
    for name in path.strip(".").split("."):
        if not isinstance(node, dict):
            return None
        node = node.get(name)
    return node
