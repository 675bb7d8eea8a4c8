"""Records what clients send, with what the conformance suite has for it."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client_harness.clients import Client


@contextmanager
def recorded(client: Client, base_url: str, folder: Path | None) -> Iterator[str]:
    """Write the requests of a client to its folder below `folder`, in the place of what is there;
    yields the base URL to use. Without a folder nothing happens."""
    if folder is None:
        yield base_url
        return
    # Only this needs the suite.
    from responses_conformance.recorded.capture import Capture

    own = folder / client.id
    shutil.rmtree(own, ignore_errors=True)
    capture = Capture(base_url, own, client=client.id, version=client.version)
    thread = threading.Thread(target=capture.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield capture.url
    finally:
        capture.shutdown()
        thread.join()
        capture.server_close()
