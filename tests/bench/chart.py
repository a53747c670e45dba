"""Draws a line chart as SVG, with both axes from zero. It is too small to need a library."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH: Final = 760
_HEIGHT: Final = 440
_LEFT: Final = 76
_RIGHT: Final = 24
_TOP: Final = 84
_BOTTOM: Final = 60
_TICKS: Final = 5
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""The palette of Okabe and Ito, for colour-blind readers."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line; points are ordered by x and not negative."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart; the labels name the units."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]

    def svg(self) -> str:
        """The SVG document."""
        points = [point for series in self.series for point in series.points]
        x_axis, y_axis = (_Axis.to(max((point[axis] for point in points), default=0)) for axis in (0, 1))
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'font-family="sans-serif" font-size="13" role="img" aria-label="{escape(self.title)}">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
            _text(_LEFT, 28, self.title, size=16),
            *_grid(x_axis, y_axis),
            _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 16, self.x_label, anchor="middle"),
            _text(
                0, 0, self.y_label, anchor="middle", place=f"translate(20 {(_TOP + _HEIGHT - _BOTTOM) / 2}) rotate(-90)"
            ),
            *(part for number, series in enumerate(self.series) for part in _line(number, series, x_axis, y_axis)),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _Axis:
    """From zero to ``most``, with a tick every ``step``."""

    most: float
    step: float

    @classmethod
    def to(cls, value: float) -> _Axis:
        """An axis that includes ``value``; steps are 1, 2, 2.5 or 5 times a power of ten."""
        if value <= 0:
            return cls(1, 1)
        power = 10.0 ** math.floor(math.log10(value / _TICKS))
        step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * _TICKS >= value)
        return cls(step * math.ceil(value / step), step)

    def ticks(self) -> Iterator[float]:
        """The ticks, from zero."""
        for number in range(round(self.most / self.step) + 1):
            yield number * self.step


def _x(value: float, axis: _Axis) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / axis.most


def _y(value: float, axis: _Axis) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / axis.most


def _grid(x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    for tick in y_axis.ticks():
        y = _y(tick, y_axis)
        colour = "#333" if tick == 0 else "#ddd"
        yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="{colour}"/>'
        yield _text(_LEFT - 8, y + 4, f"{tick:,g}", anchor="end")
    for tick in x_axis.ticks():
        x = _x(tick, x_axis)
        yield f'<path d="M{x:.1f} {_HEIGHT - _BOTTOM}v5" stroke="#333"/>'
        yield _text(x, _HEIGHT - _BOTTOM + 20, f"{tick:,g}", anchor="middle")


def _line(number: int, series: Series, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    places = [(_x(x, x_axis), _y(y, y_axis)) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>'
    for (x, y), (_, value) in zip(places, series.points, strict=True):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{value:,g}</title></circle>'
    legend = _LEFT + number * (_WIDTH - _LEFT - _RIGHT) / 3
    yield f'<rect x="{legend:.1f}" y="46" width="14" height="14" fill="{colour}"/>'
    yield _text(legend + 20, 58, series.name)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 13, place: str = "") -> str:
    at = f'transform="{place}"' if place else f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text {at} text-anchor="{anchor}" font-size="{size}" fill="#222">{escape(text)}</text>'
