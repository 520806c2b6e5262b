"""What the paper's theorem promises for a model, and which of its assumptions the run does not meet."""

from __future__ import annotations

from onmf.learner.learned import Learned
from onmf.model.sets import DictionaryBox


def guarantee(learned: Learned) -> str:
    """One sentence: covered, or not yet and what to change, or not at all and why."""
    method, divergence, state = learned.method, learned.divergence, learned.state
    doubts = method.doubts(divergence, state)
    if doubts is None:
        return f"None: the paper's theorem is about method 'paper', and this model was learnt by {method.name!r}."
    if not divergence.convex:
        parameters = ",".join(f"{value:g}" for value in divergence.parameters().values() if isinstance(value, float))
        name = f"{divergence.name}:{parameters}" if parameters else divergence.name
        return f"None: the paper's theorem is about divergences that are convex in the fit (class D2); {name!r} is not."
    if not divergence.smooth:
        return (
            f"None proved: the paper's proof for {divergence.name} takes d(x || hW) to be convex in W and h together, "
            "which it is not."
        )
    doubts = [*doubts, *_of_the_run(learned)]
    if doubts:
        return f"Not covered by the paper's theorem yet: {'; '.join(doubts)}."
    box = isinstance(method.feasible(learned.inside, state), DictionaryBox)
    priced = " with its penalties" if state.penalties.on_dictionary else ""
    return (
        "Covered by the paper's theorem: as the number of samples grows, W converges almost surely to the critical "
        f"points of the expected loss{priced} on {'the box low <= W <= 1 within C' if box else 'the set C'}, provided "
        "that the samples are independent draws from one distribution with compact support."
    )


def _of_the_run(learned: Learned) -> list[str]:
    doubts, clip = [], learned.units.clip
    if learned.shares:
        doubts.append("the dictionary must lie in a bounded set, and with coefficients='simplex' it has no upper bound")
    if not learned.state.penalties.l2_coefficients:
        doubts.append("the loss must be strongly convex in h, and l2_coefficients was 0 (l2_coefficients=1e-3)")
    if learned.passes > 1:
        doubts.append(f"samples must be independent, and there were {learned.passes} passes over the same")
    if "kept" in learned.state.memory:
        doubts.append("samples must be independent, and a reservoir shows some of them again")
    x, y = learned.divergence.domain.x, learned.divergence.domain.y  # zeros outside the domain were raised
    if learned.zeros and x.closed and not y.closed and (clip is None or clip[0] == 0):
        doubts.append("data must be positive, and there were zeros (clip=(low, high))")
    return doubts
