"""From hardware, checkpoint and settings to the numbers that engines start with."""
