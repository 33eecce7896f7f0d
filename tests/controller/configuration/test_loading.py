"""What is read of a configuration file, and every error as it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.controller.configuration import (
    Configuration,
    ConfigurationInvalid,
    load_configuration,
    parse_configuration,
    seconds,
)

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"

SHIPPED = (
    HEAD
    + """
webhook: {port: 9443}
metrics: {bindAddress: ":8443", secureServing: true}
health: {healthProbeBindAddress: ":8081", readinessEndpointName: readyz, livenessEndpointName: healthz}
leaderElection:
  leaderElect: true
  resourceName: trainer.kubeflow.org
  resourceNamespace: ""
  leaseDuration: 15s
  renewDeadline: 10s
  retryPeriod: 2s
controller:
  groupKindConcurrency:
    TrainJob.trainer.kubeflow.org: 5
    TrainingRuntime.trainer.kubeflow.org: 1
certManagement: {enable: true, webhookServiceName: a, webhookSecretName: b}
clientConnection: {qps: 50, burst: 100}
statusServer: {port: 10443, qps: 5, burst: 10}
"""
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def test_without_a_file_the_defaults_apply() -> None:
    assert load_configuration(None) == Configuration()
    assert not Configuration().leader_election.leader_elect


def test_a_file_as_the_go_manager_ships_it_is_read(tmp_path: Path) -> None:
    configuration = load_configuration(write(tmp_path, SHIPPED))
    assert configuration.controller.group_kind_concurrency["TrainJob.trainer.kubeflow.org"] == 5
    assert configuration.leader_election.leader_elect


def test_b31_a_partial_leader_election_gets_defaults(tmp_path: Path) -> None:
    """B31: the original left the other durations at zero and refused to start."""
    configuration = load_configuration(write(tmp_path, HEAD + "leaderElection: {leaderElect: true}\n"))
    assert seconds(configuration.leader_election.lease_duration) == 15
    assert configuration.leader_election.resource_name == "trainer.kubeflow.org"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            "the file must hold a mapping with apiVersion config.trainer.kubeflow.org/v1alpha1 and kind Configuration",
        ),
        ("kind: Configuration\n", "apiVersion must be 'config.trainer.kubeflow.org/v1alpha1', not None"),
        (HEAD + "a: [", "did not find expected node content at line"),
        (HEAD + "kind: Configuration\n", 'key "kind" is already set'),
        (HEAD + "webhok: {}\n", "webhok: unknown field"),
        (HEAD + "webhook: {port: 70000}\n", "webhook.port: must be less than or equal to 65535, got 70000"),
        (HEAD + "webhook: {port: '9443'}\n", "webhook.port: must be a valid integer, got '9443'"),
        (
            HEAD + "controller: {groupKindConcurrency: {TrainJob.trainer.kubeflow.org: 0}}\n",
            "controller.groupKindConcurrency.TrainJob.trainer.kubeflow.org: must be greater than or equal to 1, got 0",
        ),
        (HEAD + "leaderElection: {leaseDuration: soon}\n", "leaderElection.leaseDuration: must "),
        (
            HEAD + "leaderElection: {leaderElect: true, leaseDuration: 5s}\n",
            "leaderElection: leaseDuration (5s) must be longer than renewDeadline (10s)",
        ),
        (
            HEAD + "leaderElection: {retryPeriod: 9s}\n",
            "leaderElection: renewDeadline (10s) must be longer than 1.2 times retryPeriod (9s)",
        ),
        (HEAD + "leaderElection: {retryPeriod: 0s}\n", "leaderElection: retryPeriod (0s) must be longer than zero"),
        (
            HEAD + "metrics: {bindAddress: '8443'}\n",
            "metrics.bindAddress: address '8443' must be host:port or :port",
        ),
        (
            HEAD + "health: {healthProbeBindAddress: ':99999'}\n",
            "health.healthProbeBindAddress: address ':99999' must be host:port or :port",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        load_configuration(write(tmp_path, text))
    assert message in str(caught.value)
    assert "config.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_errors_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationInvalid, match=r"webhook\.port.*statusServer\.burst"):
        load_configuration(write(tmp_path, HEAD + "webhook: {port: 0}\nstatusServer: {burst: -1}\n"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationInvalid, match=r"failed to read config file: .*none\.yaml: .*No such file"):
        load_configuration(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("", (None, None)),
        ("clientConnection: {}\n", (None, None)),
        ("clientConnection: {qps: 5, burst: 10}\n", (5, 10)),
        ("clientConnection: {qps: 5}\n", (5, 100)),
        ("clientConnection: {burst: 10}\n", (50, 10)),
        ("clientConnection: {qps: 0}\n", (0, 100)),
    ],
)
def test_t1_the_client_is_limited_only_on_demand(
    tmp_path: Path, text: str, limit: tuple[float | None, int | None]
) -> None:
    connection = load_configuration(write(tmp_path, HEAD + text)).client_connection
    assert (connection.qps, connection.burst) == limit


@pytest.mark.parametrize("text", ["clientConnection: {qps: -1}\n", "clientConnection: {burst: -1}\n"])
def test_negative_limits_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="greater than or equal to 0"):
        load_configuration(write(tmp_path, HEAD + text))


def test_the_webhooks_have_the_originals_port_and_directory_and_can_be_switched_off() -> None:
    default = Configuration().webhook
    assert (default.enabled, default.port, default.host) == (True, 9443, None)
    assert default.cert_dir == "/tmp/k8s-webhook-server/serving-certs"
    head = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    given = parse_configuration({**head, "webhook": {"enabled": False, "certDir": "/certs", "host": "::1"}}).webhook
    assert (given.enabled, given.cert_dir, given.host) == (False, "/certs", "::1")


@pytest.mark.parametrize("section", ["metrics", "leaderElection", "clientConnection", "featureGates", "tls"])
def test_a_section_whose_lines_are_commented_out_is_one_that_is_not_there(tmp_path: Path, section: str) -> None:
    """Go takes null for absent."""
    assert load_configuration(write(tmp_path, HEAD + f"{section}:\n  # nothing\n")) == Configuration()
    assert load_configuration(write(tmp_path, HEAD + "webhook: {host: null}\n")) == Configuration()
