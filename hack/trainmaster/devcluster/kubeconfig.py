"""The kubeconfig file by which kubectl and client libraries reach the embedded cluster.

Guarantees:
- the file holds everything a client needs (address, authority, token, namespace) and refers to no other file;
- it is replaced atomically and only its owner can read it, since it carries a token that may do anything.
"""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from trainmaster.devcluster.certificates import write_private
from trainmaster.runtime.jsontree import JsonObject


def kubeconfig(
    *, server: str, authority_pem: bytes, token: str, name: str = "trainmaster", namespace: str = "default"
) -> JsonObject:
    """Build a kubeconfig whose current context is the embedded cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(authority_pem).decode("ascii"),
                },
            }
        ],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
        "preferences": {},
    }


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    authority_pem: bytes,
    token: str,
    name: str = "trainmaster",
    namespace: str = "default",
) -> None:
    """Write the kubeconfig of the embedded cluster, replacing the file if it exists."""
    document = kubeconfig(server=server, authority_pem=authority_pem, token=token, name=name, namespace=namespace)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, yaml.safe_dump(document, sort_keys=False).encode())
