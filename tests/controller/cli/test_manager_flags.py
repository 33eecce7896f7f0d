"""Every flag of the manager takes effect, or is refused with a reason; what the command makes a manager of."""

import argparse
import functools
import json
import logging
import operator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.acmejob import install_acmejob
from support.commands import Ran
from support.plugins import Counting

from trainmaster.controller.cli import manager as command
from trainmaster.controller.cli.config.flags import (
    add_training_operator_flags,
    notices_of_flags,
    overrides_of_environment,
    overrides_of_flags,
)
from trainmaster.controller.configuration import (
    Configuration,
    EffectiveConfiguration,
    Override,
    complete,
    effective_configuration,
    parse_configuration,
)
from trainmaster.controller.manager import process
from trainmaster.controller.manager.parts import Setup
from trainmaster.controller.plugins.loading import LoadedPlugins
from trainmaster.controller.server.healthz import Healthz
from trainmaster.runtime.jsontree import JsonObject

FLAGS: dict[str, tuple[list[str], int, str]] = {
    "--config": (["--config", "missing.yaml"], 1, "failed to read config file: missing.yaml"),
    "--kubeconfig": (["--kubeconfig", "missing"], 1, "missing"),
    "--feature-gates": (["--feature-gates", "Colour=true"], 1, "unknown feature gate 'Colour'"),
    "--zap-log-level": (["--zap-log-level", "loud"], 2, "'loud' is no level"),
    "--zap-encoder": (["--zap-encoder", "xml"], 2, "invalid choice: 'xml'"),
    "--zap-devel": (["--zap-devel=perhaps"], 2, "invalid choice: 'perhaps'"),
    "--zap-stacktrace-level": (["--zap-stacktrace-level", "info"], 2, "invalid choice: 'info'"),
    "--zap-time-encoding": (["--zap-time-encoding", "epoch"], 2, "invalid choice: 'epoch'"),
    "--enable-scheme": (["--enable-scheme", "A"], 1, "invalid configuration: --enable-scheme=A: scheme A is not "),
    "--gang-scheduler-name": (["--gang-scheduler-name", "a b"], 1, "--gang-scheduler-name=a b: 'a b' is no name"),
    "--namespace": (["--namespace", "A"], 1, "--namespace=A: 'A' is no name of a namespace"),
    "--controller-threads": (["--controller-threads", "many"], 2, "invalid int value: 'many'"),
    "--kube-api-qps": (["--kube-api-qps", "-1"], 1, "--kube-api-qps=-1.0: must be greater than or equal to 0"),
    "--kube-api-burst": (["--kube-api-burst", "1.5"], 2, "invalid int value: '1.5'"),
    "--metrics-bind-address": (["--metrics-bind-address", "8080"], 1, "'8080' must be host:port or :port"),
    "--health-probe-bind-address": (["--health-probe-bind-address", "8081"], 1, "'8081' must be host:port or :port"),
    "--leader-elect": (["--leader-elect=maybe"], 2, "'maybe' must be true or false"),
    "--webhook-server-port": (["--webhook-server-port", "0"], 1, "--webhook-server-port=0: must be greater than"),
    "--pytorch-init-container-max-tries": (["--pytorch-init-container-max-tries", "x"], 2, "invalid int value: 'x'"),
}
"""A value of each flag that cannot be used, the exit code, and what is said."""

ANY_TEXT = {
    "--leader-election-id",
    "--webhook-service-name",
    "--webhook-secret-name",
    "--pytorch-init-container-image",
    "--pytorch-init-container-template-file",
    "--mpi-kubectl-delivery-image",
}
"""Flags that take whatever text; the tests of the flags of the Training Operator prove what they set."""


def manager_parser() -> argparse.ArgumentParser:
    commands = argparse.ArgumentParser().add_subparsers()
    command.command(commands)
    parser: argparse.ArgumentParser = commands.choices["manager"]
    return parser


def test_every_flag_is_in_the_table() -> None:
    actions = manager_parser()._actions
    assert {option for action in actions for option in action.option_strings} - {"-h", "--help"} == set(
        FLAGS
    ) | ANY_TEXT


def test_flags_without_effect_are_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "configure_logs", lambda **_: None)  # for the whole process otherwise
    parser = manager_parser()
    for arguments, code, text in FLAGS.values():
        with capture_logs() as logged:
            try:
                ended = command.run(parser.parse_args(arguments))
            except SystemExit as stopped:
                ended = int(stopped.code or 0)
        assert ended == code, arguments
        assert text in capsys.readouterr().err + "".join(str(entry.get("error")) for entry in logged)


def test_what_flags_mean_is_told_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "configure_logs", lambda **_: None)  # for the whole process otherwise
    with capture_logs() as logged:
        assert command.run(manager_parser().parse_args(["--kubeconfig", "nowhere", "--namespace=a"])) == 1
    reasons = [entry.get("reason") for entry in logged]
    assert "--namespace=a: TrainJobs of other namespaces are not served either" in reasons


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"level": logging.INFO, "style": None}),
        (["--zap-log-level", "2"], {"level": logging.DEBUG, "style": None}),
        (["--zap-log-level", "error", "--zap-encoder", "json"], {"level": logging.ERROR, "style": "json"}),
        (["--zap-devel"], {"level": logging.DEBUG, "style": "console"}),
        (["--zap-devel=false", "--zap-time-encoding", "rfc3339nano"], {"level": logging.INFO, "style": None}),
        (["--zap-stacktrace-level", "error", "--zap-encoder", "console"], {"level": logging.INFO, "style": "console"}),
    ],
)
def test_logs_are_as_the_flags_say(arguments: list[str], expected: JsonObject, monkeypatch: pytest.MonkeyPatch) -> None:
    found: JsonObject = {}
    monkeypatch.setattr(command, "configure_logs", found.update)
    assert command.run(manager_parser().parse_args([*arguments, "--config", "missing.yaml"])) == 1
    assert found == {"colors": True, **expected}


HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}


def parsed(*words: str, environment: dict[str, str] | None = None) -> EffectiveConfiguration:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_training_operator_flags(parser)
    overrides = [*overrides_of_flags(parser.parse_args(words)), *overrides_of_environment(environment or {})]
    return complete(Configuration(), overrides=overrides)


def value_of(configuration: Configuration, option: str) -> Any:
    return functools.reduce(operator.getitem, option.split("."), configuration.model_dump(by_alias=True))


def test_each_flag_sets_its_option() -> None:
    election, pytorch = "1ca428e5.training-operator.kubeflow.org", "trainingOperator.options.pytorchjob"
    options: dict[str, tuple[str, Any]] = {
        "--gang-scheduler-name=volcano": ("trainingOperator.gangSchedulerName", "volcano"),
        "--namespace=a": ("watchNamespaces", ["a"]),
        "--namespace=": ("watchNamespaces", []),
        "--kube-api-qps=12.5": ("clientConnection.qps", 12.5),
        "--kube-api-burst=30": ("clientConnection.burst", 30),
        "--metrics-bind-address=:8080": ("metrics.bindAddress", ":8080"),
        "--metrics-bind-address=0": ("metrics.bindAddress", "0"),
        "--health-probe-bind-address=:1": ("health.healthProbeBindAddress", ":1"),
        "--leader-elect": ("leaderElection.leaderElect", True),
        "--leader-elect=T": ("leaderElection.leaderElect", True),
        "--leader-elect=false": ("leaderElection.leaderElect", False),
        f"--leader-election-id={election}": ("leaderElection.resourceName", election),
        "--webhook-server-port=1": ("webhook.port", 1),
        "--webhook-service-name=a": ("certManagement.webhookServiceName", "a"),
        "--webhook-secret-name=a": ("certManagement.webhookSecretName", "a"),
        "--pytorch-init-container-image=a": (f"{pytorch}.initContainerImage", "a"),
        "--pytorch-init-container-template-file=a": (f"{pytorch}.initContainerTemplateFile", "a"),
        "--pytorch-init-container-max-tries=7": (f"{pytorch}.initContainerMaxTries", 7),
        "--mpi-kubectl-delivery-image=a": ("trainingOperator.options.mpijob.kubectlDeliveryImage", "a"),
    }
    for flag, (option, value) in options.items():
        assert value_of(parsed(flag).configuration, option) == value, flag


def test_schemes_and_threads_are_those_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    install_acmejob(tmp_path, monkeypatch)
    assert parsed("--enable-scheme=AcmeJob").configuration.training_operator.enable_scheme == ["acmejob"]
    concurrency = parsed("--controller-threads=4").configuration.controller.group_kind_concurrency
    assert concurrency["AcmeJob.kubeflow.org"] == 4
    assert not any("trainer" in name for name in concurrency)
    printed = ran("config", "show", "--enable-scheme=acmejop", code=1)
    assert printed.err == (
        'error: --enable-scheme=acmejop: scheme acmejop is not supported (did you mean "acmejob"?)\n'
    )


def test_the_environment_of_the_training_operator_counts() -> None:
    effective = parsed(environment={"KUBEFLOW_NAMESPACE": "a", "CUSTOM_CLUSTER_DOMAIN": "corp.example"})
    assert effective.configuration.watch_namespaces == ["a"]
    assert effective.configuration.training_operator.cluster_domain == "corp.example"
    effective = parsed("--namespace=b", environment={"KUBEFLOW_NAMESPACE": "a", "CUSTOM_CLUSTER_DOMAIN": ""})
    assert effective.configuration.watch_namespaces == ["b"]
    assert [str(each) for each in effective.notices] == [
        "watchNamespaces: KUBEFLOW_NAMESPACE=a has no effect: ['b'] is given"
    ]


def test_what_means_something_else_here_is_told() -> None:
    told = {
        "--namespace=a": "watchNamespaces: --namespace=a: TrainJobs of other namespaces are not served either",
        "--metrics-bind-address=:8080": (
            "metrics.secureServing: --metrics-bind-address=:8080: metrics are served by HTTPS, not by HTTP as those of "
            "the Training Operator; set metrics.secureServing to false for HTTP"
        ),
        "--leader-elect --leader-election-id=a": (
            "leaderElection.resourceName: --leader-election-id=a: the Go controller of TrainJobs leads by "
            "trainer.kubeflow.org, so both would lead; run one of them"
        ),
        "--metrics-bind-address=0": "",
        "--leader-elect --leader-election-id=trainer.kubeflow.org": "",
        "--leader-elect=false --leader-election-id=a": "",
    }
    for flags, notice in told.items():
        effective = parsed(*flags.split())
        found = notices_of_flags(effective.overrides, effective.configuration)
        assert [str(each) for each in found] == [notice] * bool(notice)


def test_an_image_that_is_not_used_is_told() -> None:
    file = parse_configuration({**HEAD, "trainingOperator": {"options": {"mpijob": {"transport": "ssh"}}}})
    image = Override("trainingOperator.options", {"mpijob": {"kubectlDeliveryImage": "a"}}, "--image=a")
    effective = complete(file, overrides=[image])
    assert [str(each) for each in notices_of_flags(effective.overrides, effective.configuration)] == [
        "trainingOperator.options.mpijob: --image=a has no effect: transport is ssh"
    ]


def test_config_show_says_which_flag_a_value_comes_from(ran: Ran) -> None:
    lines = ran("config", "show", "--gang-scheduler-name=volcano", "--leader-elect").out.splitlines()
    assert "  gangSchedulerName: volcano  # --gang-scheduler-name=volcano" in lines
    assert "  leaderElect: true  # --leader-elect=true" in lines
    report = json.loads(ran("config", "show", "-o", "json", "--webhook-server-port=1").out)
    assert report["origins"]["webhook.port"] == {"source": "flag", "place": "--webhook-server-port=1"}


def test_options_of_kinds_are_checked_by_their_model_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    install_acmejob(tmp_path, monkeypatch)
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
        "trainingOperator:\n  options:\n    acmejob:\n      wings: many\n      color: blue\n"
    )
    assert ran("config", "check", str(file), code=1).out.splitlines() == [
        f'{file}:6:7: error: trainingOperator.options.acmejob.wings: must be an integer, got "many"',
        f'{file}:7:7: error: trainingOperator.options.acmejob.color: unknown option (did you mean "colour"?)',
    ]
    file.write_text(
        "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
        "trainingOperator: {options: {acmejop: {}}}\n"
    )
    unknown = 'scheme acmejop is not supported (did you mean "acmejob"?)'
    assert ran("config", "check", str(file), code=1).out == (
        f"{file}:3:30: error: trainingOperator.options.acmejop: {unknown}\n"
    )


def test_a_file_that_only_the_manager_has_is_not_looked_for(tmp_path: Path, ran: Ran) -> None:
    file = tmp_path / "config.yaml"
    head = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
    options = "{initContainerTemplateFile: /etc/config/initContainer.yaml, initContainerImageFile: /a, tryFile: /b}"
    file.write_text(f"{head}trainingOperator: {{options: {{pytorchjob: {options}}}}}\n")
    (unknown,) = ran("config", "check", str(file), code=1).out.splitlines()
    assert "trainingOperator.options.pytorchjob.tryFile: unknown option" in unknown


def test_what_is_wrong_with_the_section_is_said_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_acmejob(tmp_path, monkeypatch)
    sections: dict[str, dict[str, Any]] = {
        "clusterDomain: 'no domain' is no domain: a lowercase RFC": {"clusterDomain": "no domain"},
        "enableScheme[0]: scheme x is not supported": {"enableScheme": ["x"]},
        "enableScheme: acmejob must be named once only": {"enableScheme": ["acmejob", "AcmeJob"]},
        'enable: unknown field (did you mean "enabled"?)': {"enable": False},
        "enabled: must be true or false, got 'no'": {"gangSchedulerName": None, "enabled": "no"},
    }
    for problem, section in sections.items():
        with pytest.raises(Exception, match="invalid configuration: ") as refused:
            parse_configuration({**HEAD, "trainingOperator": section})
        assert str(refused.value).startswith(f"invalid configuration: trainingOperator.{problem}")


def test_what_of_the_section_has_no_effect_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_acmejob(tmp_path, monkeypatch)
    own_name = (
        "trainingOperator.gangSchedulerName: pods wait for a scheduler of that very name; the chart of "
        "scheduler-plugins calls its own scheduler-plugins-scheduler"
    )
    no_effect = "trainingOperator.gangSchedulerName: no effect: trainingOperator.enabled is false"
    sections: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({"enabled": False, "gangSchedulerName": "volcano"}, [no_effect]),
        ({"gangSchedulerName": "scheduler-plugins"}, [own_name]),
        ({"options": {"AcmeJob": {"wings": 4}}}, []),
    )
    for section, notices in sections:
        effective = complete(parse_configuration({**HEAD, "trainingOperator": section}))
        assert [str(each) for each in effective.notices] == notices


SETUPS: list[Setup] = []
"""Those of the managers that were made."""


class Made:
    """A manager that does nothing."""

    def __init__(self, setup: Setup, **_: Any) -> None:
        SETUPS.append(setup)
        self.healthz = Healthz(liveness="healthz", readiness="readyz")

    async def run(self, _stop: object) -> None:
        """End at once."""


async def test_plugins_of_others_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the guard there are no threads for them and no time limit: one that hangs would stop the manager."""

    async def config(**_: object) -> SimpleNamespace:
        return SimpleNamespace(namespace="default", server="https://127.0.0.1", source="none")

    monkeypatch.setattr(command, "Manager", Made)
    monkeypatch.setattr(command, "load_config", config)
    monkeypatch.setattr(command, "load", lambda *_, **__: LoadedPlugins([Counting()], {}, frozenset({"counting"})))
    for change in ("unmap_freed_blocks", "switch_threads_often", "freeze"):
        monkeypatch.setattr(process, change, lambda: None)
    arguments = argparse.Namespace(config=(), kubeconfig=None)
    await command._run(effective_configuration(), arguments, [], apply=lambda _: None)
    (setup,) = SETUPS
    assert setup.framework.guards_others
