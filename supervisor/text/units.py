"""Units that claims are measured in, as factors of one base for each dimension. Pure, and exact: factors are fractions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

COUNT = "count"
"""The dimension of whatever is only counted: employees, requests, shards."""


@dataclass(frozen=True, slots=True)
class Unit:
    """base = (value + offset) * factor."""

    dimension: str
    factor: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)


_YEAR = Fraction("31557600")
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
"""
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
    r"(?:°|deg(?:rees?)?\s*|º)?\s*(celsius|fahrenheit|kelvin|[cf](?![a-z])|k(?![a-z]))",
    re.IGNORECASE,
)
_SQUARE, _CUBIC = re.compile(r"^(?:square|sq\.?)\s+"), re.compile(r"^cubic\s+")
_PER = re.compile(r"\s*/\s*|\s+per\s+|\s+a\s+(?=second|minute|hour|day|week|month|year)|^per\s+")


def _rows() -> Iterator[tuple[str, Unit]]:
    for line in re.sub(r"\n  ", " ", _TABLE.strip()).splitlines():
        dimension, _, units = line.partition(": ")
        for unit in units.split(";"):
            *names, factor = unit.split()
            for name in names:
                yield name, Unit(dimension, Fraction(factor))


_EXACT = dict(_rows())
_LOOSE = {name.casefold(): unit for name, unit in reversed(_EXACT.items())}
_BINARY = {
    unit: Unit("bytes", Fraction(1024**power))
    for power, name in enumerate(("kB", "MB", "GB", "TB", "PB"), 1)
    for unit in [_EXACT[name]]
}


def unit_of(text: str) -> Unit | None:
    """What a unit is, in any usual spelling. What is in no table is counted; None: there is no unit."""
    text = text.strip(" .,;()").replace("per cent", "percent").replace("^2", "²").replace("^3", "³")
    text = _WHOLE.get(text.casefold(), text)
    if not text:
        return None
    above, *below = _PER.split(text, maxsplit=1)
    found = _one(above)
    if not below:
        return found
    under = _one(below[0])
    return Unit(f"{found.dimension}/{under.dimension}", found.factor / under.factor)


def readings_of(unit: Unit) -> tuple[Unit, ...]:
    """MB is said of 1,000² bytes and of 1,024²."""
    return (unit, _BINARY[unit]) if unit in _BINARY else (unit,)


def is_unit(text: str) -> bool:
    """Whether the words name a unit that is in the table."""
    found = unit_of(text)
    return found is not None and not found.dimension.startswith(COUNT)


def _one(text: str) -> Unit:
    text = text.strip(" .")
    if _SQUARE.match(text.casefold()) or _CUBIC.match(text.casefold()):
        power, side = (2, "area") if _SQUARE.match(text.casefold()) else (3, "volume")
        length = _one(text.split(maxsplit=1)[1])
        return (
            Unit(side, length.factor**power * (1 if power == 2 else 1000))
            if length.dimension == "length"
            else Unit(COUNT)
        )
    degree = _DEGREE.fullmatch(text)
    if degree and (text not in _EXACT):
        factor, offset = _DEGREES[degree[1][0].casefold()]
        return Unit("temperature", factor, offset)
    singular = text.casefold()
    for name in (singular, singular.removesuffix("s"), singular.removesuffix("es")):
        if text in _EXACT or name in _LOOSE:
            return _EXACT.get(text) or _LOOSE[name]
    return Unit(COUNT)
