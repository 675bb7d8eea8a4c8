"""Opens the storage that the settings ask for."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from antiphon.errors import StartError
from antiphon.settings import Settings
from antiphon.store.blobs import open_blobs
from antiphon.store.build import SqlStore, open_store
from antiphon.store.keyring import MasterKeyFile, MasterKeys, count_wrapped
from antiphon.store.records import StoreLimits
from antiphon.store.sealing import AesSealer, PlainSealer

_MEMORY_RECORDS = 128
_MEMORY_BYTES = 64 * 2**20


def database_file(settings: Settings) -> Path:
    """The SQLite file."""
    return settings.data_dir / "antiphon.db"


def shown_storage(settings: Settings) -> str:
    """Where responses are stored, for people."""
    if settings.state == "postgres":
        return make_url(settings.database_url or "").render_as_string(hide_password=True)
    return str(database_file(settings)) if settings.state == "sqlite" else settings.state


def open_storage(settings: Settings, *, clock: Callable[[], float] = time.time) -> SqlStore | None:
    """The store, migrated to what this version needs; None with `state` off. Raises `StartError`.

    Close it in the end. `clock` gives seconds since 1970.
    """
    if settings.state == "off":
        return None
    in_memory = settings.state == "memory"
    keys = None
    if settings.encryption_keys_file is not None:
        keys = MasterKeyFile(settings.encryption_keys_file).read()
    blobs = settings.blob_url or ("memory:" if in_memory else str(settings.data_dir / "blobs"))
    store = open_store(
        _database_url(settings),
        limits=_limits(settings),
        sealer=PlainSealer() if keys is None else AesSealer(keys),
        blobs=open_blobs(blobs),
        clock=clock,
        history_cache_bytes=settings.history_cache_mib * 2**20,
        announce_webhooks=settings.webhook_url is not None,
    )
    try:
        _check_keys(store, keys)
    except BaseException:
        store.close()
        raise
    return store


def _check_keys(store: SqlStore, keys: MasterKeys | None) -> None:
    """Raise `StartError` if something is sealed with keys that are not there."""
    needed = asyncio.run(store.shared.db.read(count_wrapped)).keys()
    missing = needed - {key.id for key in keys.keys} if keys is not None else needed
    if missing:
        raise StartError(
            "what is stored is encrypted, and the key "
            f"{', '.join(sorted(missing))} is missing.\n"
            "  Name the file that holds it with the setting encryption_keys_file."
        )


def _database_url(settings: Settings) -> str:
    if settings.state == "postgres":
        assert settings.database_url is not None
        if not settings.database_url.startswith(("postgresql://", "postgres://")):
            raise StartError(
                "setting database_url: give it as postgresql://user:password@host/name"
            )
        return settings.database_url
    if settings.state == "memory":
        return "sqlite:///:memory:"
    return URL.create("sqlite", database=str(database_file(settings))).render_as_string()


def _limits(settings: Settings) -> StoreLimits:
    in_memory = settings.state == "memory"
    return StoreLimits(
        max_records=settings.max_records or (_MEMORY_RECORDS if in_memory else None),
        max_bytes=settings.max_stored_bytes or (_MEMORY_BYTES if in_memory else None),
        owner_records=settings.max_records_per_key,
        owner_bytes=settings.max_stored_bytes_per_key,
        entry_bytes=settings.max_entry_bytes,
        max_depth=settings.max_chain_depth,
        retention_seconds=settings.retention_seconds,
        event_log_seconds=settings.event_log_seconds,
        events_per_run=settings.max_events,
        event_bytes_per_run=settings.max_event_bytes,
        max_active_background=settings.max_background,
        max_active_background_per_owner=settings.max_background_per_key,
        lease_seconds=settings.lease_seconds,
    )
