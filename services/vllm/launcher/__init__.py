"""The engine service: turns settings, hardware and a checkpoint into one supervised vLLM server."""
