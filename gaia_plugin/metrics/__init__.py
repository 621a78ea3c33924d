"""What a monitoring system reads of an agent: names and meanings, counts, and the page that tells them.

Knows nothing of how an agent works: it is handed values (`snapshot`) and told events (`tally`).
"""
