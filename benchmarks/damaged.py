"""Sends damaged bodies and reports how they are answered.

    python benchmarks/damaged.py --count 2000 --seed 1

The bodies are those that real clients sent, each with one mistake: more than half are JSON that the
document refuses, at places all over it, and the rest are no sound bytes or no JSON. Whatever comes
in, the answer must come within ten seconds, be no 5xx, and say what is wrong in the one envelope,
with a `param` that leads to the mistake. Exits 1 if any answer does not.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from common import serving

from antiphon.app import build
from antiphon.keys import KeyFile, KeyRing
from antiphon.models.scripted import ScriptedModel
from antiphon.settings import SceneSettings, Settings, StepSettings
from antiphon.spec import packaged_contract

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from damage import Sent, campaign, kind_of_place, violations  # type: ignore[import-not-found]

_TIMEOUT_SECONDS = 10
_BODY = "#/components/schemas/CreateResponse"


def antiphon_app() -> Any:
    scene = SceneSettings(steps=(StepSettings(text="Hello there", pieces=4),))
    model = ScriptedModel("scripted", [scene])
    keys = KeyRing(KeyFile(Path("/nonexistent")))
    return build(Settings(aliases={"*": "scripted"}), [model], keys).asgi


class Report:
    """What came back."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str]] = Counter()
        self.places: set[tuple[str, str]] = set()
        self.wrong: list[tuple[Sent, str]] = []

    def add(self, sent: Sent, answer: httpx.Response) -> None:
        self.answers[sent.kind, str(answer.status_code)] += 1
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        found = violations(sent, answer.status_code, media_type, answer.text)
        self.wrong += [(sent, violation) for violation in found]
        if answer.status_code != 200 and not found:
            error = answer.json()["error"]
            self.places.add((kind_of_place(error["param"]), error["code"]))

    def hung(self, sent: Sent, error: httpx.HTTPError) -> None:
        self.answers[sent.kind, "none"] += 1
        self.wrong.append((sent, f"no answer: {error!r}"))

    def print(self) -> None:
        statuses = sorted({status for _, status in self.answers})
        print(f"{'what was sent':<24}" + "".join(f"{status:>8}" for status in statuses))
        for kind in sorted({kind for kind, _ in self.answers}):
            counts = [self.answers[kind, status] or "" for status in statuses]
            print(f"{kind:<24}" + "".join(f"{count:>8}" for count in counts))
        totals = [
            sum(n for (_, s), n in self.answers.items() if s == status) for status in statuses
        ]
        print(f"{'all':<24}" + "".join(f"{total:>8}" for total in totals))
        print(f"distinct places and codes: {len(self.places)}")
        print(f"violations: {len(self.wrong)}")
        for sent, violation in self.wrong[:20]:
            print(f"  {violation} for {sent.media_type}: {sent.content[:300]!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    contract = packaged_contract()
    report = Report()
    with (
        serving(antiphon_app) as peer,
        httpx.Client(base_url=peer.base_url, timeout=_TIMEOUT_SECONDS) as client,
    ):
        for sent in campaign(
            arguments.count, arguments.seed, lambda body: contract.accepts(_BODY, body)
        ):
            headers = {} if sent.media_type is None else {"content-type": sent.media_type}
            try:
                answer = client.post("/v1/responses", content=sent.content, headers=headers)
            except httpx.HTTPError as error:
                report.hung(sent, error)
            else:
                report.add(sent, answer)
    report.print()
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
