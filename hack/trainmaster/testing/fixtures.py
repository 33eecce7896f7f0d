"""Fixtures of pytest for tests of plugins. Nothing is imported here before a test asks for it.

- `trainmaster_framework(*plugins)`: the built-in plugins and yours, each an instance or the name of its entry point;
- `trainmaster_api_server`: the embedded API server alone, with the definitions of TrainJobs and JobSets: what a manager
  writes stays as it was written. Each test gets one of its own;
- `trainmaster_cluster`: a whole embedded cluster, whose pods run as processes, for all tests of a run;
- `trainmaster_sandbox`: what `PluginConformance` checks rights and definitions with.

A manager with your plugin runs as long as a block does:

    def test_it(trainmaster_api_server, trainmaster_framework):
        with trainmaster_api_server.manager(trainmaster_framework(Mine())):
            trainmaster_api_server.apply(runtime(...), trainjob("demo"))
            trainmaster_api_server.wait_for_object("jobset.x-k8s.io/v1alpha2", "JobSet", "demo", "team")

The clusters take what `pip install 'trainmaster[local]'` installs; without that the tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trainmaster.runtime.framework import Framework
    from trainmaster.runtime.testing.subject import Problem, Subject
    from trainmaster.testing.embedded import EmbeddedCluster

_NEEDED = "jsonpatch"
"""Of the extra `local`; without it there is no API server."""


class Sandbox:
    """The checks of the conformance suite that take a cluster, or other processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def uses_its_rights(self, subject: Subject) -> Iterator[Problem]:
        """With the rights that it declares and no other, its TrainJobs are built; and it uses all of them."""
        _require_cluster()
        from trainmaster.testing import conformance  # noqa: PLC0415 - it brings the controller

        return conformance.uses_its_rights(subject, self._directory)

    def survives_definitions(self, subject: Subject) -> Iterator[Problem]:
        """Without the definitions of its kinds other TrainJobs go on, and with them its own do."""
        _require_cluster()
        from trainmaster.testing import conformance  # noqa: PLC0415 - it brings the controller

        return conformance.survives_definitions(subject, self._directory)

    def is_deterministic_across_processes(self, subject: Subject) -> Iterator[Problem]:
        """Its TrainJobs become the same in every process."""
        from trainmaster.testing import processes  # noqa: PLC0415 - it brings the runtime

        return processes.is_deterministic_across_processes(subject, self._directory)


@pytest.fixture
def trainmaster_sandbox(tmp_path: Path) -> Sandbox:
    """What `PluginConformance` checks rights and definitions with."""
    return Sandbox(tmp_path)


@pytest.fixture(scope="session")
def trainmaster_framework() -> Callable[..., Framework]:
    """A function that makes a framework of the built-in plugins and those that it is given."""

    def make(*plugins: Any, **options: Any) -> Framework:
        from trainmaster.runtime.framework import Framework  # noqa: PLC0415 - as above
        from trainmaster.runtime.testing.subject import Subject, built_in_plugins  # noqa: PLC0415 - as above

        made = [Subject(each, options).make() for each in plugins]
        names = {each.name for each in made}
        return Framework([*(each for each in built_in_plugins() if each.name not in names), *made])

    return make


@pytest.fixture
def trainmaster_api_server(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """The embedded API server alone."""
    _require_cluster()
    from trainmaster.testing.embedded import EmbeddedCluster  # noqa: PLC0415 - it brings the controller

    with EmbeddedCluster(tmp_path / "api-server") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def trainmaster_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """A whole embedded cluster but for its manager: JobSets run, as processes of this machine."""
    _require_cluster()
    from trainmaster.testing.embedded import WHOLE, EmbeddedCluster  # noqa: PLC0415 - it brings the controller

    with EmbeddedCluster(tmp_path_factory.mktemp("cluster"), parts=WHOLE) as cluster:
        yield cluster


def _require_cluster() -> None:
    pytest.importorskip(_NEEDED, reason="the embedded cluster takes `pip install 'trainmaster[local]'`")
