"""Figures of several servers and rounds: medians, ratios, targets, a table and a plot."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

OURS = "antiphon"


@dataclass(frozen=True, slots=True)
class Metric:
    """Something measured. `targets` has, by peer, what our figure may be in parts of theirs.

    A target is an upper bound, or a lower bound where more is better. `limit` bounds our figure
    itself.
    """

    key: str
    title: str
    unit: str
    more_is_better: bool = False
    targets: Mapping[str, float] = field(default_factory=dict)
    limit: float | None = None

    def met(self, value: float, target: float) -> bool:
        """Whether a value is on the right side of a target, or on it."""
        return value >= target if self.more_is_better else value <= target


_LLAMA, _TRANSFORMERS = "llama-server", "transformers"

METRICS: Sequence[Metric] = (
    Metric("short_first", "short prompt, first token", "s"),
    Metric(
        "cold_first",
        "cold 2,000-token prompt, first token",
        "s",
        targets={_LLAMA: 0.5, _TRANSFORMERS: 1.0},
    ),
    Metric(
        "second_first",
        "second turn (2,000 cached), first token",
        "s",
        targets={_LLAMA: 0.45, _TRANSFORMERS: 0.2},
    ),
    Metric(
        "third_first",
        "third turn, first token",
        "s",
        targets={_LLAMA: 0.45, _TRANSFORMERS: 0.2},
    ),
    Metric(
        "decode_1",
        "decode, one stream",
        "tok/s",
        more_is_better=True,
        targets={_LLAMA: 1.2, _TRANSFORMERS: 8.0},
    ),
    Metric("decode_4", "decode, 4 streams", "tok/s", more_is_better=True),
    Metric("decode_16", "decode, 16 streams", "tok/s", more_is_better=True),
    Metric(
        "sixteen_rate",
        "16 concurrent, prefill included",
        "tok/s",
        more_is_better=True,
        targets={_LLAMA: 2.5, _TRANSFORMERS: 3.0},
    ),
    Metric("sixteen_first", "16 concurrent, median first token", "s"),
    Metric(
        "sixty_four_rate",
        "64 concurrent, long prompts arriving",
        "tok/s",
        more_is_better=True,
    ),
    Metric("sixty_four_gap_p99", "64 concurrent, p99 between tokens", "s"),
    Metric("stall_median", "16 streams beside a 4,000-token prefill, median gap", "s"),
    Metric("stall_ratio", "the same, p99 / median of the gaps", "", limit=3.0),
    Metric("stall_first", "the same, first token of the 4,000", "s"),
    Metric("resident", "memory resident", "MB", targets={_LLAMA: 1.2, _TRANSFORMERS: 1.0}),
    Metric("start", "start to first answer", "s", limit=8.0),
)


@dataclass(frozen=True, slots=True)
class Visit:
    """What one server did in one round. `failed` says, by load, why there is no figure of it.

    `disturbance` is how many processors' worth of time others took while it was measured.
    """

    round: int
    server: str
    precision: str
    figures: Mapping[str, float]
    failed: Mapping[str, str] = field(default_factory=dict)
    disturbance: float = 0.0


def median(visits: Sequence[Visit], server: str, key: str) -> float | None:
    """The median of a server's figure over the rounds, None where there is none."""
    values = [v.figures[key] for v in visits if v.server == server and key in v.figures]
    return statistics.median(values) if values else None


def ratio(visits: Sequence[Visit], peer: str, key: str) -> float | None:
    """Our figure in parts of a peer's: the median of the ratios of rounds that have both.

    Rounds are compared within themselves because the machine's speed drifts between them.
    """
    mine = {v.round: v.figures[key] for v in visits if v.server == OURS and key in v.figures}
    theirs = {v.round: v.figures[key] for v in visits if v.server == peer and key in v.figures}
    ratios = [mine[n] / theirs[n] for n in mine if theirs.get(n)]
    return statistics.median(ratios) if ratios else None


def table(visits: Sequence[Visit]) -> str:
    """Everything as one Markdown table: medians, and for each peer the ratio and its target."""
    servers = list(dict.fromkeys(visit.server for visit in sorted(visits, key=_ours_first)))
    peers = [server for server in servers if server != OURS and OURS in servers]
    precision = {visit.server: visit.precision for visit in visits}
    heads = ["median", *(f"{server}, {precision[server]}" for server in servers)]
    heads += [f"÷ {peer}" for peer in peers]
    rows = []
    for metric in METRICS:
        values = [median(visits, server, metric.key) for server in servers]
        if not any(value is not None for value in values):
            continue
        title = f"{metric.title}, {metric.unit}" if metric.unit else metric.title
        cells = [shown(value) for value in values]
        if metric.limit is not None and OURS in servers and values[0] is not None:
            cells[0] += _verdict(metric, values[0], metric.limit)
        for peer in peers:
            cells.append(_ratio_cell(metric, ratio(visits, peer, metric.key), peer))
        rows.append([title, *cells])
    return markdown(heads, rows)


def _ours_first(visit: Visit) -> bool:
    return visit.server != OURS


def _ratio_cell(metric: Metric, value: float | None, peer: str) -> str:
    if value is None:
        return "–"
    target = metric.targets.get(peer)
    return shown(value) + ("" if target is None else _verdict(metric, value, target))


def _verdict(metric: Metric, value: float, target: float) -> str:
    sign = "≥" if metric.more_is_better else "≤"
    return f" ({sign} {target:g}: {'met' if metric.met(value, target) else 'MISSED'})"


def shown(value: float | None) -> str:
    """A figure with three digits that matter."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return (
        f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2f}"
        if abs(value) >= 1
        else f"{value:.3f}"
    )


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up; all but the first are set to the right."""
    widths = [max(len(row[n]) for row in (heads, *rows)) for n in range(len(heads))]
    lines = [
        "| " + " | ".join(_padded(cell, width, n) for n, (cell, width) in enumerate(line)) + " |"
        for line in (list(zip(row, widths, strict=True)) for row in (heads, *rows))
    ]
    rule = "|" + "|".join("-" * (w + 1) + (":" if n else "-") for n, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _padded(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if column else cell.ljust(width)


def plot(visits: Sequence[Visit], path: Path) -> bool:
    """Draw our ratio to each peer, so that further right is better. False without matplotlib."""
    try:
        import matplotlib  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    peers = sorted({visit.server for visit in visits if visit.server != OURS})
    metrics = [m for m in METRICS if any(ratio(visits, peer, m.key) is not None for peer in peers)]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.45 * len(metrics)), layout="constrained")
    height = 0.8 / max(1, len(peers))
    for number, peer in enumerate(peers):
        places = [place + number * height for place in range(len(metrics))]
        gains = [_gain(metric, ratio(visits, peer, metric.key)) for metric in metrics]
        axes.barh(places, gains, height=height, label=f"against {peer}")
        targets = [_gain(metric, metric.targets.get(peer)) for metric in metrics]
        axes.plot(targets, places, "k|", markersize=10, label="target" if number == 0 else None)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(metrics))])
    axes.set_yticklabels([metric.title for metric in metrics])
    axes.invert_yaxis()
    axes.set_xlabel("times better than the peer (median of rounds)")
    axes.legend()
    figure.savefig(path, dpi=120)
    return True


def _gain(metric: Metric, value: float | None) -> float:
    """A ratio as how many times better we are."""
    if not value:
        return float("nan")
    return value if metric.more_is_better else 1 / value
