"""The flags and variables of the Training Operator: each sets an option of the configuration file. What means something
else here than there is told.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from trainmaster.controller.configuration import OFF, Configuration, Override, Problem
from trainmaster.controller.configuration.fields import job_controllers

_TRUE: Final = frozenset({"1", "t", "true"})
_FALSE: Final = frozenset({"0", "f", "false"})
_TRAINER_LEASE: Final = "trainer.kubeflow.org"


def _boolean(text: str) -> bool:
    """Read a boolean as Go's flags do."""
    if text.lower() not in _TRUE | _FALSE:
        raise argparse.ArgumentTypeError(f"{text!r} must be true or false")
    return text.lower() in _TRUE


class _Flag(NamedTuple):
    name: str
    option: str
    """That of the configuration file."""

    metavar: str
    help: str
    type: Callable[[str], Any] = str
    of_kind: tuple[str, str] | None = None
    """The job kind whose option it is, and which one."""


_FLAGS: Final = (
    _Flag("--gang-scheduler-name", "trainingOperator.gangSchedulerName", "NAME", "volcano, or that of a scheduler"),
    _Flag("--namespace", "watchNamespaces", "NS", "the only namespace that is served; default: $KUBEFLOW_NAMESPACE"),
    _Flag("--controller-threads", "controller.groupKindConcurrency", "N", "jobs of a kind reconciled at once", int),
    _Flag("--kube-api-qps", "clientConnection.qps", "N", "requests to the API server a second", float),
    _Flag("--kube-api-burst", "clientConnection.burst", "N", "requests to the API server at once", int),
    _Flag("--metrics-bind-address", "metrics.bindAddress", "ADDRESS", "of the metrics; 0: none"),
    _Flag("--health-probe-bind-address", "health.healthProbeBindAddress", "ADDRESS", "of the probes; 0: none"),
    _Flag("--leader-election-id", "leaderElection.resourceName", "NAME", "of the Lease"),
    _Flag("--webhook-server-port", "webhook.port", "PORT", "of the webhooks", int),
    _Flag("--webhook-service-name", "certManagement.webhookServiceName", "NAME", "of the Service of the webhooks"),
    _Flag("--webhook-secret-name", "certManagement.webhookSecretName", "NAME", "of the Secret of the certificates"),
    *(
        _Flag(name, "trainingOperator.options", metavar, explained, of_type, of_kind)
        for name, of_kind, metavar, explained, of_type in (
            (
                "--pytorch-init-container-image",
                ("pytorchjob", "initContainerImage"),
                "IMAGE",
                "with which workers of a PyTorchJob wait for its master",
                str,
            ),
            (
                "--pytorch-init-container-template-file",
                ("pytorchjob", "initContainerTemplateFile"),
                "FILE",
                "a template of init containers in their place",
                str,
            ),
            (
                "--pytorch-init-container-max-tries",
                ("pytorchjob", "initContainerMaxTries"),
                "N",
                "how often they look for the master",
                int,
            ),
            (
                "--mpi-kubectl-delivery-image",
                ("mpijob", "kubectlDeliveryImage"),
                "IMAGE",
                "which brings kubectl to the launcher of an MPIJob",
                str,
            ),
        )
    ),
)


def add_training_operator_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    flags = parser.add_argument_group(
        "as the Training Operator spells it", "Each sets an option of the configuration file, and wins over it."
    )
    flags.add_argument(
        "--enable-scheme",
        action="append",
        metavar="KIND",
        help="a kind of job that is served, for instance pytorchjob. May be repeated; default: all kinds",
    )
    flags.add_argument(
        "--leader-elect",
        nargs="?",
        const="true",
        type=_boolean,
        metavar="true|false",
        help="one of several replicas leads",
    )
    for each in _FLAGS:
        flags.add_argument(each.name, type=each.type, metavar=each.metavar, help=each.help)


def overrides_of_flags(arguments: argparse.Namespace) -> Iterator[Override]:
    """Return what the flags say."""
    kinds = arguments.enable_scheme
    if kinds:
        yield Override("trainingOperator.enableScheme", kinds, " ".join(f"--enable-scheme={kind}" for kind in kinds))
    if arguments.leader_elect is not None:
        value = arguments.leader_elect
        yield Override("leaderElection.leaderElect", value, f"--leader-elect={str(value).lower()}")
    for each in _FLAGS:
        value = getattr(arguments, each.name.removeprefix("--").replace("-", "_"))
        if value is not None:
            yield Override(each.option, _option_value(each, value), f"{each.name}={value}")


def _option_value(flag: _Flag, value: Any) -> Any:
    if flag.of_kind is not None:
        kind, option = flag.of_kind
        return {kind: {option: value}}
    match flag.name:
        case "--namespace":
            return [value] if value else []
        case "--controller-threads":
            return dict.fromkeys(job_controllers(), value)
    return value


def overrides_of_environment(environment: Mapping[str, str]) -> Iterator[Override]:
    """Return what the environment says, where neither a flag nor the file does."""
    namespace, domain = environment.get("KUBEFLOW_NAMESPACE"), environment.get("CUSTOM_CLUSTER_DOMAIN")
    if namespace:
        yield Override("watchNamespaces", [namespace], f"KUBEFLOW_NAMESPACE={namespace}", wins=False)
    if domain:
        yield Override("trainingOperator.clusterDomain", domain, f"CUSTOM_CLUSTER_DOMAIN={domain}", wins=False)


def notices_of_flags(overrides: Iterable[Override], configuration: Configuration) -> Iterator[Problem]:
    """Say what of the flags and the environment means more, or something else, than to the Training Operator."""
    for each in overrides:
        match each.option:
            case "watchNamespaces" if configuration.watch_namespaces:
                yield Problem("watchNamespaces", f"{each.source}: TrainJobs of other namespaces are not served either")
            case "metrics.bindAddress" if each.value != OFF and configuration.metrics.secure_serving:
                text = "metrics are served by HTTPS, not by HTTP as those of the Training Operator"
                yield Problem(
                    "metrics.secureServing", f"{each.source}: {text}; set metrics.secureServing to false for HTTP"
                )
            case "trainingOperator.options" if "mpijob" in each.value and _reaches_by_ssh(configuration):
                yield Problem("trainingOperator.options.mpijob", f"{each.source} has no effect: transport is ssh")
            case "leaderElection.resourceName" if (
                each.value != _TRAINER_LEASE and configuration.leader_election.leader_elect
            ):
                text = f"the Go controller of TrainJobs leads by {_TRAINER_LEASE}, so both would lead; run one of them"
                yield Problem("leaderElection.resourceName", f"{each.source}: {text}")


def _reaches_by_ssh(configuration: Configuration) -> bool:
    return configuration.training_operator.options.get("mpijob", {}).get("transport") == "ssh"
