"""The scikit-learn skin: ``OnlineNMF`` and ``BatchNMF``."""
