"""What can go wrong with the store of conversations."""
# Errors are named after what happened, not after the Python class they derive from.
# ruff: noqa: N818


class StoreUnavailable(Exception):
    """The database cannot be used now; the message says why, and holds no secret."""


class StoreTooNew(Exception):
    """A newer release has upgraded the database; the message says what to do."""


class NotTheirs(Exception):
    """The conversation or message belongs to somebody else, or is not there."""
