"""`make soak`: a bounded load for hours, and whether anything grows, slows or restarts under it."""
