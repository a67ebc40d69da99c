"""The newest turns that fit a budget, read in a fixed number of queries at any length of history."""

from operator import attrgetter

from django.db.models import F

from threads.models import Thread, Turn
from threads.turns import INSTRUCTION_ROLES, open_on_user

_SPARE_TURNS = 16
_NEAR_TURNS = 500


class WindowStore:
    """The part of `threads.store.ThreadStore` that reads windows."""

    def get_window(
        self, thread: Thread, *, budget_tokens: int, from_seq: int = 1, keep_newest: bool = True
    ) -> list[Turn]:
        """The newest turns from ``from_seq`` on that fit the budget, oldest first; instructions are no part of it.

        It opens on a user turn: a ``from_seq`` inside a group of turns reaches back to the user turn that opens it
        (K4), the budget moves forward to the next one (K3). With ``keep_newest`` the newest user group is whole,
        whatever the budget. One query that reads little more than it returns, at any length of history; up to three
        for a group of very many turns or one above the budget.
        """
        spent = max(thread.token_count - max(budget_tokens, 0), 0)
        # Ranges between constants, which a planner can estimate; a few turns more, to find the opening user turn.
        window = self._fitting(thread, spent, from_seq - _SPARE_TURNS)
        openings = [turn.seq for turn in window if turn.role == Turn.Role.USER and turn.seq <= from_seq]
        opening = openings[-1] if openings else None
        if opening is None and window and window[0].seq <= from_seq:
            opening = self._opening(thread, from_seq)
            window = window if opening is None else self._fitting(thread, spent, opening)
        window = open_on_user([turn for turn in window if opening is None or turn.seq >= opening])
        newest = self._opening(thread, thread.turn_count) if not window and keep_newest else None
        return window if newest is None else open_on_user(self._fitting(thread, -1, newest))

    def _fitting(self, thread: Thread, spent: int, from_seq: int) -> list[Turn]:
        """Turns from ``from_seq`` on that lie wholly above the first ``spent`` tokens of the thread.

        One of the two bounds is a range of an index, the other (made no column by adding 0) only filters: left to
        choose, SQLite may walk the whole thread. The range is the shorter one: a few turns, or what the budget holds.
        """
        turns = Turn.objects.filter(thread_id=thread.pk).exclude(role__in=INSTRUCTION_ROLES)
        turns = turns.exclude(status=Turn.Status.FORGOTTEN)
        if thread.turn_count - from_seq < _NEAR_TURNS:
            turns = turns.alias(through=F("tokens_through") + 0).filter(seq__gte=from_seq, through__gt=spent)
        else:
            turns = turns.alias(place=F("seq") + 0).filter(tokens_through__gt=spent, place__gte=from_seq)
        ordered = sorted(turns.order_by(), key=attrgetter("seq"))
        return [turn for turn in ordered if turn.tokens_through - turn.token_count >= spent]

    def _opening(self, thread: Thread, seq: int) -> int | None:
        """The user turn that opens the group of turn ``seq``; None where only others stand before it."""
        users = Turn.objects.filter(thread_id=thread.pk, role=Turn.Role.USER, seq__lte=seq)
        users = users.exclude(status=Turn.Status.FORGOTTEN)
        return users.order_by("-seq").values_list("seq", flat=True).first()
