"""Versions: of this program and what it runs on, of installed plugins, and of the cluster."""

from __future__ import annotations

import platform
from importlib.metadata import distributions

from trainmaster.controller.cli.doctor.facts import fetch_version
from trainmaster.controller.cli.support_bundle.bundle import Bundle
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__


async def gather_versions(bundle: Bundle, client: KubeClient | None) -> bool:
    """Gather versions; returns whether the cluster answers."""
    versions: JsonObject = {
        "trainmaster": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "plugins": {
            point.name: f"{point.dist.name} {point.dist.version}" if point.dist else "unknown" for point in discover()
        },
        "distributions": dict(sorted({each.name: each.version for each in distributions()}.items())),
    }
    answers = False
    if client is not None:
        try:
            version = await fetch_version(client)
        except KubeError as error:
            bundle.lacks("the cluster", str(error))
        else:
            answers = True
            versions["kubernetes"] = version.known if isinstance(version.known, str) else None
    bundle.add("versions.json", versions)
    return answers
