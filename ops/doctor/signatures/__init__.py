"""All known troubles, by where they come from."""

from ops.doctor.signature import Signature
from ops.doctor.signatures import card, docker, edge, engine, gateway, host, launcher, page, settings

# Settings and host first: what is wrong there explains the rest.
ALL: tuple[Signature, ...] = (
    *settings.SIGNATURES,
    *host.SIGNATURES,
    *docker.SIGNATURES,
    *card.SIGNATURES,
    *engine.SIGNATURES,
    *launcher.SIGNATURES,
    *gateway.SIGNATURES,
    *page.SIGNATURES,
    *edge.SIGNATURES,
)
