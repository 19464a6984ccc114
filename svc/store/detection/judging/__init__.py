"""What judges work with: `due` says which slots changed, `bucket_states` is what they know of a subject,
`judge_evidence` what proves a finding; beside it what people ask about detectors.
"""
