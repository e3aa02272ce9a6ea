"""Admission and truth in front of vLLM: an OpenAI-compatible gateway."""
