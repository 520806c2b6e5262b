"""``separate``: split a sound into one part per component of a model, by Wiener masks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.fft

from onmf._support.arrays import Array
from onmf.data import Rows
from onmf.data.audio import require_rate
from onmf.insight.features import Model, names_of
from onmf.model.units import DomainWarning
from onmf.model.validation import DataError

NOTHING = 1e-280  # a smaller fit, whose loudest component has a coefficient of one, has no shares
MOST_CHANNELS = 64  # an array with more of them than samples has its samples in columns

Groups = Sequence[Sequence[int]]


def separate(
    model: Model,
    sound: npt.ArrayLike,
    rate: float,
    *,
    groups: Groups | str | None = None,
    window: int | None = None,
    hop: int | None = None,
) -> Array:
    """Return the parts of a sound, one per component: (parts, samples) or (parts, samples, channels).

    Their sum is the sound, to rounding.

    Parameters
    ----------
    model : OnlineNMF or BatchNMF
        A model of power spectra.
    sound : array (samples,) or (samples, channels)
        The recording.
    rate : float
        Samples per second, as many as the recordings that the model was learnt from.
    groups : list of lists of int, "fixed" or None
        Components that belong to one part, as in ``[[0, 2], [1]]``; those in no list make one more. "fixed": the
        fixed components, and the others. None: a part for each.
    window : int or None
        For a model of arrays of power spectra: the length of their Hann window, in samples.
    hop : int or None
        For such a model: the samples from one frame to the next; None: half of the window.

    Returns
    -------
    array (parts, samples) or (parts, samples, channels)
        The parts, which sum to the sound.

    Examples
    --------
    >>> t = np.arange(8000) / 8000
    >>> low = np.sin(2 * np.pi * 300 * t)
    >>> high = np.sin(2 * np.pi * 2000 * t) * (t > 0.5)
    >>> frames = np.lib.stride_tricks.sliding_window_view(low + high, 256)
    >>> power = np.abs(np.fft.rfft(frames[::128] * np.hanning(257)[:-1])) ** 2
    >>> notes = OnlineNMF(2, max_passes=20, random_state=0).fit(power)
    >>> parts = onmf.separate(notes, low + high, 8000, window=256)
    >>> parts.shape, bool(np.allclose(parts.sum(axis=0), low + high))
    ((2, 8000), True)
    """
    X = np.asarray(sound)
    if X.ndim not in (1, 2) or X.dtype.kind not in "buif":
        raise ValueError(f"sound must be numbers (samples,) or (samples, channels), got {X.shape} of type {X.dtype}.")
    if X.ndim == 2 and X.shape[1] > max(len(X), MOST_CHANNELS):
        raise ValueError(f"sound must have one row per sample, got the shape {X.shape}; pass sound.T.")
    if not X.size:
        raise ValueError("sound has no samples; there is nothing to separate.")
    if not np.isfinite(X).all():
        raise DataError("sound has entries that are NaN or infinite; remove them first.")
    separation = Separation(model, rate, groups, window, hop)
    parts: Array = np.empty((len(separation.groups), len(X), 1 if X.ndim == 1 else X.shape[1]))
    done = 0
    for block in separation.parts([X.reshape(len(X), -1).astype(np.float64)]):
        stop = min(done + block.shape[1], len(X))  # the last hop may reach beyond the end
        parts[:, done:stop] = block[:, : stop - done]
        done = stop
    return parts[:, :, 0] if X.ndim == 1 else parts


class Separation:
    """Splits sounds of the model's sample rate into parts."""

    def __init__(
        self,
        model: Any,
        rate: float,
        groups: Groups | str | None = None,
        window: int | None = None,
        hop: int | None = None,
    ) -> None:
        self.model = model
        self.W = np.asarray(model.components_, dtype=np.float64)
        self.frames = Frames(*_window_and_hop(model, window, hop))
        _require_rate(model, rate, self.frames.window)
        self.groups = grouped(groups, len(self.W), n_fixed(model))

    def parts(self, blocks: Iterable[Array]) -> Iterator[Array]:
        """Separate a sound in blocks (samples, channels) into blocks (parts, samples, channels).

        The last block reaches beyond the end of the sound, to the end of the hop. Memory does not grow with the sound.
        """
        sums = [Overlapping(self.frames) for _ in self.groups]
        for spectra in self.frames.spectra(blocks, len(self.groups)):
            masks = self._masks(spectra)
            yield np.stack([part.add(spectra * mask[:, None]) for part, mask in zip(sums, masks, strict=True)])

    def _masks(self, spectra: Complex) -> Iterator[Array]:
        """Yield the share of each part in each frequency of each frame, in all channels alike; shares sum to one.

        Where the model fits nothing, as in silence, all components have the same share.
        """
        power = np.square(np.abs(spectra)).mean(axis=1)  # of all channels, which may cancel in their mean
        H = np.ones((len(power), len(self.W)))
        heard = power.any(axis=1)
        if heard.any():
            H[heard] = self._coefficients(power[heard])
            H /= np.where(H.max(axis=1, keepdims=True) > 0, H.max(axis=1, keepdims=True), 1)
        fit = H @ self.W
        for group in self.groups:
            share = np.full_like(fit, len(group) / len(self.W))
            yield np.divide(H[:, group] @ self.W[group], fit, out=share, where=fit > NOTHING)

    def _coefficients(self, power: Array) -> Array:
        """Return the coefficients of frames; ones for a frame that the model skips."""
        source = Rows(power)
        source.feature_names = names_of(self.model)
        with warnings.catch_warnings():
            # Powers of silence, at the ends and where a codec has left them out are raised; nobody hears their shares.
            warnings.simplefilter("ignore", DomainWarning)
            H: Array = np.concatenate(list(self.model.transform(source)))
        return np.where(np.isnan(H), 1.0, H)


def grouped(groups: Groups | str | None, number: int, fixed: int = 0) -> list[list[int]]:
    """Return the components of each part; components in no group make one more part."""
    if groups is None:
        return [[k] for k in range(number)]
    if isinstance(groups, str):
        if groups != "fixed":
            raise ValueError(f"groups must be lists of components, as in [[0, 2], [1]], or 'fixed', got {groups!r}.")
        if not fixed:
            raise ValueError("this model has no fixed components to set against the others; give groups=[[0, 2], [1]].")
        groups = [range(fixed)]
    found = []
    for group in groups:
        if not np.iterable(group) or not len(group) or not all(k in range(number) for k in group):
            raise ValueError(f"the group {group!r} is not a list of components, counted from 0 to {number - 1}.")
        found.append([int(k) for k in group])
    named = [k for group in found for k in group]
    if twice := sorted(k for k in set(named) if named.count(k) > 1):
        raise ValueError(f"component {twice[0]} is named twice in the groups; each has one part.")
    rest = [k for k in range(number) if k not in named]
    return [*found, rest] if rest else found


def n_fixed(model: Any) -> int:
    """Return how many components, the first ones, were given to the model by ``fixed=``."""
    fixed = getattr(model, "fixed", None)
    return 0 if fixed is None else len(fixed)


def _window_and_hop(model: Any, window: int | None, hop: int | None) -> tuple[int, int]:
    """Return the window and hop of the model, or the given ones."""
    source, features = getattr(model, "source_", None), model.n_features_in_
    if source is not None and source.scheme == "audio":
        learnt = source.options["window"], source.options["hop"]
        for name, given, kept in zip(("window", "hop"), (window, hop), learnt, strict=True):
            if given not in (None, kept):
                raise ValueError(f"{name}={given} contradicts the model, which was learnt with {name}={kept}.")
        return learnt
    if window is None:
        raise ValueError(
            "the model was not learnt from recordings, so that it has no window; if its features are powers "
            f"under a Hann window, say how long that was: window={2 * features - 2} or {2 * features - 1}."
        )
    if window != int(window) or window < 2 or window // 2 + 1 != features:
        raise ValueError(f"a window of {window} samples has {int(window) // 2 + 1} frequencies, the model {features}.")
    hop = window // 2 if hop is None else hop
    if hop != int(hop) or not 1 <= hop <= window:
        raise ValueError(f"the hop must be a whole number from 1 to the window, {window}, got {hop}.")
    return int(window), int(hop)


def _require_rate(model: Any, rate: float, window: int) -> None:
    """Raise an error for a sound whose frequencies are not the model's features."""
    if not (isinstance(rate, (int, float, np.number)) and math.isfinite(rate) and rate > 0):
        raise ValueError(f"rate must be the number of samples per second, got {rate!r}.")
    names = names_of(model)
    if names is not None:
        require_rate(names, float(rate), window, "the sound", "resample the sound")


BLOCK = 2**21  # numbers in a block of frames, or in the sound of all its parts: 16 MiB
Complex = npt.NDArray[np.complex128]


class Frames:
    """Frames under a Hann window, as the source of sound makes them, and the sound of their spectra.

    Frames begin at the multiples of ``hop``; so that the first and the last sample lie in as many of them as all others
    do, some begin before the sound and some end after it, where there is silence. Spectra become sound by weighted
    overlap-add: each is windowed once more, their sum is divided by that of the squared windows. Frames must overlap by
    half at least, since a sample at the edge of a single frame is multiplied by next to nothing and cannot be found
    again; a longer hop is halved until they do.
    """

    def __init__(self, window: int, hop: int) -> None:
        from scipy.signal import get_window  # takes a while to import

        while 2 * hop > window:
            hop //= 2
        self.window, self.hop = window, hop
        self.before = -(-window // hop) - 1  # frames that a sample lies in, besides the one that begins last
        self.shape: Array = get_window("hann", window)
        padded = np.zeros((self.before + 1) * hop)
        padded[:window] = np.square(self.shape)
        self.weight: Array = padded.reshape(-1, hop).sum(axis=0)  # of the samples between two beginnings

    def spectra(self, blocks: Iterable[Array], parts: int = 1) -> Iterator[Complex]:
        """Yield spectra (frames, channels, frequencies) of a sound that comes in blocks (samples, channels).

        They come a few at a time, so that their sound, in this many ``parts``, needs little memory.
        """
        waiting: Array | None = None
        most = 1
        for block in blocks:
            if waiting is None:
                waiting = np.zeros((self.before * self.hop, block.shape[1]))
                most = max(1, BLOCK // (max(self.window, parts * self.hop) * block.shape[1]))
            waiting = np.concatenate([waiting, block])
            while len(waiting) >= (most - 1) * self.hop + self.window:
                yield self._transformed(waiting, most)
                waiting = waiting[most * self.hop :]
        while waiting is not None and len(waiting):
            frames = min(most, -(-len(waiting) // self.hop))
            silence = max(0, (frames - 1) * self.hop + self.window - len(waiting))
            yield self._transformed(np.pad(waiting, ((0, silence), (0, 0))), frames)
            waiting = waiting[frames * self.hop :]

    def _transformed(self, sound: Array, frames: int) -> Complex:
        cut = np.lib.stride_tricks.sliding_window_view(sound, self.window, axis=0)[: frames * self.hop : self.hop]
        found: Complex = scipy.fft.rfft(cut * self.shape, axis=2)
        return found


class Overlapping:
    """Overlap-add of spectra that come block by block: samples wait until no later frame reaches them."""

    def __init__(self, frames: Frames) -> None:
        self.frames, self.silent = frames, frames.before  # hops that come before the sound
        self.tail: Array | None = None

    def add(self, spectra: Complex) -> Array:
        """Return the sound (samples, channels) that no later frame reaches; at the end as much as to complete a hop."""
        window, hop, before = self.frames.window, self.frames.hop, self.frames.before
        count, channels, _ = spectra.shape
        cut = np.zeros((count, (before + 1) * hop, channels))
        cut[:, :window] = (scipy.fft.irfft(spectra, window, axis=2) * self.frames.shape).transpose(0, 2, 1)
        pieces = cut.reshape(count, before + 1, hop, channels)
        sound = np.zeros((count + before, hop, channels))
        if self.tail is not None:
            sound[:before] = self.tail
        for place in range(before + 1):
            sound[place : place + count] += pieces[:, place]
        self.tail = sound[count:].copy()
        skipped = min(self.silent, count)
        self.silent -= skipped
        whole: Array = sound[skipped:count] / self.frames.weight[:, None]
        return whole.reshape(-1, channels)
