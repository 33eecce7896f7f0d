"""From the kinds that files mention to the resources that a cluster serves, by discovery."""

from __future__ import annotations

from trainmaster.controller.cli.responses import send
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NOT_KUBERNETES, MalformedResponse, NotFound, shorten
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject


class RestMapper:
    """What a cluster serves, read once for each API version."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._versions: dict[str, list[JsonObject] | None] = {}

    async def resource(self, api_version: str, kind: str, *, fresh: bool = False) -> Resource | None:
        """Look up how the cluster serves a kind; `fresh` looks again for what was not there before."""
        if api_version not in self._versions or (fresh and self._versions[api_version] is None):
            self._versions[api_version] = await self._discover(api_version)
        group, _, number = api_version.rpartition("/")
        for entry in self._versions[api_version] or ():
            if entry["kind"] == kind and "/" not in entry["name"]:
                return Resource(group, number, kind, entry["name"], entry["namespaced"])
        return None

    async def _discover(self, api_version: str) -> list[JsonObject] | None:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            found, _ = await send(self._client, "GET", path)
        except NotFound:
            return None
        if found["kind"] != "APIResourceList":
            told = f"the answer is of kind {shorten(str(found['kind']), limit=100)}, not an APIResourceList"
            raise MalformedResponse(f"GET {self._client.config.server}{path}: {told}; {NOT_KUBERNETES}")
        resources: list[JsonObject] = found["resources"]
        return resources
