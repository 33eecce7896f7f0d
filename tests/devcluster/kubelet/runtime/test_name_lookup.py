"""The programs by which scripts in pods look names up."""

import socket
from typing import Any

import pytest

from trainmaster.devcluster.kubelet.runtime.name_lookup import getent, nslookup

KNOWN = {"master": ["127.16.0.1", "127.16.0.2"], "localhost": ["127.0.0.1"]}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only a few names be known, whatever this machine says."""

    def getaddrinfo(name: str, *_: Any, **__: Any) -> list[Any]:
        if name not in KNOWN:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, 1, 6, f"{name}.default.svc", (address, 0)) for address in KNOWN[name] * 2]

    def gethostbyaddr(address: str) -> tuple[str, list[str], list[str]]:
        if address != "127.16.0.1":
            raise socket.herror(1, "Unknown host")
        return "master.default.svc", [], [address]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "gethostbyaddr", gethostbyaddr)


@pytest.mark.parametrize("name", ["master", "master."])
def test_nslookup_gives_each_address_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert nslookup(["-timeout=2", name]) == 0
    _, answer = capsys.readouterr().out.split("\n\n", 1)
    lines = [f"Name:\tmaster.default.svc\nAddress: {address}\n" for address in KNOWN["master"]]
    assert answer == "".join(lines) + "\n"


def test_nslookup_gives_the_name_of_an_address_or_says_that_it_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert nslookup(["-type=ptr", "127.16.0.1"]) == 0
    assert "Name:\tmaster.default.svc\nAddress: 127.16.0.1\n" in capsys.readouterr().out
    assert nslookup(["127.16.0.9"]) == nslookup(["worker"]) == 1
    assert "** server can't find worker: NXDOMAIN\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "usage: nslookup [-type=A|AAAA|ANY|PTR] NAME"),
        (["-type=mx", "master"], "nslookup: records of type mx are not known"),
        (["-type", "master"], "nslookup: records of type (none) are not known"),
        (["master", "8.8.8.8"], "nslookup: the server 8.8.8.8 cannot be asked"),
    ],
)
def test_nslookup_refuses_what_it_cannot_do(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert nslookup(words) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(problem)
    assert printed.out == ""


def test_getent_answers_as_that_of_the_system(capsys: pytest.CaptureFixture[str]) -> None:
    assert getent(["hosts", "master"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{each:<15} master.default.svc" for each in KNOWN["master"]]
    assert getent(["hosts", "worker", "localhost"]) == 2
    assert capsys.readouterr().out == "127.0.0.1       localhost.default.svc\n"


@pytest.mark.parametrize("words", [[], ["hosts"], ["passwd", "root"]])
def test_getent_knows_hosts_only(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert getent(words) == 1
    assert "knows `getent hosts NAME`" in capsys.readouterr().err
