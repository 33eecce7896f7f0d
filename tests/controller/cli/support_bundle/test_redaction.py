"""What is taken out of a bundle, and what is not."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from trainmaster.controller.cli.support_bundle.redaction import Redactor

PLANTED = "hunter2-swordfish"


def written(*contents: Any, env_values: bool = False) -> str:
    redactor = Redactor(env_values=env_values)
    for each in contents:
        if not isinstance(each, str):
            redactor.learn(each)
    return "\n".join(redactor.written(each).decode() for each in contents)


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
LEARNT = [
    {"env": [{"name": "WANDB_API_KEY", "value": PLANTED}]},
    {"command": ["train", "--hf-token", PLANTED]},
    {"args": ["sh", "-c", f"export AWS_SECRET_ACCESS_KEY={PLANTED}; train"]},
    {"metadata": {"annotations": {"example.com/api-token": PLANTED}}},
    {"metadata": {"annotations": {LAST_APPLIED: f'{{"env":[{{"name":"DB_PASSWORD","value":"{PLANTED}"}}]}}'}}},
]
"""By which a secret is known that stands elsewhere, too."""


@pytest.mark.parametrize(
    "tree",
    [
        *LEARNT,
        {"env": [{"name": "GREETING", "value": PLANTED}]},
        {"command": ["train", f"--password={PLANTED}"]},
        {"args": [f"curl https://me:{PLANTED}@example.org/"]},
        {"metadata": {"annotations": {LAST_APPLIED: f'{{"a":"{PLANTED}"}}'}}},
        {"metadata": {"managedFields": [{"fieldsV1": {f'k:{{"name":"{PLANTED}"}}': {}}}]}},
        {"kind": "ConfigMap", "data": {"train.py": PLANTED}, "binaryData": {"x": PLANTED}},
        {"kind": "Secret", "data": {"x": PLANTED}, "stringData": {"y": PLANTED}},
        {"kind": "List", "items": [{"kind": "Secret", "data": {"x": PLANTED}}]},
        {"options": {"clientSecret": PLANTED, "dbPassword": PLANTED}},
        {"message": f"401: token={PLANTED} is wrong"},
    ],
)
def test_a_secret_is_taken_out_wherever_it_stands(tree: Any) -> None:
    assert PLANTED not in written(tree)


@pytest.mark.parametrize("tree", LEARNT)
def test_what_was_a_secret_in_one_place_is_taken_out_of_all(tree: Any) -> None:
    """A program prints what it was given, and nothing about the line tells that it must not be read."""
    found = written(tree, f"logged in as {PLANTED}!", {"note": f"tried {PLANTED} twice"})
    assert found.count("[redacted]") >= 2
    assert PLANTED not in found


def test_a_secret_that_json_escapes_is_found_and_a_common_value_is_not_looked_for() -> None:
    odd = 'p"w\\d\tü-long'
    found = written({"env": [{"name": "PASSWORD", "value": odd}], "note": f"it is {odd}"}, f"it is {odd}")
    assert "p\\" not in found
    assert odd not in found
    assert found.count("it is [redacted]") == 2
    # Short and common values are not looked for elsewhere.
    env = [{"name": "A_TOKEN", "value": value} for value in ("none", "default", "123456", "1")]
    log = "none of the default 123456 values is 1"
    assert written({"env": env}, log).endswith(log)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefghijklmnopqrstuvwxyz012345",
        f"password: {PLANTED}",
        f'{{"accessToken": "{PLANTED}", "x": 1}}',
        f'{{"event": "said {{\\"token\\": \\"{PLANTED}\\"}}"}}',
        f'password="correct horse {PLANTED}"',
        f"Authorization: token {PLANTED}x9",
        f"GET /?api_key={PLANTED}&x=1",
        f"python train.py --password {PLANTED}; exit 3",
        f"curl --api-key '{PLANTED}' https://example.com",
        f'sh -c "train -token {PLANTED}"',
        "using hf_abcdefghijklmnopqrstuvwx",
        "using AKIAABCDEFGHIJKLMNOP",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
        base64.b64encode(b"-----BEGIN PRIVATE KEY-----\nMIIEow\n").decode(),
    ],
)
def test_what_looks_like_a_credential_is_taken_out_of_logs(text: str) -> None:
    found = written(f"before {text} after")
    assert "[redacted]" in found
    for each in (PLANTED, "abcdefghijklmnopq", "MIIEow", "AKIAABC", "LS0tLS1CRUdJTi"):
        assert each not in found


KEPT = {
    "kind": "Pod",
    "spec": {
        "volumes": [{"name": "cert", "secret": {"secretName": "kubeflow-trainer-webhook-cert"}}],
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "trainer",
        "containers": [
            {
                "env": [
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token"}}},
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
                "args": ["--epochs", "3", "--lr=0.1"],
                "resources": {"limits": {"nvidia.com/gpu": "8"}},
            }
        ],
        "topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname", "maxSkew": 1}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
    "status": {"message": 'MountVolume.SetUp failed for volume "cert": secret "webhook-cert" not found'},
}


def test_what_maintainers_need_is_kept_as_it_is() -> None:
    assert orjson.loads(written(KEPT)) == KEPT
    line = '{"level": "info", "event": "starting", "server": "https://10.0.0.1:443", "plugins": ["torch"]}'
    assert written(line) == line
    command = (
        "train --epochs 3 --tokenizer llama --token-file /run/token --hf-token $HF_TOKEN --secret -v --max-tokens 4096"
    )
    assert written(command) == command
    sample = 'rest_client_requests_total{code="200",host="10.0.0.1",method="GET"} 7.0'
    assert written(sample) == sample


def test_env_values_are_kept_where_they_are_asked_for_unless_they_look_like_credentials() -> None:
    env = [
        {"name": "PET_NNODES", "value": "2"},
        {"name": "PWD", "value": "/workspace"},
        {"name": "WANDB_API_KEY", "value": PLANTED},
        {"name": "EXTRA", "value": f"--token={PLANTED}"},
        {"name": "URL", "value": f"https://me:{PLANTED}@example.org"},
    ]
    found = orjson.loads(written({"env": env, "cwd": "/workspace"}, env_values=True))
    assert found["cwd"] == "/workspace"
    assert found["env"][:2] == env[:2]
    assert PLANTED not in str(found)
    assert [each["value"] for each in orjson.loads(written({"env": env}))["env"]] == ["[redacted]"] * 5


def test_a_long_line_is_read_in_time_that_grows_with_it() -> None:
    """Base64 and the like: nothing is tried again from each of its letters. It would take hours."""
    blob = "aB3+/_-." * 250_000
    assert written(blob) == blob
