"""Requests that a fuzzer makes from our own OpenAPI document, against the system as it runs."""

import json
import subprocess
import sys
from pathlib import Path

from memorygw.testing import ScriptedModelServer
from tests.e2e.conftest import Caller, Gateway

SEED, EXAMPLES, SECONDS = 20261130, 10, 300
CHECKS = [
    "not_a_server_error",
    "ignored_auth",
    "use_after_free",
    "ensure_resource_availability",
    "unsupported_method",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
]
# Erasing somebody, or all threads, would take away what the other operations work on.
DESTRUCTIVE = ["delete_threads", "remove_user_facts", "forget_user", "forget_user_by_query"]
# Those that read, rename and delete a thread are left to find their own: that is how a use after deletion shows.
ON_A_THREAD = ["ask", "get_context", "get_turns", "append_turns", "get_thread_memory", "reset_thread_memory"]
ON_A_PERSONA = ["get_persona", "update_persona", "set_persona_fact", "remove_persona_fact"]
CALL = {"id": "c1", "type": "function", "function": {"name": "remember_user_fact", "arguments": "{}"}}


def _memory(caller: Caller, key: str) -> str:
    caller("PUT", "/facts", {"key": key, "value": "known"}, user="ada")
    memories = caller("GET", "/memories", user="ada")["data"]
    return str(next(memory["id"] for memory in memories if memory["key"] == key))


def _waiting_memories(caller: Caller, model: ScriptedModelServer) -> list[str]:
    """Two that the model is not sure of."""
    doubtful = [{"op": "SET", "key": key, "value": "perhaps", "confidence": 0.1} for key in ("pet", "work")]
    model.reply({"operations": doubtful}, model="cheap")
    caller.ask("I may have a cat and a job.", user="ada")
    caller.gateway.until_idle()
    waiting = caller("GET", "/admin/memories/pending", user="ada")["data"]
    return [str(memory["id"]) for memory in waiting]


def configuration(caller: Caller, model: ScriptedModelServer) -> str:
    """Whom the fuzzer acts for, and what it finds there: ids that it could not guess."""
    thread_id, leased = (caller("POST", "/threads", {}, user="ada", expect=201)["id"] for _ in range(2))
    model.reply("One moment.", model="main", tool_calls=[CALL])
    run_id = caller.ask("I drink tea.", user="ada")["run"]["id"]
    kept, doomed = (_memory(caller, key) for key in ("drink", "home"))
    waiting = _waiting_memories(caller, model)
    persona_id, gone = (
        caller("POST", "/personas", {"name": name}, user="ada", expect=201)["id"] for name in ("fuzzed", "gone")
    )
    spoken, silent = (caller("POST", "/voice/sessions", {}, user="ada", expect=201)["id"] for _ in range(2))
    fixed = [
        (DESTRUCTIVE, "query.user", "bob"),
        (["forget_user"], "path.user_id", "bob"),
        (ON_A_THREAD, "path.thread_id", thread_id),
        (["acquire_lease", "release_lease"], "path.thread_id", leased),
        (["get_run", "continue_run", "cancel_run"], "path.run_id", run_id),
        (["call_tool"], "path.name", "remember_user_fact"),
        (["change_memory", "get_memory_sources"], "path.memory_id", kept),
        (["approve_memory"], "path.memory_id", waiting[0]),
        (["reject_memory"], "path.memory_id", waiting[1]),
        (["delete_memory"], "path.memory_id", doomed),
        (["add_voice_fragments"], "path.session_id", spoken),
        (["close_voice_session"], "path.session_id", silent),
        (ON_A_PERSONA, "path.persona_id", persona_id),
        (["delete_persona"], "path.persona_id", gone),
    ]
    sections = [
        f'[[operations]]\ninclude-operation-id = {json.dumps(operations)}\nparameters = {{ "{name}" = "{value}" }}'
        for operations, name, value in fixed
    ]
    return "\n".join(['[parameters]\n"query.user" = "ada"', *sections])


def test_whatever_is_sent_the_answer_is_one_that_the_schema_promises(
    running: Gateway, e2e_model: ScriptedModelServer, tmp_path: Path
) -> None:
    caller = running.key("fuzzed", role="admin")
    settings, report = tmp_path / "schemathesis.toml", tmp_path / "report.json"
    settings.write_text(configuration(caller, e2e_model))
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            f"--config-file={settings}",
            "run",
            f"{running.base_url}/api/v1/schema",
            f"--header=Authorization: Bearer {caller.key}",
            f"--checks={','.join(CHECKS)}",
            f"--seed={SEED}",
            f"--max-examples={EXAMPLES}",
            "--generation-database=none",
            "--generation-allow-x00=false",
            "--continue-on-failure",
            "--no-color",
            f"--report-json-path={report}",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(report.read_text())
    operations = result["operations"]
    assert operations["tested"] == operations["total"] > 0
    # Every operation let a request in. (Whether it found what was named is chance: the fuzzer deletes what it finds.)
    assert result["warnings"]["missing_auth"] == []
