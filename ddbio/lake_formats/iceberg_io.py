"""Give pyiceberg the files of a table through our store: its own clients lack options of S3 requests."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Self

from ddbio.errors import NotFoundError, OptionError, TargetError
from ddbio.lake_formats.iceberg_files import table_place
from ddbio.storage.object_store import RangeFile

if TYPE_CHECKING:
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

try:
    from pyiceberg.io import FileIO, InputFile, OutputFile
except ModuleNotFoundError as error:
    raise OptionError("Iceberg needs the library pyiceberg: pip install 'ddbio[iceberg]'") from error

STORE = "ddbio.store"
"""The property that has the store."""

IMPLEMENTATION = f"{__name__}.StoreFileIO"
"""The name by which pyiceberg finds this module's class."""


class StoreFileIO(FileIO):
    """Read and write files of one table.

    Parameters
    ----------
    properties
        The store under the name :data:`STORE`.

    Raises
    ------
    TargetError
        For a location that is not in the table's folder.
    """

    def __init__(self, properties: Any) -> None:
        super().__init__(properties)
        self._store: ObjectStore = properties[STORE]
        self._place = f"{table_place(self._store.uri)}/"

    def new_input(self, location: str) -> InputFile:
        """Return a file that can be read."""
        return _StoredFile(location, self._store, self._path(location))

    def new_output(self, location: str) -> OutputFile:
        """Return a file that can be written."""
        return _NewFile(location, self._store, self._path(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; one that is not there is passed over."""
        self._store.delete([self._path(location if isinstance(location, str) else location.location)])

    def _path(self, location: str) -> str:
        place = table_place(location)
        if not place.startswith(self._place):
            raise TargetError(
                f"the Iceberg table {self._store.uri} cannot be read: it has files elsewhere, such as {location}: "
                "read it where it was made",
                self._store.uri,
            )
        return place.removeprefix(self._place)


class _StoredFile(InputFile):
    def __init__(self, location: str, store: ObjectStore, path: str) -> None:
        super().__init__(location)
        self._store, self._path = store, path
        self._found: StoredObject | None = None

    def __len__(self) -> int:
        return self._entry().size_bytes

    def exists(self) -> bool:
        """Return whether the file is there."""
        try:
            self._entry()
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002 - pyiceberg's
        """Return the file; footers are read alone if it has to be seekable."""
        if seekable:
            return RangeFile(self._store, self._entry())
        try:
            return io.BytesIO(self._store.read(self._path))
        except NotFoundError as error:
            raise FileNotFoundError(str(error)) from error

    def _entry(self) -> StoredObject:
        if self._found is None:
            self._found = next((each for each in self._store.list(self._path) if each.path == self._path), None)
        if self._found is None:
            raise FileNotFoundError(self.location)
        return self._found


class _NewFile(OutputFile):
    def __init__(self, location: str, store: ObjectStore, path: str) -> None:
        super().__init__(location)
        self._store, self._path = store, path

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        """Return the file for reading."""
        return _StoredFile(self.location, self._store, self._path)

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyiceberg's
        """Return a stream whose bytes are the file when it is closed."""
        return _Bytes(self._store, self._path, overwrite)


class _Bytes:
    """Collect the bytes of a file of metadata, and store them whole; after an error nothing is stored."""

    def __init__(self, store: ObjectStore, path: str, overwrite: bool) -> None:  # noqa: FBT001 - as above
        self._store, self._path, self._overwrite = store, path, overwrite
        self._bytes = io.BytesIO()
        self.write, self.tell = self._bytes.write, self._bytes.tell

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def close(self) -> None:
        """Store what was written."""
        data = self._bytes.getvalue()
        if self._overwrite:
            self._store.put(self._path, data)
        elif not self._store.put_if_absent(self._path, data):
            raise FileExistsError(self._path)
