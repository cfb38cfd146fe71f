"""Reasons as sentences that a researcher understands."""

from __future__ import annotations

from ..model.decision import Reason, ReasonKind, RuleFamily
from ..model.host import MILLI

PEERS = "room that jobs of its own or a higher level hold"
"""What is short besides where all that a job may preempt holds too little."""


def sentence(reason: Reason) -> str:
    """One sentence on why the job waits, then what would help, if anything is known to."""
    text = _TEXT[reason.kind](reason)
    if reason.besides == PEERS:
        text += f" What it may preempt is not enough without {reason.besides}."
    elif reason.besides:
        text += f" It would need {reason.besides} besides."
    if reason.helps:
        first, *rest = (tip.removeprefix("starts at once ") for tip in reason.helps)
        verb = "It could run" if reason.kind is ReasonKind.NEVER_FITS else "It would start at once"
        text += f" {verb} {', or '.join([first, *rest])}."
    if reason.planned_in_s is not None:
        text += f" It is planned to start {_when(reason.planned_in_s)} on {_some(reason.planned_hosts)}."
    return text


def left_open(reason: Reason) -> bool:
    """Whether no reason is told only because the work set aside for finding it was used up."""
    return reason.kind is ReasonKind.UNDECIDED and not reason.subject


def _when(seconds: int) -> str:
    return f"within {duration(seconds)}" if seconds else "as soon as its hosts are free"


def _some(hosts: tuple[str, ...]) -> str:
    """The hosts, or the first three of many."""
    return ", ".join(hosts) if len(hosts) <= 4 else f"{', '.join(hosts[:3])} and {len(hosts) - 3} more hosts"


def amount(value: int, unit: str) -> str:
    """A book-keeping amount as people write it: GPUs, cores, GiB; other units as they are."""
    if unit == "mGPU":
        whole = f"{value / MILLI:g}"
        return f"{whole} GPU" if whole == "1" else f"{whole} GPUs"
    if unit == "milli-cores":
        return f"{value / MILLI:g} CPU cores" if value != MILLI else "1 CPU core"
    if unit == "MiB":
        return (
            f"{value // 1024} GiB"
            if value % 1024 == 0
            else f"{value / 1024:.1f} GiB"
            if value > 1024
            else f"{value} MiB"
        )
    if unit == "s":
        return duration(value)
    return f"1 {unit[:-1]}" if value == 1 and unit.endswith("s") else f"{value} {unit}".strip()


def duration(seconds: int) -> str:
    """Seconds as the largest two units."""
    parts = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    shown = []
    for size, name in parts:
        if seconds >= size:
            shown.append(f"{seconds // size} {name}")
            seconds %= size
    return " ".join(shown[:2]) or "0 s"


def _asked(reason: Reason) -> str:
    return amount(reason.asked, reason.unit)


def _available(reason: Reason) -> str:
    return amount(reason.available, reason.unit)


def _never(reason: Reason) -> str:
    if reason.unit == "GPU types":
        return f"It can never start on this fleet, which has no {reason.subject}."
    if reason.unit == "sites":
        return f"It can never start on this fleet: no site that it may run on has what it needs ({reason.subject})."
    if RuleFamily.QUOTA in reason.families:
        return f"It can never start within the limits of its team: {reason.subject}; it asks {_number(reason)}."
    if RuleFamily.RESERVED in reason.families:
        left = f"{reason.available / MILLI:g} {reason.subject}"
        return (
            f"It can never start beside what is kept for tiers 1 and 2, which leaves {left}; it asks {_number(reason)}."
        )
    if reason.families == (RuleFamily.GUARANTEE,):
        return f"{_COVER}: {reason.subject}{_beside(reason)}."
    if RuleFamily.PREEMPTION in reason.families:
        return f"Only tiers 1 and 2, and teams with a guarantee, may ask never to be preempted: {reason.subject}."
    asked, most = _asked(reason), _available(reason)
    return f"It can never start on this fleet: it asks {asked} {reason.subject}; the most is {most}."


_COVER = "It is never to be preempted, so a guarantee must cover it"


def _guarantee(reason: Reason) -> str:
    return f"{_COVER}: {reason.subject}{_beside(reason)}."


def _beside(reason: Reason) -> str:
    return f", and it asks {_number(reason)}" if reason.asked else ""


def _held(reason: Reason) -> str:
    return "It is held: release it to put it back in the queue."


def _blocked(reason: Reason) -> str:
    if reason.asked > 1:
        return f"It waits for {reason.asked} jobs to succeed first: {reason.subject}."
    return f"It waits for job {reason.subject} to succeed first." if reason.subject else "It waits for another job."


def _back_off(reason: Reason) -> str:
    return f"Its last start failed; it is tried again in {_asked(reason)}."


def _busy(reason: Reason) -> str:
    if reason.families == (RuleFamily.PREEMPTION,):
        return f"The room that it needs is held by jobs of lower levels that it may not preempt now: {reason.subject}."
    if reason.unit == "mGPU":
        free = _free(reason)
        if RuleFamily.ELIGIBILITY in reason.families:
            return f"It asks {_asked(reason)} of {reason.subject}, {free}; there are others that would do."
        return f"It asks {_asked(reason)} of {reason.subject}, {free}; the rest is in use."
    if reason.unit == "workers":
        return f"It needs room for {_asked(reason)}; there is room for {reason.available} now, and the rest is in use."
    what = "" if reason.subject == "CPU" else f" of {reason.subject}"
    room = f"there is room for {_available(reason)}" if reason.available else "there is no room for that"
    return f"Its workers ask {_asked(reason)}{what} in all; where the rest of what they need is free, {room}."


def _free(reason: Reason) -> str:
    if reason.available >= reason.asked:
        return "which are free but not where it can use them"
    if not reason.available:
        return "none of which are free now"
    return f"of which {_available(reason)} {'is' if reason.available == MILLI else 'are'} free now"


def _fragmented(reason: Reason) -> str:
    return (
        f"It asks {_asked(reason)} of {reason.subject}; {_available(reason)} are free in all, but too scattered over "
        "hosts for its workers."
    )


def _topology(reason: Reason) -> str:
    return (
        f"It must run inside one {reason.subject} and needs room for {_asked(reason)} there; no {reason.subject} has "
        f"room for more than {_available(reason)} now."
    )


def _hosts(reason: Reason) -> str:
    return f"It would need hosts that take no work now: {reason.subject}."


def _outranked(reason: Reason) -> str:
    return f"The room that it needs went to jobs ahead of it in this round: {reason.subject}."


def _quota(reason: Reason) -> str:
    return f"{_upper(reason.subject)}; it asks {_number(reason)} more."


def _pool(reason: Reason) -> str:
    return f"It would need GPUs that are kept for tiers 1 and 2 ({reason.subject}), and for preemptible work meanwhile."


def _affinity(reason: Reason) -> str:
    return f"It keeps away from other jobs with its label: {reason.subject}."


def _maintenance(reason: Reason) -> str:
    ahead = f", in {_available(reason)}" if reason.available else ""
    return f"{_upper(reason.subject)}{ahead}; the job is surely over only in {_asked(reason)}."


def _reserved(reason: Reason) -> str:
    until = f"which is planned to start in {_available(reason)}" if reason.available else "which is to start now"
    return f"The room that it needs is held for {reason.subject}, {until}; it is surely over only in {_asked(reason)}."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _number(reason: Reason) -> str:
    """GPUs that it asks, without the word."""
    return f"{reason.asked / MILLI:g}"


def _undecided(reason: Reason) -> str:
    if reason.subject:
        return f"It was not started in this round: {reason.subject}."
    return "It was not started in this round, and the work set aside for finding reasons was used up."


_TEXT = {
    ReasonKind.NEVER_FITS: _never,
    ReasonKind.HELD: _held,
    ReasonKind.BLOCKED: _blocked,
    ReasonKind.BACK_OFF: _back_off,
    ReasonKind.BUSY: _busy,
    ReasonKind.FRAGMENTED: _fragmented,
    ReasonKind.TOPOLOGY: _topology,
    ReasonKind.HOSTS_UNAVAILABLE: _hosts,
    ReasonKind.OUTRANKED: _outranked,
    ReasonKind.QUOTA: _quota,
    ReasonKind.AFFINITY: _affinity,
    ReasonKind.GUARANTEE: _guarantee,
    ReasonKind.POOL: _pool,
    ReasonKind.MAINTENANCE: _maintenance,
    ReasonKind.RESERVED: _reserved,
    ReasonKind.UNDECIDED: _undecided,
}
