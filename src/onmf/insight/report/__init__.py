"""One page about a model: the run, the components, the fit of data, and warnings."""
