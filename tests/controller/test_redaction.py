"""What looks like a credential does not get into a text that others read."""

import base64
import timeit
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.kube.rest.errors import ApiError, shorten
from trainmaster.controller.redaction import redact, redact_all

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl-_x"
KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIJ\nabc=\n-----END EC PRIVATE KEY-----\n"


@pytest.mark.guarantee("M-11")
@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"token {TOKEN} is expired", "token [redacted] is expired"),
        ("Authorization: Bearer abcdef.0123456789", "Authorization: Bearer [redacted]"),
        ("authorization: basic dXNlcjpwYXNzd29yZA==", "authorization: basic [redacted]"),
        (f"data: {KEY}end", "data: [redacted]\nend"),
        (KEY[:40], "[redacted]"),
        (f"data: {base64.b64encode(KEY.encode()).decode()} end", "data: [redacted] end"),
        ("https://user:hunter2@proxy:3128/path", "https://[redacted]@proxy:3128/path"),
    ],
)
def test_credentials_are_taken_out(text: str, left: str) -> None:
    assert redact(text) == left


@pytest.mark.guarantee("M-11")
@pytest.mark.parametrize(
    "text",
    [
        "https://127.0.0.1:6443/api/v1/namespaces/team/secrets/demo",
        "http://[::1]:8080/healthz@x",
        'WWW-Authenticate: Bearer realm="metrics"',
        "Basic authentication is not supported; use bearer tokens",
        "image user@sha256:0123456789abcdef",
        f"a run of {'eyJaaaaaaaa-' * 5}, then another word",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


@pytest.mark.nightly  # it compares times of the CPU with each other
@pytest.mark.guarantee("M-11")
@pytest.mark.parametrize(
    "unit", ["eyJaaaaaaaa-", "bearer ", "-----BEGIN ", "abcdefghij://x@", "a://b:c", "-----BEGIN A "]
)
def test_the_search_takes_as_long_as_the_text_is(unit: str) -> None:
    """What a user writes into a termination message must not hold the loop up."""

    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        return min(timeit.repeat(lambda: redact(text), number=1, repeat=5, timer=thread_time))

    assert seconds(2**18) < 40 * seconds(2**14)


@pytest.mark.guarantee("M-11")
@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.guarantee("M-11")
def test_values_of_a_log_line_are_redacted_at_any_depth() -> None:
    class Odd:
        def __str__(self) -> str:
            return f"odd {TOKEN}"

    line = {"a": [{"b": TOKEN}], "n": 1, "f": 0.5, "t": True, "none": None, "odd": Odd(), "s": (TOKEN,)}
    redacted = {"a": [{"b": "[redacted]"}], "n": 1, "f": 0.5, "t": True, "none": None}
    assert redact_all(line) == {**redacted, "odd": "odd [redacted]", "s": ["[redacted]"]}


@pytest.mark.guarantee("M-11")
def test_what_a_server_quotes_is_redacted_before_it_is_anywhere() -> None:
    """The message of a refusal goes to logs, events, conditions and probes."""
    refused = ApiError(status=422, reason="Invalid", message=f'spec.token: Invalid value: "{TOKEN}"')
    assert TOKEN not in f"{refused} {refused.message}"
    assert (
        shorten(KEY * 1000, limit=len(KEY) + 50) == f"[redacted]\n[redacted]... ({len(KEY) * 999 - 50} more characters)"
    )
