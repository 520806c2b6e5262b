"""What the paper's theorem promises for a model, and which of its assumptions the run does not meet."""

from __future__ import annotations

from onmf.learner.learned import Learned
from onmf.learner.step import Recipe
from onmf.sets import DictionaryBox


def guarantee(recipe: Recipe, learned: Learned) -> str:
    """One sentence; ``recipe`` holds the settings as they are now."""
    method, divergence, state = learned.method, learned.divergence, learned.state
    doubts = method.doubts(divergence, state)
    if doubts is None:
        return f"None: the paper's theorem is about method 'paper', and this model was learnt by {method.name!r}."
    if not divergence.convex:
        return (
            "None: the paper's theorem is about divergences that are convex in the fit (class D2); "
            f"{divergence.name!r} is not."
        )
    if not divergence.smooth:
        return (
            f"None proved: the paper's proof for {divergence.name} takes d(x || hW) to be convex in W and h together, "
            "which it is not."
        )
    box = isinstance(method.feasible(learned.inside, state), DictionaryBox)
    promise = (
        "The paper's theorem promises that, as the number of samples grows, W converges almost surely to the critical "
        f"points of the expected loss over {'the box low <= W <= 1 within C' if box else 'the set C'}"
    )
    doubts = [*doubts, *_of_the_run(recipe, learned)]
    if not doubts:
        return f"{promise}, provided that the samples are independent draws from one distribution with compact support."
    return f"{promise}, but this run does not meet what it assumes: {'; '.join(doubts)}."


def _of_the_run(recipe: Recipe, learned: Learned) -> list[str]:
    doubts = []
    if learned.ridge == 0:
        doubts.append("a loss that is strongly convex in h (ridge=0)")
    if learned.passes > 1:
        doubts.append(f"independent samples (there were {learned.passes} passes over the same)")
    if recipe.reservoir:
        doubts.append("independent samples (a reservoir shows some of them again)")
    x, y = learned.divergence.domain.x, learned.divergence.domain.y  # zeros outside the domain were raised
    if learned.zeros and x.closed and not y.closed and (recipe.clip is None or recipe.clip[0] == 0):
        doubts.append("data in a compact set of positive numbers (there were zeros)")
    return doubts
