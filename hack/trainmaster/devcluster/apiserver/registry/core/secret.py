"""Secrets: some types promise certain keys."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.core.configmap import (
    DATA_LIMIT,
    decoded_size,
    too_much_data,
    validate_immutable,
    validate_keys,
)
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_TLS = "kubernetes.io/tls"
_BASIC_AUTH = "kubernetes.io/basic-auth"
_BASIC_AUTH_KEYS = ("username", "password")
_SSH_AUTH = "kubernetes.io/ssh-auth"
_SSH_KEY = "ssh-privatekey"
_NEEDED = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    _TLS: ("tls.crt", "tls.key"),
}
_JSON = (".dockercfg", ".dockerconfigjson")
_OF_ACCOUNT = "kubernetes.io/service-account-token"
_ACCOUNT_NAME = "kubernetes.io/service-account.name"


class SecretStrategy(Strategy):
    """Secrets: `stringData` is an input form of `data`."""

    def default(self, obj: JsonObject) -> None:
        """Encode the plain strings, and name the type."""
        obj["type"] = obj.get("type") or "Opaque"
        plain = obj.pop("stringData", None)
        if plain:
            data = obj.setdefault("data", {})
            data.update({key: base64.b64encode(value.encode()).decode() for key, value in plain.items()})

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check keys, size, and what the type promises."""
        data = obj.get("data") or {}
        problems = [*validate_keys(data, "data")]
        if decoded_size(data) > DATA_LIMIT:
            problems.append(too_much_data("data"))
        return [*problems, *_validate_type(obj, data)]

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse changes of the type, and of an immutable object."""
        problems = list(validate_immutable(obj, old, ("data",)))
        return problems if obj["type"] == old.get("type") else [*problems, immutable("type", obj["type"])]

    def warnings_on_create(self, obj: JsonObject) -> list[str]:
        """Tell of a TLS secret that holds no certificate or no key."""
        if obj["type"] != _TLS:
            return []
        for key, what in (("tls.crt", "certificate"), ("tls.key", "key")):
            if b"-----BEGIN " not in base64.b64decode((obj.get("data") or {}).get(key, "")):
                return [f"tls: failed to find any PEM data in {what} input"]
        return []

    def warnings_on_update(self, obj: JsonObject, old: JsonObject) -> list[str]:  # noqa: ARG002 - of every strategy
        """Tell of a TLS secret that holds no certificate or no key."""
        return self.warnings_on_create(obj)


def _validate_type(obj: JsonObject, data: Mapping[str, str]) -> Iterator[FieldError]:
    kind = obj["type"]
    if kind == _OF_ACCOUNT and not (obj["metadata"].get("annotations") or {}).get(_ACCOUNT_NAME):
        yield FieldError(f"metadata.annotations[{_ACCOUNT_NAME}]", "Required")
    if kind == _BASIC_AUTH and data.keys().isdisjoint(_BASIC_AUTH_KEYS):
        yield from (FieldError(f"data[{key}]", "Required") for key in _BASIC_AUTH_KEYS)
    if kind == _SSH_AUTH and not data.get(_SSH_KEY):
        yield FieldError(f"data[{_SSH_KEY}]", "Required")
    for key in _NEEDED.get(kind, ()):
        if key not in data:
            yield FieldError(f"data[{key}]", "Required")
        elif key in _JSON and (problem := _json_problem(data[key])):
            yield FieldError(f"data[{key}]", "Invalid", "<secret contents redacted>", problem)


def _json_problem(value: str) -> str:
    """Return why a value is not a JSON object, without showing anything of it."""
    text = base64.b64decode(value).decode(errors="replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        whole = text.strip() and not text.strip().startswith(("{", "["))
        return "invalid character looking for beginning of value" if whole else "unexpected end of JSON input"
    return "" if found is None or isinstance(found, dict) else "cannot unmarshal the value into a JSON object"


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
