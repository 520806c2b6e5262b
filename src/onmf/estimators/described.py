"""What the atoms of a fitted model are, in the user's terms: their leading features, and how much each carries."""

from __future__ import annotations

from onmf._support.arrays import Array
from onmf._support.checks import require_whole
from onmf.estimators.fitted_attribute import Shown
from onmf.insight.topics import leading, ranked
from onmf.learner import Fitted


class Described:
    """The part of a model that tells of its atoms."""

    @property
    def _fitted(self) -> Fitted:
        raise NotImplementedError

    usage_ = Shown[Fitted, Array](lambda fitted: fitted.usage.shares)

    def top_features(self, n: int = 10, by: str = "weight") -> list[list[tuple[str, float]]]:
        """For every atom its n leading features, the largest first: their names and their values.

        ``by="weight"``: the feature's share of the atom. ``"lift"``: that share over the feature's share in all
        data, to which the mean feature's is added, so that rare ones do not win by chance. ``"specificity"``: how far
        that share is above the next best atom's, as a Kullback-Leibler divergence; for marker genes. The formulas are
        in ``onmf.insight.topics``. Features without names are "feature 0", "feature 1", ...
        """
        fitted = self._fitted
        require_whole(1, n=n)
        values = ranked(fitted.W, fitted.usage.shares, by)
        names = fitted.features.names
        return [
            [(f"feature {f}" if names is None else names[f], float(row[f])) for f in features]
            for row, features in zip(values, leading(values, n), strict=True)
        ]
