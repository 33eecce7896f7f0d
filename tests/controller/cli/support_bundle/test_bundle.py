"""What gets into a bundle, pages of a manager among it, what is taken out of it, and the archive as a file."""

import base64
import io
import tarfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from support.web import listening

from trainmaster.controller.cli.options import CommandError
from trainmaster.controller.cli.support_bundle.archive import refuse_existing, write, write_file
from trainmaster.controller.cli.support_bundle.bundle import Bundle, Reading, end_of_log
from trainmaster.controller.cli.support_bundle.manager import gather_pages
from trainmaster.controller.cli.support_bundle.redaction import Redactor
from trainmaster.controller.configuration import parse_configuration
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
FILES = [("index.json", b"{}\n"), ("namespaces/team/pods.json", b"[]\n")]


def test_only_its_owner_can_read_it_and_the_same_is_written_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    assert write_file(path, FILES, created=NOW, replace=False) == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert [(each.name, each.mode) for each in members] == [
            ("trainmaster-support-bundle/index.json", 0o600),
            ("trainmaster-support-bundle/namespaces/team/pods.json", 0o600),
        ]
        content = archive.extractfile(members[0])
        assert content is not None
        assert content.read() == b"{}\n"
    assert list(tmp_path.iterdir()) == [path]
    first, second = io.BytesIO(), io.BytesIO()
    write(first, FILES, created=NOW)
    write(second, FILES, created=NOW)
    assert first.getvalue() == second.getvalue()


def test_a_file_that_exists_is_replaced_only_where_that_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_text("precious")
    path.chmod(0o644)
    with pytest.raises(CommandError, match=r"bundle\.tar\.gz exists; --force replaces it"):
        write_file(path, FILES, created=NOW, replace=False)
    assert path.read_text() == "precious"
    write_file(path, FILES, created=NOW, replace=True)
    assert tarfile.is_tarfile(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    # A link is replaced and not what it leads to.
    path, target = tmp_path / "link.tar.gz", tmp_path / "target"
    path.symlink_to(target)
    with pytest.raises(CommandError, match="exists"):
        refuse_existing(path)
    write_file(path, FILES, created=NOW, replace=True)
    assert not path.is_symlink()
    assert not target.exists()


def test_nothing_is_left_of_one_that_breaks_off_and_where_it_cannot_be_written_is_said(tmp_path: Path) -> None:
    def files() -> Iterator[tuple[str, bytes]]:
        yield FILES[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "bundle.tar.gz", files(), created=NOW, replace=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CommandError, match=r"is a directory; give the name of a file in it: -o .*\.tar\.gz"):
        refuse_existing(tmp_path)
    with pytest.raises(CommandError, match=r"missing/x cannot be written: No such file or directory"):
        write_file(tmp_path / "missing/x", FILES, created=NOW, replace=False)


def index_of(bundle: Bundle) -> dict[str, Any]:
    (path, content), *_ = bundle.written(Redactor())
    assert path == "index.json"
    return dict(orjson.loads(content))


def test_files_come_by_name_after_the_index_and_objects_by_namespace_and_name() -> None:
    bundle = Bundle(NOW)
    for path in ("b.json", "a/z.json", "a.json"):
        bundle.add(path, {})
    assert [path for path, _ in bundle.written(Redactor())] == ["index.json", "a.json", "a/z.json", "b.json"]
    # Objects come by namespace and name and none make no file.
    bundle = Bundle(NOW)
    bundle.add_objects("none.json", [])
    named = [{"kind": "Pod", "metadata": {"namespace": one, "name": name}} for one, name in ("ba", "ab", "aa")]
    bundle.add_objects("pods.json", named)
    _, (path, content) = bundle.written(Redactor())
    items = orjson.loads(content)["items"]
    assert path == "pods.json"
    assert [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in items] == [
        ("a", "a"),
        ("a", "b"),
        ("b", "a"),
    ]


def test_what_does_not_fit_is_left_out_and_told_and_what_comes_after_may_fit() -> None:
    bundle = Bundle(NOW, most_bytes=100)
    bundle.add("first.txt", "x" * 60)
    bundle.add("second.txt", "x" * 60)
    bundle.add("third.txt", "x" * 30, remark="the last 30 bytes of 31")
    index = index_of(bundle)
    assert [each["path"] for each in index["files"]] == ["first.txt", "third.txt"]
    assert index["files"][1]["remark"] == "the last 30 bytes of 31"
    (missing,) = index["missing"]
    assert missing["what"] == "second.txt"
    assert "it has 60 bytes, and the bundle 100 at most" in missing["reason"]


def test_no_name_leads_out_of_the_archive_and_no_reason_has_a_credential() -> None:
    bundle = Bundle(NOW)
    bundle.add("namespaces/../../etc/./passwd//x.json", {})
    assert bundle.paths() == ["namespaces/etc/passwd/x.json"]
    bundle = Bundle(NOW)
    bundle.lacks("metrics", "GET https://me:hunter2@proxy/: 502")
    assert "hunter2" not in orjson.dumps(index_of(bundle)).decode()


def test_the_end_of_a_log_begins_with_a_whole_line() -> None:
    assert end_of_log(b"ken=abc\nnext\n", is_cut=True) == "next\n"
    assert end_of_log(b"first\nnext\n", is_cut=False) == "first\nnext\n"
    assert end_of_log(b"one line without an end", is_cut=True) == ""
    assert end_of_log(b"\xff\n", is_cut=False) == "\ufffd\n"


PLANTED = "hunter2-swordfish"


def written(*contents: Any, env_values: bool = False) -> str:
    redactor = Redactor(env_values=env_values)
    for each in contents:
        if not isinstance(each, str):
            redactor.learn(each)
    return "\n".join(redactor.written(each).decode() for each in contents)


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
CREDENTIALS = (
    "pass",
    "my-pass",
    "example.com/my-pass",
    "a.b/pass",
    "my-pwd",
    "auth",
    "x-auth",
    "db.dsn",
    "hf-token",
    "dbPassword",
)
"""Names of what is a credential."""

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
        *({"metadata": {"annotations": {name: PLANTED}}} for name in CREDENTIALS),
        {"command": ["curl", "-u", f"me:{PLANTED}", "http://h"]},
        {"command": ["sshpass", "-p", PLANTED, "ssh", "h"]},
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
        f"curl -u me:{PLANTED} http://h",
        f"sshpass -p {PLANTED} ssh h",
        f"mysql -h db -p{PLANTED} train",
        f"GET https://store.example/blob?se=2026&sig={PLANTED}%3D&x=1",
        f"connecting with pwd={PLANTED}",
        "Bearer a1b2c3",
        "using hf_abcdefghijklmnopqrstuvwx",
        "using AKIAABCDEFGHIJKLMNOP",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
        base64.b64encode(b"-----BEGIN PRIVATE KEY-----\nMIIEow\n").decode(),
    ],
)
def test_what_looks_like_a_credential_is_taken_out_of_logs(text: str) -> None:
    found = written(f"before {text} after")
    assert "[redacted]" in found
    for each in (PLANTED, "a1b2c3", "abcdefghijklmnopq", "MIIEow", "AKIAABC", "LS0tLS1CRUdJTi"):
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
    for line in (
        "nc -p 8080 h; mkdir -p /data/x; PWD=/workspace pwd=/workspace sort -u names; the bearer of this",
        "srun -p 4 -u train.py; ps -u root",
    ):
        assert written(line) == line
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


HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}


async def pages(
    answers: Mapping[str, tuple[int, str]], *, token: str = "", **sections: Any
) -> tuple[dict[str, bytes], dict[str, str]]:
    """What is gathered of two pods, and why the rest is not, if a server answers so."""

    async def answer(request: web.Request) -> web.Response:
        status, text = answers.get(request.path, (404, ""))
        if token and request.headers.get("X-Trainmaster-Authorization") != f"Bearer {token}":
            status = 401
        return web.Response(status=status, text=text)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    bundle = Bundle(datetime.now(UTC))
    async with listening(app) as port:
        access = RestConfig(server=f"http://127.0.0.1:{port}")
        async with KubeClient(access, user_agent="tests", tries=1) as client:
            configuration = parse_configuration({**HEAD, **sections})
            pods = [{"metadata": {"namespace": "kubeflow", "name": name}} for name in ("a", "b")]
            await gather_pages(Reading(client, bundle), "kubeflow", pods, configuration, token=token)
    files = dict(bundle.written(Redactor()))
    index = orjson.loads(files.pop("index.json"))
    return files, {each["what"]: each["reason"] for each in index["missing"]}


PODS = "/api/v1/namespaces/kubeflow/pods"


async def test_metrics_and_pages_of_each_pod() -> None:
    answers = {
        f"{PODS}/http:{pod}:9100/proxy/{path}": (200, f"{path} of {pod}")
        for pod in "ab"
        for path in ("metrics", "debug/tasks", "debug/leader")
    }
    files, missing = await pages(
        answers, metrics={"bindAddress": "127.0.0.1:9100", "secureServing": False}, enableDebuggingHandlers=True
    )
    assert files["manager/kubeflow/pages/a/metrics.txt"] == b"metrics of a"
    assert files["manager/kubeflow/pages/b/debug/tasks"] == b"debug/tasks of b"
    assert files["manager/kubeflow/pages/b/debug/leader"] == b"debug/leader of b"
    assert "404" in missing["manager/kubeflow/pages/a/debug/threads"]


async def test_a_token_opens_what_is_closed_and_where_one_is_not_let_in_nothing_more_is_asked() -> None:
    # Where one is not let in nothing more is asked of that pod.
    answers = {f"{PODS}/https:a:8443/proxy/metrics": (401, ""), f"{PODS}/https:b:8443/proxy/metrics": (200, "some")}
    files, missing = await pages(answers, metrics={"auth": {"enabled": True}}, enableDebuggingHandlers=True)
    assert list(files) == ["manager/kubeflow/pages/b/metrics.txt"]
    assert "401" in missing["manager/kubeflow/pages/a/metrics.txt"]
    assert not any("/a/debug" in each for each in missing)
    # A token that is given is shown on the way that the proxy leaves open.
    answers = {f"{PODS}/https:{pod}:8443/proxy/metrics": (200, "some") for pod in "ab"}
    files, _ = await pages(answers, token="t0ken-of-a-reader", metrics={"auth": {"enabled": True}})
    assert list(files) == ["manager/kubeflow/pages/a/metrics.txt", "manager/kubeflow/pages/b/metrics.txt"]


async def test_what_is_switched_off_is_told() -> None:
    _, missing = await pages({}, metrics={"bindAddress": "0"})
    assert missing["metrics of the manager in namespace kubeflow"] == "metrics.bindAddress is 0"
    _, missing = await pages({})
    assert missing["/debug/ of the manager"] == "enableDebuggingHandlers is false"
