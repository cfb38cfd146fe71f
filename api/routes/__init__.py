"""The routes by subject; `ROUTERS` is the table of contents."""

from . import agents, events, health, hosts, jobs, pages, rounds, solve

ROUTERS = (
    jobs.router,
    hosts.router,
    rounds.router,
    solve.router,
    agents.router,
    events.router,
    health.router,
    pages.router,
)
