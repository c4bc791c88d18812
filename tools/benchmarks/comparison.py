"""The benchmarks of two revisions in turn: ABBA, so that neither a machine that changes its speed steadily nor who comes first favours one."""

import contextlib
import io

# Each round has two pairs; the interval of a median needs six.
LEAST_ROUNDS = 3


class Failed(Exception):
    """A benchmark that failed; in a comparison `is_new` says on which side."""

    def __init__(self, benchmark, reason, is_new=None):
        where = "" if is_new is None else f" on the {'new' if is_new else 'old'} revision:"
        super().__init__(f"{benchmark}:{where} {reason}")
        self.benchmark, self.reason, self.is_new = benchmark, reason, is_new


def orders(number):
    """Who runs in the round of this number, from 0: 'old new new old', and the reverse every second time."""
    return ("old", "new", "new", "old") if number % 2 == 0 else ("new", "old", "old", "new")


def figures_of(bench, benchmark):
    """The figures of one run. Raises `Failed` with what a failing command said."""
    try:
        return bench.measure_one(benchmark)
    except SystemExit as error:
        # A signal ends this process with a number; a benchmark that fails, with words.
        if not isinstance(error.code, str):
            raise
        raise Failed(benchmark, error.code.removeprefix("bench: ")) from error
    except Exception as error:
        raise Failed(benchmark, f"{type(error).__name__}: {error}") from error


def measured(bench, benchmark, is_new):
    """The figures of one side's run; what it prints is left out."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return figures_of(bench, benchmark)
    except Failed as failure:
        raise Failed(benchmark, failure.reason, is_new) from failure


def round_of(sides, benchmark, number):
    """Two pairs of runs (benchmark, old, new), each of two runs one after the other."""
    order = orders(number)
    runs = [measured(sides[side], benchmark, side == "new") for side in order]
    pairs = []
    for at in (0, 2):
        pair = dict(zip(order[at:at + 2], runs[at:at + 2]))
        pairs.append((benchmark, pair["old"], pair["new"]))
    return pairs


def compare(sides, benchmarks, rounds, say):
    """All pairs of runs, and what failed. `sides`: a Bench for "old" and for "new". A benchmark that failed once is left alone."""
    runs, failed = [], {}
    for number in range(rounds):
        for benchmark in [name for name in benchmarks if name not in failed]:
            say(f"round {number + 1} of {rounds}: {benchmark}")
            try:
                runs += round_of(sides, benchmark, number)
            except Failed as failure:
                say(str(failure))
                failed[benchmark] = failure
    return [run for run in runs if run[0] not in failed], list(failed.values())
