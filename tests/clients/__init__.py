"""The gateway as real clients see it: OpenAI's SDKs for Python and Node, and LangChain."""
