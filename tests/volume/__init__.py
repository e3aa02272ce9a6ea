"""The gateway under many streams, many cancels and large refusals: a small size as tests, the full one as programs."""
