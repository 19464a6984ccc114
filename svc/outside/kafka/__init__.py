"""Kafka-API brokers.

`brokers` connects and carries, `topics` asks and makes, `letters` buries, `log` listens.
"""
