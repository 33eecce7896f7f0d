"""The namespace that the manager runs in."""

from __future__ import annotations

import os
from typing import Final

from trainmaster.controller.kube.auth.incluster import SERVICE_ACCOUNT

DEFAULT_NAMESPACE: Final = "kubeflow-system"
"""That of the original."""


def pod_namespace() -> str:
    """Return the namespace of the pod, if its environment says it: in the name of the Training Operator's, too."""
    return os.environ.get("POD_NAMESPACE") or os.environ.get("MY_POD_NAMESPACE") or ""


def operator_namespace() -> str:
    """Return the namespace of the manager's own Service: that of its pod, or the original's outside of a cluster."""
    mounted = SERVICE_ACCOUNT / "namespace"
    own = pod_namespace() or (mounted.read_text(encoding="utf-8").strip() if mounted.is_file() else "")
    return own or DEFAULT_NAMESPACE
