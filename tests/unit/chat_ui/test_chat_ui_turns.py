"""Turns that come back from kept messages, and what of them is written out."""
# ruff: noqa: RUF001

import json
from dataclasses import replace
from typing import Any

from chat_ui.conversation import Conversation, Turn, TurnState
from chat_ui.figures import Figures
from chat_ui.gateway import Usage
from chat_ui.history.export import to_json, to_markdown
from chat_ui.history.threads import Step, Thread, title
from chat_ui.history.turns import kept_figures, mark, restore, said


def question(number: int, text: str) -> dict[str, Any]:
    return {"id": f"q{number}", "type": "user_message", "output": text, "metadata": {}}


def answer(number: int, text: str, state: TurnState = TurnState.ANSWERED) -> dict[str, Any]:
    turn = Turn(f"q{number}", "", answer=text, state=state)
    return {"id": f"a{number}", "type": "assistant_message", "output": f"{text}\n\n> note", "metadata": mark(turn)}


def error(number: int) -> dict[str, Any]:
    return {"id": f"e{number}", "type": "assistant_message", "output": "It failed.", "isError": True, "metadata": {}}


def test_the_model_sees_what_the_person_saw_and_no_errors_or_notes() -> None:
    kept = json.loads(
        json.dumps(
            [
                question(1, "one"),
                answer(1, "key:value"),
                question(2, "two"),
                error(2),
                question(3, "three"),
                answer(3, "half", TurnState.STOPPED),
                question(4, "four"),
                answer(4, "broken", TurnState.FAILED),
                question(5, "five"),
            ]
        )
    )
    conversation = Conversation(turns=restore(kept))
    assert [(turn.question, turn.answer, turn.state.name) for turn in conversation.turns] == [
        ("one", "key:value", "ANSWERED"),
        ("two", "", "FAILED"),
        ("three", "half", "STOPPED"),
        ("four", "broken", "FAILED"),
        ("five", "", "FAILED"),
    ]
    prompt = conversation.prompt(conversation.begin("q6", "six"), max_turns=10)
    assert [message["content"] for message in prompt.messages] == ["one", "key:value", "three", "half", "six"]


def test_an_edited_question_forgets_what_came_after_it() -> None:
    conversation = Conversation(turns=restore([question(1, "one"), answer(1, "1"), question(2, "two"), answer(2, "2")]))
    conversation.begin("q1", "other")
    assert [turn.question for turn in conversation.turns] == ["other"]


def test_figures_are_kept_with_their_answers_and_earlier_answers_have_none() -> None:
    figures = Figures(0.5, 20.0, Usage(7, 21))
    timed, earlier = answer(1, "1"), answer(2, "2")
    timed["metadata"] = mark(Turn("q1", "", answer="1", state=TurnState.ANSWERED), figures)
    del earlier["metadata"]["answer"]["figures"]
    steps = json.loads(json.dumps([question(1, "one"), timed, question(2, "two"), earlier, error(3)]))
    assert list(kept_figures(steps)) == [("a1", "q1", figures)]


def test_what_was_said_is_the_text_of_the_model_not_of_the_page() -> None:
    assert said(answer(1, "key:value")) == "key:value"
    assert said(question(1, "a")) == "a"


def test_a_conversation_is_named_by_the_first_words() -> None:
    assert title("  你好，\n\n世界 ") == "你好， 世界"
    assert len(title("long " * 100)) == 80


def kept(step: dict[str, Any], **more: Any) -> Step:
    details = {"metadata": step["metadata"]}
    return Step(
        step["id"], "t", "2026", step["type"], "ERNIE Chat", step["output"], said(step), details=details, **more
    )


THREAD = Thread(
    "t",
    "account:alice",
    "第一个问题",
    0,
    1000,
    {"chat_settings": {"temperature": 0.5}},
    (
        kept(question(1, "你好")),
        Step("r1", "t", "2026", "run", "on_message", "", "", thumb=1, comment="好"),
        replace(kept(answer(1, "key:value")), details={**kept(answer(1, "key:value")).details, "parentId": "r1"}),
        kept(question(2, "two")),
        kept(error(2)),
        kept(question(3, "three")),
        kept(answer(3, "half", TurnState.STOPPED)),
    ),
)


def test_json_holds_what_was_said_with_thumbs_and_states() -> None:
    told = json.loads(to_json(THREAD))
    assert told["name"] == "第一个问题"
    assert told["settings"] == {"temperature": 0.5}
    assert [(m["role"], m["content"], m.get("complete")) for m in told["messages"]] == [
        ("user", "你好", None),
        ("assistant", "key:value", True),
        ("user", "two", None),
        ("user", "three", None),
        ("assistant", "half", False),
    ]
    assert (told["messages"][1]["thumb"], told["messages"][1]["comment"]) == ("up", "好")
    assert "account:alice" not in to_json(THREAD)


def test_markdown_reads_as_the_page_did() -> None:
    text = to_markdown(THREAD)
    assert text.startswith(
        "# 第一个问题\n\n1970-01-01T00:00:00+00:00\n\n## 🧑\n\n你好\n\n## 🤖 ERNIE Chat 👍\n\nkey:value\n"
    )
    assert "It failed." not in text
    assert "🤖 ERNIE Chat ✂️\n\nhalf" in text
