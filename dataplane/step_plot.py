"""A picture of where steps spent their time."""

from collections.abc import Sequence

from .step_timer import StepTime, summarise

_PARTS = (
    ("compute_s", "compute", "#2563a8"),
    ("wait_s", "batch wait", "#d9822b"),
    ("checkpoint_s", "checkpoint", "#8a5fb0"),
    ("peers_s", "slower ranks", "#9aa3ad"),
)
_WIDTH, _HEIGHT, _TOP = 720, 200, 40


def plot_steps(steps: Sequence[StepTime]) -> str:
    """An SVG with a bar per step, cut into its parts, and each part's share of all time."""
    total = summarise(steps)
    tallest = max((step.total_s for step in steps), default=0.0) or 1.0
    width = _WIDTH / max(1, len(steps))
    drawn, legend = [], []
    for number, (name, label, colour) in enumerate(_PARTS):
        share = getattr(total, name) / total.total_s if total.total_s else 0.0
        x = 10 + number * 180
        legend.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{colour}"/>')
        legend.append(f'<text x="{x + 18}" y="20">{label} {share:.1%}</text>')
    for column, step in enumerate(steps):
        y = float(_TOP + _HEIGHT)
        for name, _, colour in _PARTS:
            height = getattr(step, name) / tallest * _HEIGHT
            y -= height
            if height > 0:
                box = f'x="{10 + column * width:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
                drawn.append(f'<rect {box} fill="{colour}"/>')
    label = f'<text x="10" y="{_TOP + _HEIGHT + 16}">{len(steps)} steps, the longest {tallest * 1000:.1f} ms</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 20}" height="{_TOP + _HEIGHT + 24}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(legend)}{''.join(drawn)}{label}</svg>\n"
    )
