"""Run what is not in the table of results yet, then draw the figures and print the tables."""

import argparse
import time
from pathlib import Path

import torch
from benchmarks.streams import figures, ivon_mlp, markdown, prequential, table
from benchmarks.streams.data import STREAMS
from benchmarks.streams.models import MODELS, takes

TIMED_ROWS = 500  # of each stream: enough for a mean; River's trees go on growing and take longer later
PUBLISHED = Path("docs/streams")
WARM_UP = 20  # rows that a model of its own learns before the clock starts: compiled code is loaded once


def main(arguments: list[str] | None = None) -> None:
    """What the command line asks for."""
    choices = _choices(arguments)
    torch.set_num_threads(1)
    out = choices.out
    models = [name for name in choices.models if name != "ivon" or ivon_mlp.installed()]
    if len(models) < len(choices.models):
        print("IVON is left out: pip install 'mesu[bench]' brings it")
    if choices.timing:
        _time(out / "costs.csv", choices.streams, models, choices.rows)
    else:
        _score(out / "results.csv", choices.streams, models, choices.seeds, choices.rows)
    results = table.read_results(out / "results.csv")
    for name in choices.streams:
        stream = STREAMS[name](0).first(choices.rows)
        mine = {key: result for key, result in results.items() if key[0] == name and result.rows == len(stream)}
        if mine:
            figures.draw(stream, mine, out / f"{name}.png")
    print("\n" + markdown.tables(results, table.read_costs(out / "costs.csv")))


def _score(path: Path, streams: list[str], models: list[str], seeds: int, rows: int | None) -> None:
    results = table.read_results(path)
    for name in streams:
        for seed in range(seeds):
            stream = STREAMS[name](seed).first(rows)
            for model in [model for model in models if takes(model, stream)]:
                done = results.get((name, model, seed))
                if done and done.rows == len(stream):
                    continue
                began = time.process_time()
                outcome = prequential.run(stream, MODELS[model].build(stream, seed))
                score = float(outcome.blocks.sum()) / len(stream)
                result = table.Result(
                    name, model, seed, len(stream), score, outcome.log_loss, outcome.kib, tuple(outcome.blocks)
                )
                results[name, model, seed] = result
                table.write(path, results)
                seconds = time.process_time() - began
                print(f"{name:10} {model:11} seed {seed}  score {score:8.4f}  {seconds:6.1f} s", flush=True)


def _time(path: Path, streams: list[str], models: list[str], rows: int | None) -> None:
    costs = table.read_costs(path)
    for name in streams:
        stream = STREAMS[name](0).first(min(rows or TIMED_ROWS, TIMED_ROWS))
        for model in [model for model in models if takes(model, stream)]:
            prequential.run(stream.first(WARM_UP), MODELS[model].build(stream, 0))
            outcome = prequential.run(stream, MODELS[model].build(stream, 0))
            costs[name, model] = table.Cost(name, model, len(stream), outcome.us_per_row)
            table.write(path, costs)
            print(f"{name:10} {model:11} {outcome.us_per_row:8,.0f} us a row", flush=True)


def _choices(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__)
    parser.add_argument("--streams", default=",".join(STREAMS), help="which, with commas between (all)")
    parser.add_argument("--models", default=",".join(MODELS), help="which, with commas between (all)")
    parser.add_argument("--seeds", type=int, default=3, help="of the model, and of the order of digits (3)")
    parser.add_argument("--rows", type=int, help="cut each stream short, for a quick look; needs an --out of its own")
    parser.add_argument("--timing", action="store_true", help="measure times anew instead of scores")
    parser.add_argument("--out", type=Path, default=PUBLISHED, help="folder of tables and figures")
    choices = parser.parse_args(arguments)
    for kind, known in (("streams", STREAMS), ("models", MODELS)):
        names = getattr(choices, kind).split(",")
        for name in names:
            if name not in known:
                parser.error(f"there is no {kind[:-1]} {name!r}: choose from {', '.join(known)}")
        setattr(choices, kind, names)
    if choices.seeds < 1 or (choices.rows is not None and choices.rows < WARM_UP):
        parser.error(f"there must be 1 seed or more, and {WARM_UP} rows or more")
    if choices.rows is not None and choices.out == PUBLISHED:
        parser.error(f"--rows would put short runs in the place of whole ones in {PUBLISHED}: give an --out")
    return choices


if __name__ == "__main__":
    main()
