"""What `antiphon serve` and `antiphon worker` show, and how they get from settings to work."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from antiphon import __version__, logs
from antiphon.errors import StartError
from antiphon.keys import KeyRing
from antiphon.models.base import Model
from antiphon.settings import Settings

if TYPE_CHECKING:  # Heavy, and not needed by most commands.
    from antiphon.store.build import SqlStore

# Every address of the machine, and the one to show for it.
_WIDE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
#: The exit status where a model did not let go of a response.
_NOT_LET_GO = 3


class ProgressDisplay:
    """Shows steps as they are done: a bar in a terminal, a line for each step elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._step = ""

    def __enter__(self) -> "ProgressDisplay":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def __call__(self, step: str, done: int, size: int) -> None:
        if step != self._step:
            self._step = step
            if not self._console.is_terminal:
                click.echo(f"{step} …", err=True)
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(step, total=size or None)
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=size or None)


def serve_with_console(settings: Settings, keys: KeyRing) -> None:
    """Load the models, say where they are served, and serve until told to stop.

    Raises `StartError`; what is quickly checked is checked before models are loaded.
    """
    from antiphon.app import build
    from antiphon.server import Server, bind, is_loopback
    from antiphon.storage import open_storage

    logs.configure(settings.log_level, settings.log_format)
    if keys.open and not is_loopback(settings.host) and not settings.insecure:
        raise StartError(
            f"{settings.host} can be reached from other machines, and there is no key.\n"
            "  Make one with: antiphon keys new\n"
            "  or serve everybody with: --insecure"
        )
    with bind(settings.host, settings.port) as sock:
        port = sock.getsockname()[1]
        store = open_storage(settings)
        with _closing_if_it_fails(store):
            models = _loaded(settings) if settings.engine else []
            server = Server(
                build(settings, models, keys, store),
                grace_seconds=settings.shutdown_grace_seconds,
                on_start=lambda: _announce(settings, models, keys, port),
            )
        status: str | int | None = 0
        try:
            server.run(sockets=[sock])
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        except SystemExit as end:  # What the signal comes to that told it to stop.
            status = end.code
        sys.exit(status if server.let_go else _NOT_LET_GO)


def work_with_console(settings: Settings) -> None:
    """Load the models, say what they are, and make what is stored with them until told to stop.

    Raises `StartError`; what is quickly checked is checked before models are loaded.
    """
    from antiphon.server import keep_loop_responsive
    from antiphon.storage import open_storage, shown_storage
    from antiphon.worker_process import WorkerProcess, check_worker_settings

    logs.configure(settings.log_level, settings.log_format)
    check_worker_settings(settings)
    store = open_storage(settings)
    assert store is not None

    def started() -> None:
        keep_loop_responsive()
        lines = [f"antiphon {__version__}, a worker"]
        lines += [f"  model     {_shown(model)}" for model in models]
        lines += [f"  storage   {shown_storage(settings)}"]
        lines += [f"  at once   {settings.background_workers} responses", ""]
        click.echo("\n".join(lines))

    with _closing_if_it_fails(store):
        models = _loaded(settings)
        process = WorkerProcess(settings, models, store, on_start=started)
    number = process.run()
    sys.exit(128 + number if process.let_go else _NOT_LET_GO)


def _loaded(settings: Settings) -> list[Model]:
    from antiphon.models.build import build_models

    with ProgressDisplay() as display:
        return build_models(settings, display)


@contextmanager
def _closing_if_it_fails(store: "SqlStore | None") -> Iterator[None]:
    """Closes a store if nobody came to take it over."""
    try:
        yield
    except BaseException:
        if store is not None:
            store.close()
        raise


def _shown(model: Model) -> str:
    context = f", {model.context_window} tokens of context" if model.context_window else ""
    return f"{model.name}{context}"


def _announce(settings: Settings, models: Sequence[Model], keys: KeyRing, port: int) -> None:
    host = _WIDE.get(settings.host, settings.host)
    base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    key_state = "none needed: whoever reaches this address may use it"
    authorization = ""
    if not keys.open:
        key_state = "needed, as made by `antiphon keys new`"
        authorization = ' -H "Authorization: Bearer $ANTIPHON_KEY"'
    lines = [
        f"antiphon {__version__}",
        f"  base URL  {base}/v1",
        f"  model     {_shown(models[0]) if models else 'those of `antiphon worker` processes'}",
        f"  keys      {key_state}",
        f"  reference {base}/docs",
        "",
        "Try it:",
        f"  curl {base}/v1/responses -H 'Content-Type: application/json'{authorization} "
        """-d '{"input": "Why is the sky blue?"}'""",
        "",
    ]
    click.echo("\n".join(lines))
