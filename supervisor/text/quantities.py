"""Quantities in text: numbers with units."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

COUNT = "count"
"""The dimension of counted things: employees, requests, shards."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measurement: base value = (value + offset) * factor."""

    dimension: str
    factor: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)


_TABLE = """
length: m metre meter 1; km kilometre kilometer 1000; dm 0.1; cm centimetre centimeter 0.01; mm millimetre millimeter 0.001;
  um µm μm micrometre micrometer micron 0.000001; nm nanometre nanometer 0.000000001; mi mile 1609.344; ft foot feet 0.3048;
  in inch inches 0.0254; yd yard 0.9144; nmi 1852
mass: kg kilogram kilogramme kilo 1; g gram gramme 0.001; mg milligram 0.000001; µg μg ug microgram 0.000000001; t tonne ton 1000;
  lb lbs pound 0.45359237; oz ounce 0.028349523125
time: s sec second 1; ms msec millisecond 0.001; µs μs us microsecond 0.000001; ns nanosecond 0.000000001; min minute 60;
  h hr hour 3600; d day 86400; wk week 604800; mo month 2629800; yr y year 31557600; decade 315576000
bytes: B byte 1; kB KB kilobyte 1000; MB megabyte 1000000; GB gigabyte 1000000000; TB terabyte 1000000000000; PB petabyte 1000000000000000;
  KiB kibibyte 1024; MiB mebibyte 1048576; GiB gibibyte 1073741824; TiB tebibyte 1099511627776;
  bit 0.125; kbit kilobit Kb kb 125; Mbit megabit Mb 125000; Gbit gigabit Gb 125000000
percent: % percent pct 0.01; ‰ permille 0.001
area: m² m2 sqm 1; km² km2 1000000; cm² cm2 0.0001; ha hectare 10000; acre 4046.8564224; sqft ft² ft2 0.09290304; mi² sqmi 2589988.110336
volume: l litre liter 1; ml millilitre milliliter 0.001; cl 0.01; m³ m3 1000; gal gallon 3.785411784; ft³ 28.316846592
power: W watt 1; kW kilowatt 1000; MW megawatt 1000000; GW gigawatt 1000000000; hp horsepower 745.69987
energy: J joule 1; kJ 1000; MJ 1000000; Wh 3600; kWh 3600000; MWh 3600000000; GWh 3600000000000; cal 4.184; kcal 4184
voltage: V volt 1; mV 0.001; kV 1000
current: A amp ampere 1; mA 0.001
charge: Ah 1; mAh 0.001
frequency: Hz hertz 1; kHz 1000; MHz 1000000; GHz 1000000000
pressure: Pa pascal 1; hPa 100; kPa 1000; MPa 1000000; bar 100000; mbar 100; psi 6894.757293168; atm 101325
usd: USD $ US$ dollar 1
eur: EUR € euro 1
gbp: GBP £ 1
jpy: JPY ¥ yen 1
chf: CHF franc 1
"""  # noqa: E501 - lines of a text
_WHOLE = {
    "mph": "mi/h",
    "kph": "km/h",
    "kmh": "km/h",
    "knots": "nmi/h",
    "kn": "nmi/h",
    "rps": "requests/s",
    "qps": "queries/s",
    "tps": "transactions/s",
    "mbps": "Mbit/s",
    "gbps": "Gbit/s",
    "kbps": "kbit/s",
    "rpm": "turns/min",
}
_DEGREES = {
    "c": (Fraction(1), Fraction("273.15")),
    "f": (Fraction(5, 9), Fraction("459.67")),
    "k": (Fraction(1), Fraction(0)),
}
_DEGREE = re.compile(
    r"(?:°|deg(?:rees?)?|º)?\s*+(celsius|fahrenheit|kelvin|[cf](?![a-z])|k(?![a-z]))",
    re.IGNORECASE,
)
_SQUARE, _CUBIC = re.compile(r"^(?:square|sq\.?)\s+"), re.compile(r"^cubic\s+")
_PER = re.compile(
    r"(?<!\s)(?:\s*+/\s*|\s++per\s+|\s++a\s+(?=second|minute|hour|day|week|month|year))|^per\s+"
)


def _iterate_rows() -> Iterator[tuple[str, Unit]]:
    """Yield each name in `_TABLE` with its unit."""
    for line in re.sub(r"\n  ", " ", _TABLE.strip()).splitlines():
        dimension, _, units = line.partition(": ")
        for unit in units.split(";"):
            *names, factor = unit.split()
            for name in names:
                yield name, Unit(dimension, Fraction(factor))


_EXACT = dict(_iterate_rows())
_LOOSE = {name.casefold(): unit for name, unit in reversed(_EXACT.items())}
_BINARY = {
    _EXACT[name]: Unit("bytes", Fraction(1024**power))
    for power, name in enumerate(("kB", "MB", "GB", "TB", "PB"), 1)
}


def parse_unit(text: str) -> Unit | None:
    """Return the unit that a text names. An unknown name is a counted thing, with dimension
    `COUNT`. None: the text is empty.
    """
    text = text.strip(" .,;()").replace("per cent", "percent").replace("^2", "²").replace("^3", "³")
    text = _WHOLE.get(text.casefold(), text)
    if not text:
        return None
    above, *below = _PER.split(text, maxsplit=1)
    unit = _parse_simple_unit(above)
    if not below:
        return unit
    under = _parse_simple_unit(below[0])
    return Unit(f"{unit.dimension}/{under.dimension}", unit.factor / under.factor)


def list_readings(unit: Unit) -> tuple[Unit, ...]:
    """Return the possible meanings of a unit: MB means 1,000² bytes or 1,024² bytes."""
    if unit in _BINARY:
        return (unit, _BINARY[unit])
    return (unit,)


def is_unit(text: str) -> bool:
    """Return whether the words name a known unit."""
    unit = parse_unit(text)
    return unit is not None and not unit.dimension.startswith(COUNT)


def _parse_simple_unit(text: str) -> Unit:
    """Return the unit of a text without a quotient."""
    text = text.strip(" .")
    if _SQUARE.match(text.casefold()) or _CUBIC.match(text.casefold()):
        if _SQUARE.match(text.casefold()):
            power, side = (2, "area")
        else:
            power, side = (3, "volume")
        length = _parse_simple_unit(text.split(maxsplit=1)[1])
        if length.dimension == "length":
            return Unit(side, length.factor**power * (1 if power == 2 else 1000))
        return Unit(COUNT)
    degree = _DEGREE.fullmatch(text)
    if degree and (text not in _EXACT):
        factor, offset = _DEGREES[degree[1][0].casefold()]
        return Unit("temperature", factor, offset)
    singular = text.casefold()
    for name in (singular, singular.removesuffix("s"), singular.removesuffix("es")):
        if text in _EXACT or name in _LOOSE:
            return _EXACT.get(text) or _LOOSE[name]
    return Unit(COUNT)


ROUNDED = Fraction(5, 100)
"""Largest difference from rounding, as a part of the larger value: 1,024 may be written as
`1.0k`, but 2.4 million not as `2 million`.
"""
MIN_DIGITS = 1_000
"""A figure that ends in zeros counts as rounded while it has at least this many units of its
last significant digit. So three digits stay significant, and `130` is not rounded to tens.
"""
ABOUT = Fraction(10, 100)
"""Largest difference from an approximate value ("about"), as a part of the larger value."""

_SCALES = {
    "k": 3,
    "thousand": 3,
    "m": 6,
    "mn": 6,
    "mio": 6,
    "million": 6,
    "bn": 9,
    "b": 9,
    "billion": 9,
    "t": 12,
    "trillion": 12,
} | {
    "tausend": 3,
    "millionen": 6,
    "milliarde": 9,
    "milliarden": 9,
    "mrd": 9,
}
_DIGITS = r"\d+(?:[,  '’_]\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+"
_AMOUNT = re.compile(
    rf"(?P<sign>[-−+])?\s*+(?P<currency>US\$|[$€£¥])?\s*+(?P<minus>[-−])?(?P<digits>{_DIGITS})(?:e(?P<e>[-+]?\d+))?(?:\s*[x×]\s*10\^(?P<ten>-?\d+))?"
    r"(?:(?P<short>[kKMBT])(?![\w°%])|\s*(?P<long>(?i:thousand|tausend|million(?:en)?|mio|milliarden?|mrd|billion|trillion)|mn|bn|k)s?(?!\w))?"
)
_BLANKS = re.compile(r"\s{3,}")
_ABOUT = re.compile(
    r"^(?:about|around|roughly|approximately|approx\.?|circa|ca\.?|some|nearly|almost|~|≈)\s*",
    re.IGNORECASE,
)
_FROM = re.compile(
    r"^(?:at least|more than|over|above|minimum(?: of)?|min\.?|no less than|≥|>=?)\s*|(?:\+| or"
    r" more)$",
    re.IGNORECASE,
)
_UP_TO = re.compile(
    r"^(?:at most|up to|less than|under|below|fewer than|maximum(?: of)?|max\.?|no more"
    r" than|≤|<=?)\s*|(?: or (?:less|fewer))$",
    re.I,
)
_RANGE = re.compile(
    r"^(?:between|from)?\s*(.*?\d[^-–—]*?)\s*(?:-|–|—|\bto\b|\band\b)\s*([$€£¥]?\d.*)$",
    re.IGNORECASE,
)
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_WORDS = {word: number for number, word in enumerate(_SMALL)}
_WORDS |= {word: 10 * number for number, word in enumerate(_TENS, start=2)}
_HALF = re.compile(r"half (?:an?|of an?)\s+", re.IGNORECASE)
MAX_POWER = 300
"""Greatest power of ten of an amount. A greater one would make the arithmetic slow."""
_TIMES = {
    "hundred": 100,
    "dozen": 12,
    "thousand": 1_000,
    "million": 1_000_000,
    "billion": 1_000_000_000,
}


@dataclass(frozen=True, slots=True)
class WrittenNumber:
    """A number as it was written."""

    value: Fraction
    grain: Fraction
    """One unit of the last written digit."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A range from `low` to `high`, in its original unit. None: the range is open at this end."""

    low: WrittenNumber | None
    high: WrittenNumber | None
    unit: Unit | None
    is_about: bool = False


def parse_quantity(text: str, unit: str | None = None) -> Quantity | None:
    """Return the quantity of a value, or None if it is not a number.

    Args:
        unit: unit outside the text. A known unit in the text takes precedence.
    """
    phrase = " ".join(text.split()).strip(" .,;")
    bare = _ABOUT.sub("", phrase)
    is_about = bare != phrase
    match = _RANGE.match(bare)
    if match:
        between = _parse_range(match[1], match[2], unit)
        if between:
            return replace(between, is_about=is_about)
    without_from = _FROM.sub("", bare)
    without_up_to = _UP_TO.sub("", bare)
    is_least = without_from != bare
    is_most = without_up_to != bare
    amount_with_unit = _parse_amount_with_unit(without_from if is_least else without_up_to, unit)
    if amount_with_unit is None:
        return None
    low = None if is_most else amount_with_unit.amount
    high = None if is_least else amount_with_unit.amount
    return Quantity(low, high, amount_with_unit.unit, is_about)


def quantities_contradict(first: Quantity, second: Quantity) -> bool:
    """Return whether the quantities cannot both be right; False if their dimensions differ."""
    pairs = _list_common_readings(first, second)
    return bool(pairs) and not any(_may_be_equal(a, b) for a, b in pairs)


def are_comparable(first: Quantity, second: Quantity) -> bool:
    """Return whether the quantities have the same dimension."""
    return bool(_list_common_readings(first, second))


_MAX_DIGITS = 500
"""Characters of the longest number that is read. Python refuses a number of 4,301 digits."""


def iterate_numbers(text: str) -> Iterator[Fraction]:
    """Yield each number in digits, and then its absolute value: in `2019-2024` the dash is not
    a minus. A number with more than `_MAX_DIGITS` characters is left out.
    """
    for match in _AMOUNT.finditer(squeeze_blanks(text)):
        if len(match["digits"]) > _MAX_DIGITS:
            continue
        value = _parse_amount(match).value
        yield value
        yield abs(value)


def squeeze_blanks(text: str) -> str:
    """Return the text with at most two blanks in a row.

    The patterns in this module search for the sign, currency and scale of a number across
    blanks, and would need cubic time for long runs. One blank would join digits that are two
    blanks apart, and these are two numbers.
    """
    return _BLANKS.sub("  ", text)


def _list_common_readings(first: Quantity, second: Quantity) -> list[tuple[Quantity, Quantity]]:
    """Return the pairs of possible meanings that have the same dimension."""
    readings: list[tuple[Quantity, Quantity]] = []
    for a in _list_readings(first, second.unit):
        for b in _list_readings(second, first.unit):
            if _have_same_dimension(a, b):
                readings.append((a, b))
    return readings


def _list_readings(quantity: Quantity, beside: Unit | None) -> list[Quantity]:
    """Return the possible meanings of a quantity, in base units.

    A number without a unit has the unit of the other quantity (`beside`). If that is percent,
    the number may also be a share: 0.12 for 12 %.
    """
    if quantity.unit:
        units = list_readings(quantity.unit)
    elif beside is None:
        units = (Unit(COUNT),)
    elif beside.dimension == "percent":
        units = (beside, Unit("percent"))
    else:
        units = (beside,)
    readings: list[Quantity] = []
    for unit in units:
        low, high = _convert_to_base(quantity.low, unit), _convert_to_base(quantity.high, unit)
        readings.append(Quantity(low, high, unit, quantity.is_about))
    return readings


def _convert_to_base(amount: WrittenNumber | None, unit: Unit) -> WrittenNumber | None:
    if amount:
        return WrittenNumber((amount.value + unit.offset) * unit.factor, amount.grain * unit.factor)
    return None


def _have_same_dimension(first: Quantity, second: Quantity) -> bool:
    return (
        first.unit is not None
        and second.unit is not None
        and first.unit.dimension == second.unit.dimension
    )


def _may_be_equal(first: Quantity, second: Quantity) -> bool:
    """Return whether two quantities of one unit can both be right. They are equal numbers, ranges
    of which one lies within the other, or open ranges that overlap.
    """
    is_about = first.is_about or second.is_about
    share = ABOUT if is_about else ROUNDED
    if first.low == first.high and second.low == second.high and first.low and second.low:
        return _are_equal_when_rounded(first.low, second.low, share, is_about=is_about)
    if None in (first.low, first.high, second.low, second.high):
        return _have_overlap(first, second, share)
    return _is_within(first, second, share) or _is_within(second, first, share)


def _have_overlap(first: Quantity, second: Quantity, share: Fraction) -> bool:
    begins = _is_ascending(first.low, second.high, share)
    return begins and _is_ascending(second.low, first.high, share)


def _is_within(inner: Quantity, outer: Quantity, share: Fraction) -> bool:
    begins = _is_ascending(outer.low, inner.low, share)
    return begins and _is_ascending(inner.high, outer.high, share)


def _is_ascending(low: WrittenNumber | None, high: WrittenNumber | None, share: Fraction) -> bool:
    if low is None or high is None or low.value <= high.value:
        return True
    return _are_equal_when_rounded(low, high, share, is_about=False)


def _are_equal_when_rounded(
    first: WrittenNumber, second: WrittenNumber, share: Fraction, *, is_about: bool
) -> bool:
    """Return whether the values are near each other, and the more precise one rounds to the
    other one.

    The middle is rounded up, or to the even digit.

    Args:
        share: largest difference, as a part of the larger value.
        is_about: True if a value is approximate. Then values that are near agree without rounding.
    """
    if first.value == second.value:
        return True
    larger = max(abs(first.value), abs(second.value))
    is_near = abs(first.value - second.value) <= share * larger
    if not is_near or is_about:
        return is_near
    coarse, fine = first, second
    if first.grain < second.grain:
        coarse, fine = second, first
    grain = coarse.grain
    if fine.grain < coarse.grain:
        grain = _compute_rounding_step(coarse)
    low, middle = coarse.value - grain / 2, coarse.value + grain / 2
    if fine.value == middle:
        return bool(grain) and (coarse.value / grain) % 2 == 0
    return low <= fine.value < middle


def _compute_rounding_step(amount: WrittenNumber) -> Fraction:
    """Return the step to which a value may be rounded. Zeros at its end may come from
    rounding, but at least three digits count: 8,850 may be 8,848.86.
    """
    grain = amount.grain
    if not grain:
        return grain
    steps = abs(amount.value) / grain
    while steps % 10 == 0 and steps >= MIN_DIGITS:
        grain *= 10
        steps /= 10
    return grain


@dataclass(frozen=True, slots=True)
class _AmountWithUnit:
    """An amount with its unit. None: it has no unit."""

    amount: WrittenNumber
    unit: Unit | None


@dataclass(frozen=True, slots=True)
class _Leading:
    """The number at the beginning of a text."""

    amount: WrittenNumber
    currency: str
    """The sign of its currency; empty: it has none."""
    rest: str
    """The text after the number."""


def _parse_range(first: str, second: str, unit: str | None) -> Quantity | None:
    """Return the range between two amounts. In "10 to 15 bar" both ends have the unit.

    None: the texts are not amounts of one unit in ascending order.
    """
    high = _parse_amount_with_unit(second, unit)
    low = _parse_amount_with_unit(first, unit)
    if high is None or low is None:
        return None
    if low.unit is not None and high.unit is not None and low.unit != high.unit:
        return None
    if low.amount.value >= high.amount.value:
        return None
    return Quantity(low.amount, high.amount, high.unit or low.unit)


_NEXT_NUMBER = re.compile(r"(?:(?:,|\band\b)\s*+|(?<!\s)\s++)?\d")
"""The beginning of the next amount in "1 h 30 min" or "1 h and 30 min"."""


def _parse_amount_with_unit(text: str, unit: str | None) -> _AmountWithUnit | None:
    """Return an amount with its unit, or the sum of several amounts ("1 h 30 min"). None: the
    text is not an amount.
    """
    total: WrittenNumber | None = None
    base: Unit | None = None
    rest = text.strip()
    while rest:
        leading = _parse_leading_number(rest)
        if leading is None:
            return None
        unit_text, rest = _split_at_next_number(leading.rest)
        own_unit = _find_unit(leading.currency or unit_text.strip(" ,-()"), unit)
        if own_unit is None and re.search(r"\d", unit_text):
            return None
        if total is None:
            total, base = leading.amount, own_unit
            continue
        if base is None or own_unit is None or base.dimension != own_unit.dimension or base.offset:
            return None
        factor = own_unit.factor / base.factor
        total = WrittenNumber(
            total.value + leading.amount.value * factor, leading.amount.grain * factor
        )
    if total is None:
        return None
    return _AmountWithUnit(total, base)


def _split_at_next_number(text: str) -> tuple[str, str]:
    """Return the unit of an amount and the next amount in the text after a number.

    A text that does not begin with a known unit is not split: then the next amount is empty.
    """
    next_number = _NEXT_NUMBER.search(text)
    if next_number is None:
        return text, ""
    unit_text, rest = text[: next_number.start()], text[next_number.start() :]
    if not is_unit(unit_text.strip(" ,-()")):
        return text, ""
    return unit_text, rest.lstrip(", ").removeprefix("and ")


def _find_unit(text: str, unit: str | None) -> Unit | None:
    """Return the unit of an amount: a known unit in the text, or else `unit`, or else the text."""
    if text and unit and not is_unit(text):
        return parse_unit(unit)
    return parse_unit(text or unit or "")


def _parse_leading_number(text: str) -> _Leading | None:
    """Return the number at the beginning of a text, in digits or in words, or None."""
    match = _AMOUNT.match(text)
    if match is None:
        return _parse_number_words(text)
    return _Leading(_parse_amount(match), match["currency"] or "", text[match.end() :])


def _parse_amount(match: re.Match[str]) -> WrittenNumber:
    """Return the amount of a match of `_AMOUNT`."""
    digits = match["digits"]
    grouped = re.fullmatch(r"\d+(?:[,  '’_]\d{3})+(?:\.\d+)?", digits)
    if grouped:
        plain = re.sub(r"[,  '’_]", "", digits)
    else:
        plain = digits.replace(",", ".")
    exponent = int((match["e"] or "0")[:4])
    power_of_ten = int((match["ten"] or "0")[:4])
    scale_word = (match["short"] or match["long"] or "").casefold()
    power = exponent + power_of_ten + _SCALES.get(scale_word, 0)
    scale = Fraction(10) ** max(-MAX_POWER, min(MAX_POWER, power))
    decimals = len(plain.partition(".")[2])
    value = Fraction(plain) * scale
    signs = f"{match['sign'] or ''}{match['minus'] or ''}"
    if "-" in signs or "−" in signs:
        value = -value
    return WrittenNumber(value, Fraction(1, 10**decimals) * scale)


def _means_one(text: str) -> bool:
    """Return whether the text before "hundred" means one: "a hundred", or no text."""
    return text.strip().casefold() in ("", "a", "one")


def _parse_number_words(text: str) -> _Leading | None:
    """Return an amount in words: "three hundred patients", "a dozen", "half an hour"."""
    half = _HALF.match(text)
    if half:
        return _Leading(WrittenNumber(Fraction(1, 2), Fraction(1, 10)), "", text[half.end() :])
    total = current = grain = 0
    end = 0
    for word in re.finditer(r"[A-Za-z]+", text):
        name = word[0].casefold()
        if name in _WORDS:
            current += _WORDS[name]
            grain = 1
        elif name in _TIMES and (current or end or _means_one(text[: word.start()])):
            grain = _TIMES[name]
            current = max(current, 1) * grain
            if grain >= 1_000:
                total += current
                current = 0
        elif name == "and" or (name == "a" and word.start() == 0):
            continue
        else:
            break
        end = word.end()
    if not end:
        return None
    return _Leading(WrittenNumber(Fraction(total + current), Fraction(grain)), "", text[end:])
