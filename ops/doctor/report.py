"""`make report`: everything that was seen, packed for somebody else to read."""

import io
import tarfile
import time
from pathlib import Path

from ops.doctor.examination import Examination
from ops.doctor.show import as_json
from ops.doctor.signature import LOGS

FOLDER = "reports"


def pack(examination: Examination, run_dir: Path) -> tuple[Path, dict[str, int]]:
    """Write the archive below the run directory and return it with its contents, by name and bytes.

    What it holds has passed the redactor. It is readable to this user alone.
    """
    files = {f"logs/{source}.log": "\n".join(examination.evidence.get(source, ())) for source in LOGS}
    others = [source for source in examination.evidence if source not in LOGS]
    files |= {f"{source}.txt": "\n".join(examination.evidence[source]) for source in others}
    files["findings.json"] = as_json(examination)
    name = f"ernie-report-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    path = run_dir / FOLDER / f"{name}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    sizes: dict[str, int] = {}
    with tarfile.open(path, "w:gz") as archive:
        for file, text in sorted(files.items()):
            data = (text + "\n").encode(errors="backslashreplace")
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))
            sizes[file] = len(data)
    return path, sizes
