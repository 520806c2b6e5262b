"""Rows of numbers in the user's terms: as words with bars, as pictures, or as curves over an axis."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.insight.features import DECIBELS, axis_of, components_of, decibels, is_smooth, names_of, source_of
from onmf.topics import leading_features, suited_ranking

BARS = 8  # leading features of a component, or of a sample
FEW = 30  # features without names that are shown as bars
LEAST_ORDERED = 12  # features whose names are numbers, from which on they are taken for an axis
POINTS = 240  # of a curve
PEAKS = 3
LARGEST = 160  # pixels, of a picture
WIDTH, HEIGHT = 240.0, 64.0  # of a curve, in its own units


@dataclass(frozen=True)
class Bar:
    """A feature, its number and the length of its bar in percent, and the same for its fit, where there is one."""

    name: str
    value: float
    length: float
    fit: float | None = None
    fit_length: float = 0.0


@dataclass(frozen=True)
class View:
    """A row of numbers, and its fit where there is one, as it is shown: one of bars, pictures and lines."""

    text: str  # the row in words, for those who do not see it
    bars: tuple[Bar, ...] = ()
    pictures: tuple[str, ...] = ()  # data URIs
    lines: tuple[str, ...] = ()  # points of SVG
    ends: tuple[str, ...] = ()  # of the axis of lines, and its middle


class Terms:
    """The way to show the features of a model: as bars, pictures or lines, with their names and axis."""

    def __init__(self, model: Any) -> None:
        W, source, self.names = components_of(model), source_of(model), names_of(model)
        self.picture = source.picture
        axis = axis_of(W, self.names) if W.shape[1] >= LEAST_ORDERED else None
        self.axis, self.unit = axis or (np.arange(W.shape[1], dtype=np.float64), "")
        ordered = axis is not None or (self.names is None and W.shape[1] > FEW and is_smooth(W))
        self.kind = "pictures" if self.picture else "lines" if ordered else "bars"
        self.ranking = suited_ranking(source)  # of the features of components
        self.sound = source.scheme == "audio" and self.unit == "Hz"  # which is heard in octaves and decibels

    def words(self, row: Array) -> str:
        """Describe the row in a few words: its leading features, its peaks, or how bright its picture is."""
        if self.kind == "lines":
            peaks = [_short(self.axis[f]) for f in sorted(_peaks(row))]
            return f"peaks at {', '.join(peaks)} {self.unit}".rstrip() if peaks else "no peak"
        if self.kind == "pictures":
            bright = float((row > 0.5 * row.max(initial=0)).mean()) if row.size else 0.0
            return f"{100 * bright:.0f} % of the pixels are bright"
        found = leading_features(row[None], 5, self.names)[0]
        return ", ".join(name for name, value in found if value > 0) or "nothing"

    def view(self, row: Array, what: str, fit: Array | None = None) -> View:
        """Return the view of a row, which ``what`` names, and of its fit if there is one."""
        row = np.asarray(row, dtype=np.float64)
        both = [row] if fit is None else [row, np.asarray(fit, dtype=np.float64)]
        text = f"{what}: {self.words(row)}"
        top = max(float(np.nanmax(each, initial=0)) for each in both) or 1.0
        if self.picture:
            return View(text, pictures=tuple(_png(each / top, self.picture) for each in both))
        if self.kind == "lines":
            return View(text, lines=tuple(self._line(each / top) for each in both), ends=self._ends())
        values = leading_features(row[None], BARS, self.names)[0]
        fits: list[float | None] = [None] * BARS
        if fit is not None:
            fits = fit[np.argsort(-row, kind="stable")[:BARS]].tolist()
        bars = [
            Bar(name, value, 100 * value / top, other, 100 * (other or 0.0) / top)
            for (name, value), other in zip(values, fits, strict=False)
            if value > 0
        ]
        return View(text, bars=tuple(bars))

    def _line(self, row: Array) -> str:
        """Return the points of a curve of numbers up to 1."""
        row = np.nan_to_num(row)
        if not self.sound:
            return _points(row, self.axis)
        return _points(1 + decibels(row[1:], 1.0) / DECIBELS, np.log(self.axis[1:]))  # without the frequency zero

    def _ends(self) -> tuple[str, ...]:
        low, high = self.axis[1 if self.sound else 0], self.axis[-1]
        middle = np.sqrt(low * high) if self.sound else (low + high) / 2
        return tuple(f"{_short(each)} {self.unit}".rstrip() for each in (low, middle, high))


def _short(value: float) -> str:
    """Write three digits, or all digits before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _peaks(row: Array) -> list[int]:
    """Return the places of the highest maxima that are no neighbours, at least a tenth of the highest."""
    if not row.any():
        return []
    padded = np.concatenate([[-np.inf], row, [-np.inf]])
    tops = np.flatnonzero((row >= padded[:-2]) & (row > padded[2:]) & (row >= 0.1 * row.max()))
    return [int(f) for f in tops[np.argsort(-row[tops], kind="stable")][:PEAKS]]


def _points(row: Array, axis: Array) -> str:
    """Return the points of a polyline; of many features, the highest of each stretch, so that no peak is lost."""
    places = (axis - axis[0]) / ((axis[-1] - axis[0]) or 1.0)
    if len(row) > POINTS:
        starts = np.unique(np.searchsorted(places, np.arange(POINTS) / POINTS))
        row, places = np.maximum.reduceat(row, starts), places[starts]
    across, up = WIDTH * places, HEIGHT * (1 - 0.95 * np.clip(row, 0, 1))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True))


def _png(row: Array, shape: tuple[int, ...]) -> str:
    """Return a picture of numbers from 0, black, to 1, white, as a data URI; missing pixels are grey."""
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
