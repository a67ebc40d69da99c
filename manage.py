#!/usr/bin/env python
import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memorygw.settings")
    from django.core.management import execute_from_command_line

    # The app must exist before a command enqueues anything.
    import memorygw.celery  # noqa: F401

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
