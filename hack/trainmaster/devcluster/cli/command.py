"""`trainmaster cluster up|status|down`: the embedded cluster from the command line.

Exit codes: 0 done (or ready), 1 the cluster cannot be started or stopped, or it runs and something in it does not work
(why is said), 2 wrong arguments, 3 not running. A signal is the proper end of `up`; a start in the background
that it interrupts has 129, 130 or 143.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainmaster.devcluster.settings import NODE_MONITOR_GRACE_PERIOD, PARTS, ClusterSettings, KubeletSettings
from trainmaster.devcluster.state import HOME_VARIABLE, ClusterError, StateDirectory, default_directory

_HIGHEST_PORT = 65535


def command(commands: Any) -> None:
    """Add the command to the subparsers of `trainmaster`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "cluster",
        help="run a small Kubernetes-compatible cluster on this machine",
        description="A Kubernetes-compatible cluster in one process, for laptops and tests; its pods are processes.",
        epilog="Exit codes: 0 done, or ready; 1 failed, or something does not work; 2 wrong arguments; 3 not running, "
        "or starting.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_up(actions)
    status = actions.add_parser("status", help="tell whether it runs and what is in it", allow_abbrev=False)
    _add_state(status)
    status.set_defaults(run=_status)
    down = actions.add_parser("down", help="stop it; what is in it stays for the next `up`", allow_abbrev=False)
    _add_state(down)
    down.add_argument("--purge", action="store_true", help="delete the state as well: all objects, logs and volumes")
    down.set_defaults(run=_down)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the commands of the embedded cluster alone, without the controller; returns the exit code."""
    parser = argparse.ArgumentParser(prog="trainmaster")
    command(parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except KeyboardInterrupt:  # before the command has its own way to end
        return 130
    return code


def _add_up(actions: Any) -> None:
    up: argparse.ArgumentParser = actions.add_parser(
        "up",
        help="start it",
        description="Start the cluster and run it until SIGINT or SIGTERM, or in the background with --detach.",
        allow_abbrev=False,
    )
    _add_state(up)
    up.add_argument(
        "--port", type=_port, default=0, metavar="N", help="default 0: the port it had before, or a free one"
    )
    up.add_argument(
        "--without",
        type=_parts,
        default=frozenset(),
        metavar="PART,...",
        help=f"leave out parts: {', '.join(PARTS)}; without all of them it is a bare API server",
    )
    up.add_argument(
        "--detach",
        action="store_true",
        help="run in the background; return when cluster and manager are ready",
    )
    up.add_argument(
        "--if-needed",
        action="store_true",
        help="with --detach: use a running cluster, or wait for a starting one",
    )
    up.add_argument("--token", type=_token, help="of clients; default: random, kept in the state")
    up.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="where to write the kubeconfig; default: into the state directory",
    )
    up.add_argument(
        "--endpoint-lag",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="for tests: delay of Services after changes of their endpoints",
    )
    up.add_argument(
        "--audit-log",
        type=Path,
        metavar="FILE",
        help="append a JSON line for each request, as kube-apiserver; default: none",
    )
    up.add_argument("--config", type=Path, metavar="FILE", help="configuration file of the manager")
    up.add_argument(
        "--rbac",
        action="store_true",
        help="enforce roles for service accounts and impersonated users",
    )
    up.add_argument(
        "--elastic-jobsets",
        action="store_true",
        help="let running JobSets change their size (JobSet's feature gate ElasticJobSet)",
    )
    up.add_argument(
        "--workload-aware-scheduling",
        action="store_true",
        help="serve Workloads and PodGroups of scheduling.k8s.io, and schedule by them (feature gate GenericWorkload "
        "of Kubernetes, and those that need it but WorkloadWithJob)",
    )
    up.add_argument(
        "--networking",
        choices=("auto", "namespaces", "rewriting"),
        default="auto",
        help="how pods find each other and volumes: Linux namespaces, or rewritten names and paths; default: "
        "namespaces where they work",
    )
    up.add_argument(
        "--entrypoint",
        type=_entrypoint,
        action="append",
        default=[],
        metavar="IMAGE=COMMAND",
        help="command of an image, for containers without one, because images are never pulled; without a tag for all "
        "tags. May be repeated",
    )
    up.add_argument(
        "--fake-gpus",
        type=_count,
        default=0,
        metavar="N",
        help="pretend to have N GPUs, to try scheduling",
    )
    up.add_argument(
        "--nodes",
        type=_nodes,
        default=1,
        metavar="N",
        help="nodes that share this machine equally",
    )
    up.add_argument(
        "--node-monitor-grace-period",
        type=_seconds,
        default=NODE_MONITOR_GRACE_PERIOD,
        metavar="SECONDS",
        help="until a failed node is lost; default: %(default).0f",
    )
    up.set_defaults(run=_up)


def _add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help=f"state of the cluster; default: ${HOME_VARIABLE}, or .trainmaster in the working directory",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; use a number from 0 to {_HIGHEST_PORT}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number; use one from 0 up")
    return int(text)


def _nodes(text: str) -> int:
    if not _count(text):
        raise argparse.ArgumentTypeError("a cluster has at least one node")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds; use one from 0 up")
    return float(text)


def _entrypoint(text: str) -> tuple[str, tuple[str, ...]]:
    image, _, command = text.partition("=")
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"the command in {text!r} cannot be read: {error}") from error
    if not image or not words:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no entrypoint; write IMAGE=COMMAND, as in example.com/web=python"
        )
    return image, words


def _parts(text: str) -> frozenset[str]:
    parts = frozenset(filter(None, text.split(",")))
    if unknown := parts - set(PARTS):
        raise argparse.ArgumentTypeError(f"{min(unknown)!r} is no part; the parts are {', '.join(PARTS)}")
    return parts


def _token(text: str) -> str:
    if not text.isascii() or not text.isprintable() or not text or " " in text:
        raise argparse.ArgumentTypeError("a token consists of one or more printable ASCII characters without spaces")
    return text


def _up(arguments: argparse.Namespace) -> int:
    settings = ClusterSettings(
        state=_state(arguments),
        port=arguments.port or None,
        parts=frozenset(PARTS) - arguments.without,
        token=arguments.token,
        kubeconfig=arguments.kubeconfig,
        manager_config=arguments.config,
        rbac=arguments.rbac,
        elastic_jobsets=arguments.elastic_jobsets,
        workload_aware_scheduling=arguments.workload_aware_scheduling,
        endpoint_lag=arguments.endpoint_lag,
        node_monitor_grace_period=arguments.node_monitor_grace_period,
        kubelet=KubeletSettings(
            nodes=arguments.nodes,
            networking=arguments.networking,
            fake_gpus=arguments.fake_gpus,
            entrypoints=dict(arguments.entrypoint),
        ),
        audit_log=arguments.audit_log,
    )
    # Importing the whole cluster takes most of a second; whoever does not run it himself does without.
    if arguments.if_needed and not arguments.detach:
        print("trainmaster: --if-needed is for a start in the background; add --detach", file=sys.stderr)
        return 2
    if arguments.detach:
        from trainmaster.devcluster.cli.detach import run_detached  # noqa: PLC0415 - see above

        return _exit_code_of(lambda: run_detached(settings, if_needed=arguments.if_needed))
    from trainmaster.devcluster.cli.up import run_foreground  # noqa: PLC0415 - see above

    return _exit_code_of(lambda: run_foreground(settings))


def _status(arguments: argparse.Namespace) -> int:
    from trainmaster.devcluster.cli.cluster_status import print_status  # noqa: PLC0415 - see `_up`

    return _exit_code_of(lambda: print_status(_state(arguments)))


def _down(arguments: argparse.Namespace) -> int:
    from trainmaster.devcluster.cli.down import stop  # noqa: PLC0415 - see `_up`

    return _exit_code_of(lambda: stop(_state(arguments), purge=arguments.purge))


def _state(arguments: argparse.Namespace) -> StateDirectory:
    return StateDirectory(arguments.state_dir or default_directory())


def _exit_code_of(action: Callable[[], int]) -> int:
    try:
        return action()
    except ClusterError as error:
        print(f"trainmaster: {error}", file=sys.stderr)
        return 1
