"""The buttons under an answer."""

from enum import StrEnum

import chainlit as cl

from chat_ui.conversation import Turn
from chat_ui.figures import Figures
from chat_ui.texts import Texts


class Button(StrEnum):
    """Names by which Chainlit calls what a button does."""

    ASK_AGAIN = "ask_again"
    GO_ON = "go_on"
    FIGURES = "figures"


def regenerate(turn: Turn, texts: Texts) -> cl.Action:
    """Answer a turn once more, although it has an answer."""
    return _of_turn(Button.ASK_AGAIN, turn, texts.regenerate, "refresh-cw")


def retry(turn: Turn, texts: Texts) -> cl.Action:
    """Answer a turn that failed once more."""
    return _of_turn(Button.ASK_AGAIN, turn, texts.retry, "refresh-cw")


def go_on(turn: Turn, texts: Texts) -> cl.Action:
    """Write on where an answer ended too early."""
    return _of_turn(Button.GO_ON, turn, texts.go_on, "play")


def show_figures(turn_id: str, figures: Figures, texts: Texts) -> cl.Action:
    """Show the figures of an answer in its row, where they are no part of what is copied; a click explains them."""
    payload = {"text": figures.explained(texts)}
    label, its_id = figures.short(texts), f"{Button.FIGURES}-{turn_id}"
    return cl.Action(name=Button.FIGURES, payload=payload, label=label, icon="gauge", id=its_id)


def _of_turn(name: Button, turn: Turn, label: str, icon: str) -> cl.Action:
    return cl.Action(name=name, payload={"turn": turn.id}, label=label, icon=icon)
