"""Fetches models by their names on a hub."""

from pathlib import Path

from antiphon.engine.checkpoints.checkpoint import LoadError, Progress

#: What a model's folder may hold that is of use here, weights aside.
_FILES = ["*.json", "*.jinja", "*.txt", "*.model", "*.py"]


def fetch(name: str, progress: Progress) -> Path:
    """The folder of a hub's model, fetched unless it is there (`HF_HOME`, `HF_ENDPOINT`).

    Raises `LoadError`.
    """
    progress("Fetching the model", 0, 0)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    try:
        folder = Path(snapshot_download(name, allow_patterns=[*_FILES, "*.safetensors"]))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*_FILES, "*.bin"]))
    except RepositoryNotFoundError:
        raise LoadError(
            f"{name} is no folder and no file here, and the hub knows no model of that name"
        ) from None
    except HFValidationError as error:
        raise LoadError(f"{name} does not exist, and cannot be a hub's name: {error}") from None
    except LocalEntryNotFoundError as error:
        raise LoadError(f"{name} is not here, and the hub cannot be reached: {error}") from None
    except (HfHubHTTPError, OSError) as error:
        raise LoadError(f"{name} cannot be fetched: {error}") from None
    return folder
