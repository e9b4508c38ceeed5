"""The tracker: offline runs read back, failures that never reach the run."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from typing import Any

import pytest
from places import HANG_S
from wandb_server import records, stand_in, written

from streaming_asr.errors import UserError
from streaming_asr.track.tracker import TrackerWarning, tracker

CONFIG = {
    "name": "grid",
    "method": {"name": "ufal"},
    "chunk": "1s",
    "tracker": {"name": "wandb", "mode": "offline"},
}
VARIABLES = ("WANDB_PROJECT", "WANDB_RUN_GROUP", "WANDB_TAGS")


@pytest.fixture(autouse=True)
def wandb_at_home(tmp_path, monkeypatch):
    for name in ("WANDB_MODE", "WANDB_RUN_ID", *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name.lower()))


class FakeRun:
    """A run whose service has died: everything but finish raises."""

    offline = False
    dir = "/nowhere/files"

    def __init__(self) -> None:
        self.exit_codes = []
        self.summary = self

    def finish(self, exit_code: int) -> None:
        self.exit_codes.append(exit_code)

    def __getattr__(self, name: str) -> Any:
        raise ConnectionError("service is gone")


@pytest.fixture
def fake(monkeypatch):
    """Replaces wandb; returns the arguments of each `init`, which gives `run` or raises."""

    def replaced(run=None, *, unreachable=""):
        calls = []

        def init(**settings):
            calls.append(settings)
            if settings["mode"] == unreachable:
                raise TimeoutError("no answer after 30 s")
            return run or FakeRun()

        module = types.SimpleNamespace(Settings=lambda **_: None, init=init)
        monkeypatch.setitem(sys.modules, "wandb", module)
        return calls

    return replaced


def test_an_offline_run_holds_the_numbers_the_curve_and_the_report(tmp_path, capsys):
    page = tmp_path / "report.html"
    page.write_text("<p>report</p>")
    cell = tmp_path / "my cell"
    cell.mkdir()
    log_of_events = cell / "events.jsonl"
    log_of_events.write_text("{}")
    with tracker(CONFIG, folder=cell) as track:
        track.log({"loss": 3.5}, step=10)
        track.log({"loss": 2.25}, step=20)
        track.summary({"wer": 4.25, "cer": None})
        track.report(page)
        track.events(log_of_events)
    written()

    (log,) = cell.glob("wandb/offline-run-*/*.wandb")
    assert f"streaming-asr sync {tmp_path}" in capsys.readouterr().out
    runs, curve, summary, metrics, media, artifacts = [], [], {}, {}, {}, []
    for record in records(log):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            runs.append(record.run)
        elif kind == "history":
            point = {
                "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            media |= point
            if "loss" in point:
                curve.append((point["step"], point["loss"]))
        elif kind == "summary":
            summary |= {item.key: item.value_json for item in record.summary.update if item.key}
        elif kind == "metric":
            metrics[record.metric.name] = record.metric
        elif kind == "request" and record.request.HasField("log_artifact"):
            artifacts.append(record.request.log_artifact.artifact)
        elif kind == "artifact":
            artifacts.append(record.artifact)
    assert (runs[0].run_group, runs[0].display_name) == ("grid", "my cell")
    config = {item.key: item.value_json for item in runs[0].config.update}
    assert (config["chunk"], config["chunk_ms"]) == ('"1s"', "1000")
    assert runs[0].job_type == "ufal"
    kept = [artifact for artifact in artifacts if artifact.type == "events"]
    assert [e.path for a in kept for e in a.manifest.contents] == ["events.jsonl"]
    assert curve == [(10, 3.5), (20, 2.25)]
    assert metrics["loss"].step_metric == "step"
    assert metrics["wer"].summary.min
    assert json.loads(summary["wer"]) == 4.25
    assert "cer" not in summary
    assert media["report/_type"] == "html-file"
    (sent,) = log.parent.glob("files/media/html/*.html")
    assert sent.read_text() == page.read_text()


def test_a_finished_cell_has_numbers_and_what_panels_group_it_by(tmp_path):
    latency = "word_latency_committed_p50_ca_s"
    with tracker(CONFIG, folder=tmp_path) as track:
        track.summary({"wer": 4.25, latency: 1.5, "rtf_total": None, "cer": 2.0})
        track.series("ufal, tiny.en, voices")
    written()
    (log,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    summary, config = {}, {}
    for record in records(log):
        if record.WhichOneof("record_type") == "summary":
            summary |= {item.key: item.value_json for item in record.summary.update if item.key}
        elif record.WhichOneof("record_type") == "config":
            config |= {item.key: json.loads(item.value_json) for item in record.config.update}
    assert config["series"] == "ufal, tiny.en, voices"
    # What a panel, a column or a sort uses is a number, not {"min": number}.
    assert {name: json.loads(summary[name]) for name in ("wer", "cer", latency)} == {
        "wer": 4.25, "cer": 2.0, latency: 1.5
    }  # fmt: skip


def test_cells_are_runs_of_their_own_whatever_run_id_is_set(tmp_path, monkeypatch, fake):
    calls = fake()

    def start(cell):
        with tracker(CONFIG, folder=tmp_path / cell):
            pass

    start("one")
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    for cell in ("one", "two", "one"):
        start(cell)
    unset, one, two, again = (call["id"] for call in calls)
    assert unset is None
    assert one == again != two
    assert all(each.startswith("mine-") for each in (one, two))


@pytest.mark.parametrize(
    ("name", "settings", "place"),
    [
        ("default", {}, ("mine", "my group", ["a", "b"])),
        ("grid", {"project": "p", "tags": ["c"]}, ("p", "grid", ["c"])),
    ],
)
def test_wandb_s_variables_fill_in_what_no_setting_names(
    tmp_path, monkeypatch, fake, name, settings, place
):
    calls = fake()
    for key, value in (("PROJECT", "mine"), ("RUN_GROUP", "my group"), ("TAGS", "a,b")):
        monkeypatch.setenv(f"WANDB_{key}", value)
    with tracker({"name": name, "tracker": {"name": "wandb", **settings}}, folder=tmp_path):
        pass
    assert [(each["project"], each["group"], each["tags"]) for each in calls] == [place]


@pytest.mark.parametrize(("mode", "modes"), [("disabled", []), ("offline", ["offline"])])
def test_the_variable_that_switches_wandb_off_is_respected(
    tmp_path, monkeypatch, fake, mode, modes
):
    calls = fake()
    monkeypatch.setenv("WANDB_MODE", mode)
    with tracker({"tracker": {"name": "wandb", "mode": "online"}}, folder=tmp_path) as track:
        assert track.alive == bool(modes)
    assert [each["mode"] for each in calls] == modes


def test_tracker_none_never_imports_wandb(tmp_path):
    code = (
        "import sys; from streaming_asr.track.tracker import tracker\n"
        "with tracker({'tracker': {'name': 'none'}}, folder=sys.argv[1]) as track:\n"
        "    track.log({'loss': 1.0}, step=1); track.summary({'wer': 1.0})\n"
        "assert 'wandb' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert list(tmp_path.iterdir()) == []


def test_without_wandb_installed_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with (
        pytest.warns(TrackerWarning, match=r"import wandb failed .*tracker=none"),
        tracker(CONFIG, folder=tmp_path) as track,
    ):
        track.summary({"wer": 1.0})


def test_an_unreachable_server_leaves_an_offline_run(tmp_path, fake):
    calls = fake(unreachable="online")
    config = {"tracker": {"name": "wandb", "mode": "online"}}
    with (
        pytest.warns(TrackerWarning, match="mode=online.*no answer after 30 s"),
        tracker(config, folder=tmp_path),
    ):
        pass
    assert [each["mode"] for each in calls] == ["online", "offline"]


@pytest.mark.parametrize("answer", [None, 500])
def test_a_server_that_is_away_or_fails_costs_the_run_nothing(answer, tmp_path, monkeypatch):
    import wandb

    init = wandb.init

    def impatient(*, mode, settings, **given):
        settings.init_timeout = 1 if mode == "online" else HANG_S
        return init(mode=mode, settings=settings, **given)

    monkeypatch.setattr(wandb, "init", impatient)
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    with stand_in(lambda query, variables: answer) as address:
        monkeypatch.setenv("WANDB_BASE_URL", address if answer else "http://127.0.0.1:9")
        config = {"name": "grid", "tracker": {"name": "wandb", "mode": "online"}}
        with (
            pytest.warns(TrackerWarning, match="mode=online.*the run goes on without it"),
            tracker(config, folder=tmp_path) as track,
        ):
            track.summary({"wer": 4.25})
    written()
    (log,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    summaries = [
        {item.key: item.value_json for item in record.summary.update if item.key}
        for record in records(log)
        if record.WhichOneof("record_type") == "summary"
    ]
    assert {"wer": "4.25"} in summaries


def test_a_server_that_goes_away_before_the_end_leaves_the_command_that_sends_the_run(
    tmp_path, fake, capsys
):
    class Gone(FakeRun):
        def finish(self, exit_code: int) -> None:
            raise TimeoutError("not finished after 300 s")

    fake(Gone())
    with (
        pytest.warns(TrackerWarning, match="finish failed: TimeoutError: not finished"),
        tracker(CONFIG, folder=tmp_path / "sweep" / "cell"),
    ):
        pass
    assert f"streaming-asr sync {tmp_path / 'sweep'}" in capsys.readouterr().out


def test_the_runs_of_a_sweep_are_told_of_once(tmp_path, fake, capsys):
    class Offline(FakeRun):
        offline = True

    fake(Offline())
    for cell in ("one", "two", "three"):
        with tracker(CONFIG, folder=tmp_path / cell):
            pass
    assert capsys.readouterr().out.splitlines() == [
        f"W&B runs are kept offline; to upload them: streaming-asr sync {tmp_path}"
    ]


def test_a_dying_service_is_told_once_and_the_run_is_still_closed(tmp_path, fake):
    run = FakeRun()
    fake(run)
    with (
        pytest.warns(TrackerWarning, match="log failed: ConnectionError: service is gone") as told,
        tracker(CONFIG, folder=tmp_path) as track,
    ):
        track.log({"loss": 1.0}, step=1)
        track.log({"loss": 1.0}, step=2)
        track.summary({"wer": 1.0})
    assert len(told) == 1
    assert run.exit_codes == [0]


def test_a_run_that_raises_is_closed_as_failed_and_its_error_kept(tmp_path, fake):
    run = FakeRun()
    fake(run)
    with pytest.raises(KeyboardInterrupt), tracker(CONFIG, folder=tmp_path):
        raise KeyboardInterrupt
    assert run.exit_codes == [1]


def test_an_unknown_tracker_is_refused(tmp_path):
    with (
        pytest.raises(UserError, match=r"tracker=.mlflow.: one of none, wandb"),
        tracker({"tracker": "mlflow"}, folder=tmp_path),
    ):
        pass
