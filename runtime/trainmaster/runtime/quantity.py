"""Kubernetes quantities ("500m", "4", "1.5Gi"): exact arithmetic and the canonical text of the API server.

Guarantees:
- Nothing is lost: a value is a whole number of nano units. Digits below nano round away from zero while parsing, as the
  API server does, so that whoever asked for a little never ends up with nothing.
- `str` gives the text that the API server would print, and parsing that text gives the same value again.
- A result keeps the notation (decimal, binary, exponent) of its left operand, or of the right one if the left is zero.

There is no largest value: sums over a big cluster do not saturate.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum


class Notation(StrEnum):
    """The family of suffixes in which a quantity was written, and in which it is printed."""

    DECIMAL_SI = "DecimalSI"
    """Powers of ten: `500m`, `2k`, `16G`."""

    BINARY_SI = "BinarySI"
    """Powers of two: `1.5Gi`."""

    DECIMAL_EXPONENT = "DecimalExponent"
    """`5e3`."""


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity; `text` is what was given."""

    def __init__(self, text: object, reason: str) -> None:
        shown = repr(text)
        if len(shown) > _SHOWN_LENGTH:
            shown = f"{shown[:_SHOWN_LENGTH]}..."
        super().__init__(
            f"{shown} is not a quantity: {reason}; "
            'write a number with an optional suffix, for example "500m", "4", "16G" or "1.5Gi"'
        )
        self.text = text


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount of a resource. Equal amounts are equal whatever their notation: 1Ki == 1024."""

    nano: int
    """The amount in billionths."""

    notation: Notation = field(default=Notation.DECIMAL_SI, compare=False)
    """How it is printed."""

    @classmethod
    def parse(cls, value: str | float) -> Quantity:
        """Read a quantity as it stands in JSON or YAML, where plain numbers are allowed as well.

        Raises QuantityError for anything else.
        """
        # A bool is an int for Python, but `cpu: true` is a mistake.
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise QuantityError(value, _NO_AMOUNT)
        return _parse(value)

    def __add__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self.nano + other.nano, self._notation_with(other))

    def __sub__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self.nano - other.nano, self._notation_with(other))

    def __mul__(self, count: int) -> Quantity:
        if not isinstance(count, int):
            return NotImplemented
        return Quantity(self.nano * count, self.notation)

    __rmul__ = __mul__

    def __bool__(self) -> bool:
        return self.nano != 0

    def __str__(self) -> str:
        if self.notation is Notation.BINARY_SI and abs(self.nano) >= 1024 * _ONE and self.nano % _ONE == 0:
            return _in_steps(self.nano // _ONE, step=1024, suffixes=_BINARY_SUFFIXES)
        if self.notation is Notation.DECIMAL_EXPONENT:
            return _with_exponent(self.nano)
        # Also binary amounts below 1Ki and fractions: no binary suffix could express them without loss.
        return _in_steps(self.nano, step=1000, suffixes=_DECIMAL_SUFFIXES)

    def ceil(self) -> int:
        """Give the smallest whole number that is not below the amount: 2500m -> 3."""
        return -(-self.nano // _ONE)

    def _notation_with(self, other: Quantity) -> Notation:
        return self.notation if self.nano else other.notation


def canonical(value: str | float) -> str:
    """Give the canonical text of a quantity: "0.1" -> "100m", "1024Mi" -> "1Gi". Raises QuantityError."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise QuantityError(value, _NO_AMOUNT)
    return _canonical(value)


_NO_AMOUNT = "it is neither a string nor a number"
_ONE = 10**9
_SHOWN_LENGTH = 80

# Quantities of real clusters have at most 20 digits; the limits keep "1e999999999" from filling the memory and
# leave room for every float.
_LONGEST_TEXT = 512
_LARGEST_EXPONENT = 400
_TOO_LARGE = 10**_LONGEST_TEXT

# In steps of 1000 from nano, and of 1024 from one.
_DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

_DECIMAL_EXPONENTS = {suffix: 3 * (step - 3) for step, suffix in enumerate(_DECIMAL_SUFFIXES)}
_BINARY_EXPONENTS = {suffix: 10 * step for step, suffix in enumerate(_BINARY_SUFFIXES) if suffix}

_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(.*)", re.ASCII | re.DOTALL)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)


# The amounts in which people ask are few, and the jobs that ask for them many. Quantities are frozen and may be shared.
_remembered = functools.lru_cache(maxsize=1024, typed=True)


@_remembered
def _canonical(value: str | float) -> str:
    return str(_parse(value))


@_remembered
def _parse(value: str | float) -> Quantity:
    if isinstance(value, str):
        return _parse_text(value)
    if isinstance(value, int):
        if abs(value) >= _TOO_LARGE:
            # Hexadecimal: Python refuses to print integers of thousands of digits in decimal.
            raise QuantityError(hex(value), f"it is longer than {_LONGEST_TEXT} digits")
        return Quantity(value * _ONE)
    if not math.isfinite(value):
        raise QuantityError(value, "it is not finite")
    # The shortest text of a float is what its author wrote: 0.1 means 100m, not 0.1000000000000000055511151231.
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    mantissa = int("".join(map(str, digits)))
    return Quantity(_scaled(-mantissa if sign else mantissa, base=10, exponent=int(exponent), divisor=1))


def _parse_text(text: str) -> Quantity:
    if not text:
        raise QuantityError(text, "it is empty")
    if len(text) > _LONGEST_TEXT:
        raise QuantityError(text, f"it is longer than {_LONGEST_TEXT} characters")
    number = _NUMBER.fullmatch(text)
    if number is None:
        raise QuantityError(text, "it does not start with a number")
    sign, whole, fraction, bare_fraction, suffix = number.groups(default="")
    fraction = fraction or bare_fraction
    mantissa = int(f"{sign}{whole}{fraction}")
    base, exponent, notation = _read_suffix(suffix, text)
    nano = _scaled(mantissa, base=base, exponent=exponent, divisor=10 ** len(fraction))
    if notation is Notation.BINARY_SI and 0 < nano < _ONE:
        # Binary suffixes count whole bytes; the API server moves to the decimal family, and so do later sums.
        notation = Notation.DECIMAL_SI
    return Quantity(nano, notation)


def _read_suffix(suffix: str, text: str) -> tuple[int, int, Notation]:
    """Give (base, exponent, notation) of a suffix."""
    if suffix in _DECIMAL_EXPONENTS:
        return 10, _DECIMAL_EXPONENTS[suffix], Notation.DECIMAL_SI
    if suffix in _BINARY_EXPONENTS:
        return 2, _BINARY_EXPONENTS[suffix], Notation.BINARY_SI
    if written := _EXPONENT.fullmatch(suffix):
        exponent = int(written[1])
        if abs(exponent) > _LARGEST_EXPONENT:
            raise QuantityError(text, f"its exponent is beyond {_LARGEST_EXPONENT}")
        return 10, exponent, Notation.DECIMAL_EXPONENT
    raise QuantityError(text, f"the suffix {suffix!r} is unknown")


def _scaled(mantissa: int, *, base: int, exponent: int, divisor: int) -> int:
    """Give mantissa * base**exponent / divisor in nano units, rounded away from zero."""
    numerator = abs(mantissa) * _ONE
    if exponent >= 0:
        numerator *= base**exponent
    else:
        divisor *= base**-exponent
    nano = -(-numerator // divisor)
    return nano if mantissa >= 0 else -nano


def _in_steps(amount: int, *, step: int, suffixes: tuple[str, ...]) -> str:
    """Print with the largest suffix that leaves a whole number; `amount` counts units of the first suffix."""
    if amount == 0:
        return "0"
    index = 0
    while index < len(suffixes) - 1 and amount % step == 0:
        amount //= step
        index += 1
    return f"{amount}{suffixes[index]}"


def _with_exponent(nano: int) -> str:
    """Print with an exponent that is a multiple of three and as large as possible."""
    if nano == 0:
        return "0"
    exponent = -9
    while nano % 1000 == 0:
        nano //= 1000
        exponent += 3
    return f"{nano}e{exponent}" if exponent else str(nano)
