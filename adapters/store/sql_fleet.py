"""Sites, links, hosts and teams in SQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import bindparam, delete, select, update

from ...model.ids import HostId, TeamId
from ...model.topology import Link, Site
from . import rows, tables
from .books import HostRow, TeamRow
from .changes import to_text
from .sql_rows import SqlRows

_BUMP = update(tables.hosts).where(tables.hosts.c.id == bindparam("key_")).values(version=tables.hosts.c.version + 1)


class SqlFleetBooks(SqlRows):
    """See `books.FleetBooks`."""

    def host(self, host: HostId) -> HostRow | None:
        """One host."""
        row = self.row(tables.hosts, "id", host)
        return None if row is None else rows.host_row(row)

    def hosts(self) -> tuple[HostRow, ...]:
        """All hosts, by name."""
        return tuple(rows.host_row(row) for row in self.all(select(tables.hosts).order_by(tables.hosts.c.id)))

    def put_host(self, row: HostRow) -> None:
        """Adds or replaces a host's row."""
        self.put(tables.hosts, "id", rows.host_values(row))

    def bump_hosts(self, hosts: Collection[HostId]) -> None:
        """Raises the versions of these hosts by one."""
        if hosts:
            self.connection.execute(_BUMP, [{"key_": host} for host in hosts])

    def sites(self) -> tuple[Site, ...]:
        """All sites, by name."""
        query = select(tables.sites).order_by(tables.sites.c.id)
        return tuple(rows.cached(row["document"], Site) for row in self.all(query))

    def put_site(self, site: Site) -> None:
        """Adds or replaces a site."""
        self.put(tables.sites, "id", {"id": site.id, "document": to_text(site)})

    def links(self) -> tuple[Link, ...]:
        """All links, in the order given."""
        query = select(tables.links).order_by(tables.links.c.number)
        return tuple(rows.cached(row["document"], Link) for row in self.all(query))

    def put_links(self, links: Sequence[Link]) -> None:
        """Replaces all links."""
        self.connection.execute(delete(tables.links))
        for number, link in enumerate(links):
            self.add(tables.links, {"number": number, "document": to_text(link)})

    def team(self, team: TeamId) -> TeamRow | None:
        """One team."""
        row = self.row(tables.teams, "id", team)
        return None if row is None else rows.team_row(row)

    def teams(self) -> tuple[TeamRow, ...]:
        """All teams, by name."""
        return tuple(rows.team_row(row) for row in self.all(select(tables.teams).order_by(tables.teams.c.id)))

    def put_team(self, row: TeamRow) -> None:
        """Adds or replaces a team."""
        values = {"id": row.team.id, "document": to_text(row.team), "usage_at_s": row.usage_at_s}
        self.put(tables.teams, "id", values)
