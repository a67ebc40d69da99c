"""What keeps personal data out of logs."""

import logging


class WithoutPath(logging.Filter):
    """Take the path out of Django's line about a failed request: it may hold a person's id or a fact's key.

    The view's name stays, when there is one.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        if request is not None and isinstance(record.args, tuple) and len(record.args) == 2:
            match = getattr(request, "resolver_match", None)
            record.args = (record.args[0], f"{request.method} {match.route if match else '(no route)'}")
        return True
