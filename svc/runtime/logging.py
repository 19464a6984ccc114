"""One log for everything: structlog's renderers behind the standard library's loggers.

Called once by the command line. Writes to standard error; standard output belongs to the user. Payloads and
secrets never reach it: callers log names, counts and types.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

# structlog would load rich with pygments for tracebacks that nobody here prints so: 4 MB in each process.
_modules: dict[str, Any] = sys.modules
_without_rich = _modules.setdefault("rich", None) is None
import structlog  # noqa: E402

if _without_rich:
    del sys.modules["rich"]


def set_up(level: str, form: str) -> None:
    """Render every record as one line: a JSON object where `form` is `json`, else colours on a terminal and
    `key=value` otherwise.
    """
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.PositionalArgumentsFormatter(),
    ]
    renderer: structlog.types.Processor
    if form == "json":
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    elif sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    else:
        renderer = structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "logger", "event"])
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Third parties speak up from warnings on; their infos are about every connection.
    for name in ("hypercorn", "grpclib", "asyncio", "hpack", "quart", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
