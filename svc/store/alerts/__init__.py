"""Alerts as they are stored: channels, rules, the outbox, deliveries, and what rules that look have seen.

Ordering: whoever takes several rows locks the rule before its events, and a delivery before its channel.
"""
