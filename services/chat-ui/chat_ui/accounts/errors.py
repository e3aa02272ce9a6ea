"""What is wrong with the way people log in."""


class LoginError(ValueError):
    """The service must not start so; the message names the variable and the cure."""
