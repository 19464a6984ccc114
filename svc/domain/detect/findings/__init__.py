"""From an alarm to a finding and a case.

`judging` asks the engines, `changes` is what they said, `finding_text` puts it into words; `case_rules`
decide what is confirmed and becomes a case; `bucket` and `states` tell how far a subject is known.
"""
