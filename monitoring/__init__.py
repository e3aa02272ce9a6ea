"""Prometheus's and Grafana's configuration, and what writes the dashboards."""
