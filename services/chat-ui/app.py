"""What Chainlit loads: the page, built from the environment."""
# ruff: noqa: INP001

from chat_ui.gateway import Gateway
from chat_ui.gateway_key import GatewayKey
from chat_ui.page import ChatPage
from chat_ui.settings import read_settings

# Without containers all services start at once; the gateway makes its key in its first second.
KEY_WAIT_SECONDS = 5

settings = read_settings()
key = GatewayKey(settings.gateway_key_file)
key.wait(KEY_WAIT_SECONDS)
gateway = Gateway(
    settings.gateway_url,
    key,
    connect_timeout_seconds=settings.connect_timeout_seconds,
    idle_timeout_seconds=settings.idle_timeout_seconds,
)
ChatPage(settings, gateway).register()
