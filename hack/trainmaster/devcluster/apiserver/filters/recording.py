"""Recording: which requests there were, for whoever wants to know which rights a client needs.

Guarantees:
- each request is one line in a file of the process, whether it was allowed or not, with the right that it demands in
  the words of rules, and the program that sent it; one that demands several rights has a line for each;
- what was written once is not written again; without the variable nothing is recorded.

`TRAINMASTER_RECORD_REQUESTS` names a directory. The test suite compares what is in it with the roles of the manager.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import orjson

from trainmaster.devcluster.apiserver.auth.authorizer import Attributes

VARIABLE: Final = "TRAINMASTER_RECORD_REQUESTS"

_TEST: Final = "PYTEST_CURRENT_TEST"
"""Where pytest says which test runs, in this process or in the one that started it."""

_written: set[tuple[str, ...]] = set()


def record(user_agent: str, demanded: Attributes) -> None:
    """Write down which right a request of a program demands."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    line = {
        "program": user_agent.partition(" ")[0],
        "verb": demanded.verb,
        "group": demanded.group,
        "resource": demanded.path or demanded.full_resource,
        "scope": "namespace" if demanded.namespace else "cluster",
        "name": demanded.name,
    }
    key = (directory, *line.values())
    if key in _written:
        return
    _written.add(key)
    with (Path(directory) / f"{os.getpid()}.requests").open("ab") as file:
        file.write(orjson.dumps({**line, "test": os.environ.get(_TEST, "")}, option=orjson.OPT_APPEND_NEWLINE))
