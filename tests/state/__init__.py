"""Limits that several gateways share, on a real Valkey (or Redis, which speaks the same)."""
