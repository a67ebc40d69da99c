"""O28, parts b and c: clearing facts and resetting notes while a job is at work on them. Rules K5, K16, K18."""

import pytest
from pytest_django import Settings

from memorygw.testing import ScriptedModelServer
from tests.cases.steps import at_work, put
from tests.conftest import Api, extractions, learn, note_updates
from usermemory.tasks import extract_facts
from workingmemory.tasks import update_notes


@pytest.mark.rows("U64", "U68")
def test_facts_cleared_during_an_extraction_stay_cleared_and_old_turns_are_not_read_again(
    transactional_db: None, api: Api, model: ScriptedModelServer
) -> None:
    api.user = "f-1"
    api("PUT", "/facts/lang", {"value": "it"})
    model.reply({"operations": [put("city", "Turin")]}, model="cheap")
    thread_id = api.ask("before-1.").body["thread_id"]
    with at_work(extract_facts, thread_id, model):
        assert api.ask("before-2.", thread_id).status == 200
        assert api("DELETE", "/facts?all=true").status == 204
    assert api.facts() == {}

    for n in range(1, 6):
        assert api.ask(f"after-{n}.", thread_id).status == 200
    model.reply({"operations": [put("drink", "tea")]}, model="cheap")
    learn()
    first, second = extractions(model)
    assert "before-1." in first.text
    assert "before-" not in second.text
    assert all(f"after-{n}." in second.text for n in range(1, 6))
    assert api.facts() == {"drink": "tea"}


@pytest.mark.rows("W58", "W68", "W69", "W70")
def test_notes_reset_during_an_update_stay_empty_and_the_turns_stay(
    transactional_db: None, api: Api, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_UPDATE_EVERY_TURNS = 4
    settings.MEMORYGW_EXTRACTION_ENABLED = False
    thread_id = api.ask("before-1.").body["thread_id"]
    api.ask("before-2.", thread_id)
    before = [api("GET", f"/threads/{thread_id}{part}").body for part in ("", "/turns")]
    model.reply({"summary": "Too late.", "facts": ["late"]}, model="cheap")
    with at_work(update_notes, thread_id, model):
        assert api("DELETE", f"/threads/{thread_id}/memory").status == 204
    learn()
    memory = api("GET", f"/threads/{thread_id}/memory").body
    assert (memory["summary"], memory["facts"], memory["turn_count"]) == ("", [], 4)
    assert [api("GET", f"/threads/{thread_id}{part}").body for part in ("", "/turns")] == before
    assert len(note_updates(model)) == 1

    for n in range(1, 3):
        api.ask(f"after-{n}.", thread_id)
    learn()
    assert "before-" not in note_updates(model)[-1].text
    assert "after-2." in note_updates(model)[-1].text
