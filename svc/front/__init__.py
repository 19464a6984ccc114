"""The doors: HTTP (OTLP, query API, health, metrics) and gRPC (OTLP). They decide, then call inwards."""
