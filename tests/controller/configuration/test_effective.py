"""File and flags together: what contradicts itself is refused, and what has no effect is told."""

from pathlib import Path
from typing import Any

import pytest

from trainmaster.controller.configuration import (
    Configuration,
    ConfigurationInvalid,
    EffectiveConfiguration,
    complete,
    effective_configuration,
    parse_configuration,
)
from trainmaster.controller.feature_gates import known_gates

HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}


def completed(sections: dict[str, Any]) -> EffectiveConfiguration:
    return complete(parse_configuration({**HEAD, **sections}))


def places(metrics: str, health: str) -> dict[str, Any]:
    return {"metrics": {"bindAddress": metrics}, "health": {"healthProbeBindAddress": health}}


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"metrics": {"bindAddress": "10.0.0.1:8081"}}, "health.healthProbeBindAddress: port 8081 is that of"),
        (places("127.0.0.1:1", "127.0.0.1:1"),
         "health.healthProbeBindAddress: port 1 is that of metrics.bindAddress; give each server one of its own"),
        ({"statusServer": {"port": 9443}, "featureGates": {"TrainJobStatus": True}},
         "statusServer.port: port 9443 is that of webhook.port"),
        ({"featureGates": {"TrainJobStatu": True}},
         'featureGates.TrainJobStatu: unknown feature gate (did you mean "TrainJobStatus"?)'),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(sections: dict[str, Any], problem: str) -> None:
    (found,) = completed(sections).problems
    assert str(found).startswith(problem)


def test_servers_that_are_not_in_each_others_way_may_have_one_port() -> None:
    sections: list[dict[str, Any]] = [
        {"statusServer": {"port": 9443}},
        {"webhook": {"enabled": False, "port": 8443}},
        places("127.0.0.1:8081", "127.0.0.2:8081"),
        places("127.0.0.1:0", ":0"),
        {"metrics": {"bindAddress": "0"}, "webhook": {"port": 8443}},
    ]
    assert [completed(each).problems for each in sections] == [[]] * 5


@pytest.mark.parametrize(
    ("sections", "notice"),
    [
        ({"webhook": {"enabled": False, "port": 1}}, "webhook.port: no effect: webhook.enabled is false"),
        ({"metrics": {"bindAddress": "0", "auth": {"enabled": True}}},
         'metrics.auth: no effect: metrics.bindAddress is "0", so there is no metrics server'),
        ({"metrics": {"auth": {"enabled": True}, "secureServing": False}},
         ("metrics.auth.enabled: tokens of those who read metrics travel unencrypted; set metrics.secureServing "
          "to true, unless a service mesh encrypts them")),
        ({"health": {"healthProbeBindAddress": "0", "readinessEndpointName": "ready"}},
         'health.readinessEndpointName: no effect: health.healthProbeBindAddress is "0", so there are no probes'),
        ({"statusServer": {"port": 1}},
         "statusServer.port: no effect: the feature gate TrainJobStatus is off, so there is no status server"),
        ({"leaderElection": {"leaseDuration": "30s"}},
         "leaderElection.leaseDuration: no effect: leaderElection.leaderElect is false"),
        ({"tls": {"minVersion": "1.3", "cipherSuites": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]}},
         "tls.cipherSuites: no effect: they are of TLS 1.2, and tls.minVersion is 1.3"),
        (
            {
                "webhook": {"enabled": False},
                "metrics": {"secureServing": False},
                "certManagement": {"webhookSecretName": "x"},
            },
            (
                "certManagement.webhookSecretName: no effect: neither webhooks nor metrics nor the status server need "
                "a certificate"
            ),
        ),
        ({"tls": {"nextProtos": ["h2", "http/1.1"]}}, "tls.nextProtos: the servers speak http/1.1 and nothing else"),
        ({"plugins": {"disabled": ["torch"], "options": {"torch": {}}}},
         "plugins.options.torch: no effect: the plugin is in plugins.disabled"),
        ({"tracing": {"samplingRatePerMillion": 10}},
         "tracing.samplingRatePerMillion: no effect: tracing.endpoint is not set, so there are no traces"),
        ({"tracing": {"endpoint": "collector:4318"}},
         ("tracing.samplingRatePerMillion: it is 0, so no reconcile is traced, only admission requests that "
          "the API server traces")),
        ({"tracing": {"endpoint": "http://collector:4317", "samplingRatePerMillion": 10}},
         ("tracing.endpoint: 4317 is the port of OTLP over gRPC by convention; OTLP over HTTP, which is "
          "spoken here, has 4318")),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_told(sections: dict[str, Any], notice: str) -> None:
    effective = completed(sections)
    assert [str(each) for each in effective.notices] == [notice]
    assert effective.problems == []


def test_what_has_its_default_is_not_told_of() -> None:
    """Whoever writes all options out, as the original does, is not bothered."""
    written = Configuration().model_dump(by_alias=True, exclude={"cert_management"})
    assert completed(written).notices == []


def test_a_manager_refuses_a_contradiction_and_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
        "webhook: {port: 8443}\nfeatureGates: {Colour: true}\n"
    )
    with pytest.raises(ConfigurationInvalid) as refused:
        effective_configuration(file)
    assert str(refused.value) == (
        f"config file: {file}: invalid configuration: featureGates.Colour: unknown feature gate "
        f"(there are: {', '.join(known_gates())}); metrics.bindAddress: port 8443 is that of webhook.port; give "
        "each server one of its own"
    )


@pytest.mark.guarantee("M-9")
def test_what_everybody_could_read_is_refused(tmp_path: Path) -> None:
    """The pages below `/debug/`, the history and the web page, which are on the metrics server."""
    options = ("enableDebuggingHandlers", "history.enabled", "web.enabled")
    sections = {options[0]: True, "history": {"enabled": True, "file": "/h"}, "web": {"enabled": True}}
    everybody = (
        "everybody who reaches the metrics server could read them; set metrics.auth.enabled to true, or "
        "metrics.bindAddress to 127.0.0.1:PORT, which kubectl port-forward reaches"
    )
    nobody = 'on the metrics server; give metrics.bindAddress an address, not "0"'
    cases: tuple[tuple[dict[str, Any], dict[str, str]], ...] = (
        ({}, dict.fromkeys(options, everybody)),
        ({"bindAddress": "10.0.0.1:8443"}, dict.fromkeys(options, everybody)),
        ({"bindAddress": "0"}, {options[0]: f"they are {nobody}", "web.enabled": f"it is {nobody}"}),
        ({"auth": {"enabled": True}}, {}),
        *(({"bindAddress": f"{host}:8443"}, {}) for host in ("127.0.0.1", "localhost", "[::1]")),
    )
    for metrics, told in cases:
        problems = completed({**sections, "metrics": metrics}).problems
        assert {problem.path: problem.message for problem in problems} == told
    file = tmp_path / "config.yaml"
    file.write_text("\n".join(f"{key}: {value}" for key, value in {**HEAD, options[0]: "true"}.items()))
    with pytest.raises(ConfigurationInvalid, match="enableDebuggingHandlers: everybody who reaches"):
        effective_configuration(file)
