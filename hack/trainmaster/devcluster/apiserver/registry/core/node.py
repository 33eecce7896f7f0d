"""Nodes."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject


class NodeStrategy(Strategy):
    """Nodes may bring their status along when they register."""

    def default(self, obj: JsonObject) -> None:
        """Give every node a spec."""
        obj.setdefault("spec", {})


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "Node",
        "nodes",
        strategy=NodeStrategy(),
        namespaced=False,
        short_names=("no",),
        subresources=("status",),
        columns=printers.NODES,
        field_labels=field_labels("spec.unschedulable"),
    )
