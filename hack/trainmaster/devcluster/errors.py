"""What can keep a cluster from starting, running or being found: each error is one line for its user."""

from __future__ import annotations


class ClusterError(Exception):
    """A cluster cannot do what its user wants; one line says why, and what to do."""


class StateError(ClusterError):
    """The state directory cannot be used."""


class AlreadyRunning(StateError):
    """A cluster runs on this state directory."""


class PortInUse(ClusterError):
    """The server cannot have its port."""


class KubeconfigUnusable(ClusterError):
    """The kubeconfig cannot be written where it was wanted."""


class NetworkingUnavailable(ClusterError):
    """Pods cannot run in the chosen mode."""


class AuditLogUnusable(ClusterError):
    """The audit log cannot be written where it was wanted."""


class PartFailed(ClusterError):
    """A part ended by itself."""
