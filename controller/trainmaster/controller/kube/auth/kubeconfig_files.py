"""The files of a kubeconfig as one, whose parts fit together; `loader` states the guarantees.

kubernetes_asyncio merges the files. It stumbles over those that are empty, and tells of parts that are missing in terms
of its own; whoever made the file wants to know which part that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes_asyncio.config.kube_config import ConfigNode, KubeConfigMerger

from trainmaster.controller.kube.rest.config import ConfigurationError

_REMEDY: Final = "have the tool that made the cluster write it again, or name another with --kubeconfig or KUBECONFIG"
_CHOOSE: Final = "choose one with `kubectl config use-context`"


def read_kubeconfig(paths: str, *, context: str | None) -> ConfigNode:
    """Read and merge files.

    Args:
        paths: The files, separated as in `$KUBECONFIG`.
        context: The context that will be used; None: their current one.

    Raises:
        ConfigurationError: They hold nothing, or nothing to use in that context.
    """
    merged: ConfigNode | None = _Merger(paths).config
    if merged is None:
        raise ConfigurationError(f"there is nothing in it; {_REMEDY}")
    _check(merged.value, context=context)
    return merged


class _Merger(KubeConfigMerger):
    """Takes an empty file for one without entries, as kubectl does, which leaves such files behind."""

    def load_config(self, path: str) -> None:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        if isinstance(document, dict):
            super().load_config(path)
        elif document is not None:
            raise ConfigurationError(f"{path} is no kubeconfig, which is a mapping with clusters, users and contexts")


def _check(config: Mapping[str, Any], *, context: str | None) -> None:
    """Refuse parts that name others which are not there."""
    clusters, contexts, users = (_by_name(config[part]) for part in ("clusters", "contexts", "users"))
    if not clusters:
        raise ConfigurationError(f"it names no cluster; {_REMEDY}")
    if not contexts:
        raise ConfigurationError(
            f"it has no context; add one with `kubectl config set-context`, for one of: {', '.join(clusters)}"
        )
    current = config.get("current-context")
    name = context or current
    if not name:
        raise ConfigurationError(f"no current-context is set; {_CHOOSE}: {_listed(contexts)}")
    if name not in contexts:
        problem = "" if context else f", its current-context; {_CHOOSE}"
        raise ConfigurationError(f"it has no context {name!r}{problem}{':' if problem else ';'} {_listed(contexts)}")
    chosen = contexts[name]["context"]
    if not chosen.safe_get("cluster"):
        raise ConfigurationError(f"its context {name!r} names no cluster; {_listed(clusters)}")
    for part, known in (("cluster", clusters), ("user", users)):
        wanted = chosen.safe_get(part)
        if wanted and wanted not in known:
            raise ConfigurationError(
                f"its context {name!r} is of {part} {wanted!r}, which is missing; {_listed(known)}"
            )


def _by_name(entries: Sequence[ConfigNode]) -> dict[str, Any]:
    return {str(entry["name"]): entry for entry in entries}


def _listed(names: Mapping[str, Any]) -> str:
    return f"it has: {', '.join(names) or 'none'}"
