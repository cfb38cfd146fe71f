"""The routes by subject; `ROUTERS` is the table of contents."""

from .agents import router as agents
from .events import router as events
from .health import router as health
from .hosts import router as hosts
from .jobs import router as jobs
from .pages import router as pages
from .rounds import router as rounds
from .solve import router as solve
from .whatif import router as whatif

ROUTERS = (jobs, hosts, rounds, solve, agents, events, health, pages, whatif)
