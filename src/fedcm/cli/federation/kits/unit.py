"""`fedcm federation unit`."""

from typing import Annotated

import typer

from fedcm.cli.federation.options import KitPath


def unit(
    kit: KitPath,
    user: Annotated[str | None, typer.Option(help="The user who runs it; by default the kit's owner.")] = None,
) -> None:
    """Print a systemd unit that starts a server or site when the machine boots, and confines it to its kit.

    Example: `fedcm federation unit hospitals/server | sudo tee /etc/systemd/system/fedcm-server.service`
    """
    from fedcm.federation.serve.unit import make_unit

    print(make_unit(kit, user), end="")
