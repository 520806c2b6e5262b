"""What every part of the library may use: array types, checks of settings, random numbers, threads, the version."""
