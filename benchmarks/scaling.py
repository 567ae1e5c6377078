"""Cost of one update per weight as the network grows, and memory over a million updates (MESU exact, local, 10 samples)."""

import itertools
import resource
import statistics
import time

from mesu.lab import bench

ROUNDS = 5


def cost(sizes: tuple[int, ...]) -> float:
    """Median CPU nanoseconds of one update per weight."""
    weights = sum(a * b for a, b in itertools.pairwise(sizes))
    steps = max(20, min(4_000, 200_000_000 // weights))
    run = bench._engine("mesu-exact", "local", steps, sizes)
    run()
    seconds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        run()
        seconds.append((time.process_time() - began) / steps)
    return statistics.median(seconds) / weights * 1e9


def main() -> None:
    """Print the two tables as Markdown."""
    bench._pin({min(bench._cores())})
    print("| hidden layers | width | weights | means and stds | ns per weight | over 784-50-10 |")
    print("|---|---|---|---|---|---|")
    base = None
    for depth in (1, 2, 3, 4):
        for width in (50, 128, 256, 512, 1024):
            sizes = (784, *([width] * depth), 10)
            weights = sum(a * b for a, b in itertools.pairwise(sizes))
            ns = cost(sizes)
            base = base or ns
            print(
                f"| {depth} | {width} | {weights:,} | {weights * 8 / 2**20:.1f} MiB | {ns:.2f} | {ns / base:.2f} |",
                flush=True,
            )
    run = bench._engine("mesu-exact", "local", 100_000)
    print("\n| updates | peak memory of the process |\n|---|---|")
    for done in range(1, 11):
        run()
        if done in (1, 2, 5, 10):
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"| {done * 100_000:,} | {peak:.0f} MiB |", flush=True)


if __name__ == "__main__":
    main()
