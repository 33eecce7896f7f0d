"""The health of the manager over HTTP, for administrators: an extra beside the paths of Kubernetes.

    GET /trainmaster.dev/manager    {"phase": "starting" | "ready" | "crashing", "message": ..., "log": ..., ...}

Only a cluster that was started with a manager has it. It also says which interpreter runs the cluster (`python`): pods
run with its environment.
"""

from __future__ import annotations

import sys

from aiohttp import web

from trainmaster.devcluster.apiserver.filters.authorization import require_administrator
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.manager.health import PATH, ManagerHealth


def manager_routes(health: ManagerHealth) -> list[web.RouteDef]:
    """Return the routes."""

    async def get_health(request: web.Request) -> web.Response:
        # Errors and paths out of a log on this machine are not for everybody who may list pods.
        require_administrator(request, "ask for the health of the manager")
        return json_response({**health.status.to_json(), "python": sys.executable})

    return [web.get(PATH, get_health)]
