"""What each instrumentation of Google's SDK is shown: a tool turn, an answer, a stream."""

from exporting import MODELS, PARAMETERS, QUESTION
from google.genai import Client, types

MODEL = "gemini-2.5-flash"


def make_calls():
    client = Client(api_key="none", http_options=types.HttpOptions(base_url=MODELS))
    declared = types.FunctionDeclaration(name="get_weather", parameters_json_schema=PARAMETERS)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])
    asked = types.Content(role="user", parts=[types.Part(text=QUESTION)])
    turn = client.models.generate_content(model=MODEL, contents=[asked], config=config)
    result = types.Part.from_function_response(name="get_weather", response={"result": "sunny"})
    history = [asked, turn.candidates[0].content, types.Content(role="user", parts=[result])]
    client.models.generate_content(model=MODEL, contents=history, config=config)
    list(client.models.generate_content_stream(model=MODEL, contents=QUESTION))
