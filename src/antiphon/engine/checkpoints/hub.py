"""Fetches models by their names on a hub."""

import os
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
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    # The library reads it only once, when it is imported.
    endpoint = os.environ.get("HF_ENDPOINT")

    def download(*weights: str) -> Path:
        return Path(snapshot_download(name, endpoint=endpoint, allow_patterns=[*_FILES, *weights]))

    try:
        folder = download("*.safetensors")
        if not any(folder.glob("*.safetensors")):
            folder = download("*.bin")
    except GatedRepoError:
        raise LoadError(
            f"{name} is only for those whom its owner lets have it. Ask for it on the hub, and set "
            "HF_TOKEN to a token of yours."
        ) from None
    except RepositoryNotFoundError:
        raise LoadError(
            f"{name} is no folder and no file here, and the hub knows no model of that name. "
            "A private one is shown to those who set HF_TOKEN."
        ) from None
    except HFValidationError as error:
        raise LoadError(f"{name} does not exist, and cannot be a hub's name: {error}") from None
    except LocalEntryNotFoundError as error:
        reason = _first_line(error.__cause__ or error)
        raise LoadError(f"{name} is not here, and the hub cannot be reached: {reason}") from None
    except Exception as error:  # Its own, and those of the library that it speaks HTTP with.
        raise LoadError(f"{name} cannot be fetched: {_first_line(error)}") from None
    return folder


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
