"""Lists of traces and of spans: filtered, paged, drawn, counted. `traces` and `spans` answer with pages."""
