"""A request's line is one as any other, though its record is made in a cheaper way."""

import json
import logging
import time

from gateway.logs import JsonFormatter, RequestRecord


def test_a_requests_line_is_what_the_logger_would_have_written() -> None:
    fields = {"request_id": "req-1", "status": 200}
    before = time.time()
    record = RequestRecord(logging.INFO, fields)
    made = logging.getLogger("gateway.requests").makeRecord(
        "gateway.requests", logging.INFO, __file__, 1, "request", (), None, extra={"fields": fields}
    )
    made.created = record.created
    assert before <= record.created <= time.time()
    assert JsonFormatter().format(record) == JsonFormatter().format(made)
    assert json.loads(JsonFormatter().format(record))["request_id"] == "req-1"


def test_its_record_passes_through_filters_and_other_formatters() -> None:
    record = RequestRecord(logging.DEBUG, {})
    assert logging.Filter("gateway").filter(record)
    assert logging.Formatter(logging.BASIC_FORMAT).format(record) == "DEBUG:gateway.requests:request"
