"""Every setting: its name, default and meaning.

The command line, `antiphon settings` and the README's table are made from the fields here.
"""

import os
from pathlib import Path
from typing import Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from antiphon.keys import is_hash


def default_threads() -> int:
    """As many threads as this process may use processors, one left to the server where there are
    many. Two threads of one core gain nothing and are counted once."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    if allowed is None:
        return max((os.cpu_count() or 2) - 1, 1)
    cores = set()
    for number in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text().strip())
        except OSError:
            cores.add(str(number))
    return len(cores) if len(cores) <= 4 else len(cores) - 1


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class StepSettings(_Table):
    """One thing a scripted model says or does. Exactly one of the fields but `pieces`,
    `arguments` and `open` is given."""

    text: str | None = None
    reasoning: str | None = None
    call: str | None = None
    """Calls this function with `arguments`."""
    arguments: str = ""
    open: bool = False
    """Leaves the call open, as a model does that is cut off inside one."""
    echo: bool | None = None
    """Says the last message again."""
    delay: float | None = Field(None, ge=0)
    """Waits so many seconds."""
    fail: str | None = None
    """Fails, with this in the log."""
    finish: Literal["stop", "length", "content_filter"] | None = None
    """Ends the answer in this way. Without it, it ends by itself."""
    pieces: int = Field(0, ge=0)
    """Says it in pieces of so many characters; 0 for all at once."""

    @model_validator(mode="after")
    def _does_one_thing(self) -> "StepSettings":
        kinds = ("text", "reasoning", "call", "echo", "delay", "fail", "finish")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"a step is exactly one of {', '.join(kinds)}")
        return self


class SceneSettings(_Table):
    """What a scripted model answers to a last message in which `match` is found."""

    match: str = ""
    """A regular expression. The first scene that matches is played."""
    earlier: str = ""
    """A regular expression that must also be found in what was said before the last message."""
    busy: int = Field(0, ge=0)
    """How often it is answered with 429 and `Retry-After` before it is played."""
    steps: tuple[StepSettings, ...] = ()


class ModelSettings(_Table):
    """A served model. `local` runs in this process, `scripted` plays its scenes."""

    kind: Literal["local", "scripted"] = "local"
    path: str | None = None
    """For a local model: a folder, a GGUF file or a hub name."""
    context_window: int | None = Field(None, ge=1)
    """Tokens of prompt and answer together; the model's own where absent."""
    load: Literal["start", "first_use"] = "start"
    """When a local model is loaded."""
    unload_after_seconds: float | None = Field(None, gt=0)
    """How long a local model may be idle before it is let go; for ever where absent."""
    engine: Literal["auto", "native", "paged", "universal"] = "auto"
    """How a local model is run; `auto` takes the fastest way that suits it."""
    quantize: Literal["none", "int8", "int4"] = "none"
    """What the native kernels make of weights that are not quantised in the file."""
    dialect: str | None = None
    """How a local model writes calls and reasoning: a name that `antiphon models dialects` lists;
    found out from its chat template where absent."""
    temperature: float | None = Field(None, ge=0, le=2)
    """The temperature where a request gives none; the model's own where absent."""
    top_p: float | None = Field(None, ge=0, le=1)
    """The top-p where a request gives none; the model's own where absent."""
    top_k: int = Field(0, ge=0)
    """Only so many of the likeliest tokens are drawn from; 0 for all."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Tokens less likely than this share of the likeliest are not drawn."""
    scenes: tuple[SceneSettings, ...] = ()
    """For a scripted model: what it says."""

    @model_validator(mode="after")
    def _says_what_it_needs(self) -> "ModelSettings":
        if self.kind == "local" and not self.path:
            raise ValueError("a local model needs a path")
        if self.kind == "scripted" and not self.scenes:
            raise ValueError("a scripted model needs scenes")
        return self


class Settings(_Table):
    """Where the server listens, what it serves and how far it goes."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(8080, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    insecure: bool = False
    """Allows listening beyond this machine without any key."""
    model: str | None = None
    """Default model: a name from `models`, a folder, a GGUF file or a hub name. Without it the
    first of `models`, and without these the embedded SmolLM2-135M-Instruct."""
    models: dict[str, ModelSettings] = {}
    """Served models by name. Only in the file."""
    aliases: dict[str, str] = {}
    """Further names for models, as `alias=model`. The alias `*` stands for every other name."""
    cache_dir: Path = Field(default_factory=lambda: platformdirs.user_cache_path("antiphon"))
    """Where fetched models are kept."""
    keys_file: Path = Field(
        default_factory=lambda: platformdirs.user_config_path("antiphon") / "keys.toml"
    )
    """Where `antiphon keys` keeps the hashes of keys."""
    api_keys: tuple[str, ...] = ()
    """Further keys, as the hashes that `antiphon keys hash` prints."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose web pages may call the server; `*` for all."""
    strict: bool = False
    """Refuses what would be left out of a request."""
    max_body_bytes: int = Field(32 * 1024 * 1024, ge=1024)
    """Largest body of a request, in bytes."""
    body_timeout_seconds: float = Field(60, gt=0)
    """How long a body may take to arrive."""
    request_timeout_seconds: float = Field(600, gt=0)
    """How long an answer that is not streamed may take."""
    keep_alive_seconds: float = Field(15, gt=0)
    """How long a stream may be silent before its last state is repeated."""
    shutdown_grace_seconds: float = Field(10, ge=0)
    """How long running responses may go on when the server is told to stop."""
    min_output_tokens: int = Field(16, ge=1)
    """Smallest `max_output_tokens` that a request may ask for. The official API's is 16."""
    hosted_tools: Literal["drop", "offer", "refuse"] = "drop"
    """Whether tools that nobody runs here are left out, offered as functions, or refused."""
    codex_catalog: bool = True
    """Serves a catalogue of the models for the Codex CLI at `/v1/codex/models`."""
    codex_prompt_file: Path | None = None
    """The prompt that the catalogue gives Codex; without it a short one of ours."""
    history_rules: Literal["lenient", "strict"] = "lenient"
    """How strictly the items of a request must go together; see the guide on tools."""
    reasoning_summary: Literal["none", "raw"] = "none"
    """What summaries of reasoning are, as nothing here writes them: left out, or the reasoning
    itself."""
    hide_reasoning: bool = False
    """Keeps the text of reasoning from clients, which get only its sealed form if they ask."""
    reasoning_keys_file: Path | None = None
    """Keys that seal reasoning, made if there are none. Without it derived from those of
    `encryption_keys_file`, else in `data_dir`; where nothing is stored, new with each process."""
    max_tools: int = Field(128, ge=1)
    """Most tools of a request, those in namespaces counted one by one."""
    max_schema_bytes: int = Field(256 * 1024, ge=1024, le=2**20)
    """Largest JSON Schema or grammar that a request may ask to be held to, in bytes."""
    max_schema_depth: int = Field(32, ge=1, le=64)
    """Most schemas inside one another."""
    max_schema_properties: int = Field(2000, ge=1, le=5000)
    """Most properties of a schema in all."""
    max_schema_enum_values: int = Field(10_000, ge=1)
    """Most values of a schema's enums in all."""
    threads: int = Field(default_factory=default_threads, ge=1)
    """Processor threads for local models."""
    max_running: int = Field(32, ge=1)
    """How many responses a local model makes at once; more wait."""
    max_waiting: int = Field(256, ge=0)
    """How many more may wait for a local model before requests are answered with 429."""
    cache_mib: int | None = Field(None, ge=1)
    """Memory for keys and values of a local model, in MiB. Without it: enough for two full
    contexts, at least 256 and at most a quarter of what is free."""
    cache_disk_mib: int | None = Field(None, ge=1)
    """Memory on disk for long prefixes, in MiB; without it none is used."""
    cache_disk_dir: Path | None = None
    """Where long prefixes are kept; without it in `prefixes` in `cache_dir`."""
    cache_idle_seconds: float | None = Field(None, gt=0)
    """How long an idle prefix stays cached where a request does not ask for `24h`; without it as
    long as there is room."""
    isolate_cache_keys: bool = False
    """Shares no cached prefix between requests of different `prompt_cache_key`s."""
    speculate: bool = True
    """Guesses tokens ahead from the text so far, where that is faster. The answers are the same."""
    step_timeout_seconds: float = Field(120, gt=0)
    """How long a step of a local model may take before its responses fail."""
    generation_timeout_seconds: float | None = Field(None, gt=0)
    """How long a local model may take for one answer, waiting included; without it any time."""
    state: Literal["sqlite", "postgres", "memory", "off"] = "sqlite"
    """Where responses are stored: a file, PostgreSQL, in memory until the server stops, or not."""
    data_dir: Path = Field(default_factory=lambda: platformdirs.user_data_path("antiphon"))
    """Folder of the SQLite file `antiphon.db`, of blobs and of keys that seal reasoning."""
    database_url: str | None = None
    """PostgreSQL database, as `postgresql://user:password@host/name`."""
    blob_url: str | None = None
    """Where large items are kept, as `s3://bucket/prefix`; without it in `data_dir`, or in memory.
    Credentials and endpoint are taken from the usual `AWS_` variables."""
    encryption_keys_file: Path | None = None
    """Seals what is stored with the keys in this file, which `antiphon store keys` makes."""
    store_by_default: bool = True
    """Stores responses whose request does not say."""
    stop_on_disconnect: bool = False
    """Cancels a stored response, too, when its client goes away."""
    retention_seconds: float | None = Field(30 * 86400.0, gt=0)
    """How long responses are kept after their end; `none` for ever."""
    max_records: int | None = Field(None, ge=1)
    """Most responses kept; those used longest ago go first. In memory 128 where absent."""
    max_stored_bytes: int | None = Field(None, ge=1)
    """Most bytes kept of responses and their items. In memory 64 MiB where absent."""
    max_records_per_key: int | None = Field(None, ge=1)
    """Most responses kept of one key."""
    max_stored_bytes_per_key: int | None = Field(None, ge=1)
    """Most bytes kept of one key."""
    max_entry_bytes: int = Field(64 * 2**20, ge=1024)
    """Largest input with all that came before it, in bytes."""
    max_chain_depth: int | None = Field(None, ge=1)
    """Longest chain of responses that continue one another."""
    max_history_bytes: int = Field(64 * 2**20, ge=1024)
    """Bytes of history that are read and rendered at once before requests are answered with 503."""
    history_cache_mib: int = Field(32, ge=0)
    """Memory for histories that were read, in MiB."""
    event_log_seconds: float = Field(900, gt=0)
    """How long a response's events are kept after its end."""
    max_events: int = Field(4096, ge=16)
    """Events kept of one response; the oldest go first."""
    max_event_bytes: int = Field(2 * 2**20, ge=4096)
    """Bytes kept of one response's events. A larger event fails its response."""
    max_readers: int = Field(32, ge=1)
    """Readers of stored streams at once."""
    max_readers_per_key: int = Field(8, ge=1)
    """Readers of stored streams at once with one key."""
    write_timeout_seconds: float = Field(5, gt=0)
    """How long a reader of a stored stream may take nothing."""
    background_workers: int = Field(2, ge=1)
    """Waiting responses that are made at once; `antiphon worker` makes `max_running` where this is
    not set."""
    max_background: int = Field(16, ge=1)
    """Background responses that wait or are made, in all."""
    max_background_per_key: int = Field(4, ge=1)
    """Background responses that wait or are made of one key."""
    max_background_bytes: int = Field(2 * 2**20, ge=1024)
    """Largest body of a background request, in bytes."""
    background_deadline_seconds: float = Field(300, gt=0)
    """How long a background response may take, waiting included."""
    cancel_wait_seconds: float = Field(5, ge=0)
    """How long a cancel call waits for the model to let go."""
    lease_seconds: float = Field(15, gt=0)
    """How long after its last sign of life a process is taken for dead."""
    engine: bool = True
    """Loads models; without, stored responses are left to `antiphon worker` processes."""
    webhook_url: str | None = None
    """Is told when background responses end."""
    webhook_secret: str | None = None
    """Signs webhooks, as `whsec_` and base64."""
    webhook_allow_private: bool = False
    """Allows webhooks to private and local addresses."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe kind of log line that is written."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """Form of log lines; `auto` is `console` in a terminal and `json` elsewhere."""
    log_content: bool = False
    """Writes prompts and answers to the log."""

    @model_validator(mode="after")
    def _has_what_its_state_needs(self) -> "Settings":
        if self.state == "postgres" and not self.database_url:
            raise ValueError("state postgres needs database_url")
        if not self.engine and self.state in ("memory", "off"):
            raise ValueError(
                f"without an engine responses must be stored, and state is {self.state}"
            )
        return self

    @model_validator(mode="after")
    def _hides_what_it_hides(self) -> "Settings":
        if self.hide_reasoning and self.reasoning_summary == "raw":
            raise ValueError("reasoning_summary raw shows what hide_reasoning hides")
        return self

    @field_validator("api_keys")
    @classmethod
    def _are_hashes(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if not all(is_hash(value) for value in values):
            raise ValueError("keys are given as hashes; `antiphon keys hash` makes one of a key")
        return values
