"""The fault lab: an engine that fails on demand, and a scorecard of what clients of the gateway see then."""
