"""Servers of tests, in threads."""

import threading
from contextlib import contextmanager


@contextmanager
def listening(server):
    """Has an HTTP server serve until the block ends; gives the base URL."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
