"""Sound: recordings separated into the parts that a model has learnt."""

from onmf.audio.separating import separate

__all__ = ["separate"]
