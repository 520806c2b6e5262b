"""What a model is made of: the sets C and H, units, and fixed components."""
