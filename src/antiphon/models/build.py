"""Makes the served models that the settings name."""

from collections.abc import Callable
from pathlib import Path

from antiphon.errors import StartError
from antiphon.models import embedded
from antiphon.models.base import Model, ModelDefaults
from antiphon.models.scripted import ScriptedModel
from antiphon.settings import ModelSettings, Settings

#: Told what is being done, and how far: a sentence, steps done, steps in all (0: unknown).
Progress = Callable[[str, int, int], None]

# A model this small loses its way when it draws: asked for the capital of France at the temperature
# of 0.2 that its card recommends, it rambles one time in three.
_EMBEDDED_DEFAULTS = ModelDefaults(temperature=0.0)


def build_models(settings: Settings, progress: Progress) -> list[Model]:
    """Load every served model, the default first.

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
    if not named:
        return [_embedded(settings, progress)]
    return [_model(name, wanted, settings, progress) for name, wanted in named.items()]


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
    wanted = ModelSettings(path=str(path))
    return _local(embedded.NAME, wanted, settings, _EMBEDDED_DEFAULTS, progress)


def _local(
    name: str,
    wanted: ModelSettings,
    settings: Settings,
    defaults: ModelDefaults,
    progress: Progress,
) -> Model:
    # torch and transformers take seconds to import, and other models need neither.
    progress("Starting torch", 0, 0)
    import torch

    from antiphon.engine.engine import Engine
    from antiphon.engine.loader import load
    from antiphon.engine.model_runner import ModelRunner
    from antiphon.formats.template import PLAIN_TEMPLATE, ChatTemplate
    from antiphon.models.local import LocalModel

    torch.set_num_threads(settings.threads)
    assert wanted.path is not None
    loaded = load(wanted.path, progress)
    template = ChatTemplate(
        loaded.template or PLAIN_TEMPLATE,
        variables=loaded.variables,
        controls=loaded.tokenizer.controls.values(),
        added=loaded.tokenizer.added,
    )
    return LocalModel(
        name,
        Engine(ModelRunner(loaded.module), max_running=settings.max_running),
        loaded.tokenizer,
        template,
        context_window=wanted.context_window or loaded.context_window,
        stop_tokens=loaded.stop_tokens,
        defaults=ModelDefaults(
            _first(wanted.temperature, loaded.temperature, defaults.temperature),
            _first(wanted.top_p, loaded.top_p, defaults.top_p),
        ),
    )


def _first(*values: float | None) -> float:
    """The first that is given."""
    return next(value for value in values if value is not None)
