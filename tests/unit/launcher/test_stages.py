"""vLLM's log, by the wordings of several of its versions, tells the stages of a start."""

import logging
import threading

import pytest
from launcher.supervision.board import Board
from launcher.supervision.stages import Sign, Stage, read_sign

# (EngineCore pid=7) INFO 11-30 11:31:59 [...] stands before each of vLLM's own lines.
SIGNS = [
    ("[cpu_model_runner.py:68] Starting to load model /models/demo...", Sign(Stage.LOADING)),
    ("Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]", Sign(Stage.LOADING, 0.0)),
    ("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00, 9it/s]", Sign(Stage.LOADING, 0.5)),
    ("Loading pt checkpoint shards: 100% Completed | 1/1 [00:00<00:00, 9it/s]", Sign(Stage.LOADING, 1.0)),
    ("Using cache directory: /cache/vllm/torch_compile_cache/a for vLLM's torch.compile", Sign(Stage.COMPILING)),
    ("Dynamo bytecode transform time: 3.10 s", Sign(Stage.COMPILING)),
    ("torch.compile takes 12.21 s in total", Sign(Stage.COMPILING)),
    ("torch.compile took 12.21 s in total", Sign(Stage.COMPILING)),
    ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  37%|███▋ | 25/67", Sign(Stage.CAPTURING, 0.37)),
    ("Capturing CUDA graphs: 100%|██████| 67/67", Sign(Stage.CAPTURING, 1.0)),
    ("Graph capturing finished in 4 secs, took 0.40 GiB", Sign(Stage.WARMING)),
    ("init engine (profile, create kv cache, warmup model) took 0.77 s", Sign(Stage.WARMING)),
    ("Starting vLLM server on http://127.0.0.1:8000", Sign(Stage.WARMING)),
    ("Starting vLLM API server 0 on http://0.0.0.0:8000", Sign(Stage.WARMING)),
    ("INFO:     Application startup complete.", Sign(Stage.WARMING)),
]


@pytest.mark.parametrize(("line", "sign"), SIGNS)
def test_signs(line: str, sign: Sign) -> None:
    assert read_sign(line) == sign


@pytest.mark.parametrize("line", ["", "(APIServer pid=1) INFO  version 0.32.0", 'INFO: "POST /v1/completions" 200 OK'])
def test_most_lines_say_nothing(line: str) -> None:
    assert read_sign(line) is None


def test_a_start_goes_forward_only_and_each_stage_has_its_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    board = Board("demo")
    [engine] = board.expect([("engine 1", 8000, 16)])
    engine.hear("Starting to load model")
    assert engine.stage is Stage.WAITING, "it is not started yet"
    engine.enter(Stage.STARTING)
    for line, _ in SIGNS[:3]:
        engine.hear(line)
    report = board.report()
    assert report["stage"] == "loading"
    assert report["progress"] == 0.5
    assert report["engines"][0]["started_at"] <= report["since"]
    engine.hear("Capturing CUDA graphs: 100%|")
    engine.hear("Loading safetensors checkpoint shards:  50% Completed")
    assert engine.stage is Stage.CAPTURING
    engine.enter(Stage.SERVING)
    engine.hear("Capturing CUDA graphs: 10%|")
    assert engine.stage is Stage.SERVING
    assert list(engine.times()) == ["starting", "loading", "capturing"]
    messages = [record.message.rpartition(" took ")[0] for record in caplog.records]
    assert messages == ["engine 1: starting", "engine 1: loading", "engine 1: capturing"]


def test_a_line_never_undoes_what_another_thread_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    [engine] = Board("demo").expect([("engine 1", 8000, 16)])
    engine.enter(Stage.LOADING)
    ranks = Stage.rank.fget
    assert ranks is not None
    health = threading.Thread(target=engine.enter, args=(Stage.SERVING,))

    asked = []

    def rank(stage: Stage) -> int:
        # The line is found to be news: right now the health check succeeds.
        asked.append(stage)
        if asked.count(Stage.LOADING) == 2 and health.ident is None:
            health.start()
            health.join(0.2)
        return int(ranks(stage))

    monkeypatch.setattr(Stage, "rank", property(rank))
    engine.hear("Application startup complete.")
    health.join()
    assert engine.stage is Stage.SERVING


def test_the_engine_that_is_furthest_behind_stands_for_all() -> None:
    board = Board("demo")
    board.own.enter(Stage.DOWNLOADING, "1 of 2 MB", 0.5)
    report = board.report()
    assert (report["stage"], report["detail"], report["progress"]) == ("downloading", "1 of 2 MB", 0.5)
    assert report["engines"] == []
    first, second = board.expect([("engine 1", 8000, 256), ("engine 2", 8091, None)])
    first.enter(Stage.SERVING)
    second.enter(Stage.STARTING)
    assert board.report()["stage"] == "starting"
    shown = [(engine["port"], engine["sequences"]) for engine in board.report()["engines"]]
    assert shown == [(8000, 256), (8091, None)]
    second.enter(Stage.SERVING)
    assert board.report()["stage"] == "serving"
    first.enter(Stage.STOPPING)
    second.enter(Stage.ENDED)
    assert board.report()["stage"] == "stopping"
