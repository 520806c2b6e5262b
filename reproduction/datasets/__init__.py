"""Public data sets, read in their public formats from a folder that the user names."""
