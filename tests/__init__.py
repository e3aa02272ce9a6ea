"""The proof: what the project promises, asserted on real parts."""
