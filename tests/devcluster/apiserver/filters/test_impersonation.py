"""Acting as somebody else."""

from __future__ import annotations

from support.apiserver import AS_ME, call, grant

from trainmaster.devcluster.testing.envtest import Environment

_PODS = "/api/v1/namespaces/default/pods"


async def test_impersonation_takes_the_rights_of_the_other(rbac_server: Environment) -> None:
    assert (await call(rbac_server, "GET", _PODS, headers=AS_ME))[0] == 403
    await grant(rbac_server.api, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]})
    assert (await call(rbac_server, "GET", _PODS, headers=AS_ME))[0] == 200


async def test_who_is_impersonated(rbac_server: Environment) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    _, answer = await call(rbac_server, "POST", path, headers=AS_ME, json={})
    assert answer["status"]["userInfo"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    extra = {
        "Impersonate-User": "ann",
        "Impersonate-Group": "staff",
        "Impersonate-Uid": "7",
        "Impersonate-Extra-example.com%2fscope": "all",
    }
    _, answer = await call(rbac_server, "POST", path, headers=extra, json={})
    assert answer["status"]["userInfo"] == {
        "username": "ann",
        "uid": "7",
        "groups": ["staff", "system:authenticated"],
        "extra": {"example.com/scope": ["all"]},
    }


async def test_impersonation_needs_a_right_of_its_own(rbac_server: Environment) -> None:
    token = rbac_server.tokens.create("default", "me", {})["status"]["token"]
    headers = {"Authorization": f"Bearer {token}", "Impersonate-User": "ann"}
    status, answer = await call(rbac_server, "GET", _PODS, headers=headers)
    assert status == 403
    assert 'cannot impersonate resource "users" in API group "" at the cluster scope' in answer["message"]
    status, _ = await call(rbac_server, "GET", _PODS, headers={"Impersonate-Group": "system:masters"})
    assert status == 500, "a group without a user is not a user"
