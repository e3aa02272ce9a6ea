"""The turns and the prompt made of them."""

from chat_ui.conversation import Conversation, Turn, TurnState


def conversation(*states: TurnState) -> Conversation:
    """Return a conversation of turns in these states, with numbered texts."""
    return Conversation([Turn(f"id{n}", f"q{n}", f"a{n}", state) for n, state in enumerate(states)])


def texts(messages: list[dict[str, str]]) -> list[str]:
    return [message["content"] for message in messages]


def test_prompt_alternates_roles_and_ends_with_the_question() -> None:
    talk = conversation(TurnState.ANSWERED, TurnState.STOPPED)
    prompt = talk.prompt(talk.begin("new", "and now?"), max_turns=9)
    assert [message["role"] for message in prompt.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert prompt.messages[-1] == {"role": "user", "content": "and now?"}
    assert (prompt.kept_turns, prompt.dropped_turns) == (2, 0)


def test_system_prompt_comes_first() -> None:
    talk = conversation(TurnState.ANSWERED)
    prompt = talk.prompt(talk.begin("new", "q"), max_turns=9, system_prompt="Be brief.")
    assert prompt.messages[0] == {"role": "system", "content": "Be brief."}
    assert texts(prompt.messages[1:]) == ["q0", "a0", "q"]


def test_failed_and_empty_turns_never_reach_the_model() -> None:
    talk = conversation(TurnState.FAILED, TurnState.PENDING, TurnState.ANSWERED)
    talk.turns[2].answer = ""
    prompt = talk.prompt(talk.begin("new", "q"), max_turns=9)
    assert prompt.messages == [{"role": "user", "content": "q"}]
    assert prompt.dropped_turns == 0


def test_oldest_turns_go_first() -> None:
    talk = conversation(*[TurnState.ANSWERED] * 200)
    prompt = talk.prompt(talk.begin("new", "q"), max_turns=3)
    assert texts(prompt.messages)[::2] == ["q197", "q198", "q199", "q"]
    assert (prompt.kept_turns, prompt.dropped_turns) == (3, 197)
    assert texts(talk.prompt(talk.turns[-1], max_turns=0).messages) == ["q"]


def test_continued_answer_stands_in_its_own_prompt() -> None:
    talk = conversation(TurnState.ANSWERED)
    turn = talk.begin("new", "q")
    turn.begun, turn.instruction = "half an", "go on"
    messages = talk.prompt(turn, max_turns=9).messages
    assert texts(messages) == ["q0", "a0", "q", "half an", "go on"]
    assert [message["role"] for message in messages[-3:]] == ["user", "assistant", "user"]


def test_edit_forgets_the_turn_and_all_after_it() -> None:
    talk = conversation(TurnState.ANSWERED, TurnState.ANSWERED, TurnState.ANSWERED)
    turn = talk.begin("id1", "edited")
    assert [other.id for other in talk.turns] == ["id0", "id1"]
    assert texts(talk.prompt(turn, max_turns=9).messages) == ["q0", "a0", "edited"]
    assert talk.find("id2") is None
