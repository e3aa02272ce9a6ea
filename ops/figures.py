"""Reads what a service publishes for Prometheus."""

from prometheus_client.parser import text_string_to_metric_families


def total(text: str | None, name: str, **labels: str) -> float:
    """Return the sum of a metric's samples that carry these labels; 0 where there are none, or no text."""
    if not text:
        return 0.0
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and all(sample.labels.get(label) == value for label, value in labels.items())
    )
