"""One reason that concerns all collections is one line of the log."""

from __future__ import annotations

import pytest

from trainmaster.controller.kube.cache.listwatch import Collection, failure_of
from trainmaster.controller.kube.cache.outages import Outages
from trainmaster.controller.kube.rest.errors import (
    Forbidden,
    KubeError,
    NotConnected,
    NotFound,
    RequestTimeout,
    ServerError,
    Unauthorized,
)
from trainmaster.controller.kube.rest.resources import CONFIGMAPS

REFUSED = NotConnected("GET https://a/b: refused")


def tells(outages: Outages, who: str, error: KubeError) -> bool:
    return outages.note(who, failure_of(error, Collection(resource=CONFIGMAPS), "list"))


@pytest.mark.guarantee("E-8")
def test_of_a_reason_that_all_have_the_first_one_tells() -> None:
    outages = Outages()
    assert [tells(outages, name, REFUSED) for name in "abc"] == [True, False, False]
    later = [tells(outages, name, RequestTimeout("GET https://a/b: no answer")) for name in "abc"]
    assert later == [True, False, False], "the server is away all the same, and the same one tells"
    assert outages.note("b", None)
    assert outages.note("a", None)
    assert tells(outages, "b", REFUSED), "another outage is news"


@pytest.mark.guarantee("E-8")
def test_another_reason_is_told_and_ends_the_one_before() -> None:
    outages = Outages()
    assert tells(outages, "a", REFUSED)
    assert tells(outages, "a", Unauthorized(status=401))
    assert tells(outages, "b", REFUSED)
    assert not tells(outages, "b", Unauthorized(status=401))
    assert tells(outages, "b", ServerError(status=500))


@pytest.mark.guarantee("E-8")
@pytest.mark.parametrize("error", [Forbidden(status=403), NotFound(status=404)])
def test_what_one_collection_lacks_is_told_by_itself(error: KubeError) -> None:
    outages = Outages()
    assert [tells(outages, name, error) for name in "ab"] == [True, True]
