"""OTLP traces as they arrive.

Protobuf (`reading`, `variants`), JSON (`json`), and what cannot be stored (`screen`).
"""
