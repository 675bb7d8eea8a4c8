"""Makes the served models that the settings name."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from antiphon.errors import StartError
from antiphon.models import embedded
from antiphon.models.base import Model, ModelDefaults
from antiphon.models.on_demand import OnDemandModel
from antiphon.models.scripted import ScriptedModel
from antiphon.settings import ModelSettings, Settings

if TYPE_CHECKING:  # Not needed by those who serve no model of their own.
    from antiphon.engine.checkpoints.checkpoint import Checkpoint
    from antiphon.engine.tokenizer import PromptTokenizer
    from antiphon.formats.family import Family

_logger = structlog.get_logger("antiphon.models")

#: Told what is being done, and how far: a sentence, steps done, steps in all (0: unknown).
Progress = Callable[[str, int, int], None]

# A model this small loses its way when it draws: asked for the capital of France at the temperature
# of 0.2 that its card recommends, it rambles one time in three.
_EMBEDDED_DEFAULTS = ModelDefaults(temperature=0.0)


def build_models(settings: Settings, progress: Progress) -> list[Model]:
    """Load every served model, the default first.

    Raises `StartError`.
    """
    named = named_models(settings)
    if not named:
        return [_embedded(settings, progress)]
    return [_model(name, wanted, settings, progress) for name, wanted in named.items()]


def named_models(settings: Settings) -> dict[str, ModelSettings]:
    """The models that the settings name, the default first; none where the embedded one is served.

    Raises `StartError`.
    """
    named = dict(settings.models)
    if settings.model is not None and settings.model not in named:
        name = model_name(settings.model)
        if name in named:
            raise StartError(
                f"two models are called {name!r}: {settings.model} and one in the settings file"
            )
        named = {name: ModelSettings(path=settings.model), **named}
    elif settings.model is not None:
        named = {settings.model: named.pop(settings.model), **named}
    return named


def model_name(source: str) -> str:
    """What a model given by its place is called: a hub name as it is, a path by its last part."""
    path = Path(source).expanduser()
    if not path.exists():
        return source
    return path.stem if path.is_file() else path.resolve().name


def _model(name: str, wanted: ModelSettings, settings: Settings, progress: Progress) -> Model:
    if wanted.kind == "scripted":
        defaults = ModelDefaults(
            1.0 if wanted.temperature is None else wanted.temperature,
            1.0 if wanted.top_p is None else wanted.top_p,
        )
        return ScriptedModel(
            name, wanted.scenes, context_window=wanted.context_window, defaults=defaults
        )
    return _local(name, wanted, settings, ModelDefaults(), progress)


def _embedded(settings: Settings, progress: Progress) -> Model:
    path = embedded.fetch(
        settings.cache_dir, lambda done, size: progress("Fetching the model", done, size)
    )
    wanted = embedded_settings(path)
    return _local(embedded.NAME, wanted, settings, _EMBEDDED_DEFAULTS, progress)


def embedded_settings(path: Path) -> ModelSettings:
    """The embedded model, as if the settings named it."""
    return ModelSettings(path=str(path), dialect=embedded.DIALECT)


def read_family(wanted: ModelSettings) -> "Family":
    """How a local model is spoken to and understood, without running it. Raises `StartError`."""
    from antiphon.engine.loader import read, read_tokenizer

    assert wanted.path is not None
    checkpoint = read(wanted.path, _ignore)
    return _family(wanted, checkpoint, read_tokenizer(checkpoint))


def _family(
    wanted: ModelSettings, checkpoint: "Checkpoint", tokenizer: "PromptTokenizer"
) -> "Family":
    from antiphon.formats.family import Family
    from antiphon.formats.template import PLAIN_TEMPLATE, ChatTemplate

    template = ChatTemplate(
        checkpoint.template or PLAIN_TEMPLATE,
        variables=checkpoint.variables,
        controls=tokenizer.controls.values(),
        added=tokenizer.added,
    )
    return Family(template, wanted.dialect)


def _local(
    name: str,
    wanted: ModelSettings,
    settings: Settings,
    defaults: ModelDefaults,
    progress: Progress,
) -> Model:
    # Not needed by those who serve no model of their own.
    from antiphon.engine.loader import read

    assert wanted.path is not None
    checkpoint = read(wanted.path, progress)
    context_window = wanted.context_window or checkpoint.context_window
    sampling = ModelDefaults(
        _first(wanted.temperature, checkpoint.temperature, defaults.temperature),
        _first(wanted.top_p, checkpoint.top_p, defaults.top_p),
    )

    def load(checkpoint: "Checkpoint", progress: Progress) -> Model:
        return _loaded(name, wanted, settings, sampling, checkpoint, progress)

    if wanted.load == "start" and wanted.unload_after_seconds is None:
        return load(checkpoint, progress)
    path = str(checkpoint.path)
    model = OnDemandModel(
        name,
        lambda: load(read(path, _ignore), _ignore),
        defaults=sampling,
        context_window=context_window,
        unload_after_seconds=wanted.unload_after_seconds,
        family=checkpoint.model_type,
    )
    if wanted.load == "start":
        model.preload(load(checkpoint, progress))
    return model


def _loaded(
    name: str,
    wanted: ModelSettings,
    settings: Settings,
    defaults: ModelDefaults,
    checkpoint: "Checkpoint",
    progress: Progress,
) -> Model:
    from antiphon.engine.engine import Engine, EngineOptions
    from antiphon.engine.loader import load
    from antiphon.engine.options import LoadOptions
    from antiphon.models.local import LocalModel, LocalOptions

    is_embedded = wanted.path == str(embedded.embedded_path(settings.cache_dir))
    options = LoadOptions(
        cache_dir=settings.cache_dir,
        recorded_layers=embedded.RECORDED_LAYERS if is_embedded else None,
        threads=settings.threads,
        engine=wanted.engine,
        quantize=wanted.quantize,
        cache_bytes=None if settings.cache_mib is None else settings.cache_mib * 2**20,
        prefix_dir=settings.cache_disk_dir or settings.cache_dir / "prefixes",
        prefix_bytes=(settings.cache_disk_mib or 0) * 2**20,
    )
    loaded = load(checkpoint, options, progress)
    family = _family(wanted, checkpoint, loaded.tokenizer)
    _logger.info(
        "model understood", model=name, dialect=family.dialect.name, told_by=family.told_by
    )
    engine = Engine(
        loaded.runner,
        loaded.cache,
        loaded.sampler,
        EngineOptions(
            max_running=settings.max_running,
            max_waiting=settings.max_waiting,
            speculate=settings.speculate,
            step_timeout_seconds=settings.step_timeout_seconds,
        ),
    )
    return LocalModel(
        name,
        engine,
        loaded.tokenizer,
        family,
        context_window=loaded.context_window(wanted.context_window or checkpoint.context_window),
        stop_tokens=checkpoint.stop_tokens,
        defaults=defaults,
        options=LocalOptions(
            top_k=wanted.top_k,
            min_p=wanted.min_p,
            timeout_seconds=settings.generation_timeout_seconds,
            keep_seconds=settings.cache_idle_seconds,
            isolate_cache_keys=settings.isolate_cache_keys,
            family=checkpoint.model_type,
        ),
    )


def _ignore(*_: object) -> None:
    """Progress that nobody looks at."""


def _first(*values: float | None) -> float:
    """The first that is given."""
    return next(value for value in values if value is not None)
