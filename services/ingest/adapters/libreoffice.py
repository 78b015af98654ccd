"""Old Office files to their successors, by LibreOffice in a process of its own, where it is installed."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import olefile

from kbmesh.errors import UnsupportedType
from services.ingest.adapters.limits import limited, was_ended
from services.ingest.domain.extraction import ExtractionFailed

_TIMEOUT_S = 90
_CPU_SECONDS = 90
_STREAMS = {
    "WordDocument": ("docx", "libreoffice-writer-nogui"),
    "PowerPoint Document": ("pptx", "libreoffice-impress-nogui"),
    "Workbook": ("xlsx", "libreoffice-calc-nogui"),
    "Book": ("xlsx", "libreoffice-calc-nogui"),
}
_PASSWORD_STREAMS = ("EncryptedPackage", "EncryptedSummary")
# No macro runs, and nothing that a document points to is fetched.
_PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Common/Security/Scripting">
<prop oor:name="BlockUntrustedRefererLinks" oor:op="fuse"><value>true</value></prop>
<prop oor:name="DisableMacrosExecution" oor:op="fuse"><value>true</value></prop>
</item>
<item oor:path="/org.openoffice.Inet/Settings">
<prop oor:name="ooInetProxyType" oor:op="fuse"><value>2</value></prop>
<prop oor:name="ooInetHTTPProxyName" oor:op="fuse"><value>127.0.0.1</value></prop>
<prop oor:name="ooInetHTTPProxyPort" oor:op="fuse"><value>9</value></prop>
<prop oor:name="ooInetHTTPSProxyName" oor:op="fuse"><value>127.0.0.1</value></prop>
<prop oor:name="ooInetHTTPSProxyPort" oor:op="fuse"><value>9</value></prop>
</item>
</oor:items>
"""


@contextmanager
def converted(path: Path) -> Iterator[Path]:
    """The file as .docx, .pptx or .xlsx for as long as the context lasts.

    Raises ExtractionFailed (converter_missing, corrupt_file, password_required, extraction_timeout),
    UnsupportedType, and what olefile raises for damage.
    """
    target, package = _target_of(path)
    soffice = shutil.which("soffice")
    if soffice is None or shutil.which("timeout") is None:
        detail = f"old Office files need LibreOffice (Debian: {package}) and timeout (coreutils): install them"
        raise ExtractionFailed(detail, code="converter_missing")
    # Beside the file, so that whoever removes that one removes this too, should this process be killed.
    with TemporaryDirectory(dir=path.parent, prefix="office-") as folder:
        profile = Path(folder, "profile", "user")
        profile.mkdir(parents=True)
        (profile / "registrymodifications.xcu").write_text(_PROFILE)
        options = ["--headless", "--norestore", f"-env:UserInstallation=file://{folder}/profile"]
        _run([soffice, *options, "--convert-to", target, "--outdir", f"{folder}/out", str(path)])
        results = list(Path(folder).glob("out/*"))
        # LibreOffice ends with success when it could not read the file.
        if not results:
            raise ExtractionFailed(f"LibreOffice cannot read it: it is damaged, or {package} is not installed")
        yield results[0]


def _target_of(path: Path) -> tuple[str, str]:
    with olefile.OleFileIO(path) as file:
        if any(file.exists(stream) for stream in _PASSWORD_STREAMS):
            raise ExtractionFailed("the file needs a password", code="password_required")
        for stream, (target, package) in _STREAMS.items():
            if file.exists(stream):
                return target, package
    raise UnsupportedType("neither an old Word nor PowerPoint nor Excel file")


def _run(command: list[str]) -> None:
    process = subprocess.Popen(  # noqa: S603 - no word of it comes from outside
        limited(command, cpu_s=_CPU_SECONDS, timeout_s=_TIMEOUT_S),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        code = process.wait(_TIMEOUT_S + 5)
    except subprocess.TimeoutExpired:
        code = -signal.SIGKILL
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if was_ended(code):
        raise ExtractionFailed(f"LibreOffice gave up after {_TIMEOUT_S} s", code="extraction_timeout")
