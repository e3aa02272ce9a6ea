"""The turns and the prompt made of them."""

from chat_ui.conversation import Conversation, Turn, TurnState


def conversation(*states: TurnState, length: int = 1) -> Conversation:
    """Return a conversation of turns in these states; texts are numbered and `length` characters long."""
    return Conversation(
        [Turn(f"id{n}", f"{n}".ljust(length, "q"), f"{n}".ljust(length, "a"), state) for n, state in enumerate(states)]
    )


def test_prompt_alternates_roles_and_ends_with_the_question() -> None:
    talk = conversation(TurnState.ANSWERED, TurnState.STOPPED)
    prompt = talk.prompt(talk.begin("new", "and now?"), max_turns=9, max_characters=999)
    assert [message["role"] for message in prompt.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert prompt.messages[-1] == {"role": "user", "content": "and now?"}
    assert (prompt.kept_turns, prompt.dropped_turns) == (2, 0)


def test_failed_and_empty_turns_never_reach_the_model() -> None:
    talk = conversation(TurnState.FAILED, TurnState.PENDING, TurnState.ANSWERED)
    talk.turns[2].answer = ""
    prompt = talk.prompt(talk.begin("new", "q"), max_turns=9, max_characters=999)
    assert prompt.messages == [{"role": "user", "content": "q"}]
    assert prompt.dropped_turns == 0


def test_oldest_turns_go_first() -> None:
    talk = conversation(*[TurnState.ANSWERED] * 200, length=10)
    by_turns = talk.prompt(talk.begin("new", "q"), max_turns=3, max_characters=10_000)
    assert [message["content"][:3] for message in by_turns.messages[::2]] == ["197", "198", "199", "q"]
    assert (by_turns.kept_turns, by_turns.dropped_turns) == (3, 197)
    by_characters = talk.prompt(talk.turns[-1], max_turns=999, max_characters=41)
    assert by_characters.kept_turns == 2


def test_question_is_sent_however_long_and_without_history() -> None:
    talk = conversation(TurnState.ANSWERED)
    prompt = talk.prompt(talk.begin("new", "q" * 500), max_turns=9, max_characters=100)
    assert prompt.messages == [{"role": "user", "content": "q" * 500}]
    assert talk.prompt(talk.turns[-1], max_turns=0, max_characters=9999).kept_turns == 0


def test_edit_forgets_the_turn_and_all_after_it() -> None:
    talk = conversation(TurnState.ANSWERED, TurnState.ANSWERED, TurnState.ANSWERED)
    turn = talk.begin("id1", "edited")
    assert [other.id for other in talk.turns] == ["id0", "id1"]
    assert [message["content"] for message in talk.prompt(turn, max_turns=9, max_characters=999).messages] == [
        "0",
        "0",
        "edited",
    ]
