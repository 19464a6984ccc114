"""What each instrumentation of OpenAI's SDK is shown: a tool turn, an answer, a stream, a response."""

from exporting import CHAT_TOOL, MODELS, QUESTION
from openai import OpenAI


def make_calls(embeddings=True):
    client = OpenAI(base_url=MODELS + "/v1", api_key="none")
    asked = [{"role": "user", "content": QUESTION}]
    turn = client.chat.completions.create(model="gpt-4o", messages=asked, tools=[CHAT_TOOL])
    call = turn.choices[0].message.tool_calls[0]
    told = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    history = [*asked, turn.choices[0].message.model_dump(exclude_none=True), told]
    client.chat.completions.create(model="gpt-4o", messages=history, tools=[CHAT_TOOL])
    stream = client.chat.completions.create(
        model="gpt-4o", messages=asked, stream=True, stream_options={"include_usage": True}
    )
    list(stream)
    client.responses.create(model="gpt-4o", input=QUESTION)
    if embeddings:
        client.embeddings.create(model="text-embedding-3-small", input=QUESTION)
