"""History in its place: Chainlit gets the data layer, the page its downloads."""

from pathlib import Path

import chainlit as cl
from chainlit.config import HeaderLink, config
from starlette.types import ASGIApp

from chat_ui.accounts.identity import PERSON
from chat_ui.accounts.ways import GUESTS
from chat_ui.history.downloads import PAGE, Downloads
from chat_ui.history.guests import Guests
from chat_ui.history.layer import Layer
from chat_ui.history.opening import data_folder, store_at
from chat_ui.settings import Settings
from chat_ui.texts import texts_for

BYTES_OF_A_MEGABYTE = 1_000_000


def keep_history(app: ASGIApp, settings: Settings, root: Path) -> ASGIApp:
    """Let Chainlit keep conversations, and return its application with the downloads before it."""
    store = store_at(settings.history_url, data_folder(settings.data_dir, root))

    async def tell() -> None:
        """Say on the page that is speaking that what is said there is not kept."""
        session = cl.context.session
        language = getattr(session, "language", None) if settings.language == "auto" else settings.language
        await cl.context.emitter.send_toast(texts_for(language).not_kept, "warning")

    guests = Guests(store, GUESTS, days=settings.guest_days, room_bytes=settings.guest_megabytes * BYTES_OF_A_MEGABYTE)
    layer = Layer(store, person=PERSON.get, tell=tell, guests=guests)
    cl.data_layer(lambda: layer)
    config.ui.header_links = [
        HeaderLink(
            name="导出 Export",
            icon_url=f"{settings.base_path}/public/icons/download.svg",
            url=f"{settings.base_path}{PAGE}",
            target="_self",
        )
    ]
    return Downloads(app, store, person=PERSON.get, language=settings.language, base_path=settings.base_path)
