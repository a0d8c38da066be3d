"""The organiser's answer to a request: a certificate, the root's, and what was signed."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedcm.errors import UserError
from fedcm.federation.certificate import certificate_from
from fedcm.federation.provision.archive import member


@final
@dataclass(frozen=True)
class Signed:
    request: str  # which request it answers
    root: str  # the fingerprint of the root certificate that it comes with


def read_signed(path: Path) -> Signed:
    try:
        root = certificate_from(member_of(path, "rootCA.pem"))
        return Signed(str(json.loads(member_of(path, "signed.json"))["request_id"]), root.fingerprint)
    except FileNotFoundError:
        raise UserError(f"there is no signed answer {str(path)!r}") from None
    except (OSError, zipfile.BadZipFile, ValueError, LookupError, TypeError, RuntimeError) as error:
        raise UserError(
            f"{str(path)!r} must be an answer that `fedcm federation approve` made, and cannot be read as one ({error})"
        ) from None


def member_of(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return member(archive, name)
