"""Resuming a suspended child Job with the pod template that the JobSet has by now. Pure.

While a JobSet is suspended its owner, or a queue that admits it, may change where its pods run; the Jobs exist already.
"""

from __future__ import annotations

from trainmaster.runtime.jsontree import JsonObject, copy_tree


def resumed(job: JsonObject, template: JsonObject) -> JsonObject:
    """Return the Job, not suspended any more, with the mutable scheduling fields of the template laid over its own."""
    new: JsonObject = copy_tree(job)
    new["spec"]["suspend"] = False
    pod_template = new["spec"]["template"]
    own, given = pod_template.setdefault("metadata", {}), template.get("metadata") or {}
    for field in ("labels", "annotations"):
        _lay_over(own, given, field)
    pod_spec, wanted = pod_template["spec"], template["spec"]
    _lay_over(pod_spec, wanted, "nodeSelector")
    _append(pod_spec, wanted, "tolerations")
    gates = {
        gate["name"]: gate
        for gate in [*(pod_spec.get("schedulingGates") or ()), *(wanted.get("schedulingGates") or ())]
    }
    if gates:
        pod_spec["schedulingGates"] = list(copy_tree(gates).values())
    return new


def _lay_over(own: JsonObject, given: JsonObject, field: str) -> None:
    if given.get(field):
        own[field] = {**(own.get(field) or {}), **given[field]}


def _append(own: JsonObject, given: JsonObject, field: str) -> None:
    missing = [entry for entry in given.get(field) or () if entry not in (own.get(field) or ())]
    if missing:
        own[field] = [*(own.get(field) or ()), *copy_tree(missing)]
