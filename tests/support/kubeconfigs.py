"""Kubeconfig files."""

from pathlib import Path
from typing import Any

import yaml
from support.processes import account_token
from support.stack import Stack


def write_kubeconfig(
    path: Path, server: str = "http://one:8080", *, user: Any = None, context: Any = None, **cluster: Any
) -> str:
    """Write a kubeconfig with one cluster and one user, by default one with a token; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u", **(context or {})}},
            {"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "elsewhere"}},
        ],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def kubeconfig_of(stack: Stack, directory: Path, account: str, **context: str) -> str:
    """Create a service account in the namespace default, and a kubeconfig of it; returns its path."""
    token = await account_token(stack.client, account)
    admin = yaml.safe_load((directory / "cluster/kubeconfig").read_text())
    cluster = {key: value for key, value in admin["clusters"][0]["cluster"].items() if key != "server"}
    place = directory / f"{account}.kubeconfig"
    return write_kubeconfig(place, stack.access.server, user={"token": token}, context=context, **cluster)
