"""One answer of HTTP/1.1, taken apart as its bytes arrive (RFC 9112).

Guarantees:
- How the bytes were cut on their way makes no difference.
- Whatever is no answer raises `MalformedAnswer`, also an answer whose end is told in two ways: it would be another
  answer to someone else.
- A head, a line and the trailers have ceilings; of a body nothing is kept.

It does no I/O. Interim answers (1xx) are passed over, trailers dropped.
"""

from __future__ import annotations

import re
from typing import Final

from multidict import CIMultiDict

HEAD_LIMIT: Final = 2**16
"""Bytes of a head or of all trailers; kube-apiserver sends less than one KiB."""

_CHUNK_LINE_LIMIT: Final = 2**12
_NO_BODY: Final = frozenset({204, 304})

_VERSION: Final = b"HTTP/1."
_HEAD: Final = re.compile(
    rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n\0]*)?(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*)*"
)
_FIELD: Final = re.compile(r"\r\n([^:]+):[ \t]*([^\r\n]*)")
"""In a head that is well-formed."""

_FRAMING: Final = re.compile(rb"\r\n(connection|content-length|transfer-encoding):[ \t]*([^\r\n]*)", re.IGNORECASE)
"""The fields that tell how an answer ends."""

_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")

_LINE_BREAK: Final = -1
"""In place of what is left of a chunk: the line break behind it is to come."""

_TRAILERS: Final = -2


class MalformedAnswer(Exception):
    """What arrived is no answer of HTTP/1.1."""


class AnswerParser:
    """The state of one answer.

    Args:
        bodiless: Whether it has no body whatever its head says, as that to a HEAD.
    """

    __slots__ = (
        "_bodiless",
        "_chunked",
        "_head",
        "_headers",
        "_held",
        "_left",
        "_trailing",
        "_until_close",
        "complete",
        "reusable",
        "status",
    )

    def __init__(self, *, bodiless: bool = False) -> None:
        self.status = 0
        """Zero until the head has arrived."""
        self.complete = False
        self.reusable = False
        """Whether the connection can carry another request after this answer."""
        self._head = b""
        self._headers: CIMultiDict[str] | None = None
        self._bodiless = bodiless
        self._chunked = self._until_close = False
        self._left = 0
        self._trailing = 0
        self._held = b""

    @property
    def headers(self) -> CIMultiDict[str]:
        """The headers; taken apart when they are first asked for, which they seldom are."""
        if self._headers is None:
            fields = _FIELD.findall(self._head.decode("utf-8", "surrogateescape"))
            self._headers = CIMultiDict([(name, value.rstrip(" \t")) for name, value in fields])
        return self._headers

    def feed(self, data: bytes) -> bytes:
        """Take bytes as they come, and return what is in them of the body."""
        if self._held:
            data, self._held = self._held + data, b""
        start = 0
        while self.status < 200:
            if (start := self._take_head(data, start)) < 0:
                return b""
        if self._chunked:
            return self._take_chunks(data, start)
        if self._until_close:
            return data[start:]
        body = data[start : start + self._left] if start or len(data) > self._left else data
        self._left -= len(body)
        if not self._left:
            self._finish(len(data) - start - len(body))
        return body

    def end(self) -> None:
        """Take note that nothing more will come, which is the end of some answers; of others it leaves a part."""
        if self._until_close:
            self.complete = True

    def _finish(self, surplus: int) -> None:
        self.complete = True
        if surplus:
            self.reusable = False  # nobody has asked for these bytes

    def _take_head(self, data: bytes, start: int) -> int:
        """Read a head; returns where it ends, or -1 if it has not arrived as a whole."""
        end = data.find(b"\r\n\r\n", start)
        head = data[start:end] if end >= 0 else data[start:]
        if not head.startswith(_VERSION[: len(head)]):
            raise MalformedAnswer(f"the answer is not HTTP/1.1: it begins with {head[:20]!r}")
        if len(head) > HEAD_LIMIT:
            raise MalformedAnswer(f"the headers of the answer exceed {HEAD_LIMIT} bytes")
        if end < 0:
            self._held = head
            return -1
        well_formed = _HEAD.fullmatch(head)
        if well_formed is None:
            text = head.decode("utf-8", "surrogateescape")
            raise MalformedAnswer(f"the headers of the answer are malformed: they begin with {text[:80]!r}")
        status = int(well_formed[2])
        if status == 101:
            raise MalformedAnswer("the answer is in another protocol, which was not asked for")
        if status >= 200:
            self._head = head
            self._find_end(status, is_1_0=well_formed[1] == b"0")
        self.status = status
        return end + 4

    def _find_end(self, status: int, *, is_1_0: bool) -> None:
        """Find out from the head how the answer ends (RFC 9112, 6.3)."""
        self.reusable = not is_1_0
        found = _FRAMING.findall(self._head)
        if len(found) == 1 and found[0][0] == b"Content-Length" and found[0][1].isdigit() and len(found[0][1]) <= 15:
            # So it is in nearly all answers of an API server.
            if not self._bodiless and status not in _NO_BODY:
                self._left = int(found[0][1])
            return
        fields: dict[bytes, list[bytes]] = {}
        for name, value in found:
            fields.setdefault(name.lower(), []).append(value.rstrip(b" \t"))
        if b"connection" in fields:
            options = {option.strip().lower() for line in fields[b"connection"] for option in line.split(b",")}
            self.reusable = b"close" not in options and (not is_1_0 or b"keep-alive" in options)
        if self._bodiless or status in _NO_BODY:
            return
        if b"transfer-encoding" in fields:
            codings = b",".join(fields[b"transfer-encoding"])
            if is_1_0 or b"content-length" in fields or codings.lower() != b"chunked":
                raise MalformedAnswer("the headers of the answer contradict each other about its length")
            self._chunked = True
        elif b"content-length" in fields:
            length, *others = set(fields[b"content-length"])
            if others or not (length.isdigit() and len(length) <= 15):
                text = length[:40].decode("utf-8", "surrogateescape")
                raise MalformedAnswer(f"the answer has the impossible length {text!r}")
            self._left = int(length)
        else:
            self._until_close, self.reusable = True, False

    def _take_chunks(self, data: bytes, position: int) -> bytes:
        """Take the body out of its chunks."""
        pieces: list[bytes] = []
        size = len(data)
        while position < size and not self.complete:
            if self._left > 0:
                piece = data[position : position + self._left]
                pieces.append(piece)
                position += len(piece)
                self._left = (self._left - len(piece)) or _LINE_BREAK
            elif self._left == _LINE_BREAK:
                if not b"\r\n".startswith(data[position : position + 2]):
                    raise MalformedAnswer("a chunk of the answer is longer than it says")
                if size - position < 2:
                    break
                position += 2
                self._left = 0
            else:
                trailing = self._left == _TRAILERS
                after = self._take_trailer(data, position) if trailing else self._begin_chunk(data, position, pieces)
                if after < 0:
                    break
                position = after
        if self.complete:
            self._finish(size - position)
        else:
            self._held = data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _begin_chunk(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        """Read the line before a chunk, and the chunk if all of it is there; returns where to go on, or -1."""
        line = _CHUNK_LINE.match(data, position)
        if line is None:
            if len(data) - position > _CHUNK_LINE_LIMIT or data.find(b"\n", position) >= 0:
                raise MalformedAnswer(f"{data[position : position + 40]!r} begins no chunk of the answer")
            return -1
        begin, length = line.end(), int(line[1], 16)
        end = begin + length
        if length and data.startswith(b"\r\n", end):
            pieces.append(data[begin:end])
            return end + 2
        self._left = length or _TRAILERS
        return begin

    def _take_trailer(self, data: bytes, position: int) -> int:
        """Pass over one trailer, or the end of them; returns where it ends, or -1 if it has not arrived as a whole."""
        end = data.find(b"\r\n", position)
        length = (end if end >= 0 else len(data)) - position
        if self._trailing + length > HEAD_LIMIT:
            raise MalformedAnswer(f"the trailers of the answer exceed {HEAD_LIMIT} bytes")
        if end < 0:
            return -1
        self._trailing += length + 2
        self.complete = length == 0
        return end + 2
