"""Kinds: what the API serves, with the rules of each kind; built-in ones and those of custom resource definitions."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.kind import Column, Kind
from trainmaster.devcluster.apiserver.registry.registry import Registry
from trainmaster.devcluster.apiserver.registry.strategy import Strategy

__all__ = ["Column", "Kind", "Registry", "Strategy"]
