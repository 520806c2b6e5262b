"""The parts of a model: sets C and H, penalties, units, state, settings, fixed components, checks of data."""
