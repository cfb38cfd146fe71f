"""The table of `phalanx-bench dataplane`."""

from __future__ import annotations

from typing import Any

from ...api.cli.tables import console, table


def show(result: dict[str, Any]) -> None:
    """Prints the table, the further rows, and who has no part in them and why."""
    out = console()
    out.print(", ".join(f"{name} {value}" for name, value in result["machine"].items()), markup=False)
    out.print(", ".join(f"{name} {value}" for name, value in result["data"].items()), markup=False)
    columns = {
        "samples/s": ("samples_per_s", "{:,.0f}"),
        "GB/s": ("gb_per_s", "{:.2f}"),
        "CPU-s/GB": ("cpu_s_per_gb", "{:.2f}"),
        "first batch s": ("first_batch_s", "{:.3f}"),
        "MiB": ("memory_mib", "{:.0f}"),
        "wait 10 ms": ("wait_share_10ms", "{:.3f}"),
        "beside null": ("beside_null", "{:.2f}"),
        "cold GB/s": ("cold_gb_per_s", "{:.2f}"),
        "of disk": ("cold_of_disk", "{:.2f}"),
        "cold CPU-s/GB": ("cold_cpu_s_per_gb", "{:.2f}"),
        "cold first s": ("cold_first_batch_s", "{:.3f}"),
        "cold wait 10 ms": ("cold_wait_share_10ms", "{:.3f}"),
    }
    rows = [
        (
            *(f"{name} {result['versions'].get(name, '')}", str(each["workers"])),
            *(form.format(each[key]) if key in each else "-" for key, form in columns.values()),
        )
        for name, each in result["loaders"].items()
    ]
    out.print(table("", ("loader", "workers", *columns), rows, right=("workers", *columns)))
    for name, told in result["versions"].items():
        if name not in result["loaders"]:
            out.print(f"{name}: not measured, {told}", markup=False)
    for name, each in result["loaders"].items():
        for fault in each["faults"]:
            out.print(f"{name}: a run failed: {fault}", markup=False)
    if "share_of_take" in result:
        founding = result["founding"]
        out.print(
            f"ours: {result['share_of_take']:.2f} of np.take into rotating buffers; index of 10^8 samples "
            f"{result['index_1e8_mib']:.0f} MiB; founding scenario (step {founding['step_ms']:.1f} ms): online loader "
            f"{founding['online']:.0%} utilised, shards {founding['shards']:.1%}",
            markup=False,
        )
    for name, each in result.get("rows", {}).items():
        show_row(name, each)
    for name, values in result.get("more", {}).items():
        out.print(f"ours, {name}: " + ", ".join(f"{key} {value:,.3g}" for key, value in values.items()), markup=False)


def show_row(name: str, results: dict[str, dict[str, Any]]) -> None:
    """Prints one further row, and who has no part in it and why."""
    keys = {
        "samples/s": "samples_per_s",
        "GB/s": "gb_per_s",
        "GB/s from the start": "whole_gb_per_s",
        "CPU-s/GB": "cpu_s_per_gb",
        "first batch s": "first_batch_s",
    }
    forms = ("{:,.0f}", "{:.2f}", "{:.2f}", "{:.2f}", "{:.3f}")
    lines = [
        (loader, *(form.format(each[key]) for form, key in zip(forms, keys.values(), strict=True)))
        for loader, each in results.items()
        if "fault" not in each
    ]
    console().print(table(name, ("loader", *keys), lines, right=tuple(keys)))
    for loader, each in results.items():
        if "fault" in each:
            console().print(f"{name}, {loader}: {each['fault']}", markup=False)
