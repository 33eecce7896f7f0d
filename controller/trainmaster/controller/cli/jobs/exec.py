"""`trainmaster exec` and `stack`: a program in a running container of a job, and what its Python processes are doing.

Exit codes: that of the program; 1 if it could not be run, 2 if there is no such job or rank.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from trainmaster.controller.cli.jobs.log_sources import Member, find_members, of_rank, why_no_log
from trainmaster.controller.cli.jobs.lookup import Job, find_job
from trainmaster.controller.cli.jobs.options import (
    add_cluster_options,
    add_job,
    count,
    namespace_of,
    next_command,
    on_cluster,
)
from trainmaster.controller.cli.printers import FAILURE, report
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.container_failures import container_statuses, log_container
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError, NotConnected, from_response
from trainmaster.controller.kube.rest.resources import PODS

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE = range(5)
_CLOSE_STDIN: Final = b"\xff\x00"
_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""As kubectl speaks them (KEP-4006): the first byte of each message is its channel."""

_PIECE: Final = 32 * 1024

_NO_PY_SPY: Final = 127
_STACKS: Final = f"""
command -v py-spy >/dev/null || exit {_NO_PY_SPY}
code=0
for process in /proc/[0-9]*; do
    case "$(readlink "$process/exe" 2>/dev/null)" in *python*) ;; *) continue ;; esac
    tr '\\0' '\\n' <"$process/environ" 2>/dev/null | grep -qx "HOSTNAME=$HOSTNAME" || continue
    py-spy dump --pid "${{process#/proc/}}" || code=1
done
exit $code
"""
"""Where each Python process of a container is; containers of the embedded cluster see those of others as well."""


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "exec",
        usage="trainmaster exec JOB [--rank N] [options] -- PROGRAM ...",
        description="Run a program in a container of a running job. On the embedded cluster it can see and end all "
        "your processes.",
    )
    add_job(parser)
    parser.add_argument("--rank", type=count, metavar="N", help="the rank; default: 0, or the launcher")
    parser.add_argument("-c", "--container", metavar="NAME", help="default: the one that trains")
    parser.add_argument("-i", "--stdin", action="store_true", help="pass on standard input")
    parser.add_argument("-T", "--no-tty", action="store_true", help="no terminal")
    add_cluster_options(parser)
    parser.set_defaults(run=on_cluster(_exec), advice=_advice)


def stack(commands: Any) -> None:
    """Add the command `stack`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "stack",
        description="Print the stacks of the Python processes of a running job, by rank: where it hangs. The "
        "container needs py-spy, which `trainmaster[local]` brings for the embedded cluster; elsewhere also the "
        "capability SYS_PTRACE.",
    )
    add_job(parser)
    parser.add_argument("--rank", type=count, metavar="N", help="only this rank; default: all pods")
    add_cluster_options(parser)
    parser.set_defaults(run=on_cluster(_stack))


def _advice(_words: Sequence[str], _unknown: Sequence[str]) -> str:
    """Say where the program belongs."""
    return "write the program behind --, as in: trainmaster exec JOB -- ls -l"


async def _exec(client: KubeClient, arguments: argparse.Namespace) -> int:
    if not arguments.arguments:
        raise Rejected(["which program? Write it behind --, as in: trainmaster exec JOB -- nvidia-smi"])
    job, found = await _find(client, arguments)
    member = _chosen(job, found, arguments.rank)
    container = arguments.container or log_container(member.pod)
    _require_running(member, container)
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not arguments.no_tty
    return await execute(
        client,
        member.pod,
        container,
        arguments.arguments,
        stdin=arguments.stdin or on_terminal,
        tty=on_terminal,
    )


async def _stack(client: KubeClient, arguments: argparse.Namespace) -> int:
    job, found = await _find(client, arguments)
    asked = found if arguments.rank is None and found else [_chosen(job, found, arguments.rank)]
    code = 0
    for member in asked:
        pod, container = member.pod, log_container(member.pod)
        try:
            _require_running(member, container)
        except Rejected as error:
            report(str(error))
            code = FAILURE
            continue
        print(f"{member.name} (pod {pod['metadata']['name']}):", flush=True)
        ended = await execute(client, pod, container, ["sh", "-c", _STACKS], stdin=False, tty=False)
        if ended == _NO_PY_SPY:
            report(
                f"{member.name}: its container {container} has no py-spy; add `pip install py-spy` to its image, or "
                f"for this run: {next_command('exec', job, client, arguments)} -- pip install py-spy"
            )
        code = code or min(ended, FAILURE)
    if code == FAILURE and job.outcome is not None:
        report(f"  what next: {next_command('logs', job, client, arguments)} --all prints what they have written")
    return code


async def _find(client: KubeClient, arguments: argparse.Namespace) -> tuple[Job, list[Member]]:
    """Return a job, and who of it has pods."""
    job = await find_job(client, namespace_of(client, arguments), arguments.job)
    return job, await find_members(client, job)


def _chosen(job: Job, found: Sequence[Member], rank: int | None) -> Member:
    for member in of_rank(found, rank):
        return member
    if job.is_suspended:
        raise Rejected([f"{job.title} is suspended, and has no pods; `trainmaster resume {job.argument}` starts it"])
    wanted = "pod that leads" if rank is None else f"rank {rank}"
    there = f"; there are: {', '.join(each.name for each in found)}" if found else ""
    ended = f" has ended ({job.outcome}), and has no {wanted}" if job.outcome else f" has no {wanted} at the moment"
    raise Rejected([f"{job.title}{ended}{there}"])


def _require_running(member: Member, container: str) -> None:
    pod = member.pod
    names = [each["name"] for each in pod["spec"]["containers"]]
    if container not in names:
        raise Rejected([f"pod {pod['metadata']['name']} has no container {container!r}; there are: {', '.join(names)}"])
    state = next((each.get("state") or {} for each in container_statuses(pod) if each["name"] == container), {})
    if ended := state.get("terminated"):
        why = f"its container {container} has ended ({ended.get('reason')}, exit code {ended.get('exitCode')})"
    else:
        why = why_no_log(pod)
    if "running" not in state:
        raise Rejected([f"{member.name}: nothing runs in pod {pod['metadata']['name']}: {why}"])


async def execute(
    client: KubeClient, pod: dict[str, Any], container: str, argv: list[str], *, stdin: bool, tty: bool
) -> int:
    """Run a program in a container with the streams of this process; returns its exit code.

    Raises:
        KubeError: The server refuses, or cannot be asked.
    """
    import aiohttp  # noqa: PLC0415 - a quarter of a second, which no other command for jobs needs

    config, metadata = client.config, pod["metadata"]
    url = f"{config.server}{PODS.path(metadata['namespace'], metadata['name'], 'exec')}"
    flags = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    params = [("container", container), *(("command", each) for each in argv)]
    params += [(name, str(value).lower()) for name, value in flags.items()]
    headers = {**({"Authorization": config.peer.login} if config.peer.login else {}), **await config.headers()}
    async with aiohttp.ClientSession() as session:
        try:
            socket = await session.ws_connect(
                url,
                params=params,
                headers=headers,
                protocols=_PROTOCOLS,
                ssl=config.ssl_context or True,
                server_hostname=config.server_hostname,
                proxy=config.proxy,
                max_msg_size=0,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise await _refusal(client, url, dict(params)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise NotConnected(f"GET {url}: {error}") from error
        async with socket:
            with _raw_terminal(socket) if tty else nullcontext():
                status = await _converse(socket, stdin=stdin)
    return _exit_code(status)


async def _refusal(client: KubeClient, url: str, params: dict[str, str]) -> KubeError:
    """Return why the server refuses, which the library for WebSockets does not tell."""
    config = client.config
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Protocol": ", ".join(_PROTOCOLS),
    }
    try:
        status, headers, body = await client.raw("GET", url.removeprefix(config.server), params=params, headers=upgrade)
    except KubeError as error:
        return error
    return from_response(status, headers, body, request=f"GET {url}", source=config.source)


async def _converse(socket: ClientWebSocketResponse, *, stdin: bool) -> dict[str, Any] | None:
    """Pass on both directions; returns how the program has ended, or None if the connection ended before."""
    typing = asyncio.create_task(_type(socket)) if stdin else None
    try:
        async for message in socket:
            channel, data = message.data[0], message.data[1:]
            if channel == _STATUS:
                found: dict[str, Any] = json.loads(data)
                return found
            stream = sys.stderr if channel == _STDERR else sys.stdout
            stream.buffer.write(data)
            stream.buffer.flush()
    finally:
        if typing is not None:
            typing.cancel()
    return None


async def _type(socket: ClientWebSocketResponse) -> None:
    """Pass on standard input, as fast as the other side takes it."""
    descriptor = sys.stdin.fileno()
    while True:
        await _readable(descriptor)
        data = os.read(descriptor, _PIECE)
        await socket.send_bytes(bytes([_STDIN]) + data if data else _CLOSE_STDIN)
        if not data:
            return


async def _readable(descriptor: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        return  # a file always is
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _exit_code(status: dict[str, Any] | None) -> int:
    if status is None:
        report("the connection ended before the program did; whether it still runs is not known")
        return FAILURE
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    report(str(status.get("message") or "the program could not be run, and the server does not say why"))
    return FAILURE


@contextmanager
def _raw_terminal(socket: ClientWebSocketResponse) -> Iterator[None]:
    """Leave keys and drawing to the program, and tell it the size of the terminal, also when that changes."""
    import termios  # noqa: PLC0415 - needed for this only
    import tty  # noqa: PLC0415

    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    sending: set[asyncio.Task[None]] = set()

    def tell_size() -> None:
        columns, rows = shutil.get_terminal_size()
        size = json.dumps({"Width": columns, "Height": rows}).encode()
        task = loop.create_task(socket.send_bytes(bytes([_RESIZE]) + size))
        sending.add(task)
        task.add_done_callback(sending.discard)

    tty.setraw(descriptor)
    loop.add_signal_handler(signal.SIGWINCH, tell_size)
    tell_size()
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
