"""When a request may go on to an engine: at once, or after those who came before it."""

from gateway.admission.waiting_room import Tell, WaitingRoom

__all__ = ["Tell", "WaitingRoom"]
