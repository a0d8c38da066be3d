"""The engine's storage in a folder of the kit, wherever the kit is moved to. Only the engine imports this."""

from pathlib import Path
from typing import final

from nvflare.app_common.storages.filesystem_storage import FilesystemStorage


@final
class KitStorage(FilesystemStorage):
    def __init__(self, folder: str) -> None:
        """The engine works in the kit when it makes its parts."""
        super().__init__(root_dir=str(Path(folder).resolve()), uri_root="/")
