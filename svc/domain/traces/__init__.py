"""What the spans of one trace make together: its roll-up, its agents, its tool calls."""
