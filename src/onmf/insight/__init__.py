"""The meaning of components and coefficients: topics, separated sound, plots and reports. It imports no estimator."""
