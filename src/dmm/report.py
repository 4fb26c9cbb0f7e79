"""A run as one self-contained page: closing table, figures, loss curves, settings, versions."""

import base64
import math
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .runs import FIGURES, SAMPLES, Run, atomic

NAME = "report.html"

# Points a loss curve is averaged down to, and its drawing's size.
_POINTS, _WIDTH, _HEIGHT = 240, 320, 120


def write(run: Run) -> Path:
    """Write the run's report.html."""
    path = run.path / NAME
    _save(path, f"{run.experiment} ({run.preset})", _article(run, heading="h1"))
    return path


def write_many(runs: Sequence[Run], path: str | Path) -> Path:
    """Write one page with several runs."""
    path = Path(path)
    links = "".join(
        f'<li><a href="#run-{index}">{escape(_title(run))}</a> '
        f'<span class="dim">{escape(run.preset)}, {escape(_date(run.created))}</span></li>'
        for index, run in enumerate(runs)
    )
    articles = "".join(
        f'<div id="run-{index}">{_article(run, heading="h2")}</div>'
        for index, run in enumerate(runs)
    )
    title = f"{len(runs)} runs"
    _save(path, title, f"<h1>{title}</h1><ul class='toc'>{links}</ul>{articles}")
    return path


def columns(table: Iterable[Mapping[str, Any]]) -> list[str]:
    """A closing table's columns, in order of first appearance."""
    return list(dict.fromkeys(column for row in table for column in row))


def cell(value: Any) -> str:
    """A value as the closing table shows it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | str):
        return str(value)
    try:
        return f"{float(value):.5g}"
    except (TypeError, ValueError):
        return str(value)


def caption(name: str) -> str:
    """`density-on_so3` as `Density on so3`."""
    words = name.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:]


def duration(seconds: float) -> str:
    """A time as a person would say it."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def _article(run: Run, *, heading: str) -> str:
    results = run.results
    state = "finished" if results else "not finished"
    parts = [
        f"<header><{heading}>{escape(_title(run))}</{heading}>",
        f'<p class="about">{escape(run.about)}</p>' if run.about else "",
        f'<p class="tags"><span>{escape(run.preset)}</span>'
        f'<span class="{"done" if results else "open"}">{state}</span>'
        f'<span class="dim">{escape(_date(run.created))}</span></p></header>',
    ]
    if results:
        parts.append(_table(results["table"]))
    else:
        resume = escape(f"dmm resume {run.path}")
        parts.append(
            f'<p class="note">This run has not finished. Go on with <code>{resume}</code></p>'
        )
    figures = sorted((run.path / FIGURES).glob("*.png"))
    parts.append(_section("Figures", "".join(map(_figure, figures)), "figures"))
    texts = sorted((run.path / SAMPLES).glob("*.txt"))
    parts.append(_section("Text", "".join(map(_text, texts))))
    parts.append(_section("Training", "".join(_fit(run, fit) for fit in run.fits), "fits"))
    facts = _section("Settings", _pairs(run.settings)) + _section("Run", _pairs(_facts(run)))
    parts.append(f'<div class="facts">{facts}</div>')
    return f"<article>{''.join(parts)}</article>"


def _facts(run: Run) -> dict[str, Any]:
    results = run.results
    facts = {"folder": os.path.abspath(run.path), "started": ", ".join(map(_date, run.starts))}
    if not results:
        return facts | {"dmm": run.version}
    last_leg = " since the last start" if len(results["starts"]) > 1 else ""
    return {
        **facts,
        "time": duration(float(results["seconds"])) + last_leg,
        "device": results["device"],
        "platform": results["platform"],
        **results["versions"],
    }


def _section(title: str, body: str, kind: str = "") -> str:
    return f'<section class="{kind}"><h3>{title}</h3><div>{body}</div></section>' if body else ""


def _table(table: Sequence[Mapping[str, Any]]) -> str:
    if not table:
        return ""
    names = columns(table)
    numeric = {name for name in names if not any(isinstance(row.get(name), str) for row in table)}

    def row(tag: str, values: Iterable[tuple[str, str]]) -> str:
        cells = (
            f"<{tag}{' class=num' if name in numeric else ''}>{escape(text)}</{tag}>"
            for name, text in values
        )
        return f"<tr>{''.join(cells)}</tr>"

    head = row("th", ((name, name) for name in names))
    body = "".join(row("td", ((name, cell(r.get(name))) for name in names)) for r in table)
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _figure(path: Path) -> str:
    text, data = escape(caption(path.stem)), path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])  # of the PNG's header
    kind = "panorama" if width > 1.8 * height else ""
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return (
        f'<figure class="{kind}"><img alt="{text}" src="{source}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def _text(path: Path) -> str:
    text = escape(path.read_text("utf-8", "replace"))
    return (
        f"<figure><pre>{text}</pre><figcaption>{escape(caption(path.stem))}</figcaption></figure>"
    )


def _pairs(values: Mapping[str, Any]) -> str:
    rows = (
        f"<dt>{escape(name)}</dt><dd>{escape(cell(value))}</dd>" for name, value in values.items()
    )
    return f"<dl>{''.join(rows)}</dl>" if values else ""


def _fit(run: Run, fit: str) -> str:
    """A fit's loss curve; nothing where it logged no loss."""
    # A resumed fit logs the steps since its last checkpoint again: the later line holds.
    logged = {
        entry["step"]: entry["loss"]
        for entry in run.metrics(fit)
        if _is_number(entry.get("step")) and _is_number(entry.get("loss"))
    }
    if len(logged) < 2:
        return ""
    steps = sorted(logged)
    svg = _curve(steps, [logged[step] for step in steps])
    state = "" if fit in run.models else ", not finished"
    return f"<figure>{svg}<figcaption>{escape(caption(fit) + state)}</figcaption></figure>"


def _curve(steps: Sequence[float], losses: Sequence[float]) -> str:
    size = math.ceil(len(steps) / _POINTS)
    bins = [slice(start, start + size) for start in range(0, len(steps), size)]
    xs = [sum(steps[b]) / len(steps[b]) for b in bins]
    ys = [sum(losses[b]) / len(losses[b]) for b in bins]
    # The first steps' loss is often far above the rest: a logarithmic axis shows both.
    logarithmic = min(ys) > 0 and max(ys) > 10 * min(ys)
    heights = [math.log(y) for y in ys] if logarithmic else ys
    low, span = min(heights), max(heights) - min(heights) or 1.0
    left, width = xs[0], xs[-1] - xs[0] or 1.0
    points = " ".join(
        f"{(x - left) / width * _WIDTH:.1f},{(1 - (h - low) / span) * _HEIGHT:.1f}"
        for x, h in zip(xs, heights, strict=True)
    )
    scale = "loss, logarithmic" if logarithmic else "loss"
    label = f"{scale}: {cell(max(ys))} to {cell(min(ys))}, last {cell(ys[-1])}"
    return (
        f'<svg viewBox="-1 -22 {_WIDTH + 2} {_HEIGHT + 42}" role="img" aria-label="loss curve">'
        f'<path d="M0,0V{_HEIGHT}H{_WIDTH}"/><polyline points="{points}"/>'
        f'<text x="0" y="-8">{label}</text>'
        f'<text x="0" y="{_HEIGHT + 16}">{steps[0]:,}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 16}" class="end">{steps[-1]:,} steps</text></svg>'
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _title(run: Run) -> str:
    return caption(run.experiment)


def _date(stamp: str) -> str:
    return stamp[:16].replace("T", " ")


def _save(path: Path, title: str, body: str) -> None:
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )
    with atomic(path) as file:
        file.write(page.encode())


_STYLE = """
:root { --ink: #1d2126; --dim: #68707a; --line: #dfe3e8; --paper: #fff; --tint: #f5f6f8;
  --accent: #2a62b8; --done: #1f7a47; --open: #a85b00 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --dim: #98a1ac; --line: #333a43;
  --paper: #15181c; --tint: #1e2329; --accent: #85b1f5; --done: #66c78f; --open: #e8a655 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif }
main { max-width: 60rem; margin: 0 auto; padding: 3rem 1.5rem 4rem }
h1, h2 { margin: 0; line-height: 1.2; font-weight: 650; letter-spacing: -.01em }
h1 { font-size: 2rem } h2 { font-size: 1.5rem }
h3 { margin: 0 0 .8rem; font-size: .8rem; font-weight: 600; color: var(--dim);
  text-transform: uppercase; letter-spacing: .08em }
a { color: var(--accent) }
code { font: .9em ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere }
.about { margin: .6rem 0 0; font-size: 1.1rem; max-width: 42rem }
.tags { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin: .9rem 0 2rem;
  font-size: .85rem }
.tags span:not(.dim) { padding: .1rem .65rem; border: 1px solid var(--line); border-radius: 1rem }
.tags .done { color: var(--done) } .tags .open { color: var(--open) } .dim { color: var(--dim) }
.note { padding: .8rem 1rem; background: var(--tint); border-left: 3px solid var(--open) }
section { margin-top: 2.6rem }
.wide { overflow-x: auto }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .5rem .8rem; text-align: left; border-bottom: 1px solid var(--line) }
th { font-size: .85rem; font-weight: 600; color: var(--dim) }
.num { text-align: right; white-space: nowrap }
figure { margin: 0 } figcaption { margin-top: .5rem; font-size: .9rem; color: var(--dim) }
.figures > div { display: grid; gap: 2rem 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)) }
.panorama { grid-column: 1 / -1 }
.figures img { display: block; width: 100%; padding: .5rem; background: #fff;
  border: 1px solid var(--line); border-radius: .4rem }
pre { max-height: 30rem; padding: 1rem; overflow: auto; background: var(--tint);
  font-size: .85rem; white-space: pre-wrap }
.fits > div { display: grid; gap: 1.5rem;
  grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)) }
svg { display: block; width: 100%; fill: none; stroke: var(--line) }
svg polyline { stroke: var(--accent); stroke-width: 1.5; stroke-linejoin: round }
svg text { fill: var(--dim); stroke: none; font-size: 11px } svg .end { text-anchor: end }
.facts { display: grid; gap: 0 3rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.5rem; margin: 0;
  font-size: .92rem }
dt { color: var(--dim) } dd { margin: 0; overflow-wrap: anywhere }
.toc { padding-left: 1.2rem }
main > div { margin-top: 4rem; padding-top: 2rem; border-top: 1px solid var(--line) }
@media print { main { padding: 0 } figure, tr { break-inside: avoid } }
"""
