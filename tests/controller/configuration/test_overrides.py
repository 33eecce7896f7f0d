"""Values as Go writes them, what overrides a file, and a file that changes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.configuration import (
    Configuration,
    ConfigurationInvalid,
    Override,
    complete,
    effective_configuration,
    load_configuration,
    parse_address,
    parse_configuration,
    traces_url,
)
from trainmaster.controller.configuration.reload import INTERVAL, ConfigurationReloader
from trainmaster.runtime.api.meta import duration_seconds

HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
PORT = Override("webhook.port", 1234, "--port=1234")


def configured(**sections: Any) -> Configuration:
    return parse_configuration({**HEAD, **sections})


def test_a_flag_wins_over_the_file_which_is_told_if_the_file_says_something_else() -> None:
    effective = complete(configured(webhook={"port": 7, "host": "::1"}), overrides=[PORT])
    assert (effective.configuration.webhook.port, effective.configuration.webhook.host) == (1234, "::1")
    assert [str(each) for each in effective.notices] == ["webhook.port: --port=1234 wins over what is given as well: 7"]
    assert list(effective.overrides) == [PORT]
    file = configured(webhook={"port": 1234})
    assert complete(file, overrides=[PORT]).notices == []
    assert complete(file).configuration is file


def test_the_environment_counts_where_nobody_else_says_anything() -> None:
    domain = Override("trainingOperator.clusterDomain", "b.c", "DOMAIN=b.c", wins=False)
    assert complete(Configuration(), overrides=[domain]).configuration.training_operator.cluster_domain == "b.c"
    effective = complete(configured(trainingOperator={"clusterDomain": "a"}), overrides=[domain])
    assert effective.configuration.training_operator.cluster_domain == "a"
    assert [str(each) for each in effective.notices] == [
        "trainingOperator.clusterDomain: DOMAIN=b.c has no effect: 'a' is given"
    ]
    assert list(effective.overrides) == []
    empty = complete(configured(watchNamespaces=[]), overrides=[Override("watchNamespaces", ["a"], "NS=a", wins=False)])
    assert empty.configuration.watch_namespaces == [], "no namespace in particular is something that a file can say"


def test_mappings_are_merged() -> None:
    key = "TrainingRuntime.trainer.kubeflow.org"
    flag = Override("controller.groupKindConcurrency", {key: 3}, "--threads=3")
    file = configured(controller={"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": 2}})
    effective = complete(file, overrides=[flag])
    assert effective.configuration.controller.group_kind_concurrency == {"TrainJob.trainer.kubeflow.org": 2, key: 3}
    assert effective.notices == []
    again = complete(configured(controller={"groupKindConcurrency": {key: 2}}), overrides=[flag])
    assert [str(each) for each in again.notices] == [
        f"controller.groupKindConcurrency.{key}: --threads=3 wins over what is given as well: 2"
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (Override("webhook.port", 0, "--webhook-server-port=0"),
         "--webhook-server-port=0: must be greater than or equal to 1, got 0"),
        (Override("watchNamespaces", ["A"], "--namespace=A"),
         "--namespace=A: 'A' is no name of a namespace: a lowercase RFC 1123 label"),
        (Override("metrics.bindAddress", "8080", "--metrics-bind-address=8080"),
         "--metrics-bind-address=8080: address '8080' must be host:port or :port"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_flag_is_said_of_the_flag(override: Override, message: str) -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        complete(Configuration(), overrides=[override])
    assert str(refused.value).startswith(f"invalid configuration: {message}")


def test_a_flag_that_contradicts_the_file_is_refused() -> None:
    with pytest.raises(
        ConfigurationInvalid, match=r"^invalid configuration: metrics\.bindAddress: port 8443 is that of"
    ):
        effective_configuration(overrides=[Override("webhook.port", 8443, "--webhook-server-port=8443")])


def test_a_file_that_changes_does_not_change_what_a_flag_says(tmp_path: Path) -> None:
    file, applied = tmp_path / "config.yaml", list[Configuration]()
    head = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
    file.write_text(head)
    started = effective_configuration(file, overrides=[PORT]).configuration
    reloader = ConfigurationReloader([file], started, feature_gates="", overrides=[PORT], apply=applied.append)
    file.write_text(f"{head}webhook: {{port: 1}}\nlogging: {{verbosity: 2}}\n")
    reloader.reload()
    assert [(each.webhook.port, each.logging.verbosity) for each in applied] == [(1234, 2)]


def test_each_of_several_files_is_followed_and_one_that_is_added_to_a_directory(tmp_path: Path) -> None:
    applied = list[int]()
    head = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
    (tmp_path / "a.yaml").write_text(head)
    started = load_configuration(tmp_path)
    reloader = ConfigurationReloader(
        [tmp_path], started, feature_gates="", apply=lambda new: applied.append(new.logging.verbosity)
    )
    (tmp_path / "b.yaml").write_text(f"{head}logging: {{verbosity: 2}}\n")
    reloader.reload()
    (tmp_path / "b.yaml").write_text(f"{head}logging: {{verbosity: 3}}\n")
    reloader.reload()
    (tmp_path / "b.yaml").unlink()
    reloader.reload()
    assert applied == [2, 3, 0]


def test_durations_and_addresses_as_go_writes_them() -> None:
    assert [duration_seconds(text) for text in ("15s", "1m30s", "500ms", "1.5h")] == [15, 90, 0.5, 5400]
    addresses = {":8443": (None, 8443), "127.0.0.1:0": ("127.0.0.1", 0), "[::1]:9": ("::1", 9)}
    assert {address: parse_address(address) for address in addresses} == addresses
    for address in ("8443", ":http", ":70000", ""):
        with pytest.raises(ValueError, match="must be host:port or :port"):
            parse_address(address)


def test_collectors_of_traces() -> None:
    urls = {
        "collector:4318": "http://collector:4318/v1/traces",
        "[::1]:4318": "http://[::1]:4318/v1/traces",
        "http://collector:4318/": "http://collector:4318/v1/traces",
        "https://otel.example.org": "https://otel.example.org/v1/traces",
        "https://otel.example.org/otlp/v1/traces/": "https://otel.example.org/otlp/v1/traces",
    }
    assert {endpoint: traces_url(endpoint) for endpoint in urls} == urls


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("collector", "'collector' must be host:port, as collector:4318, or a URL of http or https"),
        (":4318", "must be host:port"),
        ("grpc://collector:4317", "must be host:port"),
        ("collector:http", "it has no host, or no port, that can be"),
        ("collector:70000", "it has no host, or no port, that can be"),
        ("http://[::1", "it has no host, or no port, that can be"),
        ("https://me:secret@otel.example.org", "OTEL_EXPORTER_OTLP_HEADERS is for credentials"),
        ("https://otel.example.org/?token=secret", "must have neither credentials nor a query"),
    ],
)
def test_what_is_no_collector_is_refused_without_quoting_credentials(endpoint: str, message: str) -> None:
    head = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    with pytest.raises(ConfigurationInvalid) as refused:
        parse_configuration({**head, "tracing": {"endpoint": endpoint}})
    assert str(refused.value).startswith("invalid configuration: tracing.endpoint: ")
    assert message in str(refused.value)
    assert "secret" not in str(refused.value)


RELOADED_HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
SUCCESSFUL = "trainmaster_config_last_reload_successful"
TIMESTAMP = "trainmaster_config_last_reload_success_timestamp_seconds"


class Mounted:
    """A ConfigMap as the kubelet mounts it: a new version is written elsewhere, and a link swapped."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._version = directory, 0
        self.path = directory / "config.yaml"
        self.path.symlink_to("..data/config.yaml")

    def update(self, text: str | None) -> None:
        self._version += 1
        version = self._directory / f"..{self._version}"
        version.mkdir()
        if text is not None:
            (version / "config.yaml").write_text(RELOADED_HEAD + text)
        swapped = self._directory / "..data_tmp"
        swapped.symlink_to(version.name)
        swapped.rename(self._directory / "..data")


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    made = Mounted(tmp_path)
    made.update("webhook: {port: 1}\n")
    return made


@pytest.fixture
def applied() -> list[int]:
    return []


@pytest.fixture
def reloader(mounted: Mounted, applied: list[int], clock: VirtualClock) -> ConfigurationReloader:
    def apply(configuration: Configuration) -> None:
        applied.append(configuration.logging.verbosity)

    return ConfigurationReloader(
        [mounted.path], load_configuration(mounted.path), feature_gates="", apply=apply, clock=clock
    )


def told(reloader: ConfigurationReloader) -> list[dict[str, object]]:
    with capture_logs() as logged:
        reloader.reload()
    return [dict(each) for each in logged]


def test_what_may_change_takes_effect(mounted: Mounted, reloader: ConfigurationReloader, applied: list[int]) -> None:
    assert told(reloader) == []
    mounted.update("webhook: {port: 1}\nlogging: {verbosity: 2}\n")
    assert told(reloader) == [
        {"event": "the configuration file is in effect", "reloaded": ["logging.verbosity"], "log_level": "info"}
    ]
    assert applied == [2]
    assert told(reloader) == []


def test_what_takes_restarts_is_told(mounted: Mounted, reloader: ConfigurationReloader, applied: list[int]) -> None:
    mounted.update("webhook: {port: 2}\nplugins: {options: {a: {b: 1}}}\n")
    assert told(reloader) == [
        {
            "event": "the configuration file has changed; some options need a restart",
            "options": ["webhook.port", "plugins.options.a"],
            "reloaded": [],
            "log_level": "warning",
        }
    ]
    assert told(reloader) == []
    # More of them are told again, what is reloaded beside them is not lost.
    mounted.update("webhook: {port: 2, host: x}\nlogging: {verbosity: 5}\n")
    (line,) = told(reloader)
    assert (line["options"], line["reloaded"]) == (["webhook.host", "webhook.port"], ["logging.verbosity"])
    mounted.update("webhook: {port: 2, host: x}\n")
    (line,) = told(reloader)
    assert (line["event"], line["reloaded"]) == ("the configuration file is in effect", ["logging.verbosity"])
    assert applied == [5, 0]
    mounted.update("# a comment\nwebhook: {port: 1}\n")
    assert [line["event"] for line in told(reloader)] == ["the configuration file is in effect"], "as it was"


async def test_a_file_that_cannot_be_used_changes_nothing(
    mounted: Mounted, reloader: ConfigurationReloader, applied: list[int], clock: VirtualClock
) -> None:
    mounted.update("webhook: {port: 0}\nlogging: {verbosity: 2}\n")
    started = value_of(TIMESTAMP) or 0.0
    (line,) = told(reloader)
    assert line == {
        "event": "the configuration file cannot be used any more; the old values stay",
        "error": (
            f"failed to decode config file: {mounted.path}: invalid configuration: webhook.port: must be greater than "
            "or equal to 1, got 0"
        ),
        "log_level": "warning",
    }
    assert told(reloader) == []
    assert (applied, value_of(SUCCESSFUL)) == ([], 0)
    mounted.update(None)
    assert "No such file or directory" in str(told(reloader)[0]["error"])
    assert value_of(TIMESTAMP) == started
    await clock.advance(100)
    mounted.update("webhook: {port: 1}\n")
    assert [line["event"] for line in told(reloader)] == ["the configuration file is in effect"]
    assert (value_of(SUCCESSFUL), value_of(TIMESTAMP)) == (1, started + 100)


async def test_it_looks_again_and_again(
    mounted: Mounted, reloader: ConfigurationReloader, applied: list[int], clock: VirtualClock
) -> None:
    running = asyncio.create_task(reloader.run())
    for verbosity in (2, 3):
        mounted.update(f"logging: {{verbosity: {verbosity}}}\n")
        await clock.advance(INTERVAL + 1)
    running.cancel()
    assert applied == [2, 3]
