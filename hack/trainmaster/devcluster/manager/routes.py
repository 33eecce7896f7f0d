"""The manager and its runtimes over HTTP, for administrators: an extra beside the paths of Kubernetes.

    GET /trainmaster.dev/manager    {"phase": "starting" | "ready" | "crashing", "message": ..., "log": ..., ...}
    GET /trainmaster.dev/runtimes   {"torch-distributed": "needs torchrun: ...", "jax-distributed": null, ...}

Only a cluster that was started with a manager has them. The first also says which interpreter runs the cluster
(`python`): pods run with its environment. The second says what each ClusterTrainingRuntime needs that is not there.
"""

from __future__ import annotations

import sys

from aiohttp import web

from trainmaster.devcluster.apiserver.filters.authorization import require_administrator
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.manager.health import PATH, RUNTIMES_PATH, ManagerHealth
from trainmaster.devcluster.manager.local_runtimes import missing_by_runtime


def manager_routes(health: ManagerHealth, api: Api) -> list[web.RouteDef]:
    """Return the routes."""

    async def get_health(request: web.Request) -> web.Response:
        # Errors and paths out of a log on this machine are not for everybody who may list pods.
        require_administrator(request, "ask for the health of the manager")
        return json_response({**health.status.to_json(), "python": sys.executable})

    async def get_runtimes(request: web.Request) -> web.Response:
        require_administrator(request, "ask what runtimes need")
        return json_response(missing_by_runtime(api))

    return [web.get(PATH, get_health), web.get(RUNTIMES_PATH, get_runtimes)]
