"""The chat page: Chainlit in front of the gateway."""
