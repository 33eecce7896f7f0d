"""A signal ends `cluster up` at any moment of its start: nothing is left over, and the next start works."""

import signal
import sys
from pathlib import Path

import pytest
from support import interrupting
from support.commands import Finished, eventually, processes_of, trainmaster

from trainmaster.devcluster.state import StateDirectory

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc"),
]

PHASES = [
    *("cluster:check_replaceable", "cluster:ensure_certificates", "cluster:Journal"),
    *("cluster:create_system_namespaces", "cluster:Scheduler", "cluster:choose_networking"),
    *("kubelet.network.mode:supervisor.probe_command_line", "kubelet.network.mode:asyncio.timeout"),
    *("cluster:listen_on_first", "apiserver.server:ApiServer.start", "cluster:write_kubeconfig"),
    *("cluster:install_definitions", "cluster:publish_configmap", "cluster:unregister_webhooks"),
    *("cluster:ManagerWebhooks", "kubelet.kubelet:RootDirectory.prepare", "kubelet.kubelet:is_ready"),
    *("manager.process:_rotate", "manager.process:ReadinessProbe.missing"),
]
"""What is called on the way to a cluster that is ready, in about this order."""

BARE = ("--without", "manager,controllers,gc,kubelet")
EARLY = "state:StateDirectory.prepare"


async def interrupted(place: str, number: signal.Signals, *arguments: str, cwd: Path) -> Finished:
    """Run `cluster up` until a function of the embedded cluster is called, when it gets a signal."""
    where = (f"trainmaster.devcluster.{place}", str(int(number)))
    return await trainmaster(*where, "cluster", "up", *arguments, cwd=cwd, script=interrupting.__file__)


async def nothing_is_left(state: StateDirectory) -> None:
    assert state.holder() is None
    await eventually(lambda: not processes_of(str(state.path)))
    leftovers = [entry.name for entry in state.path.iterdir() if entry.name.startswith((".token.", "journal.new"))]
    assert not leftovers


@pytest.mark.timeout(400)  # twenty starts, one after the other
async def test_a_signal_in_every_phase_of_the_start_ends_it_cleanly(home: Path) -> None:
    """On one state directory: each start but the first follows one that was interrupted.

    Nothing but "Stopping." is printed, so that each came as far as to its phase and no further.
    """
    state = StateDirectory(home / ".trainmaster")
    for place in PHASES:
        ended = await interrupted(place, signal.SIGTERM, cwd=home)
        assert (ended.code, ended.out, ended.err) == (0, "Stopping.\n", ""), place
        await nothing_is_left(state)
    up = await trainmaster("cluster", "up", "--detach", *BARE, cwd=home)
    assert (up.code, up.err) == (0, "")


async def test_every_signal_that_ends_programs_ends_the_start(home: Path) -> None:
    """As SIGTERM does in every phase: one handler is set for all of them."""
    for place, number in (
        ("cluster:choose_networking", signal.SIGINT),
        ("manager.process:ReadinessProbe.missing", signal.SIGHUP),
    ):
        ended = await interrupted(place, number, cwd=home)
        assert (ended.code, ended.out, ended.err) == (0, "Stopping.\n", ""), place
        await nothing_is_left(StateDirectory(home / ".trainmaster"))


async def test_before_anything_is_started_a_signal_just_ends_the_command(home: Path) -> None:
    for number, code in {signal.SIGINT: 130, signal.SIGTERM: -15, signal.SIGHUP: -1}.items():
        for arguments in ((), ("--detach",)):
            ended = await interrupted(EARLY, number, *arguments, cwd=home)
            assert (ended.code, ended.out, ended.err) == (code, "", "")


@pytest.mark.parametrize("place", ["state:StateDirectory.write_record", "cli.up:print_usage"])
async def test_once_it_is_ready_a_signal_is_its_proper_end(home: Path, place: str) -> None:
    ended = await interrupted(place, signal.SIGTERM, *BARE, cwd=home)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith("Stopping.\n")
    await nothing_is_left(StateDirectory(home / ".trainmaster"))


async def test_a_start_in_the_background_that_is_interrupted_leaves_no_cluster(home: Path) -> None:
    state = StateDirectory(home / ".trainmaster")
    for place, number, code in (
        ("cli.detach:_command", signal.SIGINT, 130),
        ("cli.detach:_wait_ready", signal.SIGHUP, 129),
        ("cli.detach:_manager_status", signal.SIGTERM, 143),
    ):
        ended = await interrupted(place, number, "--detach", cwd=home)
        assert (ended.code, ended.out) == (code, ""), place
        assert ended.err == "trainmaster: interrupted; the cluster is stopped again\n"
        await nothing_is_left(state)
    up = await trainmaster("cluster", "up", "--detach", *BARE, cwd=home)
    assert (up.code, up.err) == (0, "")
