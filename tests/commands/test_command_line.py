"""Laws of the command line: it explains itself in groups, names what was meant, and takes a few settings."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from typing import Any

import pytest

from svc.commands import serve
from svc.commands.command_line import grouped
from svc.commands.table import COMMANDS, GROUPS
from tests.forked import ran
from tests.service import TRACE_SVC, environment, running


def said(*arguments: str) -> tuple[int, str, str]:
    """How a command that needs no service ends, and what it says."""
    done = ran([TRACE_SVC, *arguments], timeout_s=60)
    return done.returncode, done.stdout, done.stderr


def test_without_arguments_all_commands_are_shown_by_their_groups() -> None:
    code, text, errors = said()
    assert (code, errors) == (0, "")
    assert grouped() in text
    assert {command.group for command in COMMANDS} == set(GROUPS)
    assert all(text.count(f"\n  {command.name} ") == 1 for command in COMMANDS)


def test_a_command_that_needs_a_verb_shows_its_help() -> None:
    code, text, errors = said("secrets")
    assert (code, text) == (2, "")
    assert "rotate" in errors
    assert errors.startswith("usage: trace-svc secrets [-h] verb ...")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("kees", "list"), "argument command: 'kees' is unknown; did you mean keys?"),
        (("keys", "creat"), "argument verb: 'creat' is unknown; did you mean create?"),
        (("export", "span"), "argument what: 'span' is unknown; did you mean spans?"),
        (("export", "x"), "argument what: 'x' is not one of spans, traces, sessions"),
    ],
)
def test_a_wrong_word_is_answered_with_the_one_that_was_meant(arguments: tuple[str, ...], meant: str) -> None:
    code, _, errors = said(*arguments)
    assert code == 2
    assert errors.endswith(f"error: {meant}\n")


@pytest.mark.parametrize(
    ("given", "bind"),
    [
        ([], None),
        (["--port", "9000"], "127.0.0.1:9000"),
        (["--host", "0.0.0.0"], "0.0.0.0:8000"),
        (["--host", "::1", "--port", "1"], "::1:1"),
    ],
)
def test_the_arguments_of_serve_stand_for_settings(
    given: list[str], bind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SVC_HTTP_BIND", raising=False)
    parser = argparse.ArgumentParser()
    serve.add(parser)
    env = serve.environment(parser.parse_args([*given, "--data-dir", "here"]))
    assert env.pop("SVC_DATA_DIR") == "here"
    assert env.get("SVC_HTTP_BIND") == bind


def test_the_doctor_and_the_log_speak_json_when_asked() -> None:
    with running(SVC_LOG_FORMAT="json") as service:
        findings = json.loads(service.command("doctor", "--json"))
        assert {"ok"} <= {finding["verdict"] for finding in findings} <= {"ok", "warn"}
        assert all(finding["subject"] and finding["text"] for finding in findings)
        report = json.loads(service.command("doctor", "--project", "default", "--json"))
        assert report.keys() == {"report", "attributes"}
        lines = [line for line in service.log.read_text().splitlines() if line]
    assert lines
    for line in lines:
        assert {"event", "level", "logger", "timestamp"} <= json.loads(line).keys()


def test_keys_accounts_and_terms_are_json_when_asked() -> None:
    with running() as service:

        def told(*arguments: str) -> Any:
            return json.loads(service.command(*arguments, "--json"))

        made = told("keys", "create", "--scope", "query", "--name", "reads")
        token = made.pop("token")
        assert token.startswith("svc_q_")
        assert (made["name"], made["scope"], made["state"]) == ("reads", "query", "active")
        assert made in told("keys", "list")
        assert token not in service.command("keys", "list", "--json")
        rotated = told("keys", "rotate", made["id"])
        assert rotated["id"] == made["id"]
        assert rotated["token"] not in ("", token)
        assert told("keys", "revoke", made["id"])["state"] == "revoked"
        assert told("users", "list") == []
        terms = told("retention", "show")
        assert terms["enabled"] is True
        assert [project["project"] for project in terms["projects"]] == ["default/default"]
        assert {"table", "days", "bytes"} <= terms["tables"][0].keys()
        assert told("retention", "run").keys() == {"freed_bytes", "tables"}


def test_a_runner_warns_of_names_nobody_knows_and_of_no_secret_that_it_does_not_use() -> None:
    bind = {"SANDBOX_RUNNER_KEY": "a key", "SANDBOX_RUNNER_BIND": "127.0.0.1:0"}
    env = environment("/nowhere", SVC_XYZZY="1", SVC_AUTH_DISABLED="true", **bind)
    process = subprocess.Popen(
        [TRACE_SVC, "sandbox-runner"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert "is ready at" in process.stdout.readline()
        process.terminate()
        _, log = process.communicate(timeout=40)
    finally:
        process.kill()
    assert "SVC_XYZZY is not a setting of this service" in log
    assert "placeholder" not in log
    assert "OWNS IT" not in log


def test_a_name_that_turns_a_line_around_turns_no_line_of_a_command_around() -> None:
    name = "gnp\u202eetirw\x1b[31m\U000e0001"
    with running() as service:
        made = json.loads(service.command("keys", "create", "--scope", "write", "--name", name, "--json"))
        text = service.command("keys", "list")
        listed = service.command("keys", "list", "--json")
        for printed in (text, listed, service.command("keys", "revoke", made["id"])):
            assert all(char.isprintable() or char == "\n" for char in printed)
        assert "gnp\ufffdetirw\ufffd[31m\ufffd" in text
        assert "gnp\\u202eetirw\\u001b[31m\\udb40\\udc01" in listed
        # For programs it is the name that somebody gave.
        assert name in [key["name"] for key in json.loads(listed)]
        done = ran([TRACE_SVC, "keys", "list", "--project", name], env=service.env, timeout_s=60)
        assert done.stderr == "trace-svc: there is no project default/gnp\ufffdetirw\ufffd[31m\ufffd\n"


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(
    ("arguments", "status"), [(("ask", "--help"), {0, 141}), (("completion", "bash"), {141})]
)
def test_a_command_whose_words_nobody_reads_ends_without_a_word_of_its_own(
    arguments: tuple[str, ...], status: set[int], buffered: bool
) -> None:
    read, write = os.pipe()
    # As `| head` once it has its lines.
    os.close(read)
    with os.fdopen(write, "wb") as unread:
        ended = subprocess.run(
            [TRACE_SVC, *arguments],
            stdout=unread,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"},
            timeout=120,
            check=False,
        )
    assert ended.stderr == b""
    assert ended.returncode in status
