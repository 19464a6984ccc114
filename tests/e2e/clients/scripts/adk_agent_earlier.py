import os

os.environ["ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN"] = "1"

import adk_agent  # noqa: F401
