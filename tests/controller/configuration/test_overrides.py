"""Values as Go writes them, and what overrides a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainmaster.controller.configuration import (
    Configuration,
    ConfigurationInvalid,
    Override,
    complete,
    effective_configuration,
    parse_address,
    parse_configuration,
    seconds,
    traces_url,
)
from trainmaster.controller.configuration.reload import ConfigurationReloader

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
        (
            Override("webhook.port", 0, "--webhook-server-port=0"),
            "--webhook-server-port=0: must be greater than or equal to 1, got 0",
        ),
        (
            Override("watchNamespaces", ["A"], "--namespace=A"),
            "--namespace=A: 'A' is no name of a namespace: a lowercase RFC 1123 label",
        ),
        (
            Override("metrics.bindAddress", "8080", "--metrics-bind-address=8080"),
            "--metrics-bind-address=8080: address '8080' must be host:port or :port",
        ),
    ],
)
def test_what_is_wrong_with_a_flag_is_said_of_the_flag(override: Override, message: str) -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        complete(Configuration(), overrides=[override])
    assert str(refused.value).startswith(f"invalid configuration: {message}")


def test_a_flag_that_contradicts_the_file_is_refused() -> None:
    with pytest.raises(
        ConfigurationInvalid, match=r"^invalid configuration: metrics\.bindAddress: port 8443 is that of"
    ):
        effective_configuration(None, overrides=[Override("webhook.port", 8443, "--webhook-server-port=8443")])


def test_a_file_that_changes_does_not_change_what_a_flag_says(tmp_path: Path) -> None:
    file, applied = tmp_path / "config.yaml", list[Configuration]()
    head = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
    file.write_text(head)
    started = effective_configuration(file, overrides=[PORT]).configuration
    reloader = ConfigurationReloader(file, started, feature_gates="", overrides=[PORT], apply=applied.append)
    file.write_text(f"{head}webhook: {{port: 1}}\nlogging: {{verbosity: 2}}\n")
    reloader.reload()
    assert [(each.webhook.port, each.logging.verbosity) for each in applied] == [(1234, 2)]


def test_durations_and_addresses_as_go_writes_them() -> None:
    assert [seconds(text) for text in ("15s", "1m30s", "500ms", "1.5h")] == [15, 90, 0.5, 5400]
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
