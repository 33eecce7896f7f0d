"""Kubeconfig files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


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
