"""All controllers of the embedded cluster, ready to run."""

from __future__ import annotations

from trainmaster.devcluster.api import Api
from trainmaster.devcluster.controllers.gc import GarbageCollector
from trainmaster.devcluster.controllers.job.controller import JobController
from trainmaster.devcluster.controllers.jobset.admission import admission_of
from trainmaster.devcluster.controllers.jobset.controller import JobSetController
from trainmaster.devcluster.controllers.namespaces import NamespaceController
from trainmaster.devcluster.controllers.running import Controller
from trainmaster.devcluster.controllers.scheduler import Scheduler
from trainmaster.devcluster.controllers.serviceaccounts import ServiceAccountController
from trainmaster.devcluster.controllers.settings import ControllerSettings
from trainmaster.devcluster.resources import JOBSETS


def add_admission(api: Api) -> None:
    """Register the admission hooks; once for each API, before it serves the first request."""
    api.add_admission(JOBSETS, admission_of(api.registry))


def assemble(api: Api, *, settings: ControllerSettings, root_ca: str = "") -> list[Controller]:
    """Return the controllers; `root_ca` is the PEM text by which pods verify the API server."""
    return [
        NamespaceController(api, settings=settings),
        ServiceAccountController(api, settings=settings, root_ca=root_ca),
        GarbageCollector(api, settings=settings),
        Scheduler(api, settings=settings),
        JobController(api, settings=settings),
        JobSetController(api, settings=settings),
    ]
