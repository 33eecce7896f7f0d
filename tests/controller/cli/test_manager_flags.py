"""Every flag of the manager takes effect, or is refused with a reason."""

from __future__ import annotations

import argparse
import logging

import pytest
from structlog.testing import capture_logs

from trainmaster.controller.cli import manager as command
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
    "--enable-scheme": (["--enable-scheme", "MXJob"], 1, "--enable-scheme=MXJob: scheme MXJob is not supported"),
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
"""Flags that take whatever text; `test_training_operator_flags` proves what they set."""


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


def test_a_flag_that_cannot_take_effect_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert found == expected
