"""``make screenshots``: the main pages as they are, for docs/images, of a gateway with a short story in it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from memorygw.models import Tenant

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
WIDTHS = {1280: 900, 390: 844}
NAME, PASSWORD, TITLE = "ada", "only for pictures", "Cycling to work"
TALK = [
    ("user", "Hi! I am Ada. I cycle to work, even when it rains."),
    ("assistant", "Then good mudguards matter more than anything else. How far is it?"),
    ("user", "Nine kilometres, along the river. And please: no dairy in any recipe, I am allergic."),
    ("assistant", "Noted: nothing with milk. Shall we plan a breakfast for nine kilometres?"),
]


def story() -> str:
    """Put it there; the id of the person it is about."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from memorygw import gateway
    from memorygw.models import Tenant
    from tests.admin.conftest import make_fact
    from threads.models import Run
    from threads.turns import TurnDraft
    from usermemory.models import ExtractionState, Owner
    from workingmemory.models import WorkingMemoryState

    me = str(User.objects.create_superuser(NAME, password=PASSWORD).pk)
    tenant, now = Tenant.objects.get(name=Tenant.DEFAULT), timezone.now()
    thread = gateway.create_thread(tenant, me, title=TITLE)
    gateway.append_turns(tenant, me, thread.pk, [TurnDraft(role=role, content=text) for role, text in TALK])
    source: dict[str, Any] = {"owner": Owner.user(me), "source_thread": thread}
    known = [
        make_fact(tenant, key="name", value="Ada", source_seq=1, **source),
        make_fact(tenant, key="commute", value="by bicycle, nine kilometres", source_seq=3, **source),
        make_fact(tenant, key="favourite river", value="the Po", origin="manual", owner=Owner.user(me)),
    ]
    waits = {"status": "pending_review", "confidence": 0.7, **source}
    make_fact(tenant, key="allergy", value="dairy", source_seq=3, **waits)
    make_fact(tenant, key="commute", value="by bicycle, also in the rain", source_seq=1, **waits)
    gateway.create_thread(tenant, me, title="A birthday present")
    notes = {"summary": "Ada plans breakfasts for her way to work.", "facts": ["Nothing with milk."]}
    WorkingMemoryState.objects.update_or_create(thread=thread, defaults=notes)
    Run.objects.create(
        thread=thread, status="completed", finished_at=now, first_seq=3, last_seq=4, memories=[str(f.pk) for f in known]
    )
    month_of_calls(tenant)
    failed = {"answered": 4, "due_at": now + timedelta(hours=1), "attempts": 3, "last_error": "timeout"}
    ExtractionState.objects.update_or_create(pk=thread.pk, defaults=failed)
    gateway.create_thread(tenant, "somebody else")
    gateway.forget_user(tenant, "somebody else", requested_by="command")
    return me


def month_of_calls(tenant: "Tenant") -> None:
    from django.utils import timezone

    from memorygw.models import ModelCall

    random = Random(7)
    for days in range(30):
        for kind in ("CHAT", "MEMORY_USER", "MEMORY_WORKING"):
            tokens = random.randrange(2_000, 9_000)
            call = ModelCall.objects.create(
                tenant=tenant,
                kind=kind,
                model="gpt-5" if kind == "CHAT" else "gpt-5-mini",
                prompt_tokens=tokens,
                completion_tokens=tokens // 6,
                latency_ms=random.randrange(300, 2_500),
                outcome="ok" if random.random() > 0.1 else "timeout",
            )
            ModelCall.objects.filter(pk=call.pk).update(created_at=timezone.now() - timedelta(days=days, minutes=5))


@contextmanager
def serving() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve", "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        while "http://" not in (line := process.stdout.readline()):
            assert line
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(20)


def look(page: "Page") -> None:
    """Nothing has to be done."""


def chat(page: "Page") -> None:
    """Say something new, and wait for what is learned from it."""
    page.get_by_role("textbox", name="Message").fill("I live in Turin, and I am allergic to peanuts.")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("log").get_by_text("I read this").wait_for()
    page.get_by_role("region", name="What was learned").get_by_text("peanuts").first.wait_for()


def pages(me: str) -> dict[str, tuple[str, Callable[["Page"], None]]]:
    """Name of the picture → path, and what to do there first."""
    from memorygw.models import ErasureReceipt
    from threads.models import Thread
    from usermemory.models import UserMemory

    thread = Thread.objects.get(title=TITLE)
    person = UserMemory.objects.get(user_id=me)
    receipt = ErasureReceipt.objects.get()
    return {
        "memory": ("/me/memory/", look),
        "admin-person": (f"/admin/memorygw_usermemory/usermemory/{person.pk}/change/", look),
        "admin-thread": (f"/admin/memorygw_threads/thread/{thread.pk}/change/", look),
        "admin-facts": ("/admin/memorygw_usermemory/fact/", look),
        "admin-review": ("/admin/memorygw_usermemory/fact/review/", look),
        "admin-usage": ("/admin/memorygw/modelcall/", look),
        "admin-learning": ("/admin/memorygw_usermemory/extractionstate/", look),
        "admin-receipt": (f"/admin/memorygw/erasurereceipt/{receipt.pk}/change/", look),
        # The last, since it adds to the story.
        "playground": ("/playground/", chat),
    }


def main() -> None:
    import django

    folder = tempfile.mkdtemp(prefix="memorygw-pictures-")
    os.environ.update(DEBUG="true", DATABASE_URL=f"sqlite:///{folder}/memorygw.sqlite3")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memorygw.settings")
    django.setup()
    from django.core.management import call_command

    from tests.e2e.browser import launched, sign_in, visit

    call_command("migrate", verbosity=0)
    todo = pages(story())
    IMAGES.mkdir(exist_ok=True)
    with serving() as url, launched() as browser:
        for width, height in WIDTHS.items():
            with visit(browser, viewport={"width": width, "height": height}) as page:
                sign_in(page, f"{url}/admin/", NAME, PASSWORD)
                for name, (path, prepare) in todo.items():
                    page.goto(url + path)
                    prepare(page)
                    page.screenshot(path=IMAGES / f"{name}-{width}.png")
                    sys.stdout.write(f"{name}-{width}.png\n")


if __name__ == "__main__":
    main()
