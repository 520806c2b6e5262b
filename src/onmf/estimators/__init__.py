"""The estimators, by scikit-learn's conventions: ``OnlineNMF`` and ``BatchNMF``."""
