"""`fedcm federation audit`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli.options import AsJson


def audit(
    path: Annotated[
        Path, typer.Argument(metavar="KIT|AUDIT.jsonl|RUN", help="The server's kit, its audit log, or a fetched run.")
    ],
    kit: Annotated[
        Path | None,
        typer.Option(metavar="DIR", envvar="FEDCM_KIT", help="Any kit of the federation, for its root certificate."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify the server's audit log, or the server's signature of a fetched run, and print a summary.

    Exits with code 1 if a line was changed, left out or inserted, or if a line or a file is not signed by the server.

    Example: `fedcm federation audit hospitals/server`
    """
    from fedcm.cli.terminal.federation import print_audit
    from fedcm.errors import UserError
    from fedcm.federation.kit import read_kit
    from fedcm.federation.trust.audit import AUDIT_FILE
    from fedcm.federation.trust.audit_check import verify_audit
    from fedcm.federation.trust.manifest import MANIFEST_FILE, verify_manifest

    is_kit = (path / "startup").is_dir()
    if kit is None and not is_kit:
        raise UserError("give the root certificate with --kit DIR, any kit of the federation")
    root = read_kit(path if is_kit or kit is None else kit).root.read_bytes()
    if path.is_dir() and not is_kit:
        try:
            signed = verify_manifest(path, root)
        except UserError as error:
            print(error)
            raise typer.Exit(1) from None
        print(
            json.dumps(signed, indent=2) if as_json else f"{MANIFEST_FILE}: signed by the server on {signed['signed']}"
        )
        return
    report = verify_audit(path / AUDIT_FILE if is_kit else path, root)
    if as_json:
        print(json.dumps(report._asdict() | {"head": report.head._asdict()}, indent=2))
    else:
        print_audit(report)
    raise typer.Exit(1 if report.problem else 0)
