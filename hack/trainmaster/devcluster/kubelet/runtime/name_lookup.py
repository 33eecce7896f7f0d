"""`nslookup`, and `getent hosts` where the host has none, as pods find them; standard library only.

Pods have no name server: names are in their /etc/hosts, and where that has none, it is up to the host. A real nslookup
asks servers and nothing else, so in a pod it would find no other pod. This one asks as every program does. What only a
name server could answer is refused, in plain words.
"""

from __future__ import annotations

import socket
import sys

_USAGE = "usage: nslookup [-type=A|AAAA|ANY|PTR] NAME"
_WHAT = "this nslookup stands in for the real one in pods of the embedded cluster, which have no name server"
_FAMILIES = {"A": socket.AF_INET, "AAAA": socket.AF_INET6, "ANY": socket.AF_UNSPEC, "PTR": socket.AF_UNSPEC}
_TYPE_OPTIONS = frozenset({"type", "ty", "query", "querytype", "q"})


def nslookup(words: list[str]) -> int:
    """Look up one name or address; 0 if it is known, 1 if not."""
    names = [word for word in words if not word.startswith("-")]
    family = socket.AF_UNSPEC
    for word in words:
        option, _, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or option not in _TYPE_OPTIONS:
            continue  # timeouts and the like mean nothing here
        if value.upper() not in _FAMILIES:
            return _refuse(f"nslookup: records of type {value or '(none)'} are not known: {_WHAT}")
        family = _FAMILIES[value.upper()]
    if not names:
        return _refuse(_USAGE)
    if len(names) > 1:
        return _refuse(f"nslookup: the server {names[1]} cannot be asked: {_WHAT}; leave it out")
    print("Server:\t\tnone: /etc/hosts of this pod\nAddress:\tnone\n")
    try:
        name, addresses = _look_up(names[0], family)
    except OSError:
        print(f"** server can't find {names[0]}: NXDOMAIN\n")
        return 1
    for address in addresses:
        print(f"Name:\t{name}\nAddress: {address}")
    print()
    return 0


def getent(words: list[str]) -> int:
    """Look up names or addresses as `getent hosts` does; 2 if one is not known."""
    if words[:1] != ["hosts"] or len(words) < 2:
        return _refuse("getent: this host has none, and this one, which stands in for it, knows `getent hosts NAME`")
    status = 0
    for wanted in words[1:]:
        try:
            name, addresses = _look_up(wanted, socket.AF_UNSPEC)
        except OSError:
            status = 2
            continue
        for address in addresses:
            print(f"{address:<15} {name}")
    return status


def _look_up(wanted: str, family: int) -> tuple[str, list[str]]:
    """Give the whole name and the addresses of a name, or of an address; an OSError says that it is not known."""
    for version in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(version, wanted)
        except OSError:
            continue
        return socket.gethostbyaddr(wanted)[0], [wanted]
    # A name that ends with a dot is whole, for which hosts files have no sign.
    name = wanted.removesuffix(".")
    answers = socket.getaddrinfo(name, None, family, socket.SOCK_STREAM, 0, socket.AI_CANONNAME)
    return answers[0][3] or name, list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def _refuse(problem: str) -> int:
    print(problem, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit({"nslookup": nslookup, "getent": getent}[sys.argv[1]](sys.argv[2:]))
