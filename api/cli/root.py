"""The table of commands, and the one place where faults become exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from ...model.errors import IllegalTransition, InvalidInput, NotFound, PhalanxError
from .exit_codes import Exit, Stop, complain

COMMANDS = {
    "serve": ("serve", "Run the service: API, scheduler, site adapters and the status page."),
    "submit": ("submit", "Submit a job from a job file, from flags, or both."),
    "jobs": ("jobs", "List jobs."),
    "job": ("job", "Show one job: state, placement, attempts, reason."),
    "logs": ("logs", "Print what a rank of a job wrote."),
    "cancel": ("actions", "Cancel jobs."),
    "hold": ("actions", "Keep waiting jobs from starting."),
    "resume": ("actions", "Let held jobs queue again; requeue ended ones."),
    "priority": ("actions", "Change a job's priority inside its team."),
    "why": ("job", "Say why a job waits, and what would help."),
    "hosts": ("hosts", "List hosts with their GPUs, state and jobs."),
    "cordon": ("hosts", "Give hosts no new work."),
    "uncordon": ("hosts", "Let cordoned hosts take work again."),
    "solve": ("solve", "Decide one snapshot; needs no service."),
    "whatif": ("whatif", "Compare a snapshot, or the live fleet, with a changed one."),
    "verify": ("solve", "Check a decision against every rule; needs no service."),
    "import-trace": ("trace", "Make a snapshot of a public trace as it stood at a time."),
    "shard": ("shard", "Make data sets of shards from raw recordings, and look at them."),
    "cache": ("cache", "Fill a host's shard cache before a job comes, and show it."),
    "schema": ("schema", "Print or write the JSON Schemas of the documents."),
    "demo": ("demo", "Run a small fleet with an example mix of jobs, start to end."),
}
"""Command, its module here, and its line in `phalanx --help`."""
HIDDEN = {"agent": ("agent", "Report this host to the service.")}


class Commands(click.Group):
    """A group whose commands are imported when they are first asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands that help shows, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the module of one command."""
        row = COMMANDS.get(cmd_name) or HIDDEN.get(cmd_name)
        if row is None:
            return None
        module = importlib.import_module(f".{row[0]}", __package__)
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands from the table, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row[1]) for name, row in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but an unknown command is answered with the nearest known one."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from ...model.codec import nearest

            raise InvalidInput(args[0][:80], "no such command", nearest(args[0][:80], COMMANDS))
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="phalanx", prog_name="phalanx")
def root() -> None:
    """Decides where every training job of a shared, multi-site GPU fleet runs, and makes it so.

    Exit codes: 0 done; 1 the answer is no (a violation, a failed job); 2 wrong input; 3 the service cannot be reached
    or has failed; 4 the service refused.
    """


def run(argv: Sequence[str]) -> int:
    """Runs one command line of `phalanx` and returns its exit code."""
    return guarded(root, argv, "phalanx")


def guarded(command: click.Command, argv: Sequence[str], program: str) -> int:
    """Runs a command and returns its exit code; every fault is one paragraph on stderr, never a trace."""
    try:
        outcome: Any = command.main(list(argv), prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except Stop as stop:
        if stop.message:
            complain(stop.message)
        return stop.code
    except click.ClickException as fault:
        return _usage(fault)
    except (InvalidInput, NotFound) as fault:
        complain(str(fault))
        return Exit.BAD_INPUT
    except (IllegalTransition, PhalanxError) as fault:
        complain(str(fault))
        return Exit.REFUSED
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone; without this the interpreter complains once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except OSError as fault:
        complain(f"{fault.filename or 'the system'}: {fault.strerror or fault}")
        return Exit.BAD_INPUT
    except Exception as fault:  # a bug of ours; a user is owed a sentence and a way to the rest, not a trace
        complain(_bug(fault))
        return Exit.UNREACHABLE
    return int(outcome) if isinstance(outcome, int) else Exit.OK


def _usage(fault: click.ClickException) -> int:
    complain(fault.format_message())
    return Exit.BAD_INPUT


def _bug(fault: Exception) -> str:
    frame = fault.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f"{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}" if frame else "unknown place"
    return f"a fault inside Phalanx at {where}: {type(fault).__name__}: {fault}"
