"""Plugins for tests: one that builds, one that notes that it ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainmaster.runtime.framework.interface import Desired


class Builder:
    """Builds one ConfigMap."""

    def __init__(self, name: str = "Builder", *, object_name: str = "made", error: Exception | None = None) -> None:
        self.name = name
        self._object_name = object_name
        self._error = error

    def build(self, info: Any, job: Any, listers: Any) -> Iterator[Desired]:
        if self._error:
            raise self._error
        yield Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self._object_name}})


class Counting:
    """Counts how often it is called."""

    name = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def enforce_ml_policy(self, info: Any) -> None:
        self.calls += 1


class Enforcer:
    """Notes that it ran."""

    def __init__(self, name: str, **place: Any) -> None:
        self.name = name
        for key, value in place.items():
            setattr(self, key, value)

    def enforce_ml_policy(self, info: Any, job: Any) -> None:
        info.labels[f"ran-{len(info.labels)}"] = self.name
