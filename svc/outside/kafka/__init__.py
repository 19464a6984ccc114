"""Kafka-API brokers.

`cluster` says where they are, `brokers` connects and carries, `topics` asks and makes, `letters` buries, and
`log` listens.
"""
