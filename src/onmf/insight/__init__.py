"""What components and coefficients say: topics, separated sound, plots and reports. Nothing here knows an estimator."""
