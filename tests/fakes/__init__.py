"""Peers that misbehave on command; for faults only, never as a stand-in for the real engine's behaviour."""
