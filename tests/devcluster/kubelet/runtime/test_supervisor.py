"""The supervisor with real processes: reports, logs, signals, and that nothing survives."""

import json
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import TIMEOUT, wait_until

import trainmaster.devcluster
from trainmaster.devcluster.kubelet import runtime
from trainmaster.devcluster.kubelet.runtime import supervisor

pytestmark = pytest.mark.nightly

LINUX = sys.platform.startswith("linux")


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie that nobody collects (the container's init may not)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if LINUX:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
        except (FileNotFoundError, ProcessLookupError):  # it ended before the file was opened, or before it was read
            return False
    return True


class Server:
    """The server's side, blocking."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            supervisor.command_line(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def send(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def start(self, *argv: str, identity: str = "a", **changes: Any) -> None:
        command = {"env": {"PATH": os.environ["PATH"]}, "cwd": str(self.directory), "log": str(self.log(identity))}
        self.send(op="start", id=identity, argv=list(argv), **{**command, **changes})

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        report: dict[str, Any] = json.loads(self.process.stdout.readline())
        return report

    def receive_start(self) -> int:
        report = self.receive()
        assert report["event"] == "started", report
        pid: int = report["pid"]
        return pid

    def log(self, identity: str = "a") -> Path:
        return self.directory / f"{identity}.log"

    def printed(self, identity: str = "a") -> list[str]:
        return [line.split(" ", 2)[2] for line in self.log(identity).read_text().splitlines()]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(TIMEOUT)
        self.process.stdout.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    yield running
    running.close()


def test_exit_code_and_output_are_reported(server: Server) -> None:
    server.start("/bin/sh", "-c", "echo out; echo err >&2; printf unfinished; exit 3")
    server.receive_start()
    report = server.receive()
    assert (report["id"], report["event"], report["code"], report["signal"]) == ("a", "exited", 3, 0)
    assert server.printed() == ["out", "err", "unfinished"]


def test_all_output_is_in_the_log_before_the_exit_is_reported(server: Server) -> None:
    server.start("/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")
    server.receive_start()
    assert server.receive()["event"] == "exited"
    assert server.printed()[-1] == "line 19999"
    assert len(server.printed()) == 20000


def test_long_lines_are_written_in_parts(server: Server) -> None:
    server.start(sys.executable, "-c", "print('x' * 40000); print('end')")
    server.receive_start()
    server.receive()
    tags = [line.split(" ", 2)[1] for line in server.log().read_text().splitlines()]
    assert set(tags[:-2]) == {"P"}
    assert tags[-2:] == ["F", "F"]
    assert sum(map(len, server.printed()[:-1])) == 40000


def test_signal_becomes_128_plus_number(server: Server) -> None:
    server.start("/bin/sh", "-c", "kill -9 $$")
    server.receive_start()
    report = server.receive()
    assert (report["code"], report["signal"]) == (137, 9)


def test_environment_is_exactly_what_was_sent(server: Server) -> None:
    server.start("/usr/bin/env", env={"ONLY": "this"})
    server.receive_start()
    server.receive()
    assert server.printed() == ["ONLY=this"]


def test_signals_are_as_a_fresh_process_expects_them(server: Server) -> None:
    """Python ignores SIGPIPE and the supervisor blocks signals; a container must inherit neither."""
    script = (
        "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), "
        "signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)"
    )
    server.start(sys.executable, "-c", script)
    server.receive_start()
    server.receive()
    assert server.printed() == ["set() True True"]
    server.start("/bin/sh", "-c", "yes | head -n 1", identity="pipe")
    server.receive_start()
    assert server.receive()["code"] == 0


@pytest.mark.parametrize(
    ("argv", "changes", "expected"),
    [
        (["no-such-program"], {}, 'exec: "no-such-program": executable file not found in $PATH'),
        (["train " * 1000], {}, 'trai...": executable file not found in $PATH'),
        (["/no/such/program"], {}, 'exec: "/no/such/program": no such file or directory'),
        (["/bin/sh"], {"cwd": "/no/such/directory"}, "working directory '/no/such/directory' does not exist"),
        (["/etc/passwd"], {}, 'exec: "/etc/passwd", in working directory '),
        (["/bin/sh", "-c", "a\0b"], {}, 'cannot start "/bin/sh"'),
    ],
)
def test_what_cannot_be_started_says_why(
    server: Server, argv: list[str], changes: dict[str, Any], expected: str
) -> None:
    server.start(*argv, **changes)
    report = server.receive()
    assert report["event"] == "unstartable"
    assert expected in report["error"]


def test_terminate_reaches_the_whole_process_group_and_waits_for_it(server: Server) -> None:
    """A shell dies of SIGTERM at once; the training program that it started may still save its state."""
    child = "trap 'sleep 0.2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    server.start("/bin/sh", "-c", f'/bin/sh -c "{child}"; true')
    server.receive_start()
    wait_until(lambda: server.log().exists() and "ready" in server.log().read_text())
    server.send(op="terminate", id="a")
    assert server.receive()["code"] == 143
    assert server.printed()[-1] == "saved"


def test_kill_ends_what_ignores_terminate(server: Server) -> None:
    server.start("/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    pid = server.receive_start()
    wait_until(lambda: server.log().exists() and "ready" in server.log().read_text())
    server.send(op="terminate", id="a")
    server.send(op="kill", id="a")
    assert server.receive()["code"] == 137
    assert not alive(pid)


def test_terminate_right_after_start_is_not_lost(server: Server) -> None:
    for number in range(20):
        server.start("/bin/sleep", "60", identity=str(number))
        server.send(op="terminate", id=str(number))
    codes = [report["code"] for report in (server.receive() for _ in range(40)) if report["event"] == "exited"]
    assert codes == [143] * 20


DAEMON = (
    "import os, sys, time\n"
    "if os.fork(): time.sleep({stay}); sys.exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "print(os.getpid(), flush=True)\n"
    "time.sleep(600)\n"
)


@pytest.mark.skipif(not LINUX, reason="only Linux can adopt orphans")
def test_daemons_end_with_their_container(server: Server) -> None:
    server.start(sys.executable, "-c", DAEMON.format(stay=0.3))
    server.receive_start()
    assert server.receive()["code"] == 0
    assert not alive(int(server.printed()[0]))


def tree(server: Server) -> list[int]:
    """Start two containers, one with a daemon, and give the pids of all their processes."""
    server.start(sys.executable, "-c", DAEMON.format(stay=600))
    server.start("/bin/sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait", identity="b")
    pids = [server.receive_start(), server.receive_start()]
    for identity in ("a", "b"):
        log = server.log(identity)
        wait_until(lambda log=log: log.exists() and log.read_text().endswith("\n"))  # type: ignore[misc]  # bound early
        pids.append(int(server.printed(identity)[0]))
    assert all(map(alive, pids))
    return pids if LINUX else [*pids[:2], pids[3]]


def test_everything_dies_when_the_pipe_to_the_server_closes(tmp_path: Path) -> None:
    server = Server(tmp_path)
    pids = tree(server)
    server.close()
    wait_until(lambda: not any(map(alive, pids)))


def test_everything_dies_when_the_server_is_killed(tmp_path: Path) -> None:
    """The server cannot clean up after SIGKILL: here it is a process of its own that only starts a supervisor."""
    script = (
        "import subprocess, sys, json, time\n"
        f"child = subprocess.Popen({supervisor.command_line()!r}, stdin=subprocess.PIPE, "
        "start_new_session=True)\n"
        "command = {'op': 'start', 'id': 'a', 'argv': [sys.executable, '-c', sys.argv[1]], 'env': {}, 'cwd': '/', "
        "'log': sys.argv[2]}\n"
        "child.stdin.write(json.dumps(command).encode() + b'\\n'); child.stdin.flush()\n"
        "time.sleep(600)\n"
    )
    log = tmp_path / "log"
    server = subprocess.Popen([sys.executable, "-c", script, DAEMON.format(stay=600), str(log)], stdout=subprocess.PIPE)
    assert server.stdout is not None
    main = json.loads(server.stdout.readline())["pid"]
    daemon = int(wait_until(lambda: log.exists() and log.read_text()).split()[2])
    server.kill()
    server.wait()
    server.stdout.close()
    wait_until(lambda: not alive(main) and not (LINUX and alive(daemon)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_everything_dies_when_the_supervisor_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    server = Server(tmp_path)
    pids = tree(server)
    server.process.send_signal(number)
    wait_until(lambda: not any(map(alive, pids)))
    server.close()


@pytest.mark.skipif(not LINUX, reason="only Linux can find the shim's orphans")
def test_a_killed_shim_is_reported_and_leaves_nothing(server: Server) -> None:
    server.start("/bin/sh", "-c", "sleep 600 & echo $! $PPID; wait")
    main = server.receive_start()
    child, shim = map(int, wait_until(lambda: server.log().exists() and server.printed())[0].split())
    os.kill(shim, signal.SIGKILL)
    report = server.receive()
    assert (report["event"], report["code"]) == ("exited", 137)
    wait_until(lambda: not alive(main) and not alive(child))
    server.start("/bin/true", identity="next")
    server.receive_start()
    assert server.receive()["code"] == 0


def test_keyboard_interrupt_of_the_terminal_does_not_reach_it(server: Server) -> None:
    for identity in ("before", "after"):
        server.start("/bin/true", identity=identity)
        server.receive_start()
        assert server.receive()["code"] == 0
        server.process.send_signal(signal.SIGINT)


def test_a_program_runs_beside_a_container_and_reports_its_output(server: Server) -> None:
    server.start("/bin/sleep", "60")
    pid = server.receive_start()
    environment = {"env": {"PATH": os.environ["PATH"], "NAME": "value"}, "cwd": str(server.directory)}
    server.send(op="execute", id="x", target="a", pid=pid, argv=["/bin/sh", "-c", "echo $NAME; exit 3"], **environment)
    report = server.receive()
    assert (report["id"], report["event"], report["code"], report["output"]) == ("x", "exited", 3, "value\n")
    server.send(op="execute", id="y", target="a", pid=pid, argv=["no-such-program"], **environment)
    report = server.receive()
    assert (report["id"], report["event"]) == ("y", "unstartable")
    server.send(op="execute", id="z", target="a", pid=pid, argv=["sleep", "60"], **environment)
    server.send(op="kill", id="z")
    assert server.receive()["code"] == 137


def test_nothing_runs_in_a_container_that_has_ended(server: Server) -> None:
    server.start("/bin/true")
    pid = server.receive_start()
    server.receive()
    server.send(op="execute", id="x", target="none", pid=pid, argv=["true"], env={}, cwd="/")
    report = server.receive()
    assert (report["event"], report["error"]) == ("unstartable", "the container has ended")


def test_reports_are_short_whatever_is_printed(server: Server) -> None:
    server.start("/bin/sleep", "60")
    pid = server.receive_start()
    noise = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)"
    argv = [sys.executable, "-c", noise]
    server.send(op="execute", id="x", target="a", pid=pid, argv=argv, env={}, cwd="/")
    report = server.receive()
    assert report["code"] == 0
    assert len(json.dumps(report)) < 512


MODULES = sorted(module.name for module in pkgutil.iter_modules(runtime.__path__, f"{runtime.__name__}."))
ROOT = Path(trainmaster.devcluster.__path__[0]).parents[1]

IMPORT = """
import importlib, json, sys
before = set(sys.modules)
sys.path.append(sys.argv[1])
importlib.import_module(sys.argv[2])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_the_runtime_needs_no_other_package(module: str) -> None:
    """Without site-packages, as the supervisor runs: an import of anything else would fail or show up."""
    command = [sys.executable, "-I", "-S", "-c", IMPORT, str(ROOT), module]
    imported = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert module in imported
    above = {"trainmaster", "trainmaster.devcluster", "trainmaster.devcluster.kubelet", runtime.__name__}
    ours = {name for name in imported if name.partition(".")[0] == "trainmaster"}
    assert ours <= above | set(MODULES)
    foreign = {name.partition(".")[0] for name in set(imported) - ours}
    assert foreign <= sys.stdlib_module_names
    assert not foreign & {"asyncio", "pathlib", "subprocess"}, "what is slow to import"
