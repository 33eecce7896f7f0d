"""What is read of a configuration file, and every error as it prints."""

from pathlib import Path

import pytest

from trainmaster.controller.configuration import (
    Configuration,
    ConfigurationInvalid,
    Webhook,
    effective_configuration,
    load_configuration,
    parse_configuration,
)
from trainmaster.runtime.api.meta import duration_seconds

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"

SHIPPED_2_1 = (
    HEAD
    + """
health:
  healthProbeBindAddress: :8081
  readinessEndpointName: readyz
  livenessEndpointName: healthz
metrics:
  bindAddress: :8443
  secureServing: true
webhook:
  port: 9443
  host: ""
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
    ClusterTrainingRuntime.trainer.kubeflow.org: 1
certManagement:
  enable: true
  webhookServiceName: kubeflow-trainer-controller-manager
  webhookSecretName: kubeflow-trainer-webhook-cert
clientConnection:
  qps: 50
  burst: 100
"""
)

SHIPPED_2_2 = SHIPPED_2_1 + "statusServer:\n  port: 10443\n  qps: 5\n  burst: 10\n"
"""Until 2.3 at least."""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", [SHIPPED_2_1, SHIPPED_2_2], ids=["2.1", "2.2"])
def test_a_file_as_the_go_manager_ships_it_is_read(tmp_path: Path, text: str) -> None:
    """What it writes out is what holds without it, but for the election and the limits."""
    effective = effective_configuration(write(tmp_path, text))
    assert effective.notices == []
    configuration = effective.configuration
    assert configuration.controller.group_kind_concurrency["TrainJob.trainer.kubeflow.org"] == 5
    assert configuration.leader_election.leader_elect
    assert not Configuration().leader_election.leader_elect
    assert (configuration.client_connection.qps, configuration.client_connection.burst) == (50, 100)
    same = {"webhook", "metrics", "health", "cert_management", "status_server", "plugins"}
    default = Configuration(webhook=Webhook(host=""))
    assert configuration.model_dump(include=same) == default.model_dump(include=same)


@pytest.mark.defect("B31")
def test_a_partial_leader_election_gets_defaults(tmp_path: Path) -> None:
    """B31: the original left the other durations at zero and refused to start."""
    configuration = load_configuration(write(tmp_path, HEAD + "leaderElection: {leaderElect: true}\n"))
    assert duration_seconds(configuration.leader_election.lease_duration) == 15
    assert configuration.leader_election.resource_name == "trainer.kubeflow.org"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("",
         "the file must hold a mapping with apiVersion config.trainer.kubeflow.org/v1alpha1 and kind Configuration"),
        ("kind: Configuration\n", "apiVersion: is missing; it must be 'config.trainer.kubeflow.org/v1alpha1'"),
        (HEAD + "a: [", "did not find expected node content at line"),
        (HEAD + "kind: Configuration\n", 'key "kind" is already set'),
        ("apiVersion: v1\nkind: Configuration\n",
         "apiVersion: must be 'config.trainer.kubeflow.org/v1alpha1', not 'v1'"),
        (HEAD + "---\n" + HEAD, "expected a single document in the stream but found another document at line 3"),
        (HEAD + "clientConnection: {qps: -1}\n", "clientConnection.qps: must be greater than or equal to 0"),
        (HEAD + "clientConnection: {burst: -1}\n", "clientConnection.burst: must be greater than or equal to 0"),
        (HEAD + "webhok: {}\n", 'webhok: unknown field (did you mean "webhook"?)'),
        (HEAD + "webhook: {certdir: /x}\n", 'webhook.certdir: unknown field (did you mean "certDir"?)'),
        (HEAD + "metrics: {auth: {onn: true}}\n", "metrics.auth.onn: unknown field (there are: enabled)"),
        (HEAD + "metrics: 5\n", "metrics: must be a mapping of options, got 5"),
        (HEAD + "metrics: {secureServing: maybe}\n", "metrics.secureServing: must be true or false, got 'maybe'"),
        (HEAD + "plugins: {disabled: torch}\n", "plugins.disabled: must be a list, got 'torch'"),
        (HEAD + "controller: {groupKindConcurrency: {Trainjob.trainer.kubeflow.org: 1}}\n",
         ("controller.groupKindConcurrency.Trainjob.trainer.kubeflow.org: there is no controller of "
          "'Trainjob.trainer.kubeflow.org' (did you mean \"TrainJob.trainer.kubeflow.org\"?)")),
        (HEAD + "webhook: {port: 70000}\n", "webhook.port: must be less than or equal to 65535, got 70000"),
        (HEAD + "webhook: {port: '9443'}\n", "webhook.port: must be a whole number, got '9443'"),
        (HEAD + "controller: {groupKindConcurrency: {TrainJob.trainer.kubeflow.org: 0}}\n",
         "controller.groupKindConcurrency.TrainJob.trainer.kubeflow.org: must be greater than or equal to 1, got 0"),
        (HEAD + "leaderElection: {leaseDuration: soon}\n",
         ("leaderElection.leaseDuration: must be a duration as Go writes it, for instance 15s, 1m30s or 500ms, "
          "got 'soon'")),
        (HEAD + "leaderElection: {leaseDuration: 15}\n",
         "leaderElection.leaseDuration: must be a text, in quotes if it looks like a number, got 15"),
        (HEAD + "leaderElection: {leaderElect: true, leaseDuration: 5s}\n",
         "leaderElection: leaseDuration (5s) must be longer than renewDeadline (10s)"),
        (HEAD + "leaderElection: {retryPeriod: 9s}\n",
         "leaderElection: renewDeadline (10s) must be longer than 1.2 times retryPeriod (9s)"),
        (HEAD + "leaderElection: {retryPeriod: 0s}\n", "leaderElection: retryPeriod (0s) must be longer than zero"),
        (HEAD + "metrics: {bindAddress: '8443'}\n", "metrics.bindAddress: address '8443' must be host:port or :port"),
        (HEAD + "health: {healthProbeBindAddress: ':99999'}\n",
         "health.healthProbeBindAddress: address ':99999' must be host:port or :port"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        load_configuration(write(tmp_path, text))
    assert message in str(caught.value)
    assert "config.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.guarantee("T-1")
def test_the_client_is_limited_only_on_demand(tmp_path: Path) -> None:
    for text, limit in (
        ("", (None, None)),
        ("clientConnection: {}\n", (None, None)),
        ("clientConnection: {qps: 5, burst: 10}\n", (5, 10)),
        ("clientConnection: {qps: 5}\n", (5, 100)),
        ("clientConnection: {burst: 10}\n", (50, 10)),
        ("clientConnection: {qps: 0}\n", (0, 100)),
    ):
        connection = load_configuration(write(tmp_path, HEAD + text)).client_connection
        assert (connection.qps, connection.burst) == limit


def test_the_webhooks_have_the_originals_port_and_directory_and_can_be_switched_off() -> None:
    default = Configuration().webhook
    assert (default.enabled, default.port, default.host) == (True, 9443, None)
    assert default.cert_dir == "/tmp/k8s-webhook-server/serving-certs"
    head = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    given = parse_configuration({**head, "webhook": {"enabled": False, "certDir": "/certs", "host": "::1"}}).webhook
    assert (given.enabled, given.cert_dir, given.host) == (False, "/certs", "::1")


def test_a_section_whose_lines_are_commented_out_is_one_that_is_not_there(tmp_path: Path) -> None:
    """Go takes null for absent."""
    nothing = [f"{each}:\n  # nothing\n" for each in ("metrics", "leaderElection", "clientConnection", "tls")]
    for text in ("featureGates:\n  # nothing\n", *nothing, "webhook: {host: null}\n"):
        assert load_configuration(write(tmp_path, HEAD + text)) == load_configuration() == Configuration()


def test_files_are_merged_key_by_key_in_their_order(tmp_path: Path) -> None:
    """Mappings are merged, lists replaced, and null takes away what was said before."""
    main = (
        HEAD + "webhook: {port: 1, host: a}\nwatchNamespaces: [a, b]\nfeatureGates: {AllAlpha: true, AllBeta: true}\n"
    )
    over = (
        HEAD
        + "webhook: {port: 2, enabled: null}\nwatchNamespaces: [c]\n"
        + "featureGates: {AllBeta: null}\nhistory: null\n"
    )
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(main)
    second.write_text(over)
    read = load_configuration(first, second)
    assert (read.webhook.port, read.webhook.host, read.webhook.enabled) == (2, "a", True)
    assert (read.watch_namespaces, read.feature_gates) == (["c"], {"AllAlpha": True})
    assert load_configuration(second, first).webhook.port == 1


def test_a_directory_is_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    """As the kubelet mounts a ConfigMap: behind links, with directories of its own that nobody means."""
    data = tmp_path / "..2026"
    data.mkdir()
    (tmp_path / "..data").symlink_to(data.name)
    for name, port in (("b.yaml", 2), ("a.yaml", 1)):
        (data / name).write_text(f"{HEAD}webhook: {{port: {port}}}\n")
        (tmp_path / name).symlink_to(f"..data/{name}")
    (tmp_path / "notes.txt").write_text("no configuration")
    assert load_configuration(tmp_path).webhook.port == 2
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigurationInvalid, match=r"config directory: .*/none: it has no file \*\.yaml"):
        load_configuration(tmp_path / "none")


def test_a_problem_of_several_files_names_the_one_that_says_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(HEAD + "webhook: {prot: 1, port: 0}\ntls: {minVersion: '9'}\n")
    second.write_text(HEAD + "webhook: {port: 70000}\nweb: {enabeld: true}\ntls: {minVersion: '1.3'}\n")
    with pytest.raises(ConfigurationInvalid) as caught:
        load_configuration(first, second)
    told = str(caught.value).removeprefix(f"failed to decode config files: {first}, {second}: invalid configuration: ")
    assert told.split("; ") == [
        f"webhook.port: must be less than or equal to 65535, got 70000 (in {second})",
        f'webhook.prot: unknown field (did you mean "port"?) (in {first})',
        f'web.enabeld: unknown field (did you mean "enabled"?) (in {second})',
    ]
    # What the sections say of each other is known of all together, and of the file with the option.
    first.write_text(HEAD + "webhook: {port: 8443}\n")
    second.write_text(HEAD + "metrics: {bindAddress: ':8443'}\n")
    with pytest.raises(ConfigurationInvalid, match=rf"^config files: .*is that of webhook.* \(in {second}\)$"):
        effective_configuration(first, second)


@pytest.mark.parametrize("head", ["", "apiVersion: config.trainer.kubeflow.org/v1\nkind: Configuration\n", "[]"])
def test_each_of_several_files_says_what_it_is(tmp_path: Path, head: str) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(HEAD)
    second.write_text(head)
    with pytest.raises(ConfigurationInvalid, match=rf"^failed to decode config file: {second}: .*apiVersion"):
        load_configuration(first, second)
