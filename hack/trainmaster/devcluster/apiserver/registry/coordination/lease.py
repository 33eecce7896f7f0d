"""Leases."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_COORDINATED = ("strategy", "preferredHolder")


class LeaseStrategy(Strategy):
    """Leases: one holder, positive durations; writers must know the version that they replace."""

    allow_unconditional_update = False
    allow_create_on_update = True
    required_by_schema = False

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Drop what coordinated leader election would read, which is off by default in a real server, too."""
        for field in _COORDINATED:
            (obj.get("spec") or {}).pop(field, None)

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:  # noqa: ARG002 - of every strategy
        """Drop the same as from a new lease."""
        self.prepare_for_create(obj)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check durations."""
        spec = obj.get("spec") or {}
        problems = []
        if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
            detail = "must be greater than 0"
            problems.append(FieldError("spec.leaseDurationSeconds", "Invalid", spec["leaseDurationSeconds"], detail))
        if spec.get("leaseTransitions") is not None and spec["leaseTransitions"] < 0:
            detail = "must be greater than or equal to 0"
            problems.append(FieldError("spec.leaseTransitions", "Invalid", spec["leaseTransitions"], detail))
        return problems


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "coordination.k8s.io",
        "Lease",
        "leases",
        strategy=LeaseStrategy(),
        columns=printers.LEASES,
    )
