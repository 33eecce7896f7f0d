"""Where a kubeconfig may be written: over our own, never over one that others made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainmaster.devcluster.state import ClusterError
from trainmaster.runtime.yamltext import YamlError, load_yaml

CLUSTER_NAME = "trainmaster"
"""The name of the cluster, the user and the context in the kubeconfigs of embedded clusters."""


class KubeconfigUnusable(ClusterError):
    """The kubeconfig cannot be written where it was wanted."""


def check_replaceable(path: Path) -> None:
    """Refuse to write a kubeconfig over one that others made: the access to their clusters would be lost."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        present = load_yaml(path.read_bytes()) if path.exists() else None
    except OSError as error:
        raise KubeconfigUnusable(f"cannot write {path}: {error.strerror or error}; choose another file") from error
    except YamlError:
        present = "something else"
    if present is not None and not _is_ours(present):
        raise KubeconfigUnusable(
            f"{path} was not made by an embedded cluster and will not be replaced; "
            "choose another file with --kubeconfig"
        )


def _is_ours(kubeconfig: Any) -> bool:
    try:
        return [cluster["name"] for cluster in kubeconfig["clusters"]] == [CLUSTER_NAME]
    except (KeyError, TypeError):
        return False
