"""The calls that each instrumentation of Anthropic's SDK is shown: a tool turn, an answer, a stream."""

from anthropic import Anthropic
from exporting import MESSAGES_TOOL, MODELS, QUESTION


def make_calls():
    client = Anthropic(base_url=MODELS, api_key="none")
    common = {"model": "claude-sonnet-4-5", "max_tokens": 100}
    asked = [{"role": "user", "content": QUESTION}]
    turn = client.messages.create(messages=asked, tools=[MESSAGES_TOOL], **common)
    told = {"type": "tool_result", "tool_use_id": turn.content[0].id, "content": "sunny"}
    history = [
        *asked,
        {"role": "assistant", "content": [turn.content[0].model_dump()]},
        {"role": "user", "content": [told]},
    ]
    client.messages.create(messages=history, tools=[MESSAGES_TOOL], **common)
    with client.messages.stream(messages=asked, **common) as stream:
        stream.get_final_message()
