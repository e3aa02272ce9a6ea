"""The paths that are served; everything else is 404 or 405 in the error shape."""

from gateway.routes.bodies import BodyReader
from gateway.routes.counting import Counting
from gateway.routes.generations import Generations
from gateway.routes.models import models_route
from gateway.routes.probes import livez_route, metrics_route, readyz_route
from gateway.routes.status import status_routes

__all__ = [
    "BodyReader",
    "Counting",
    "Generations",
    "livez_route",
    "metrics_route",
    "models_route",
    "readyz_route",
    "status_routes",
]
