"""`fedcm federation server`."""

import typer

from fedcm.cli.federation.options import KitPath


def server(kit: KitPath) -> None:
    """Run a federation's server from its kit in the foreground, until Ctrl-C or SIGTERM.

    A second signal stops it at once. If it dies, it is restarted. Its whole log is in DIR/log.txt.

    Example: `fedcm federation server hospitals/server`
    """
    from fedcm.cli.terminal.federation import print_service_line
    from fedcm.federation.serve.supervisor import serve

    raise typer.Exit(serve(kit, "server", print_service_line))
