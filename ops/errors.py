"""What goes wrong for an operator, in one line each, with the cure in it."""


class StackError(Exception):
    """The stack cannot be started or reached: the message says what happened and what to do."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
