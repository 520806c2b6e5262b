"""The default: the fast method that suits the divergence and the density of the first batch."""

from __future__ import annotations

from dataclasses import dataclass

from onmf._support.arrays import FEW_ENTRIES
from onmf.divergences import Divergence
from onmf.methods.base import Choice, Method
from onmf.methods.em import EM
from onmf.methods.surrogate import Surrogate


@dataclass(frozen=True, repr=False)
class Auto(Choice, name="auto"):
    """em where it applies and less than 15 % of the first batch's entries are not zero; else the surrogate.

    On counts drawn from planted topics em was ahead, in loss and in time, below a density of a tenth, and behind above
    a fifth. The constants are those that both methods have.
    """

    tau: int | None = None  # None: chunks that grow, as suits the method
    forgetting: float = 0.0
    max_iter: int | None = None

    def __post_init__(self) -> None:
        self._surrogate(), self._em()  # they check the constants

    def chosen(self, divergence: Divergence, density: float, n_samples: int | None) -> Method:
        sparse = divergence.alpha_order is not None and density < FEW_ENTRIES
        return (self._em() if sparse else self._surrogate()).chosen(divergence, density, n_samples)

    def continued(self, before: Method) -> Method:
        return (self._em() if isinstance(before, EM) else self._surrogate()).continued(before)

    def _surrogate(self) -> Surrogate:
        return Surrogate(tau=self.tau, forgetting=self.forgetting, max_iter=self.max_iter)

    def _em(self) -> EM:
        return EM(tau=self.tau, forgetting=self.forgetting, max_iter=self.max_iter)
