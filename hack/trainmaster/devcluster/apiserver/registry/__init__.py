"""The registry: which kinds the API serves, and the strategy and rules of each.

A built-in kind with rules of its own has a module in the room of its group: `<group>/<kind>.py` has the strategy and
how it is served, `<group>/<kind>_validation.py` its rules where they are many. Those that are only stored and shown are
in `plain_kinds`. `printers` has the columns of all. `customresource` makes a kind of a CustomResourceDefinition,
`generic` has the verbs. Light: `trainmaster render` imports it.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.registry import Column, Kind, Registry
from trainmaster.devcluster.apiserver.registry.strategy import Strategy

__all__ = ["Column", "Kind", "Registry", "Strategy"]
