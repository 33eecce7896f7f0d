"""A server of PostgreSQL for tests, from the packages of the distribution; it listens on a socket in its directory."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_PACKAGED = Path("/usr/lib/postgresql")
_FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "listen_addresses=", "max_connections=20")


@dataclass
class Postgres:
    """A server that can be stopped and started again."""

    programs: Path
    directory: Path
    account: str | None
    """Whose processes they are: the server refuses to be root's."""

    _databases: int = 0

    def new_database(self, url_file: Path) -> None:
        """Make an empty database, and write its URL into a file."""
        self._databases += 1
        name = f"test{self._databases}"
        self.run("createdb", "-h", str(self.directory), "-U", "trainmaster", name)
        url_file.write_text(f"postgresql:///{name}?host={self.directory}&user=trainmaster\n")

    def start(self) -> None:
        options = " ".join(f"-c {each}" for each in (*_FAST, f"unix_socket_directories={self.directory}"))
        self._control("start", "-w", "-t", "60", "-l", f"{self.directory}/log", "-o", options)

    def stop(self) -> None:
        self._control("stop", "-w", "-t", "60", "-m", "fast")

    def make(self) -> None:
        self.run("initdb", "-D", f"{self.directory}/data", "-U", "trainmaster", "-A", "trust", "-N", "-E", "UTF8")

    def _control(self, verb: str, *arguments: str) -> None:
        self.run("pg_ctl", verb, "-D", f"{self.directory}/data", *arguments)

    def run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            cwd=self.directory,
            user=self.account,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the server would keep a pipe open
            stderr=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, (program, arguments, _text(self.directory / "log"))


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Run a server while the block runs; skips the test where there is none."""
    found = sorted(_PACKAGED.glob("*/bin/initdb"))
    if not found:
        pytest.skip("needs the server of PostgreSQL, Debian's package postgresql")
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'trainmaster[postgres]'")
    account = None if os.getuid() else _account()
    directory = Path(tempfile.mkdtemp(prefix="trainmaster-postgres-", dir="/tmp"))
    if account is not None:
        shutil.chown(directory, account)
    server = Postgres(found[-1].parent, directory, account)
    try:
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


def _account() -> str:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres")
