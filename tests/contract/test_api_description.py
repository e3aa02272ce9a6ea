"""`docs/openapi.yaml` says what the gateway does: the same fields, bounds, codes, statuses and reports."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
import orjson
import pytest
import yaml
from gateway.app import create_app
from gateway.errors import GatewayError, InvalidRequest, UpstreamUnavailable
from gateway.policy import Clamps, Policy
from gateway.routes.models import _SHOWN as SHOWN_OF_MODELS
from gateway.routes.status import EngineFigures, Figures, TroubleFigures
from gateway.schemas import STAGES, EngineReport, ReadinessReport, StageReport, StartReport
from gateway.settings import Settings
from gateway.upstreams import STATES
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT

DESCRIPTION = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text(encoding="utf-8"))
SCHEMAS = DESCRIPTION["components"]["schemas"]
DEFAULTS = Settings()
POLICY = Policy(Clamps(max_tokens=DEFAULTS.max_tokens, max_choices=DEFAULTS.max_choices))
BODIES = {
    "/v1/chat/completions": "ChatRequest",
    "/v1/completions": "CompletionRequest",
    "/tokenize": "CountRequest",
}
ODD = (None, True, 0, -1, 0.5, "", "x", [], ["x"], [1], {}, {"x": 1})


@cache
def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"$ref": f"#/components/schemas/{name}", **DESCRIPTION})


def accepted(path: str, body: Any) -> bool:
    try:
        POLICY.check(path, orjson.dumps(body))
    except InvalidRequest:
        return False
    return True


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def edges(schema: dict[str, Any]) -> Iterator[Any]:
    """Give values on both sides of every bound that a schema names, and values of every other type."""
    schema = resolved(schema)
    yield from ODD
    yield from schema.get("enum", ())
    for choice in schema.get("anyOf", ()):
        yield from edges(choice)
    for bound in ("minimum", "maximum", "exclusiveMinimum"):
        if bound in schema:
            step = 1 if "integer" in schema["type"] else 0.001
            yield from (value for by in (-step, 0, step) if -(2**63) <= (value := schema[bound] + by) < 2**64)
    for bound in ("minLength", "maxLength"):
        if bound in schema:
            yield from ("字" * length for length in (schema[bound] - 1, schema[bound], schema[bound] + 1))
    if "items" in schema:
        yield from ([item] for item in edges(schema["items"]))
        item = plain(schema["items"])
        yield from ([item] * (schema["maxItems"] + by) for by in (0, 1))
    if "properties" in schema:
        yield from edges_of_object(schema)


def edges_of_object(schema: dict[str, Any]) -> Iterator[Any]:
    base = plain(schema)
    yield from ({key: base[key] for key in base if key != left_out} for left_out in base)
    yield from ({**base, "x": value} for value in ODD)
    for name, inner in schema["properties"].items():
        yield from ({**base, name: value} for value in edges(inner))


def plain(schema: dict[str, Any]) -> Any:
    """Return a value that the schema accepts, with nothing in it that may be left out."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return plain(schema["anyOf"][-1])
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema["type"] == "array":
        return [plain(schema["items"])]
    if "properties" in schema:
        return {name: plain(schema["properties"][name]) for name in schema.get("required", ())}
    return "x"


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one(name: str) -> None:
    jsonschema_rs.meta.validate(SCHEMAS[name])
    validator(name)


@pytest.mark.parametrize(("path", "name"), BODIES.items())
def test_the_fields_are_policys(path: str, name: str) -> None:
    assert set(SCHEMAS[name]["properties"]) == set(POLICY._fields[path])
    assert SCHEMAS[name]["required"] == [POLICY._required[path]]


@pytest.mark.parametrize(("path", "name"), BODIES.items())
def test_policy_and_description_agree_at_every_edge(path: str, name: str) -> None:
    described = validator(name)
    bodies = [body for body in edges({"$ref": f"#/components/schemas/{name}"}) if isinstance(body, dict)]
    verdicts = [described.is_valid(body) for body in bodies]
    assert {True, False} == set(verdicts)
    disagreed = [body for body, verdict in zip(bodies, verdicts, strict=True) if accepted(path, body) is not verdict]
    assert disagreed == []


# JSON Schema takes 1.0 for a whole number; the gateway does not, and the description says so in words.
keys = st.sampled_from(sorted({*SCHEMAS["ChatRequest"]["properties"], "role", "content", "type", "text", "name", "x"}))
leaves = st.none() | st.booleans() | st.integers(-3, 200_000) | st.sampled_from([0.5, 1.5, -0.1]) | st.text(max_size=3)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))
turn_values = values | st.sampled_from(["user", "assistant", "text"])
turns_of_chats = st.lists(st.dictionaries(keys, turn_values, max_size=4), max_size=3)


@pytest.mark.parametrize(("path", "name"), BODIES.items())
@settings(max_examples=60, deadline=None)
@given(body=st.dictionaries(keys, values, max_size=4), turns=turns_of_chats)
def test_policy_and_description_agree_on_anything(path: str, name: str, body: dict[str, Any], turns: list[Any]) -> None:
    for whole in (body, {**body, "messages": turns}, {**body, "prompt": "x"}):
        assert accepted(path, whole) is validator(name).is_valid(whole)


def kinds_of_error(kind: type[GatewayError] = GatewayError) -> list[type[GatewayError]]:
    return [kind, *(inner for child in kind.__subclasses__() for inner in kinds_of_error(child))]


def test_every_code_that_a_client_may_see_is_described() -> None:
    described = SCHEMAS["Error"]["properties"]["error"]["properties"]["code"]["enum"]
    assert described == sorted({kind.code for kind in kinds_of_error()} - {UpstreamUnavailable.code})


def test_every_status_is_described() -> None:
    statuses = {str(kind.status) for kind in kinds_of_error()} | {"200"}
    for path in BODIES:
        # 404 of the description is the engine's; the gateway's own, like 405, belongs to other paths and methods.
        assert set(DESCRIPTION["paths"][path]["post"]["responses"]) == statuses - {"405"} | {"404", "4XX"}


def test_every_route_is_described() -> None:
    served = {(route.path, method.lower()) for route in create_app(DEFAULTS).control.routes for method in route.methods}
    assert {(path, method) for path, methods in DESCRIPTION["paths"].items() for method in methods} == served - {
        (path, "head") for path, _ in served
    }


@pytest.mark.parametrize(
    "report",
    [ReadinessReport, EngineReport, StartReport, StageReport, Figures, EngineFigures, TroubleFigures],
)
def test_reports_are_as_described(report: Any) -> None:
    described = SCHEMAS[report.__name__]
    assert list(described["properties"]) == list(report.model_fields)
    assert set(described["required"]) == set(report.model_fields)


def test_states_stages_and_models_are_as_described() -> None:
    assert tuple(SCHEMAS["EngineReport"]["properties"]["state"]["enum"]) == STATES
    assert tuple(SCHEMAS["StageReport"]["properties"]["name"]["enum"]) == STAGES
    assert tuple(SCHEMAS["Model"]["properties"]) == SHOWN_OF_MODELS
