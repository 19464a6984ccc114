"""The PostgreSQL that we bring ourselves: its folders and programs (`cluster`), its life (`server`)."""
