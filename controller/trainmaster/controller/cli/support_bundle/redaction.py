"""What is taken out of a support bundle: everything that is a credential, or looks like one.

Guarantees:
- Data of Secrets and ConfigMaps are left out, wherever such an object stands.
- Values of environment variables are left out; or, where they are asked for, those that look like credentials, by their
  name or by themselves.
- So are values of fields, flags and `key=value` in texts whose names say that they are credentials; texts that look
  like well-known tokens; and what `controller.redaction` takes out of logs.
- What was a credential in one place is taken out of all others: what an environment variable held is not in a log.
- Nothing is left of what kubectl and field managers keep a second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import orjson

from trainmaster.controller.redaction import REDACTED, redact
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

_NAMES: Final = (
    r"passw(?:or)?d|passphrase|[-_./]pass|[-_./]pwd|secret|token|credentials?|[-_.]auth|cookie|[-_.]dsn|connection[-_.]?string"
    r"|(?:api|access|secret|private|signing|encryption|ssh|account|auth)[-_.]?key(?:[-_.]?id)?"
)
_IS_CREDENTIAL: Final = re.compile(
    rf"(?i:(?:^|[-_./])(?:{_NAMES}|pass|auth|dsn)$|[-_./]pwd$)|[a-z](?:Password|Secret|Token|(?:Api|Access|Secret|Private)Key|Credentials?)$"
)
"""A name whose value is a credential; not `secretName`, `tokenReviews` or `topologyKey`."""

_FLAG: Final = re.compile(rf"^--?[\w.-]*(?:{_NAMES})$", re.IGNORECASE)
_FLAGGED: Final = re.compile(
    rf"""
      (?P<name> (?:^|(?<=[\s"'])) --?[\w.-]*(?:{_NAMES}) [ \t]+ (?:\\*["'])? )
      (?P<value> [^\s"'\\;&|$-] [^\s"'\\;&|]* )
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""`--password X` within one text, as in a script that a shell is given."""

_SHORT_FLAGGED: Final = re.compile(
    r"""
      (?P<name> (?:^|(?<=[\s"']))
          (?: (?:-u|--user|--proxy-user) [ \t]+ ["']? [^\s"':]+: | -p [ \t]+ ["']? (?![\d/]+\b) )
        | \bmysql\w*\b [^|;&\n]{0,200}? [ \t]-p | [?&]sig= | (?<![\w/])pwd=(?!/) | \b[Bb]earer[ ]+ (?=[a-z.-]*\d) )
      (?P<value> [^\s"'\\;&|$-] [^\s"'\\;&|]* )
    """,
    re.VERBOSE,
)
"""What some programs know as a password: `curl -u user:X`, `-p X` unless it is a number or path, `?sig=X`, `pwd=X`."""

_TAKES_USER: Final = ("-u", "--user", "--proxy-user")
"""Flags whose value is `user:password`."""

_ASSIGNED: Final = re.compile(
    rf"""
      (?P<name> (?:{_NAMES}) (?:\\*["'])? \s? [=:] \s? (?:\\*["'])? )
      (?P<value> (?<=["']) [^"'\\\n]+ | [^\s"'\\,;&}}\]]{{3,}} )
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""`key=value`, `key: value`, and both in JSON, also where that stands in a text of JSON."""

_AUTHORIZATION: Final = re.compile(r"""(authorization(?:\\*["'])?\s*[=:]\s*(?:\\*["'])?)[^"'\\\n]+""", re.IGNORECASE)
_TOKENS: Final = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,})"
)
_SHORTEST: Final = 6
"""Characters of a value that is looked for elsewhere; shorter ones, and words like these, occur in any text."""

_COMMON: Final = frozenset({"default", "disabled", "enabled", "kubernetes", "localhost", "changeme", "required"})

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_LEFT_OUT: Final = "[left out]"
_WITH_DATA: Final = {"Secret": ("data", "stringData"), "ConfigMap": ("data", "binaryData")}


class Redactor:
    """Learns what is confidential in everything that goes into a bundle, and then takes it out.

    With `env_values` values of environment variables stay that do not look like credentials.
    """

    def __init__(self, *, env_values: bool = False) -> None:
        self._env_values = env_values
        self._values: set[str] = set()

    def learn(self, tree: Any) -> None:
        """Take note of the credentials in a tree of JSON."""
        if isinstance(tree, str):
            for match in _FLAGGED.finditer(tree) if "-" in tree else ():
                if re.search(r"\d", match["value"]):  # else it may be a word: what help says of a flag
                    self.learn_value(match["value"])
            # Only what is assigned as shells do: whatever follows a colon in prose is not looked for elsewhere.
            for match in _ASSIGNED.finditer(tree) if "=" in tree else ():
                if "=" in match["name"]:
                    self.learn_value(match["value"])
        elif isinstance(tree, list):
            for at in _after_flags(tree):
                self.learn_value(tree[at])
            for each in tree:
                self.learn(each)
        elif isinstance(tree, dict):
            self._learn_mapping(tree)

    def _learn_mapping(self, mapping: JsonObject) -> None:
        if _is_variable(mapping) and _IS_CREDENTIAL.search(mapping["name"]):
            self.learn_value(mapping["value"])
        for name, value in mapping.items():
            if isinstance(value, str) and _IS_CREDENTIAL.search(name):
                self.learn_value(value)
            elif name == _LAST_APPLIED:
                self._learn_json(value)
            else:
                self.learn(value)
        if mapping.get("kind") == "Secret":
            for field in _WITH_DATA["Secret"]:
                for value in (mapping.get(field) or {}).values():
                    if isinstance(value, str):
                        self.learn_value(value)

    def learn_value(self, value: str) -> None:
        """Take note of a credential, unless it is too short, or too common, to be looked for."""
        is_number = value.isdecimal() and len(value) <= 2 * _SHORTEST
        if len(value) >= _SHORTEST and value.lower() not in _COMMON and not is_number:
            self._values.add(value)

    def _learn_json(self, text: Any) -> None:
        try:
            self.learn(load_json(text.encode()) if isinstance(text, str) else None)
        except JsonError:
            return  # it is left out in any case

    def written(self, content: Any) -> bytes:
        """Write a text, or a tree of JSON, without credentials."""
        if isinstance(content, str):
            return self._masked(_redacted(content)).encode(errors="replace")
        tree = orjson.dumps(self._tree(content), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        return self._masked(tree.decode(), is_json=True).encode()

    def _masked(self, text: str, *, is_json: bool = False) -> str:
        """Take all that was learned out of a text, the longest first: one may be a part of another."""
        for value in sorted(self._values, key=lambda value: (-len(value), value)):
            text = text.replace(orjson.dumps(value).decode()[1:-1] if is_json else value, REDACTED)
        return text

    def _tree(self, value: Any) -> Any:
        if isinstance(value, str):
            return _redacted(value)
        if isinstance(value, list):
            after = {*_after_flags(value), *_after_short_flags(value)}
            return [REDACTED if at in after else self._tree(each) for at, each in enumerate(value)]
        if isinstance(value, dict):
            return self._mapping(value)
        return value

    def _mapping(self, mapping: JsonObject) -> JsonObject:
        if _is_variable(mapping) and not (self._env_values and not _IS_CREDENTIAL.search(mapping["name"])):
            return {**mapping, "value": REDACTED if mapping["value"] else ""}
        kept: JsonObject = {}
        without = _WITH_DATA.get(str(mapping.get("kind")), ())
        for name, value in mapping.items():
            if name == "managedFields":
                continue
            if name == _LAST_APPLIED:
                kept[name] = _LEFT_OUT
            elif name in without and isinstance(value, dict):
                kept[name] = {key: f"[left out: {len(str(each))} characters]" for key, each in value.items()}
            elif isinstance(value, str) and value and _IS_CREDENTIAL.search(name):
                kept[name] = REDACTED
            else:
                kept[_redacted(name)] = self._tree(value)
        return kept


def _redacted(text: str) -> str:
    """Take out what looks like a credential by itself, or by the name before it."""
    text = _TOKENS.sub(REDACTED, _AUTHORIZATION.sub(rf"\g<1>{REDACTED}", redact(text)))
    if "-" in text:
        text = _FLAGGED.sub(_without_value, text)
    text = _SHORT_FLAGGED.sub(_without_value, text)
    return _ASSIGNED.sub(_without_value, text) if "=" in text or ":" in text else text


def _without_value(match: re.Match[str]) -> str:
    return f"{match['name']}{REDACTED}"


def _is_variable(mapping: JsonObject) -> bool:
    """Tell whether this is an environment variable with a value; other lists of names and values are not told apart."""
    return isinstance(mapping.get("name"), str) and isinstance(mapping.get("value"), str) and len(mapping) == 2


def _after_flags(words: list[Any]) -> Iterator[int]:
    """Return the places of words that are the values of flags like `--token`."""
    for at, flag, value in _pairs(words):
        if _FLAG.match(flag) and not value.startswith("-"):
            yield at


def _after_short_flags(words: list[Any]) -> Iterator[int]:
    """Return the places of words that are passwords for some programs; they are not looked for elsewhere."""
    for at, flag, value in _pairs(words):
        if (flag == "-p" and not re.match(r"[\d/-]", value)) or (flag in _TAKES_USER and ":" in value):
            yield at


def _pairs(words: list[Any]) -> Iterator[tuple[int, str, str]]:
    """Return each text that follows another one, with its place."""
    for at, (word, following) in enumerate(pairwise(words), 1):
        if isinstance(word, str) and isinstance(following, str):
            yield at, word, following
