"""What a provider billed beside what was traced: reading its usage export, and comparing.

1. `exports` reads a file of OpenAI, Anthropic, OpenRouter or AWS (Bedrock) into lines by day and model.
2. `reconciliation` holds them against what calls cost here, and says what explains the rest.

Pure. What calls cost here is read by `svc.store.reads.usage.bills`; nothing of a file is kept.
"""
