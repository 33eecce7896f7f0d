"""The kubeconfig file by which kubectl and client libraries reach the embedded cluster.

Guarantees:
- the file holds everything a client needs (address, authority, token, namespace) and refers to no other file;
- it is replaced atomically and only its owner can read it, since it carries a token that may do anything;
- it replaces one of an embedded cluster, never one that others made (`check_replaceable`).
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from trainmaster.devcluster.certificates import write_private
from trainmaster.devcluster.state import KubeconfigUnusable
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import YamlError, load_yaml

CLUSTER_NAME = "trainmaster"
"""The name of the cluster, the user and the context in the kubeconfigs of embedded clusters."""


def kubeconfig(*, server: str, authority_pem: bytes, token: str) -> JsonObject:
    """Build a kubeconfig whose current context is the embedded cluster."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority_pem).decode("ascii")}
    context = {"cluster": CLUSTER_NAME, "user": CLUSTER_NAME, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER_NAME, "cluster": cluster}],
        "users": [{"name": CLUSTER_NAME, "user": {"token": token}}],
        "contexts": [{"name": CLUSTER_NAME, "context": context}],
        "current-context": CLUSTER_NAME,
        "preferences": {},
    }


def write_kubeconfig(path: Path, *, server: str, authority_pem: bytes, token: str) -> None:
    """Write the kubeconfig of the embedded cluster, replacing the file if it exists."""
    document = kubeconfig(server=server, authority_pem=authority_pem, token=token)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, yaml.safe_dump(document, sort_keys=False).encode())


def server_in(path: Path) -> str | None:
    """Return the server of a kubeconfig that a cluster wrote; None if there is none."""
    try:
        found = load_yaml(path.read_bytes())
        return str(found["clusters"][0]["cluster"]["server"])
    except (OSError, YamlError, KeyError, TypeError, IndexError):
        return None


def check_replaceable(path: Path) -> None:
    """Refuse to write a kubeconfig over one that others made: the access to their clusters would be lost.

    Raises:
        KubeconfigUnusable: There is one, or the directory cannot be written.
    """
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
