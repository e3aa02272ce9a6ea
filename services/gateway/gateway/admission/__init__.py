"""When a request may go on to an engine, and to which: at once, or in its client's turn."""

from gateway.admission.admission import Admission, Tell
from gateway.admission.capacity import EngineFigures, NoLimit, NumberInAll

__all__ = ["Admission", "EngineFigures", "NoLimit", "NumberInAll", "Tell"]
