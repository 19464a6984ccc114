"""The rules of alerts: what a rule may ask for, what a message says, what each kind of channel makes of it.

Read in this order: `params`, `composing`, `metric`, `calendar`, then the channels behind `table`. Pure: time
and secrets are arguments, and nothing here reaches a database or another host.
"""
