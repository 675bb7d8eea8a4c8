"""The clients that are driven, as `clients.toml` and `drivers/js/package.json` name them."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DRIVERS = ROOT / "drivers"

#: What flows are about, in the order of the table.
GROUPS = ("answer", "stream", "tools", "structured", "turns", "resume", "errors", "real")


@dataclass(frozen=True, slots=True)
class Client:
    """A client at one version. `packages` are what pip installs for it, empty for npm's;
    `recorded` are the flows of which requests are recorded, empty for all."""

    id: str
    name: str
    version: str
    driver: Path
    packages: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        """Whether its driver is run by Python."""
        return self.driver.suffix == ".py"


def clients() -> list[Client]:
    """Every client, in the order of the table. Raises `KeyError` if npm is not told of one."""
    table = tomllib.loads((ROOT / "clients.toml").read_text("utf-8"))
    pinned = json.loads((DRIVERS / "js" / "package.json").read_text("utf-8"))["dependencies"]
    return [
        Client(
            entry["id"],
            entry["name"],
            version=pinned[entry["package"]]
            if "package" in entry
            else entry["packages"][0].partition("==")[2],
            driver=DRIVERS / entry["driver"],
            packages=tuple(entry.get("packages", ())),
            recorded=tuple(entry.get("recorded", ())),
        )
        for entry in table["clients"]
    ]
