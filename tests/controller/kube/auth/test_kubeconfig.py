"""Kubeconfig files: which parts are used, and how the errors in them read."""

import base64
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.authorities import Authority
from support.kubeconfigs import write_kubeconfig
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.config import ConfigurationError


async def test_unknown_context(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k")
    with pytest.raises(ConfigurationError) as caught:
        await load_config(kubeconfig=path, context="nope")
    assert str(caught.value) == f"kubeconfig {path} (from --kubeconfig): it has no context 'nope'; it has: main, other"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"contexts": []}, "it has no context; add one with `kubectl config set-context`, for one of: c"),
        ({"current-context": None},
         "no current-context is set; choose one with `kubectl config use-context`: it has: main"),
        ({"current-context": "gone"},
         "it has no context 'gone', its current-context; choose one with `kubectl config use-context`: it has: main"),
        ({"clusters": [{"name": "d", "cluster": {}}]},
         "its context 'main' is of cluster 'c', which is missing; it has: d"),
        ({"clusters": [{"name": "c", "cluster": {"tls-server-name": "server"}}]},
         ("its cluster 'c' names no server; have the tool that made the cluster write it again, or name another "
          "with --kubeconfig or KUBECONFIG")),
        ({"users": []}, "its context 'main' is of user 'u', which is missing; it has: none"),
        ({"contexts": [{"name": "main", "context": {"user": "u"}}]}, "its context 'main' names no cluster; it has: c"),
    ],
)  # fmt: skip
async def test_parts_that_do_not_fit_together(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    path = tmp_path / "k"
    document = yaml.safe_load(Path(write_kubeconfig(path)).read_text())
    del document["contexts"][1]
    path.write_text(yaml.safe_dump(document | changes))
    with pytest.raises(ConfigurationError) as caught:
        await load_config(kubeconfig=str(path))
    assert str(caught.value) == f"kubeconfig {path} (from --kubeconfig): {fault}"


async def test_an_empty_file_among_others_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl leaves one behind when the last context is deleted from it."""
    (tmp_path / "empty").write_text("")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'empty'}:{write_kubeconfig(tmp_path / 'k')}")
    assert (await load_config()).server == "http://one:8080"


async def test_a_context_without_a_user_is_anonymous(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k", server="https://one", context={"user": ""})
    assert await (await load_config(kubeconfig=path)).headers() == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((content, "") for content in (b"", b"a: [", b"clusters: 5", b"\x00", b"\xff\xfe\x00binary")),
        *((content, " is no kubeconfig, which is a mapping with clusters, users") for content in (b"text", b"[1]")),
    ],
)
async def test_file_that_is_no_kubeconfig(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "k"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"{path}{said}"):
        await load_config(kubeconfig=str(path))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"clusters": {"c": {}}}, "clusters must be a list, but is a mapping"),
        ({"contexts": [None]}, "contexts[0] is empty"),
        ({"current-context": ["main"]}, "current-context must be text, but is a list"),
        ({"users": [{"user": {"token": "hidden"}}]}, "users[0] has no name"),
        ({"users": [{"name": 5, "user": {"token": "hidden"}}]}, "users[0].name must be text, but is a number"),
        ({"users": [{"name": "u", "user": {"token": {"value": "hidden"}}}]},
         "users[0].user.token (user 'u') must be text, but is a mapping"),
        ({"users": [{"name": "u", "user": {"exec": {"command": "a", "env": [{"name": "A", "value": 1}]}}}]},
         "users[0].user.exec.env[0].value (user 'u') must be text, but is a number"),
        ({"users": [{"name": "v"}, {"name": "u", "user": {"as-user-extra": {"reason": "hidden"}}}]},
         "users[1].user.as-user-extra.reason (user 'u') must be a list, but is text"),
        ({"users": [{"name": "u", "user": {"auth-provider": {"name": "oidc", "config": {"id-token": 5}}}}]},
         "users[0].user.auth-provider.config.id-token (user 'u') must be text, but is a number"),
        ({"clusters": [{"name": "c", "cluster": {"insecure-skip-tls-verify": "yes"}}]},
         "clusters[0].cluster.insecure-skip-tls-verify (cluster 'c') must be true or false, but is text"),
        ({"contexts": [{"name": "main", "context": ["c", "u"]}]},
         "contexts[0].context (context 'main') must be a mapping, but is a list"),
    ],
)  # fmt: skip
async def test_entries_of_a_wrong_shape_are_named_with_their_file_and_never_shown(
    tmp_path: Path, changes: dict[str, Any], fault: str
) -> None:
    path = tmp_path / "k"
    path.write_text(yaml.safe_dump(yaml.safe_load(Path(write_kubeconfig(path)).read_text()) | changes))
    other = write_kubeconfig(tmp_path / "other")
    with pytest.raises(ConfigurationError) as caught:
        await load_config(kubeconfig=f"{path}:{other}")
    assert str(caught.value) == (
        f"kubeconfig {path}:{other} (from --kubeconfig): in {path}, {fault}; "
        "correct it there, or have the tool that made the file write it again"
    )


@pytest.mark.parametrize(
    ("part", "entry", "kind"),
    [
        ("clusters", {"name": "c", "server": "http://one"}, "cluster"),
        ("users", {"name": "u", "token": "hidden"}, "user"),
        ("contexts", {"name": "main", "user": "u"}, "context"),
    ],
)
async def test_an_entry_that_says_nothing_is_named_if_it_is_needed_and_never_shown(
    tmp_path: Path, part: str, entry: dict[str, Any], kind: str
) -> None:
    path = tmp_path / "k"
    document = yaml.safe_load(Path(write_kubeconfig(path)).read_text())
    others = [each for each in document[part] if each["name"] != entry["name"]]
    path.write_text(yaml.safe_dump({**document, part: [entry, *others]}))
    with pytest.raises(ConfigurationError) as caught:
        await load_config(kubeconfig=str(path))
    assert str(caught.value) == (
        f"kubeconfig {path} (from --kubeconfig): in {path}, the entry of {kind} {entry['name']!r} has no field "
        f"{kind!r}; add it, or have the tool that made the file write it again"
    )


async def test_certificate_authority_is_checked(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")
    path = write_kubeconfig(tmp_path / "k", server="https://one", **{"certificate-authority": "ca"})
    with pytest.raises(ConfigurationError, match=r"certificate authority .* is unusable"):
        await load_config(kubeconfig=path)


async def test_verification_can_be_switched_off_only_by_the_file(tmp_path: Path) -> None:
    strict = await load_config(kubeconfig=write_kubeconfig(tmp_path / "a", server="https://one"))
    assert strict.ssl_context is not None
    assert strict.ssl_context.verify_mode == ssl.CERT_REQUIRED
    lax = await load_config(
        kubeconfig=write_kubeconfig(tmp_path / "b", server="https://one", **{"insecure-skip-tls-verify": True})
    )
    assert lax.ssl_context is not None
    assert lax.ssl_context.verify_mode == ssl.CERT_NONE


async def test_token_file_is_read_again(tmp_path: Path) -> None:
    """Tokens rotate in their files; the newline that editors leave is no part of them."""
    token, clock = tmp_path / "token", VirtualClock()
    token.write_text("first\n")
    config = await load_config(
        kubeconfig=write_kubeconfig(tmp_path / "k", user={"tokenFile": "token", "token": "stale"}), clock=clock
    )
    assert await config.headers() == {"Authorization": "Bearer first"}
    token.write_text("second\n")
    clock.step(59)
    assert await config.headers() == {"Authorization": "Bearer first"}
    clock.step(1)
    assert await config.headers() == {"Authorization": "Bearer second"}
    token.write_text("third\n")
    assert await config.credentials.renew()
    assert await config.headers() == {"Authorization": "Bearer third"}


async def test_token_that_cannot_be_read_again_stays_until_it_is_refused(tmp_path: Path) -> None:
    token, clock = tmp_path / "token", VirtualClock()
    token.write_text("first\n")
    config = await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", user={"tokenFile": str(token)}), clock=clock)
    token.unlink()
    clock.step(60)
    assert await config.headers() == {"Authorization": "Bearer first"}
    with pytest.raises(ConfigurationError, match=r"kubeconfig .*: No such file or directory \(.*/token\)"):
        await config.credentials.renew()


async def test_a_key_of_the_kubeconfig_stays_in_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed removes nothing."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    files = dict(zip(("client-certificate", "client-key"), Authority().issue(tmp_path), strict=True))
    user = {f"{name}-data": base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
    config = await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", server="https://one", user=user))
    assert config.ssl_context is not None
    assert not list((tmp_path / "temporary").iterdir())


async def test_files_are_merged_and_relative_paths_begin_beside_the_one_they_stand_in(tmp_path: Path) -> None:
    """The first file that names something counts."""
    (tmp_path / "a").mkdir()
    certificate, key = Authority().issue(tmp_path / "a")
    user = {"client-certificate": certificate.name, "client-key": key.name, "tokenFile": "token"}
    (tmp_path / "a" / "token").write_text("of-the-first")
    (tmp_path / "a" / "k").write_text(yaml.safe_dump({"users": [{"name": "u", "user": user}]}))
    second = write_kubeconfig(tmp_path / "b", server="https://one", user={"token": "of-the-second"})
    config = await load_config(kubeconfig=f"{tmp_path / 'a' / 'k'}:{tmp_path / 'missing'}:{second}")
    assert await config.headers() == {"Authorization": "Bearer of-the-first"}


async def test_the_current_context_is_that_of_the_first_file_that_has_one(tmp_path: Path) -> None:
    """Otherwise kubectl would be at one cluster, and we at another."""
    files = [tmp_path / name for name in ("first", "second", "third")]
    for file, current in zip(files, ("", "main", "other"), strict=True):
        document = yaml.safe_load(Path(write_kubeconfig(file)).read_text())
        file.write_text(yaml.safe_dump(document | {"current-context": current}))
    assert (await load_config(kubeconfig=":".join(map(str, files)))).source.endswith('context "main"')
    assert (await load_config(kubeconfig=f"{files[1]}:{files[0]}")).source.endswith('context "main"')


@pytest.mark.parametrize(
    ("field", "content", "said"),
    [
        ("certificate-authority", "gone", "gone is needed for TLS, but cannot be read: No such file or directory"),
        ("certificate-authority-data", "abc", r"in .*/k, certificate-authority-data is not base64; have the tool"),
    ],
)
async def test_an_authority_that_cannot_be_read(tmp_path: Path, field: str, content: str, said: str) -> None:
    path = write_kubeconfig(tmp_path / "k", server="https://one", **{field: content})
    with pytest.raises(ConfigurationError, match=said):
        await load_config(kubeconfig=path)


async def test_a_user_with_a_password(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k", user={"username": "me", "password": "secret"})
    assert await (await load_config(kubeconfig=path)).headers() == {"Authorization": "Basic bWU6c2VjcmV0"}


async def test_impersonation_is_asked_for_or_refused(tmp_path: Path) -> None:
    user: dict[str, Any] = {"token": "t", "as": "jane", "as-groups": ["dev"], "as-user-extra": {"scope": ["view"]}}
    config = await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", user=user))
    assert await config.headers() == {
        "Authorization": "Bearer t",
        "Impersonate-User": "jane",
        "Impersonate-Group": "dev",
        "Impersonate-Extra-scope": "view",
    }
    user["as-groups"].append("ops")
    with pytest.raises(ConfigurationError, match="several values of Impersonate-Group"):
        await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", user=user))
