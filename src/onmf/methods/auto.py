"""The default: the fast method that suits the divergence and the density of the first batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onmf.divergences import Divergence
from onmf.methods.base import Choice, Method
from onmf.methods.em import EM
from onmf.methods.sparse_surrogate import SparseSurrogate
from onmf.methods.surrogate import Surrogate
from onmf.samples import FEW_ENTRIES, Samples

FEW_ON_DEVICE = 0.08  # the same where PyTorch computes: beyond, chunks made dense are learnt from sooner
VERY_FEW_ENTRIES = 0.03  # of a batch: features then have too few for a curvature of their own


@dataclass(frozen=True, repr=False)
class Auto(Choice, name="auto"):
    """The rule that picks the surrogate, its sparse form or em by the divergence and the first batch.

    The sparse form and em are for Kullback-Leibler and alpha > 0 where less than 15 % of the batch's entries are not
    zero: em below 3 %, or where the other's K x K matrices for all features would take more than a gigabyte. Where
    entries are missing, the surrogate is always picked, as it comes nearer to them; on a device, em below 8 %.

    Parameters
    ----------
    tau : int or None
        Samples of an update; None: what suits the method.
    forgetting : float
        A floor under the weight of 1,000 samples in the averages.
    max_iter : int or None
        Coefficient steps at most; None: what suits the method.
    certified : int or None
        The samples after which the method has a theorem; it leaves the sparse form out.

    Examples
    --------
    >>> type(OnlineNMF(3, method="auto").fit(X).method_).__name__
    'Surrogate'
    """

    on_device: ClassVar[bool] = True

    tau: int | None = None  # None: chunks that grow, as suits the method
    forgetting: float = 0.0
    max_iter: int | None = None
    certified: int | None = None

    def __post_init__(self) -> None:
        self._made(Surrogate)  # which checks the constants, as the others do

    def chosen(self, divergence: Divergence, K: int, batch: Samples, on_device: bool = False) -> Method:
        few = FEW_ON_DEVICE if on_device else FEW_ENTRIES
        if divergence.alpha_order is None or not batch.mostly_zeros(few):
            return self._made(Surrogate).chosen(divergence, K, batch)
        if on_device or self.certified is not None:  # where there is no sparse surrogate
            return self._made(EM)
        curved = batch.density >= VERY_FEW_ENTRIES and Surrogate.max_memory >= 8 * batch.shape[1] * K * (K + 1)
        return self._made(SparseSurrogate if curved else EM)

    def for_shares(self) -> Choice:
        """Return the surrogate: the others make multiplicative steps, which do not keep a sum."""
        return self._made(Surrogate)

    def continued(self, before: Method) -> Method:
        kinds = SparseSurrogate, EM, Surrogate
        return self._made(next((kind for kind in kinds if type(before) is kind), Surrogate)).continued(before)

    def _made(self, kind: type[Surrogate] | type[EM] | type[SparseSurrogate]) -> Method:
        made: Method = kind(tau=self.tau, forgetting=self.forgetting, max_iter=self.max_iter)
        return made if self.certified is None else made.with_constants(certified=self.certified)
