"""RuntimeClasses. What they do to a pod is a matter of admission."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError, immutable, validate_nonnegative_quantity
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label


class RuntimeClassStrategy(Strategy):
    """RuntimeClasses: what their pods cost on top is counted; the handler itself does nothing here."""

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check handler and overhead."""
        handler = obj.get("handler", "")
        problems = [FieldError("handler", "Invalid", handler, problem) for problem in dns_label(handler)]
        overhead = (obj.get("overhead") or {}).get("podFixed") or {}
        return problems + [
            problem
            for name, value in overhead.items()
            for problem in validate_nonnegative_quantity(value, f"overhead.{name}")
        ]

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another handler."""
        handler = obj.get("handler")
        return [] if handler == old.get("handler") else [immutable("handler", handler)]


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "node.k8s.io",
        "RuntimeClass",
        "runtimeclasses",
        strategy=RuntimeClassStrategy(),
        namespaced=False,
        columns=printers.RUNTIME_CLASSES,
    )
