"""When a request may go on to an engine, and to which: at once, or in its client's turn."""

from gateway.admission.admission import Admission, Tell
from gateway.admission.capacity import EngineFigures, NoLimit, NumberInAll
from gateway.admission.crowd import Alone, Crowd

__all__ = ["Admission", "Alone", "Crowd", "EngineFigures", "NoLimit", "NumberInAll", "Tell"]
