"""In the user's terms: rows of numbers as words with bars, pictures, or curves over an axis."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array
from onmf.insight.report.subject import Subject

BARS = 8  # leading features of a component, or of a sample
FEW = 30  # features without names that are shown as bars
LEAST_ORDERED = 12  # features whose names are numbers, from which on they are taken for an axis
SMOOTH = 0.5  # correlation between neighbouring features, from which on they are taken for a curve
POINTS = 240  # of a curve
PEAKS = 3
DECIBELS = 60.0  # that spectra of sound are shown over
LARGEST = 160  # pixels, of a picture
WIDTH, HEIGHT = 240.0, 64.0  # of a curve, in its own units
NUMBER = re.compile(r"\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([^\d\s]{0,8})\s*$")


@dataclass(frozen=True)
class Bar:
    """A feature, its number, and the length of its bar in percent; and the same of the fit, where there is one."""

    name: str
    value: float
    length: float
    fit: float | None = None
    fit_length: float = 0.0


@dataclass(frozen=True)
class View:
    """A row of numbers, and its fit where there is one, as it is shown: one of bars, pictures and lines."""

    text: str  # the same in words, for those who do not see it
    bars: tuple[Bar, ...] = ()
    pictures: tuple[str, ...] = ()  # data URIs
    lines: tuple[str, ...] = ()  # points of SVG
    ends: tuple[str, ...] = ()  # of the axis of lines, and its middle


class Terms:
    """How the features of a model are shown."""

    def __init__(self, subject: Subject) -> None:
        self.picture = subject.source.picture
        self.names = subject.names
        axis = None if subject.names is None else _axis(subject.names)
        self.axis, self.unit = axis or (np.arange(subject.F, dtype=np.float64), "")
        ordered = axis is not None or (subject.names is None and subject.F > FEW and _smooth(subject.W))
        self.kind = "pictures" if self.picture else "lines" if ordered else "bars"
        self.sound = subject.source.scheme == "audio" and self.unit == "Hz"  # which is heard in octaves and decibels

    def name(self, feature: int) -> str:
        """What the user calls it."""
        return f"feature {feature}" if self.names is None else self.names[feature]

    def leading(self, row: Array, number: int = BARS) -> list[int]:
        """The features with the largest numbers, the largest first, without zeros."""
        order = np.argsort(-row, kind="stable")[:number]
        return [int(f) for f in order if row[f] > 0]

    def words(self, row: Array, number: int = 5) -> str:
        """The row in a few words: its leading features, its peaks, or the middle of its picture."""
        if self.kind == "lines":
            found = [_short(self.axis[f]) for f in sorted(_peaks(row))]
            return f"peaks at {', '.join(found)} {self.unit}".rstrip() if found else "no peak"
        if self.kind == "pictures":
            bright = float((row > 0.5 * row.max(initial=0)).mean()) if row.size else 0.0
            return f"{100 * bright:.0f} % of the pixels are bright"
        return ", ".join(map(self.name, self.leading(row, number))) or "nothing"

    def view(self, row: Array, what: str, fit: Array | None = None) -> View:
        """A row, called ``what``, and its fit if there is one."""
        row = np.asarray(row, dtype=np.float64)
        both = [row] if fit is None else [row, np.asarray(fit, dtype=np.float64)]
        text = f"{what}: {self.words(row)}"
        top = max(float(np.nanmax(each, initial=0)) for each in both) or 1.0
        if self.picture:
            return View(text, pictures=tuple(_png(each / top, self.picture) for each in both))
        if self.kind == "lines":
            return View(text, lines=tuple(self._line(each / top) for each in both), ends=self._ends())
        bars = []
        for f in self.leading(row):
            other = None if fit is None else float(fit[f])
            bars.append(Bar(self.name(f), float(row[f]), 100 * row[f] / top, other, 100 * (other or 0.0) / top))
        return View(text, bars=tuple(bars))

    def _line(self, row: Array) -> str:
        """The points of a curve of numbers up to 1."""
        row = np.nan_to_num(row)
        if not self.sound:
            return _points(row, self.axis)
        decibels = 10 * np.log10(np.maximum(row[1:], 10 ** (-0.1 * DECIBELS)))  # without the frequency zero
        return _points(1 + decibels / DECIBELS, np.log(self.axis[1:]))

    def _ends(self) -> tuple[str, ...]:
        low, high = self.axis[1 if self.sound else 0], self.axis[-1]
        middle = np.sqrt(low * high) if self.sound else (low + high) / 2
        return tuple(f"{_short(each)} {self.unit}".rstrip() for each in (low, middle, high))


def _short(value: float) -> str:
    """Three digits, or all those before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _axis(names: tuple[str, ...]) -> tuple[Array, str] | None:
    """The numbers that the names are, as in ``400 nm``, and their unit, if they grow from the first to the last."""
    if len(names) < LEAST_ORDERED:
        return None
    found = [NUMBER.match(name) for name in names]
    units = {match[2] for match in found if match}
    if not all(found) or len(units) != 1:
        return None
    numbers = np.array([float(match[1]) for match in found if match])
    return (numbers, units.pop()) if (np.diff(numbers) > 0).all() else None


def _smooth(W: Array) -> bool:
    """Are neighbouring features alike in most atoms?"""
    centred = np.asarray(W, dtype=np.float64) - W.mean(axis=1, keepdims=True)
    power = np.square(centred).sum(axis=1)
    alike = (centred[:, 1:] * centred[:, :-1]).sum(axis=1) / np.where(power > 0, power, 1)
    return bool(np.median(alike) > SMOOTH)


def _peaks(row: Array) -> list[int]:
    """The places of the highest maxima that are no neighbours, at least a tenth of the highest."""
    if not row.any():
        return []
    padded = np.concatenate([[-np.inf], row, [-np.inf]])
    tops = np.flatnonzero((row >= padded[:-2]) & (row > padded[2:]) & (row >= 0.1 * row.max()))
    return [int(f) for f in tops[np.argsort(-row[tops], kind="stable")][:PEAKS]]


def _points(row: Array, axis: Array) -> str:
    """The points of a polyline; of many features, the highest of each stretch, so that no peak is lost."""
    places = (axis - axis[0]) / ((axis[-1] - axis[0]) or 1.0)
    if len(row) > POINTS:
        starts = np.unique(np.searchsorted(places, np.arange(POINTS) / POINTS))
        row, places = np.maximum.reduceat(row, starts), places[starts]
    across, up = WIDTH * places, HEIGHT * (1 - 0.95 * np.clip(row, 0, 1))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True))


def _png(row: Array, shape: tuple[int, ...]) -> str:
    """A picture of numbers from 0, black, to 1, white, as a data URI; what is unknown is grey."""
    try:
        from PIL import Image
    except ImportError:
        raise ModuleNotFoundError("a report with pictures needs Pillow; install onmf[images].") from None
    pixels = np.clip(np.nan_to_num(row, nan=0.5) * 255, 0, 255).astype(np.uint8).reshape(shape)
    picture = Image.fromarray(pixels)
    picture.thumbnail((LARGEST, LARGEST))
    written = io.BytesIO()
    picture.save(written, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()
