"""Values as Go writes them."""

from __future__ import annotations

import pytest

from trainmaster.controller.configuration import (
    ConfigurationInvalid,
    parse_address,
    parse_configuration,
    seconds,
    traces_url,
)


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
