"""``report``: a page about a fitted model."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from onmf._support import threads
from onmf.data import Batches, Rows, Source, Spec
from onmf.data.columns import Features
from onmf.data.in_memory import is_stream
from onmf.data.inputs import likeness, require_same_features
from onmf.estimators.serving import Serving
from onmf.estimators.user_warnings import UnsolvedWarning
from onmf.insight.report.subject import Solved, Subject
from onmf.learner import Learned
from onmf.model.units import refuse_infinite

UNTOLD = ("n_components", "divergence", "method", "callbacks", "verbose", "n_jobs")  # shown elsewhere, or no settings


class Reported(Serving):
    """The base of the estimators, with a page about what they have learnt."""

    def report(self, X: Any = None, path: str | Path = "report.html", *, title: str | None = None) -> Path:
        """Write a page about the model: components, convergence and warnings; with X, how it fits them.

        The page is one HTML file that needs no network. X is whatever ``transform`` takes: an array, sparse matrix,
        data frame, AnnData object, ``Source`` or iterator of batches; it is read once, in memory that does not grow.
        Rows of X that cannot be used are counted on the page. Needs ``onmf[report]``.
        """
        self._reported(X, path, title or f"{type(self).__name__} with {self.n_components_} components")
        return Path(path)

    def _reported(
        self,
        X: Any,
        path: str | Path,
        title: str,
        name: str = "X",
        show: Callable[[int, int | None], None] | None = None,
    ) -> Any:
        """The same, and what the page says; X is called ``name``."""
        from onmf.insight.report import page  # with a templating library, which nothing else needs

        page.require_libraries()
        data = None if X is None else (self._as_source(X, name), name)
        return page.write(self._subject(), path, title, data, show)

    def _as_source(self, X: Any, name: str) -> Source:
        if isinstance(X, Source) or is_stream(X):
            source = X if isinstance(X, Source) else Batches(X)
            found, cure = Features.of(source.n_features, source.feature_names), likeness(source, self._spec)
            require_same_features(found, self._fitted.features, name, cure=cure)
            return source
        return Rows(self._validated(X, reset=False)[0])

    @property
    def _spec(self) -> Spec:
        learned = self._fitted
        return getattr(learned, "source", None) or Spec(names=learned.features.names)

    def _subject(self) -> Subject:
        learned = self._fitted
        online: dict[str, Any] = {"converged": getattr(self, "converged_", None)}
        if isinstance(learned, Learned):
            coverage = learned.coverage
            online = {
                "guarantee": getattr(self, "guarantee_", None),
                "too_long_steps": learned.advice(),
                "skipped": learned.skipped.count,
                "reasons": learned.skipped.reasons,
                "changes": learned.drift.changes,
                "unknown": () if coverage is None else tuple(np.flatnonzero(~coverage.features).tolist()),
                "blank": 0 if coverage is None else coverage.blank,
            }
        return Subject(
            estimator=type(self).__name__,
            settings=self._changed(),
            W=self.components_,
            fixed=learned.state.C.fixed,
            names=learned.features.names,
            source=self._spec,
            divergence=self.divergence_,
            method=self.method_.text() if hasattr(self, "method_") else "multiplicative updates",
            history=self.history_,
            passes=self.n_iter_,
            solve=self._solved_for_report,
            missing=self.missing,
            implicit=self.implicit,
            units=learned.units,
            usage=getattr(self, "usage_", None),
            **online,
        )

    def _changed(self) -> dict[str, str]:
        """The settings that differ from their defaults, as text."""
        usual = {name: each.default for name, each in inspect.signature(type(self).__init__).parameters.items()}
        given = {name: value for name, value in self.get_params(deep=False).items() if name not in UNTOLD}
        return {
            name: f"matrix {np.shape(value)}" if np.ndim(value) > 1 else str(value)
            for name, value in given.items()
            if np.ndim(value) > 1 or value != usual.get(name)
        }

    def _solved_for_report(self, X: Any) -> Solved:
        """Coefficients, losses and sizes of samples that are sound."""
        fitted = self._fitted
        H, losses, sizes = np.empty((X.shape[0], self.n_components_)), np.empty(X.shape[0]), np.empty(X.shape[0])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for rows, found, problem in self._solved(X):
                with threads.taken_from_blas():
                    losses[rows] = problem.loss(found, problem.fit(found))
                H[rows], sizes[rows] = found, problem.scale
        unit = self.divergence_.loss_unit(self.scale_)
        refuse_infinite(losses * unit, X, fitted.units.mean)
        unsolved = sum(each.message.unsolved for each in said if isinstance(each.message, UnsolvedWarning))
        return Solved(H * fitted.coefficient_unit, losses * unit, sizes * unit, unsolved)
