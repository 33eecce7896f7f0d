"""The parts that may run beside the API server, each of which can be left out."""

from __future__ import annotations

from typing import Final

CONTROLLERS: Final = "controllers"
GARBAGE_COLLECTION: Final = "gc"
KUBELET: Final = "kubelet"
MANAGER: Final = "manager"

PARTS: Final = (CONTROLLERS, GARBAGE_COLLECTION, KUBELET, MANAGER)
"""JobSet, Job, scheduling and service accounts; garbage collection and the end of namespaces; pods as processes; the
Trainmaster controller."""
