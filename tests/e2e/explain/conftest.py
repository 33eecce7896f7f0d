"""A cluster with everything that says something of jobs: a history and the web page as well."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.embedded import embedded
from support.explained import HEAD


@pytest.fixture(scope="session")
def cluster_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory in which it runs, in place of that without these."""
    home = tmp_path_factory.mktemp("explained")
    history = {"enabled": True, "file": str(home / "history.sqlite")}
    configuration = home / "configuration.yaml"
    configuration.write_text(json.dumps({**HEAD, "history": history, "web": {"enabled": True}}))
    with embedded(home, "--config", str(configuration)):
        yield home
