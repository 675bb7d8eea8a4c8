"""What `antiphon serve` shows in a terminal, and how it gets from settings to a running server."""

import sys
from types import TracebackType

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from antiphon import __version__, logs
from antiphon.errors import StartError
from antiphon.keys import KeyRing
from antiphon.models.base import Model
from antiphon.settings import Settings

# Every address of the machine, and the one to show for it.
_WIDE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


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
    from antiphon.models.build import build_models
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
        store = open_storage(settings)
        with ProgressDisplay() as display:
            models = build_models(settings, display)
        port = sock.getsockname()[1]
        server = Server(
            build(settings, models, keys, store),
            grace_seconds=settings.shutdown_grace_seconds,
            on_start=lambda: _announce(settings, models[0], keys, port),
        )
        try:
            server.run(sockets=[sock])
        except KeyboardInterrupt:
            sys.exit(130)
        if not server.let_go:
            sys.exit(3)


def _announce(settings: Settings, model: Model, keys: KeyRing, port: int) -> None:
    host = _WIDE.get(settings.host, settings.host)
    base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    context = f", {model.context_window} tokens of context" if model.context_window else ""
    key_state = "none needed: whoever reaches this address may use it"
    authorization = ""
    if not keys.open:
        key_state = "needed, as made by `antiphon keys new`"
        authorization = ' -H "Authorization: Bearer $ANTIPHON_KEY"'
    lines = [
        f"antiphon {__version__}",
        f"  base URL  {base}/v1",
        f"  model     {model.name}{context}",
        f"  keys      {key_state}",
        f"  reference {base}/docs",
        "",
        "Try it:",
        f"  curl {base}/v1/responses -H 'Content-Type: application/json'{authorization} "
        """-d '{"input": "Why is the sky blue?"}'""",
        "",
    ]
    click.echo("\n".join(lines))
