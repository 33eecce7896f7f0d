"""The databases that the history is tested with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.history import NewStore
from support.postgres import Postgres, postgres_server

from trainmaster.controller.history.postgres import postgres_store
from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.history.store import HistoryStore


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewStore]:
    made: list[HistoryStore] = []

    def new() -> HistoryStore:
        if request.param == "sqlite":
            made.append(sqlite_store(tmp_path / "history.sqlite"))
        else:
            made.append(postgres_store(tmp_path / "url"))
        return made[-1]

    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        server.new_database(tmp_path / "url")
    yield new
    for store in made:
        store.close()


@pytest.fixture
def store(new_store: NewStore) -> HistoryStore:
    return new_store()
