"""Compiles the native kernels when the package is built, if there is a compiler."""

import importlib.util
import os
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_KERNELS = Path("src/antiphon/engine/kernels")


class KernelsBuildHook(BuildHookInterface):
    """Puts the library where the package looks for it, also for editable installs.

    A package without it works as well, only slower. `ANTIPHON_NO_KERNELS=1` leaves it out.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have a wheel hold the library and be named after the platform."""
        if self.target_name != "wheel" or os.environ.get("ANTIPHON_NO_KERNELS") == "1":
            return
        directory = Path(self.root) / _KERNELS
        compiling = _load(directory / "compile.py")
        try:
            library = compiling.build(directory)
        except (compiling.CompilationError, OSError) as error:
            (directory / compiling.LIBRARY).unlink(missing_ok=True)  # It may be of older sources.
            self.app.display_warning(f"The native kernels were not compiled: {error}")
            self.app.display_warning("The package works without them, but runs models slower.")
            return
        build_data["artifacts"].append(f"/{_KERNELS}/{library.name}")
        # The library is loaded by path and knows nothing of Python: only the platform counts.
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def _load(path: Path) -> ModuleType:
    """A module by its path: the package itself cannot be imported yet."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
