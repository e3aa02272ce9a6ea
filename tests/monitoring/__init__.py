"""What Prometheus and Grafana are given: rules, dashboards, containers, and the metrics that all of them name."""
