"""The SDKs and instrumentations that the tests of real clients run, and what each can say at all.

Owns: `CLIENTS`. Packages have their newest version but for two: OpenTelemetry's instrumentation of Google's
SDK is made for those before 3, so it runs beside the Agent Development Kit, which holds one; OpenInference's
of OpenAI's client for JavaScript is made for 6. None is for .NET, whose SDK is not on these machines,
and none instruments OpenAI's client for Go: those that there are cannot be had.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Client:
    """A script, what its trace trees look like by kind, and what its SDK can say at all."""

    name: str
    #: The lock file of its packages, or the folder that holds one beside the script.
    environment: str
    trees: str
    #: The script and its arguments, where it is not called as the client is.
    script: tuple[str, ...] = ()
    #: How many of its calls say what was thought.
    thought: int = 0
    says_session: bool = True
    #: Answer tokens that the SDK itself makes up.
    surplus: int = 0
    surplus_cost: float = 0.0
    #: What it says of a completion, where that is not what was used.
    told: Mapping[str, float] | None = None
    #: Whether spans of models hold what was asked and answered.
    says_texts: bool = True
    #: Whether spans of models hold what was asked and which tools an answer calls; else the steps around do.
    says_question: bool = True
    #: Answers that call a tool and say nothing of it.
    wordless: int = 0
    #: Whether an answer that calls a tool says so, or a span of the tool.
    says_calls: bool = True
    tool: str = "get_weather"


#: Where the SDK says neither what a cache gave nor what was thought.
PLAIN: Mapping[str, float] = {"input": 120, "cache_read": 0, "cache_write": 0, "answered": 30, "cost": 0.0006}
#: Where it says no tokens at all.
NOTHING: Mapping[str, float] = {"input": 0, "cache_read": 0, "cache_write": 0, "answered": 0, "cost": 0}

CLIENTS = (
    Client("openinference_openai", "openinference", "llm, llm, llm, llm, embedding", thought=4),
    # The SDK's own span stands below its caller, or, of a stream, in a trace of its own.
    Client("openinference_anthropic", "openinference", "llm(llm), llm(llm), llm, llm"),
    Client("langgraph_agent", "openinference", "step(step(llm) step(tool) step(llm))", thought=2),
    Client("openai_agents", "openinference", "agent(step(agent(step(llm tool) step(llm))))", thought=2),
    Client("pydantic_ai_agent", "openinference", "agent(llm tool llm)", thought=2),
    Client("langfuse_sdk", "openinference", "agent(tool llm)", thought=1),
    Client("openinference_google", "google", "llm, llm, llm", thought=3),
    # Its instrumentation has no span of a tool.
    Client("haystack_agent", "frameworks", "step(step llm llm)", thought=2),
    # The agent ends with a tool of its own.
    Client("smolagents_agent", "frameworks", "agent(step(llm tool) step(llm tool))", told=PLAIN),
    # It does not say what was thought.
    Client("agno_agent", "frameworks", "agent(llm tool llm)"),
    Client("instructor_calls", "frameworks", "step(llm)", thought=1),
    # Its conversations are those of the model's provider.
    Client("agent_framework_agent", "frameworks", "agent(llm tool llm)", thought=2, says_session=False),
    # Of a stream it does not say what was thought. Sessions are the Traceloop SDK's, which is not here.
    Client(
        "openllmetry_openai", "openllmetry", "llm, llm, llm, llm, embedding", thought=3, says_session=False
    ),
    # Of a stream it adds the first count of the answer to the last one, which holds it.
    Client(
        "openllmetry_anthropic",
        "openllmetry",
        "llm, llm, llm, llm, llm, llm",
        says_session=False,
        surplus=1,
        surplus_cost=0.000015,
    ),
    Client("genai_openai", "genai", "llm, llm, llm, llm, embedding", thought=4, says_session=False),
    Client("genai_google", "adk", "llm, llm, llm", thought=3, says_session=False),
    Client("adk_agent", "adk", "workflow(agent(llm tool llm))", thought=2),
    Client("adk_agent_earlier", "adk", "step(agent(llm(llm) tool llm(llm)))", thought=2),
    Client("langsmith_agent", "observers", "step(step(llm) step(tool) step(llm))", thought=2),
    # Below each call is the request. Of completions it does not say what was thought.
    Client(
        "openlit_openai",
        "observers",
        "llm(step), llm(step), llm(step), llm(step), embedding(step)",
        thought=1,
        says_session=False,
    ),
    # Its GenAI mode leaves out all but the totals, and the session. Its package leaves out what it imports.
    Client("mlflow_openai", "observers", "agent(llm tool llm)", told=PLAIN, says_session=False),
    # A call of a tool stands in the next request alone.
    Client("pipecat_bot", "voice", "step(step(llm llm))", thought=2, wordless=1),
    Client(
        "livekit_agent",
        "voice",
        "workflow(step(agent(step step)) agent(step(llm(step)) tool step(llm(step)) step) step(step(step)))",
        thought=2,
    ),
    # Neither mode says what was thought.
    Client("strands_agent", "strands", "agent(step(llm tool) step(llm))"),
    Client("strands_agent_latest", "strands", "agent(step(llm tool) step(llm))"),
    # Its own callback; only the proxy says the session.
    Client(
        "litellm_calls",
        "litellm",
        "llm(step), llm(step), llm(step), embedding(step)",
        thought=3,
        says_session=False,
    ),
    # A stream has a span for the request and one, in a trace of its own, for what came.
    Client("logfire_openai", "logfire", "llm, llm, llm, llm, llm, embedding", thought=4),
    Client(
        "logfire_agents",
        "logfire",
        ", ".join(["workflow(step(agent(step(llm tool) step(llm))))"] * 2),
        thought=4,
    ),
    # Its own spans, an instrumentation of its agents, and one of the SDK below.
    Client("autogen_agent", "autogen", "agent, agent(agent(llm(llm) tool(tool) llm(llm)))", thought=2),
    # Version 7 takes no metadata, so no session; its new shape does not say what was thought.
    Client(
        "vercel_new",
        "js",
        "agent(step(llm tool) step(llm)), agent(step(llm))",
        script=("vercel.mjs", "new"),
        says_session=False,
    ),
    Client(
        "vercel_legacy",
        "js",
        "step(llm(tool) llm), step(llm)",
        script=("vercel.mjs", "legacy"),
        thought=3,
        says_session=False,
    ),
    Client(
        "mastra",
        "js_mastra",
        "agent(step(step(llm(step step) tool) step(llm(step))))",
        thought=2,
        says_question=False,
    ),
    Client("genkit", "js_genkit", "workflow(step(llm tool step(llm)))", thought=2, says_session=False),
    Client(
        "genkit_go",
        "go",
        "workflow(step(llm tool step(llm)))",
        thought=2,
        says_session=False,
    ),
    Client("langsmith_js", "js_frameworks", "step(llm tool llm)", thought=2),
    Client("openai_agents_js", "js_frameworks", "llm, llm", thought=2),
    # Texts go to its log; it does not say what was thought.
    Client(
        "spring_ai",
        "java",
        "step(step(step(llm(step)) tool step(llm(step))))",
        script=("-cp", "target/lib/*", "SpringAi.java"),
        says_texts=False,
    ),
    # What OpenTelemetry instruments is the client below it, whose spans say the totals alone.
    Client(
        "langchain4j",
        "java_langchain4j",
        "llm, llm",
        script=("-cp", "target/lib/*", "Langchain4j.java"),
        says_session=False,
        told=PLAIN,
        says_texts=False,
        says_calls=False,
    ),
    # Texts go to its log, and the tool has its plugin's name.
    Client(
        "semantic_kernel_agent",
        "semantic_kernel",
        "agent(step(llm tool llm))",
        says_session=False,
        told=PLAIN,
        says_texts=False,
        tool="Weather-get_weather",
    ),
    # Its instrumentation says no tokens.
    Client("dspy_agent", "dspy", "llm, tool", told=NOTHING),
)
