"""The lines of a journal: how they are written and read.

A journal is lines of JSON, each with a checksum of what comes after it:

- once, at the top, the header: `{"crc":"...","format":2,"revision":N,"objects":M}`;
- the M objects that were there at revision N, in the order of their revisions;
- every write since, with the revisions N+1, N+2, ...:
  `{"crc":"...","revision":N,"key":[group,resource,namespace,name],"object":{...}}`, without `object` for a deletion.

So it shows where a line is damaged, and also where lines are missing; such a file is not read. What follows the last
newline is the trace of a write that did not end; nobody was told that it succeeded.

What the store holds and tells: records of objects, their keys, and events.

Everything here is immutable. The trees inside are shared by the store, its history and all readers: never mutate one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import orjson

from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject

FORMAT: Final = 2

_MARK: Final = b'{"crc":"'
_BODY: Final = len(_MARK) + len(b'01234567",')

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
"""What happened to an object."""


class Unreadable(Exception):
    """The file cannot be read; the text, which follows its name, says why."""


@dataclass(slots=True)
class Contents:
    """What a journal says."""

    records: dict[ObjectKey, Record] = field(default_factory=dict)
    revision: int = 0
    torn: bytes = b""
    """What follows the last newline."""


def header_line(*, revision: int, objects: int) -> bytes:
    """Return the first line of a file with a number of objects."""
    return _checked(orjson.dumps({"format": FORMAT, "revision": revision, "objects": objects}))


def entry_line(key: ObjectKey, revision: int, record: Record | None) -> bytes:
    """Return the line of a write; `record` is None for a deletion."""
    head = orjson.dumps({"revision": revision, "key": [*key.resource, key.namespace, key.name]})
    if record is None:
        return _checked(head)
    # The record's own JSON is reused: encoding it a second time would double the price of a write.
    return _checked(b'%s,"object":%s}' % (head[:-1], record.json))


def read_contents(content: bytes) -> Contents:
    """Read a file.

    Raises:
        Unreadable: It is damaged, or of another version.
    """
    if not content:
        raise Unreadable("is empty, although a journal never is: it was cut off")
    *lines, torn = content.split(b"\n")
    found = Contents(torn=torn.rstrip(b" "))  # blanks are left by a look whether there is space
    found.revision, objects = _read_header(lines[0] if lines else b"")
    _read_entries(lines[1:], found, objects=objects)
    return found


def _read_header(line: bytes) -> tuple[int, int]:
    """Return the revision that a file begins at, and how many objects there were."""
    try:
        is_checked = line.startswith(_MARK)
        header = _parsed(line) if is_checked else orjson.loads(line)
        version, revision, objects = header["format"], header["revision"], header.get("objects")
    except (ValueError, KeyError, TypeError):
        is_checked, version, revision, objects = False, None, None, None
    if isinstance(version, int) and version != FORMAT:
        raise Unreadable(f"cannot be read: it is written in format {version}, and this version reads format {FORMAT}")
    if not is_checked or not isinstance(revision, int) or not isinstance(objects, int):
        raise Unreadable("is damaged: line 1 is not the header of a journal")
    return revision, objects


def _read_entries(lines: Iterable[bytes], found: Contents, *, objects: int) -> None:
    """Read the objects that the header counts, and the writes that follow its revision one by one."""
    base = found.revision
    number = 1
    for number, line in enumerate(lines, start=2):
        try:
            revision = _replay(found.records, _parsed(line))
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"is damaged: line {number} is not as it was written") from error
        if objects and revision <= base:
            objects -= 1
            continue
        if objects or revision != found.revision + 1:
            raise Unreadable(f"is damaged: line {number} does not continue the lines before it: some are missing")
        found.revision = revision
    if objects:
        raise Unreadable(
            f"is damaged: line {number + 1} is missing, and with it {objects} objects: the file was cut off"
        )


def _checked(body: bytes) -> bytes:
    rest = body[1:]
    return b'%s%08x",%s\n' % (_MARK, zlib.crc32(rest), rest)


def _parsed(line: bytes) -> dict[str, Any]:
    """Parse a line; raises ValueError if it is not what was written."""
    if line[:_BODY] != b'%s%08x",' % (_MARK, zlib.crc32(line[_BODY:])):
        raise ValueError("the checksum is another one")
    entry = orjson.loads(line)
    if not isinstance(entry, dict):
        raise TypeError("no object")
    return entry


def _replay(records: dict[ObjectKey, Record], entry: dict[str, Any]) -> int:
    """Carry out a write; returns its revision."""
    group, resource, namespace, name = entry["key"]
    revision = entry["revision"]
    if not isinstance(revision, int):
        raise TypeError("no revision")
    key = ObjectKey(GroupResource(group, resource), namespace, name)
    # Taken out first, so that the newest write comes last.
    records.pop(key, None)
    if "object" in entry:
        records[key] = Record(entry["object"], revision)
    return revision


class ObjectKey(NamedTuple):
    """Where an object lives; the namespace of a cluster-scoped object is the empty string."""

    resource: GroupResource
    namespace: str
    name: str


class Record:
    """One version of one object: the tree, the revision that wrote it, and its JSON, encoded at most once."""

    __slots__ = ("_json", "object", "revision")

    def __init__(self, object: JsonObject, revision: int) -> None:  # noqa: A002 - the API's own word for it
        self.object = object
        self.revision = revision
        self._json: bytes | None = None

    @property
    def json(self) -> bytes:
        """The object as JSON bytes; the journal and all watchers share one encoding."""
        if self._json is None:
            self._json = orjson.dumps(self.object)
        return self._json

    @property
    def metadata(self) -> JsonObject:
        """The object's metadata."""
        return cast("JsonObject", self.object["metadata"])

    def __repr__(self) -> str:
        return f"Record({self.metadata.get('namespace', '')}/{self.metadata.get('name')} at revision {self.revision})"


@dataclass(frozen=True, slots=True)
class Event:
    """A committed change. The record of a DELETED event is the last state, with the revision of the deletion."""

    type: EventType
    key: ObjectKey
    record: Record
    previous: Record | None
    revision: int
