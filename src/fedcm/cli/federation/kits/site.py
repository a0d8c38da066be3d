"""`fedcm federation site`."""

import typer

from fedcm.cli.federation.options import KitPath


def site(kit: KitPath) -> None:
    """Run a site from its kit in the foreground, until Ctrl-C or SIGTERM: it waits for experiments and takes part.

    A second signal stops it at once. If it dies, it is restarted. Its whole log is in DIR/log.txt. Check the kit with
    `fedcm federation check DIR` before the first start.

    Example: `fedcm federation site hospitals/sites/berlin`
    """
    from fedcm.cli.terminal.federation import print_service_line
    from fedcm.federation.serve.supervisor import serve

    raise typer.Exit(serve(kit, "site", print_service_line))
