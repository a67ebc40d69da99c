"""`make bench`: what memorygw costs on top of plain SQL, and over HTTP beside an API written by hand.

On the database of DATABASE_URL or a temporary SQLite file. Fails when concurrent writers lose, double or mix up turns.
"""

import sys

from benchmarks.database import configure, temporary_database


def main() -> None:
    configure()
    # Models can be imported only now.
    from benchmarks import operations, over_http, report, writers
    from benchmarks.floor import open_floor
    from benchmarks.seed import LISTER, USER, seed
    from benchmarks.server import serving
    from benchmarks.timing import measure_all

    with temporary_database():
        seeded = seed()
        report.print_heading()
        sizes = operations.bytes_per_turn()
        with open_floor() as floor:
            timings = measure_all(operations.all_operations(seeded, floor))
        report.print_timings("Cost in process", "raw", timings)
        report.print_growth(timings)
        report.print_sizes(sizes)
        with serving([USER, LISTER]) as site:
            timings = measure_all(over_http.all_operations(seeded, site))
            report.print_timings("Cost over HTTP, beside an API written by hand", "by hand", timings)
            results = [writers.run(race, seeded) for race in writers.all_races(seeded, site)]
        report.print_races(results)
    if problems := [problem for result in results for problem in result.problems]:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
