"""The words by which others name roles, and the types and places of messages and their parts.

Owns: `ROLES` and the sets beside it. The reading of messages looks into them. Never reads a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ROLES: Final[Mapping[str, str]] = {
    "human": "user",
    "humanmessage": "user",
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "developer": "system",
    "systemmessage": "system",
    "function": "tool",
    "toolmessage": "tool",
    # smolagents.
    "tool-call": "assistant",
    "tool-response": "tool",
}

TEXT: Final = frozenset({"text", "input_text", "output_text", "refusal", "summary_text"})
REASONING: Final = frozenset({"reasoning", "thinking", "redacted_thinking"})
TOOL_CALL: Final = frozenset(
    {"tool_call", "tool_use", "server_tool_use", "function_call", "function", "functioncall", "tooluse"}
    | {"toolrequest"}
)
TOOL_RESULT: Final = frozenset(
    {
        "tool_call_response",
        "tool_result",
        "tool_response",
        "function_call_output",
        "function_response",
        "functionresponse",
        "toolresult",
        "toolresponse",
    }
)
MEDIA: Final = frozenset(
    {"image", "audio", "video", "file", "document", "blob", "uri", "media"}
    | {"inlinedata", "inline_data", "filedata", "file_data"}
)
#: Keys under which Gemini, Bedrock and Genkit put a part whose type they do not name.
UNNAMED: Final = (
    "text",
    "functionCall",
    "function_call",
    "functionResponse",
    "function_response",
    "toolUse",
    "toolResult",
    "inlineData",
    "inline_data",
    "fileData",
    "file_data",
    "image",
    "toolRequest",
    "toolResponse",
    "reasoning",
    "media",
)
#: Items of the OpenAI Responses API that are no messages but stand among them, and who says them.
LOOSE: Final = {"function_call": "assistant", "function_call_output": "tool", "reasoning": "assistant"}
#: Where chains and agents keep the conversation inside their input or output.
KEPT_UNDER: Final = (
    "messages",
    "input",
    "output",
    "inputs",
    "outputs",
    "choices",
    "generations",
    "contents",
)
