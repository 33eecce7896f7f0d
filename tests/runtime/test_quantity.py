"""Quantities: the API server's texts, exact arithmetic, errors that help."""

import math
from fractions import Fraction
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.runtime.quantity import Notation, Quantity, QuantityError, canonical

Written: TypeAlias = tuple[str, Fraction]
"""A quantity as people write it, and the number that it means."""

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    "e3": Fraction(10**3),
    "E-2": Fraction(1, 100),
    "e+21": Fraction(10**21),
}


@st.composite
def texts(draw: st.DrawFn) -> Written:
    sign = draw(st.sampled_from(["", "+", "-"]))
    whole = draw(st.integers(0, 10**12))
    digits = draw(st.text("0123456789", max_size=12))
    suffix = draw(st.sampled_from(sorted(SUFFIXES)))
    number = Fraction(f"{sign}{whole}.{digits or '0'}")
    return f"{sign}{whole}{'.' if digits else ''}{digits}{suffix}", number * SUFFIXES[suffix]


def rounded(value: Fraction) -> Fraction:
    """Round away from zero to whole nano units."""
    nano = math.ceil(abs(value) * 10**9)
    return Fraction(nano if value >= 0 else -nano, 10**9)


def value_of(quantity: Quantity) -> Fraction:
    return Fraction(quantity.nano, 10**9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0"),
        ("0e3", "0"),
        ("0.1", "100m"),
        ("1.", "1"),
        ("2000m", "2"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("16G", "16G"),
        ("1000E", "1000E"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("2048Ei", "2048Ei"),
        ("-1.5Gi", "-1536Mi"),
        ("0.5Ki", "512"),
        ("1.0001Ki", "1024102400u"),
        ("0.0001Ki", "102400u"),
        ("1e3", "1e3"),
        ("1.5e3", "1500"),
        ("15e-1", "1500e-3"),
        ("1e21", "1e21"),
        ("0.1n", "1n"),
        ("1e-400", "1e-9"),
        (4, "4"),
        (10**20, "100E"),
        (0.1, "100m"),
        (1e-7, "100n"),
        (1e22, "10000E"),
    ],
)
def test_canonical_text_is_the_one_of_the_api_server(text: str | float, expected: str) -> None:
    assert canonical(text) == expected


# fmt: off
NO_QUANTITIES = [
    "", " ", "4 GB", "1 ", " 1", "1\n",
    "4Gb", "Gi", ".", "-", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-",
    "1K", "1ki", "1E3.5", "--1", "+-1", "1_000", "0x10", "1e3Gi", "NaN", "inf", "\u0663",
]
# fmt: on


@pytest.mark.parametrize("text", NO_QUANTITIES)
def test_a_text_that_is_no_quantity_is_refused_by_name(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        Quantity.parse(text)
    assert caught.value.text == text
    assert repr(text) in str(caught.value)
    assert '"1.5Gi"' in str(caught.value)


@pytest.mark.parametrize("value", [None, True, False, [], {"cpu": 1}, b"4", math.nan, math.inf, -math.inf])
def test_a_value_of_another_type_is_refused(value: object) -> None:
    """JSON may hold anything where a quantity belongs; `cpu: true` must not become one CPU."""
    with pytest.raises(QuantityError):
        Quantity.parse(value)  # type: ignore[arg-type]  # the wrong type is the point


@pytest.mark.parametrize("value", ["1e999999999999", "1e-401", "9" * 513, 10**5000, -(10**512)], ids=range(5))
def test_absurd_sizes_are_refused_quickly_and_briefly(value: str | int) -> None:
    """A patch of twenty bytes must not cost gigabytes of memory."""
    with pytest.raises(QuantityError) as caught:
        Quantity.parse(value)
    assert len(str(caught.value)) < 300


@given(texts())
def test_parsing_is_exact_down_to_nano_and_rounds_away_from_zero(written: Written) -> None:
    text, value = written
    assert value_of(Quantity.parse(text)) == rounded(value)


@given(texts())
@example(("0.0001Ki", Fraction(1024, 10000)))
def test_canonical_text_is_stable_and_equal_in_value(written: Written) -> None:
    quantity = Quantity.parse(written[0])
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)


@given(st.one_of(st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False)))
def test_every_finite_json_number_is_a_quantity(number: float) -> None:
    quantity = Quantity.parse(number)
    assert value_of(quantity) == rounded(Fraction(repr(number)))
    assert Quantity.parse(str(quantity)) == quantity


@given(texts(), texts(), st.integers(-1000, 1000))
def test_arithmetic_equals_that_of_fractions(left: Written, right: Written, count: int) -> None:
    a, b = Quantity.parse(left[0]), Quantity.parse(right[0])
    x, y = rounded(left[1]), rounded(right[1])
    assert value_of(a + b) == x + y
    assert value_of(a - b) == x - y
    assert value_of(a * count) == value_of(count * a) == x * count
    assert (a == b, a < b, a <= b, a > b, a >= b) == (x == y, x < y, x <= y, x > y, x >= y)
    assert (a.ceil(), bool(a)) == (math.ceil(x), bool(x))


@pytest.mark.parametrize(
    ("left", "right", "notation", "expected"),
    [
        ("1Gi", "1G", Notation.BINARY_SI, "2073741824"),
        ("1024", "1Gi", Notation.DECIMAL_SI, "1073742848"),
        ("0", "1Gi", Notation.BINARY_SI, "1Gi"),
        ("1Gi", "0", Notation.BINARY_SI, "1Gi"),
    ],
)
def test_a_sum_keeps_the_notation_of_its_left_operand_unless_that_is_zero(
    left: str, right: str, notation: Notation, expected: str
) -> None:
    total = Quantity.parse(left) + Quantity.parse(right)
    assert (total.notation, str(total)) == (notation, expected)


def test_a_binary_amount_below_one_is_decimal_from_then_on() -> None:
    """As the API server parses it; so a sum that it starts stays decimal even at a round binary number."""
    half = Quantity.parse("0.00048828125Ki")
    assert half.notation is Notation.DECIMAL_SI
    assert str(half + Quantity.parse("1073741823500m")) == "1073741824"


def test_equal_amounts_are_equal_in_any_notation() -> None:
    assert len({Quantity.parse(text) for text in ("1024", "1Ki", "1.024k", "1024e0", "1024000m")}) == 1


def test_quantities_do_not_mix_with_other_types() -> None:
    """Adding a bare number would hide whether it counts bytes or cores."""
    with pytest.raises(TypeError):
        Quantity.parse("1") + 1  # type: ignore[operator]  # the wrong type is the point
    with pytest.raises(TypeError):
        Quantity.parse("1") - "1"  # type: ignore[operator]  # the wrong type is the point
    with pytest.raises(TypeError):
        Quantity.parse("1") * 1.5  # type: ignore[operator]  # the wrong type is the point
