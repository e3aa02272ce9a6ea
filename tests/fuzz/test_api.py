"""Whatever is asked of the API, sound or not: the answer is one that docs/openapi.yaml describes."""

from typing import Any

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.case import Case

from tests.conftest import ROOT
from tests.fakes.gateway import CHAT
from tests.fuzz.effort import effort
from tests.fuzz.service import Service

# What is wrong and too large besides is refused for its size, which schemathesis does not expect by itself.
REFUSALS = {"checks": {"negative_data_rejection": {"expected-statuses": [400, 405, 413, 415, 431]}}}
API = schemathesis.openapi.from_path(ROOT / "docs/openapi.yaml", config=SchemathesisConfig.from_dict(REFUSALS))
HIDDEN = ("Traceback", "127.0.0.1", 'File "')


@API.parametrize()
@effort(10, 2000)
def test_every_answer_is_as_described(case: Case, service: Service) -> None:
    case.body = with_whole_numbers(case.body)
    response = case.call_and_validate(base_url=service.url, session=service.session, timeout=10)
    assert response.status_code < 500
    if response.status_code != 200:
        assert [word for word in HIDDEN if word in response.text] == []


def test_nothing_is_left_of_it(service: Service) -> None:
    assert service.in_flight() == 0
    assert service.session.post(service.url + "/v1/chat/completions", json=CHAT, timeout=10).ok


def with_whole_numbers(value: Any) -> Any:
    """Return the value with 1 for every 1.0: JSON Schema takes both for a whole number, the gateway only the one."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [with_whole_numbers(inner) for inner in value]
    if isinstance(value, dict):
        return {key: with_whole_numbers(inner) for key, inner in value.items()}
    return value
