"""Runs cases against a server and decides their verdicts."""

import time
import traceback
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime

import yaml

from responses_conformance.cases import Case
from responses_conformance.config import Config, ConfigError
from responses_conformance.exchange import Client, Exchange, OutOfTime, Request, Unreachable
from responses_conformance.judging import Judge
from responses_conformance.results import (
    CaseResult,
    Ledger,
    Report,
    RuleResult,
    Verdict,
)
from responses_conformance.schemas import Schemas
from responses_conformance.second import SecondOpinion
from responses_conformance.steps import Player, PremiseFailed
from responses_conformance.texts import parsed_yaml, printable
from responses_conformance.values import Missing, Unreadable


def run(
    config: Config, cases: Iterable[Case], told: Callable[[CaseResult], None] = lambda _: None
) -> Report:
    """Run cases one after the other; `told` hears of each as it ends. Raises `ConfigError`, and
    `Unreachable` if the server does not answer at all."""
    began, started = time.monotonic(), datetime.now(UTC)
    expected = _expected_failures(config)
    ledger = Ledger()
    client = Client(config.base_url, timeout=config.timeout)
    try:
        listed = client.send(Request("GET", "/models", key=config.api_key))
        model = config.model or _first_of(listed)
        config = replace(config, model=model)
        runner = _Runner(config, client, ledger, expected)
        results = []
        for case in cases:
            result = runner.run(case)
            results.append(result)
            told(result)
    finally:
        client.close()
    for outcome in ledger.results.values():
        outcome.verdict = _of_rule(outcome, config, expected)
    return Report(
        config.base_url,
        model,
        config.server_name or config.base_url,
        config.profiles,
        tuple(results),
        tuple(ledger.results.values()),
        started.isoformat(timespec="seconds"),
        time.monotonic() - began,
    )


def first_model(client: Client, key: str | None) -> str:
    """The first model that a server lists. Raises `ConfigError` if it lists none, and
    `Unreachable`."""
    return _first_of(client.send(Request("GET", "/models", key=key)))


def check_expected(config: Config, known: Collection[str]) -> None:
    """Refuse a file of expected failures that names what is not known. Raises `ConfigError`."""
    for name in _expected_failures(config):
        if name not in known:
            raise ConfigError(f"{config.expected_failures}: there is no case or rule {name}")


def _first_of(listed: Exchange) -> str:
    body = listed.json
    try:
        name = body["data"][0]["id"]
    except (TypeError, KeyError, IndexError) as error:
        raise ConfigError("the server lists no models; name one with --model") from error
    return str(name)


def _expected_failures(config: Config) -> dict[str, str]:
    """The reasons by case or rule, from a YAML file that maps them."""
    if config.expected_failures is None:
        return {}
    try:
        content = parsed_yaml(config.expected_failures.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{config.expected_failures}: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{config.expected_failures}: it must map ids to reasons")
    return {str(name): str(reason) for name, reason in content.items()}


class _Runner:
    def __init__(
        self, config: Config, client: Client, ledger: Ledger, expected: dict[str, str]
    ) -> None:
        self._config = config
        self._client = client
        self._ledger = ledger
        self._expected = expected
        self._judge = Judge(
            Schemas(exact="exact" in config.profiles),
            SecondOpinion() if config.second_opinion else None,
        )

    def run(self, case: Case) -> CaseResult:
        """Run one case."""
        if case.profile not in self._config.profiles:
            return CaseResult(case, Verdict.NOT_CLAIMED)
        unmet = self._unmet(case)
        if unmet:
            return CaseResult(case, Verdict.SKIP, (unmet,))
        player = Player(case, self._client, self._config, self._judge, self._ledger)
        began = time.monotonic()
        verdict, reasons = self._played(player)
        return CaseResult(case, verdict, reasons, tuple(player.exchanges), time.monotonic() - began)

    def _unmet(self, case: Case) -> str | None:
        config = self._config
        has = {
            "second_key": config.second_api_key is not None,
            "auth": config.keys_required,
            "context_window": config.context_window is not None,
            "scripted": config.model_follows_script,
            "stored": "stored" in config.profiles,
        }
        missing = [need.replace("_", " ") for need in case.needs if not has[need]]
        return f"needs {', '.join(missing)}" if missing else None

    def _played(self, player: Player) -> tuple[Verdict, tuple[str, ...]]:
        try:
            player.play()
        except PremiseFailed as error:
            reason = f"the model did not do what the case is about: {error}"
            # What was seen until then is the server's all the same.
            if self._config.model_follows_script or player.wrong:
                return self._weighed(player.case, [*player.wrong, reason])
            return Verdict.SKIP, (reason,)
        except Missing as error:
            # What a step needs of an earlier answer is not there: the server's fault, if anything.
            return self._weighed(player.case, [*player.wrong, str(error)])
        except OutOfTime as error:
            if not player.wrong:
                return Verdict.ERROR, (str(error),)
        except Unreachable as error:
            return self._weighed(player.case, [*player.wrong, f"no answer: {error}"])
        except Unreadable as error:
            return Verdict.ERROR, (str(error),)
        except Exception:  # Whatever it is, the other cases go on.
            return Verdict.ERROR, (traceback.format_exc(limit=-4),)
        return self._weighed(player.case, player.wrong)

    def _weighed(self, case: Case, wrong: list[str]) -> tuple[Verdict, tuple[str, ...]]:
        reasons = tuple(dict.fromkeys(map(printable, wrong)))
        if case.id in self._expected:
            why = self._expected[case.id]
            return (Verdict.EXPECTED, (why, *reasons)) if wrong else (Verdict.UNEXPECTED, (why,))
        return (Verdict.FAIL, reasons) if wrong else (Verdict.PASS, ())


def _of_rule(outcome: RuleResult, config: Config, expected: dict[str, str]) -> Verdict:
    rule = outcome.rule
    if rule.level == "exact" and "exact" not in config.profiles:
        return Verdict.NOT_CLAIMED
    if not outcome.checked:
        return Verdict.SKIP
    if rule.id in expected:
        return Verdict.EXPECTED if outcome.broken else Verdict.UNEXPECTED
    return Verdict.FAIL if outcome.broken else Verdict.PASS
