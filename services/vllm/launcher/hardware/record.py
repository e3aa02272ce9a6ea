"""A machine as a JSON text, so that a plan can be made for one that is elsewhere."""

import json
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from launcher.errors import BadSetting
from launcher.hardware.machine import Hardware


def write(machine: Hardware) -> str:
    """The text for a machine; the same machine gives the same text."""
    return json.dumps(asdict(machine), indent=2, default=sorted) + "\n"


def read(path: Path) -> Hardware:
    """The machine that a file describes; keys that are not a machine's, such as a note, are passed over.

    Raises BadSetting if the file is none.
    """
    try:
        return TypeAdapter(Hardware).validate_json(path.read_bytes())
    except OSError as error:
        raise BadSetting("--hardware", f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadSetting("--hardware", f"{path} describes no machine: {where}: {first['msg']}") from error
