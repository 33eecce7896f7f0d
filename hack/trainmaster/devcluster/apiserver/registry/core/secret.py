"""Secrets."""

from __future__ import annotations

import base64
import binascii

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.core.configmap import ConfigMapStrategy
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.runtime.jsontree import JsonObject


class SecretStrategy(ConfigMapStrategy):
    """Secrets: `stringData` is an input form of `data`."""

    def default(self, obj: JsonObject) -> None:
        """Encode the plain strings, and name the type."""
        obj.setdefault("type", "Opaque")
        plain = obj.pop("stringData", None)
        if plain:
            data = obj.setdefault("data", {})
            data.update({key: base64.b64encode(value.encode()).decode() for key, value in plain.items()})

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check keys, encoding and size."""
        problems = super().validate(obj)
        for key, value in (obj.get("data") or {}).items():
            try:
                base64.b64decode(value, validate=True)
            except binascii.Error:
                problems.append(FieldError(f"data[{key}]", "Invalid", "<secret contents redacted>", "must be base64"))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse changes of the type, and of an immutable object."""
        problems = super().validate_update(obj, old)
        return problems if obj["type"] == old.get("type") else [*problems, immutable("type", obj["type"])]


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "Secret",
        "secrets",
        strategy=SecretStrategy(),
        columns=printers.SECRETS,
        field_labels=field_labels("type"),
    )
