"""What to choose before learning: how many atoms the data support."""
