"""Moving in: histories of other products, and of another instance, turned into what the OTLP door takes.

1. A source (`exported`, `phoenix`, `mlflow`, `langfuse`, `transcripts`) reads one page behind a cursor and
   says it as OTLP (`source`), with what the product itself says of tokens.
2. `moving` has each page screened and decoded as the door does, leaves out what is too old or outside of the
   range, and has it stored, dated as the spans are.
3. `journal` keeps the cursor and which spans were seen, so that a run that is killed goes on where it was;
   at the end `moving` compares what the source gave with what is stored.

Nothing here speaks HTTP (what fetches is handed in) or prints. A page that is read again adds nothing: ids
are those of the source, or derived from them.
"""
