"""`make bench`: what memorygw costs on top of plain SQL, on the database of DATABASE_URL or a temporary SQLite file."""

from benchmarks.database import configure, temporary_database


def main() -> None:
    configure()
    # Models can be imported only now.
    from benchmarks import operations, report
    from benchmarks.floor import open_floor
    from benchmarks.seed import seed
    from benchmarks.timing import measure

    with temporary_database():
        seeded = seed()
        report.print_heading()
        sizes = operations.bytes_per_turn()
        with open_floor() as floor:
            groups = operations.all_operations(seeded, floor)
            timings = [timing for group in groups for timing in measure(group)]
        report.print_timings(timings)
        report.print_growth(timings)
        report.print_sizes(sizes)


if __name__ == "__main__":
    main()
