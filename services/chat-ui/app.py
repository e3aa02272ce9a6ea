"""What Chainlit loads: the page, built from the environment."""
# ruff: noqa: INP001

from chat_ui.gateway import Gateway
from chat_ui.page import ChatPage
from chat_ui.settings import read_settings

settings = read_settings()
gateway = Gateway(
    settings.gateway_url,
    connect_timeout_seconds=settings.connect_timeout_seconds,
    idle_timeout_seconds=settings.idle_timeout_seconds,
)
ChatPage(settings, gateway).register()
