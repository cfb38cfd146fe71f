"""Rows hold whole records: whatever a job's record or a host carries comes back."""

from __future__ import annotations

from dataclasses import fields

from phalanx.adapters.store import rows
from phalanx.adapters.store.books import AttemptRef, HostRow, IntentRow
from phalanx.model.host import CachedDataset, Gpu, Host, HostState, Strike, Window
from phalanx.model.intent import Intent, Want
from phalanx.model.job import Job, Role, WorkerRequest
from phalanx.model.job_state import JobState, StopCause
from phalanx.model.placement import Placement, Progress, WorkerPlacement
from phalanx.model.snapshot import JobRecord
from phalanx.model.topology import TopologyPath

JOB = Job(id="j1", team="red", roles=(Role(request=WorkerRequest(gpu_milli=1000)),), name="ü")
PLACEMENT = Placement(workers=(WorkerPlacement(role="worker", index=0, host="h1", gpus=(3,)),))


def test_a_record_with_every_field_set_comes_back() -> None:
    record = JobRecord(
        job=JOB,
        state=JobState.STOPPING,
        submitted_s=1,
        state_since_s=2,
        attempt=3,
        placement=PLACEMENT,
        planned_s=4,
        started_s=5,
        progress=Progress(saved_work_s=6, last_checkpoint_s=7),
        stop_cause=StopCause.PREEMPTED,
        inside_guarantee=True,
        demoted=True,
        evictions=(8, 9),
        failed_starts=10,
        restarts=11,
        not_before_s=12,
        replacing=("h1", "h2"),
        moves=(6,),
        resized_to=3,
        replacing_until_s=14,
        exit_code=-9,
        message="évicted",
        version=13,
    )
    plain = JobRecord(job=JOB, submitted_s=1)
    untouched = [f.name for f in fields(record) if getattr(record, f.name) == getattr(plain, f.name)]
    assert untouched == ["job", "submitted_s"]
    assert rows.job_record(rows.job_values(record)) == record
    assert rows.job_record(rows.job_values(plain)) == plain


def test_a_host_with_every_field_set_comes_back() -> None:
    host = Host(
        id="h1",
        path=TopologyPath(site="s", zone="z", rack="r", nvlink="n"),
        gpus=(Gpu(index=3, gpu_type="H100", memory_mib=9, healthy=False, mig_parent=1),),
        cpu_milli=1,
        memory_mib=2,
        network_mbps=3,
        state=HostState.DOWN,
        state_cause="fire",
        state_since_s=4,
        spare=True,
        windows=(Window(start_s=5, end_s=6),),
        cached=(CachedDataset(dataset="d", digest="x", shards=1, shards_total=2, size_mib=3),),
        disk_free_mib=7,
        strikes=(Strike(job="j1", at_s=8, cause="c"),),
        version=9,
    )
    row = HostRow(host=host, ordered=HostState.CORDONED, ordered_cause="fan", reported_s=10)
    assert rows.host_row(rows.host_values(row)) == row


def test_an_intent_comes_back() -> None:
    intent = Intent(
        job=JOB, attempt=2, site="s", term=3, want=Want.STOP, placement=PLACEMENT, grace_s=4, created_s=5, stop_at_s=6
    )
    row = IntentRow(intent=intent, after=(AttemptRef(job="j0", attempt=7),), start_by_s=8)
    assert rows.intent_row(rows.intent_values(row)) == row
